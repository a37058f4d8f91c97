//! A client that lets something happen just before a chosen request: what reality does rarely, on demand.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use http::{Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use label_storage_runtime::args::Surroundings;
use label_storage_runtime::projection::Projection;
use label_storage_runtime::rules_file;
use label_storage_runtime::server_clock::ServerClock;
use label_storage_runtime::shutdown::Shutdown;
use label_storage_runtime::{Daemon, ShardContext};
use tower::BoxError;
use tower::buffer::BufferLayer;
use tower::filter::AsyncFilterLayer;
use tower::util::MapResponseLayer;

use crate::scenario::Scenario;

type Event = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Sees every request of a client, and once, before the first that fits, lets something happen.
#[derive(Clone)]
pub struct Interference(Arc<Mutex<State>>);

struct State {
    seen: Vec<String>,
    fits: fn(&str) -> bool,
    event: Option<Event>,
    /// True if watches request versions that the API server has dropped.
    forgets: bool,
}

impl Interference {
    fn new(fits: fn(&str) -> bool, event: Option<Event>, forgets: bool) -> Self {
        Self(Arc::new(Mutex::new(State { seen: Vec::new(), fits, event, forgets })))
    }

    /// Only looks on.
    pub fn none() -> Self {
        Self::new(|_| false, None, false)
    }

    /// Lets every watch begin where the server's memory does not reach.
    pub fn with_forgotten_watches() -> Self {
        Self::new(|_| false, None, true)
    }

    /// Lets `event` happen before the first request that fits, given as in `PATCH /api/v1/nodes/a?…`.
    pub fn before<F: Future<Output = ()> + Send + 'static>(
        fits: fn(&str) -> bool,
        event: impl FnOnce() -> F + Send + 'static,
    ) -> Self {
        Self::new(fits, Some(Box::new(move || Box::pin(event()))), false)
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<String> {
        self.0.lock().expect("no panic in here").seen.clone()
    }

    /// How many requests so far fit.
    pub fn count(&self, fits: impl Fn(&str) -> bool) -> usize {
        self.seen().iter().filter(|request| fits(request)).count()
    }

    fn take_note(&self, request: &mut Request<Body>) -> Option<Event> {
        let line = format!("{} {}", request.method(), request.uri());
        let mut state = self.0.lock().expect("no panic in here");
        if state.forgets
            && line.contains("watch=true")
            && let Some((before, after)) = request.uri().to_string().split_once("resourceVersion=")
        {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            *request.uri_mut() = format!("{before}resourceVersion=1{after}").parse().expect("a URI");
        }
        let fits = (state.fits)(&line);
        state.seen.push(line);
        if fits { state.event.take() } else { None }
    }

    async fn client(&self, s: &Scenario, clock: &Arc<ServerClock>) -> Result<Client> {
        let mut config = sandbox::client_config(s.sandbox.kubeconfig()).await?;
        config.default_retry = false;
        let this = self.clone();
        let filter = move |mut request: Request<Body>| {
            let event = this.take_note(&mut request);
            async move {
                if let Some(event) = event {
                    event().await;
                }
                Ok::<_, BoxError>(request)
            }
        };
        let clock = Arc::clone(clock);
        let read_date = move |response: Response<_>| {
            clock.read(&response);
            response
        };
        let builder = ClientBuilder::try_from(config)?.with_layer(&MapResponseLayer::new(read_date));
        Ok(builder.with_layer(&BufferLayer::new(64)).with_layer(&AsyncFilterLayer::new(filter)).build())
    }
}

/// Runs a daemon in this process, through this client, for as long as `test` runs.
pub async fn alongside<D: Daemon>(
    s: &Scenario,
    interference: &Interference,
    test: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    alongside_with::<D>(s, &[], interference, test).await
}

/// The same, with further flags.
pub async fn alongside_with<D: Daemon>(
    s: &Scenario,
    flags: &[&str],
    interference: &Interference,
    test: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    alongside_with_clock::<D>(s, flags, interference, Arc::default(), test).await
}

/// The same, on a machine with this clock.
pub async fn alongside_with_clock<D: Daemon>(
    s: &Scenario,
    flags: &[&str],
    interference: &Interference,
    clock: Arc<ServerClock>,
    test: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let daemon = D::parse_from(std::iter::once("daemon".to_owned()).chain(s.with_flags(flags)?));
    let share = daemon.common().share(&Surroundings::default())?;
    let (client, shutdown) = (interference.client(s, &clock).await?, Shutdown::default());
    let rules = rules_file::load(daemon.common().config.as_deref())?;
    let projection = Projection { rules: Arc::new(rules), detail: D::DETAIL };
    let mut replica = ShardContext::new(daemon.common().clone(), share, client, &s.namespace, projection);
    (replica.clock, replica.shutdown) = (clock, shutdown.clone());
    let test = async {
        let result = test().await;
        shutdown.stop.cancel();
        result
    };
    tokio::join!(daemon.run(replica, Arc::default()), test).1
}
