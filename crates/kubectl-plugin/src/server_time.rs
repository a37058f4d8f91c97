//! The API server's time. Leases and records have their times from it, and this machine's clock may be wrong.

use anyhow::Result;
use jiff::Timestamp;
use kube::{Client, client::Body};
use label_storage_runtime::server_clock::ServerClock;

pub(crate) struct ServerTime(ServerClock);

impl ServerTime {
    /// Asks for the server's version, which every user may read, and takes the time of the answer.
    pub(crate) async fn ask(client: &Client) -> Result<Self> {
        let clock = ServerClock::default();
        clock.read(&client.send(http::Request::get("/version").body(Body::empty())?).await?);
        Ok(Self(clock))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.now()
    }
}
