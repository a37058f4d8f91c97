//! One measurement of one way to list all Nodes, in a separate process, so that its peak memory includes nothing else.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Response;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::client::{ClientBuilder, DynBody};
use kube::{Api, Client};
use label_storage::Rules;
use label_storage_runtime::projection::Projection;
use sandbox::itself;
use serde::{Deserialize, Serialize};
use tower::util::MapResponseLayer;

use crate::machine::Machine;
use crate::ours;
use crate::process::{Process, own_cpu, own_memory};

/// The role in which this binary takes one measurement.
pub(crate) const PROBE: &str = "probe";

/// A way to list all Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// The way of this project.
    Ours,
    /// The same, if rules need whole Nodes.
    Whole,
    /// `Api::<Node>::list`.
    List,
    /// `Api::<Node>::list_metadata`.
    ListMetadata,
    /// The request of this project, with the answer discarded.
    Limit,
}

impl Way {
    pub(crate) const ALL: [Self; 5] = [Self::Ours, Self::Whole, Self::List, Self::ListMetadata, Self::Limit];

    /// The name in tables and plots.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "Label Storage",
            Self::Whole => "Label Storage, whole nodes",
            Self::List => "kube Api::list",
            Self::ListMetadata => "kube Api::list_metadata",
            Self::Limit => "same bytes discarded",
        }
    }

    async fn go(self, client: &Client) -> anyhow::Result<Option<usize>> {
        let api = Api::<Node>::all(client.clone());
        match self {
            Self::Ours => ours::poll(client, Projection::default()).await.map(Some),
            Self::Whole => {
                let rules = Arc::new(Rules { cordon: true, ..Rules::default() });
                ours::poll(client, Projection { rules, ..Projection::default() }).await.map(Some)
            }
            Self::List => Ok(Some(api.list(&ListParams::default()).await?.items.len())),
            Self::ListMetadata => Ok(Some(api.list_metadata(&ListParams::default()).await?.items.len())),
            Self::Limit => ours::limit(client).await.map(|()| None),
        }
    }
}

/// The cost of one list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Seconds from the request to the last object.
    pub(crate) wall: f64,
    /// Seconds.
    pub(crate) client_cpu: f64,
    /// Seconds.
    pub(crate) server_cpu: f64,
    /// Bytes of the answer as sent by the server.
    pub(crate) wire: f64,
    /// Peak memory of the whole client process, in bytes.
    pub(crate) peak: f64,
    /// Increase of the peak memory by the list, in bytes.
    pub(crate) growth: f64,
}

/// The task of a measuring process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) way: Way,
    pub(crate) kubeconfig: &'a Path,
    pub(crate) api_server: Process,
    /// The number of Nodes.
    pub(crate) nodes: u32,
    /// The number of lists. The CPU time of the server is counted in hundredths of a second, and a small list takes less than that.
    pub(crate) repeats: u32,
}

impl Task<'_> {
    /// Measures it in a separate process.
    pub(crate) fn run(self) -> anyhow::Result<Cost> {
        let output = itself::command(PROBE, Some(self.kubeconfig))
            .context("can't find this program's own file")?
            .arg(serde_json::to_string(&self.way)?)
            .arg(self.kubeconfig)
            .args([self.api_server.0, self.nodes, self.repeats].map(|number| number.to_string()))
            .output()
            .context("can't start a measuring process")?;
        let name = self.way.name();
        if !output.status.success() {
            // A process that was killed, for example for lack of memory, has printed nothing, so its status is included.
            let why = String::from_utf8_lossy(&output.stderr);
            anyhow::bail!("measuring {name}: {}: {}", output.status, why.trim());
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("measuring {name}: no figures"))
    }
}

/// The measuring process, with the arguments of [`Task::run`].
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    match measured(arguments).and_then(|cost| Ok(serde_json::to_string(&cost)?)) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measured(arguments: &[String]) -> anyhow::Result<Cost> {
    let [way, kubeconfig, api_server, nodes, repeats] = arguments else {
        anyhow::bail!("only the bench itself can use this role");
    };
    let task = Task {
        way: serde_json::from_str(way)?,
        kubeconfig: Path::new(kubeconfig),
        api_server: Process(api_server.parse()?),
        nodes: nodes.parse()?,
        repeats: repeats.parse()?,
    };
    // The same runtime as that of the daemons.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(task))
}

async fn measure(task: Task<'_>) -> anyhow::Result<Cost> {
    let wire = Arc::new(AtomicU64::new(0));
    let client = counting_client(task.kubeconfig, &wire).await?;
    // Connects first, so that the connection and the TLS handshake are not measured.
    Api::<Node>::all(client.clone()).get_metadata(&Machine(0).name()).await?;

    let idle = own_memory()?;
    let mut peak = None;
    let (client_before, server_before, wire_before) =
        (own_cpu(), task.api_server.cpu()?, wire.load(Ordering::Relaxed));
    let began = Instant::now();
    for _ in 0..task.repeats {
        let found = task.way.go(&client).await?;
        if let Some(found) = found {
            anyhow::ensure!(found == task.nodes as usize, "{found} nodes were listed, not {}", task.nodes);
        }
        // Only the first list counts: later ones depend on how the allocator returns memory.
        if peak.is_none() {
            peak = Some(own_memory()?.peak);
        }
    }
    let each = |total: Duration| total.as_secs_f64() / f64::from(task.repeats);
    let wall = each(began.elapsed());
    let client_cpu = each(own_cpu() - client_before);
    let server_cpu = each(task.api_server.cpu()?.saturating_sub(server_before));
    let wire = (wire.load(Ordering::Relaxed) - wire_before) as f64 / f64::from(task.repeats);
    let peak = peak.unwrap_or(idle.peak);
    let growth = peak.saturating_sub(idle.peak) as f64;
    Ok(Cost { wall, client_cpu, server_cpu, wire, peak: peak as f64, growth })
}

/// A client that counts the bytes of all answers. It does not decompress them, so it counts the bytes on the wire.
async fn counting_client(kubeconfig: &Path, wire: &Arc<AtomicU64>) -> anyhow::Result<Client> {
    let mut config = sandbox::client_config(kubeconfig).await?;
    config.default_retry = false;
    let wire = wire.clone();
    let count = move |response: Response<Box<DynBody>>| {
        let wire = wire.clone();
        response.map(|body| {
            BodyExt::map_frame(body, move |frame| {
                if let Some(data) = frame.data_ref() {
                    wire.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                frame
            })
        })
    };
    Ok(ClientBuilder::try_from(config)?.with_layer(&MapResponseLayer::new(count)).build())
}
