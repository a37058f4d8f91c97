//! A connection to the API server that can be cut, or go silent. It passes bytes on as they are: what is said in them is
//! between the daemon and the real server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::scenario::Scenario;

pub struct Proxy {
    /// For a daemon that is to go through here.
    pub kubeconfig: PathBuf,
    orders: Arc<watch::Sender<Order>>,
}

/// What becomes of the connections that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Pass,
    /// Ends them.
    Cut,
    /// Lets nothing through any more, without a word to either side.
    Silence,
}

impl Proxy {
    /// Serves on this test's runtime.
    pub async fn start(s: &Scenario) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let here = format!("https://{}", listener.local_addr()?);
        let server = s.sandbox.server().trim_end_matches('/').to_owned();
        let there = server.trim_start_matches("https://").to_owned();
        let kubeconfig = s.file("proxied");
        std::fs::write(
            &kubeconfig,
            std::fs::read_to_string(s.sandbox.kubeconfig())?.replace(&server, &here),
        )?;
        let orders = Arc::new(watch::Sender::new(Order::Pass));
        let source = Arc::clone(&orders);
        tokio::spawn(async move {
            while let Ok((inside, _)) = listener.accept().await {
                // Only what is ordered from now on concerns this one.
                let mut orders = source.subscribe();
                orders.mark_unchanged();
                let there = there.clone();
                tokio::spawn(async move {
                    let outside = TcpStream::connect(there).await.context("connect")?;
                    let ((a, b), (c, d)) = (inside.into_split(), outside.into_split());
                    tokio::join!(pass(a, d, orders.clone()), pass(c, b, orders));
                    anyhow::Ok(())
                });
            }
        });
        Ok(Self { kubeconfig, orders })
    }

    /// Ends all connections that there are.
    pub fn cut(&self) {
        self.orders.send_replace(Order::Cut);
    }

    /// Lets nothing through any more on the connections that there are.
    pub fn silence(&self) {
        self.orders.send_replace(Order::Silence);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut orders: watch::Receiver<Order>) {
    let mut buffer = vec![0; 1 << 14];
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(bytes @ 1..) if to.write_all(&buffer[..bytes]).await.is_ok() => (),
                _ => return,
            },
            Ok(()) = orders.changed() => match *orders.borrow() {
                Order::Pass => (),
                Order::Cut => return,
                Order::Silence => break,
            },
        }
    }
    // Both halves stay open, and nobody reads them.
    std::future::pending::<()>().await;
}
