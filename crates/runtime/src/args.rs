//! The flags of both daemons, and the share of Nodes that follows from them and from the pod.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::ArgAction;
use clap::builder::{PossibleValue, PossibleValuesParser, Styles, TypedValueParser};
use globset::{Glob, GlobMatcher};
use label_storage::rules::units;
use label_storage::shard;
use tracing::level_filters::LevelFilter;

use crate::record_key::Filed;

/// The same limit as in the chart. A replica adopts every shard without a holder, so a mistaken number must not be followed.
pub(crate) const MAX_REPLICAS: u32 = 100;

/// Flags of both daemons. Each but `--replicas` can be given in the environment too; the flag wins.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    /// Handle the nodes of this shard, from 0 to N-1 [default: the number at the end of the pod's name; outside a pod 0]
    #[arg(long, env = "LABEL_STORAGE_REPLICA_INDEX", value_name = "INDEX")]
    pub replica_index: Option<u32>,

    /// Number of shards, from 1 to 100, for use outside a StatefulSet [default: spec.replicas of the pod's StatefulSet, followed while
    /// running; outside a StatefulSet 1]
    #[arg(long, value_name = "N", value_parser = replicas)]
    pub replicas: Option<NonZeroU32>,

    /// Namespace of the ConfigMaps [default: the pod's, or that of the current kubeconfig context]
    #[arg(long, short, env = "LABEL_STORAGE_NAMESPACE")]
    pub namespace: Option<String>,

    /// Handle only nodes whose name matches, such as 'pool-a-*': for a staged roll-out
    #[arg(long, env = "LABEL_STORAGE_NODES", value_name = "GLOB", value_parser = glob)]
    pub nodes: Option<GlobMatcher>,

    /// Watch for changes. With false, the daemon finds changes only in lists
    #[arg(long, env = "LABEL_STORAGE_WATCH", value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub watch: bool,

    /// Write Kubernetes Events about nodes, which `kubectl describe node` shows
    #[arg(long, env = "LABEL_STORAGE_EVENTS", value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub events: bool,

    /// Time between two lists of all nodes while there is no watch, from 100ms to 1h. The pause is always at least ten times as long as
    /// the list takes
    #[arg(long, env = "LABEL_STORAGE_INTERVAL", value_name = "TIME", default_value = "5s", value_parser = interval)]
    pub interval: Duration,

    /// Time between two lists of all nodes and records while watches run, from 100ms to 1h
    #[arg(long, env = "LABEL_STORAGE_AUDIT_INTERVAL", value_name = "TIME", default_value = "5m", value_parser = interval)]
    pub audit_interval: Duration,

    /// Largest number of nodes to work on at the same time. The daemon works on fewer while the API server is busy
    #[arg(long, env = "LABEL_STORAGE_CONCURRENCY", value_name = "N", default_value = "128")]
    pub concurrency: NonZeroUsize,

    /// Always work on this many nodes at the same time. For benchmarks
    #[arg(long, hide = true, value_name = "N")]
    pub fixed_concurrency: Option<NonZeroUsize>,

    /// The log level: debug explains each decision
    #[arg(long, env = "LABEL_STORAGE_LOG_LEVEL", value_name = "LEVEL", default_value = "info", value_parser = level())]
    pub log_level: LevelFilter,

    /// The log format
    #[arg(long, env = "LABEL_STORAGE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Serve /livez, /readyz and /metrics on this address, such as `[::]:8080` for all addresses of IPv6 and IPv4 [default: do not serve]
    #[arg(long, env = "LABEL_STORAGE_ADMIN_ADDRESS", value_name = "ADDRESS:PORT")]
    pub admin_address: Option<SocketAddr>,

    /// Serve the same on a second address, such as one for the kubelet's probes only [default: do not serve]
    #[arg(long, env = "LABEL_STORAGE_PROBE_ADDRESS", value_name = "ADDRESS:PORT")]
    pub probe_address: Option<SocketAddr>,

    /// Delete a lease of another number of replicas after it was not renewed for this long. The API server keeps five minutes of history,
    /// so the position in the lease is useless by then. For tests
    #[arg(long, hide = true, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub lease_retirement: Duration,

    /// Log the writes, but do not send them
    #[arg(long, env = "LABEL_STORAGE_DRY_RUN")]
    pub dry_run: bool,

    /// Read the rules from this YAML file. Both daemons need the same rules [default: the default rules]
    #[arg(long, env = "LABEL_STORAGE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

fn level() -> impl TypedValueParser<Value = LevelFilter> {
    let levels = [
        ("error", "Problems that a person must fix"),
        ("warn", "Also problems that may resolve themselves"),
        ("info", "Also each node that is stored or restored"),
        ("debug", "Also each decision"),
        ("trace", "Also each API call"),
    ];
    let levels = levels.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(levels).try_map(|level| level.parse())
}

// The comments on the variants are part of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Plain text
    Text,
    /// One JSON object a line
    Json,
}

/// Plain help: it is read in terminals, in logs and in documentation.
pub const STYLES: Styles = Styles::plain();

/// The Nodes that a replica handles: one shard of those whose name matches.
#[derive(Debug, Clone)]
pub struct Share {
    pub index: u32,
    pub replicas: NonZeroU32,
    pub nodes: Option<GlobMatcher>,
}

impl Share {
    /// True if this replica handles the Node. Its record key selects the shard.
    pub fn includes<'a>(&self, node: impl Into<Filed<'a>>) -> bool {
        let Filed { under, name } = node.into();
        self.nodes.as_ref().is_none_or(|glob| glob.is_match(name))
            && shard(under, self.replicas) == self.index
    }
}

#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    pub pod: Option<String>,
    pub namespace: Option<String>,
}

impl Surroundings {
    pub fn from_env() -> Self {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let in_cluster = var("KUBERNETES_SERVICE_HOST").is_some();
        let pod = var("POD_NAME").or_else(|| var("HOSTNAME").filter(|_| in_cluster));
        Self { pod, namespace: var("POD_NAMESPACE") }
    }

    /// The StatefulSet and the ordinal in the name of the pod.
    fn set_and_ordinal(&self) -> Option<(&str, u32)> {
        let (set, ordinal) = self.pod.as_ref()?.rsplit_once('-')?;
        Some((set, ordinal.parse().ok()?))
    }

    /// The holder in a lease. It outlives the process: after a restart a replica still holds its leases.
    pub(crate) fn identity(&self, index: u32) -> String {
        let host = || format!("{}-{index}", gethostname::gethostname().display());
        self.pod.clone().unwrap_or_else(host)
    }
}

impl Common {
    /// The StatefulSet whose `spec.replicas` is the number of shards; `None` if a flag has the number.
    pub fn stateful_set<'a>(&self, surroundings: &'a Surroundings) -> Option<&'a str> {
        surroundings.set_and_ordinal().filter(|_| self.replicas.is_none()).map(|(set, _)| set)
    }

    /// The share of this replica. In a StatefulSet any index is possible: a pod may outlive a larger number for a while.
    pub fn share(&self, surroundings: &Surroundings) -> anyhow::Result<Share> {
        let replicas = self.replicas.unwrap_or(NonZeroU32::MIN);
        let ordinal = surroundings.set_and_ordinal().map(|(_, ordinal)| ordinal);
        let is_following = self.stateful_set(surroundings).is_some();
        let index = match (self.replica_index.or(ordinal), &surroundings.pod) {
            (Some(index), _) if index < replicas.get() || is_following => index,
            (Some(index), Some(pod)) if self.replica_index.is_none() => bail!(
                "pod {pod} has index {index}, but there are only {replicas} shards: omit --replicas to follow the StatefulSet, \
                 or give the number of its replicas"
            ),
            (Some(index), _) => bail!(
                "--replica-index {index} is not below --replicas {replicas}: the indices go from 0 to {}",
                replicas.get() - 1
            ),
            (None, _) if replicas.get() == 1 => 0,
            (None, Some(pod)) => bail!(
                "pod {pod} has no number at the end of its name: run it as a StatefulSet, or give --replica-index"
            ),
            (None, None) => {
                bail!("--replicas {replicas} needs --replica-index: give the index of this replica")
            }
        };
        Ok(Share { index, replicas, nodes: self.nodes.clone() })
    }
}

/// A number of shards, if there may be so many.
pub(crate) fn shards(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number).filter(|number| number.get() <= MAX_REPLICAS)
}

fn replicas(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().and_then(shards);
    number.ok_or_else(|| format!("give a number from 1 to {MAX_REPLICAS}"))
}

pub fn glob(text: &str) -> Result<GlobMatcher, String> {
    Glob::new(text).map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}

pub fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(100) || interval > Duration::from_secs(3600) {
        return Err("give a time from 100ms to 1h".to_owned());
    }
    Ok(interval)
}

/// Reads a duration such as `10s`, `1m 30s` or `30d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    units::time(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        common: Common,
    }

    fn parse(args: &[&str]) -> Result<Common, clap::Error> {
        Args::try_parse_from(std::iter::once(&"daemon").chain(args)).map(|args| args.common)
    }

    fn in_pod(pod: Option<&str>) -> Surroundings {
        Surroundings { pod: pod.map(str::to_owned), ..Surroundings::default() }
    }

    fn share(args: &[&str], pod: Option<&str>) -> Result<(u32, u32), String> {
        let surroundings = in_pod(pod);
        let share =
            parse(args).expect("good flags").share(&surroundings).map_err(|error| error.to_string())?;
        Ok((share.index, share.replicas.get()))
    }

    #[test]
    fn at_a_terminal_it_is_one_replica_of_one() {
        assert_eq!(share(&[], None), Ok((0, 1)));
        assert_eq!(share(&["--replica-index", "2", "--replicas", "3"], None), Ok((2, 3)));
    }

    #[test]
    fn in_a_pod_the_ordinal_is_the_index() {
        assert_eq!(share(&["--replicas", "3"], Some("storer-2")), Ok((2, 3)));
        assert_eq!(share(&["--replicas", "12"], Some("my-storer-11")), Ok((11, 12)));
        assert_eq!(share(&["--replicas", "3", "--replica-index", "1"], Some("storer-2")), Ok((1, 3)));
        assert_eq!(share(&[], Some("storer-7c9d-xkv")), Ok((0, 1)));
    }

    #[test]
    fn in_a_stateful_set_its_replicas_are_the_shards_unless_a_flag_says_otherwise() {
        let set = |args: &[&str], pod| {
            parse(args).expect("good flags").stateful_set(&in_pod(pod)).map(str::to_owned)
        };
        assert_eq!(set(&[], Some("my-storer-11")).as_deref(), Some("my-storer"));
        assert_eq!(set(&["--replica-index", "2"], Some("storer-0")).as_deref(), Some("storer"));
        assert_eq!(set(&["--replicas", "3"], Some("storer-0")), None);
        assert_eq!(set(&[], Some("storer-7c9d-xkv")), None);
        assert_eq!(set(&[], None), None);
        for (args, index) in [(&[][..], 11), (&["--replica-index", "2"], 2)] {
            assert_eq!(share(args, Some("my-storer-11")).map(|(index, _)| index), Ok(index));
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_advice() {
        for (args, pod, advice) in [
            (&["--replicas", "3", "--replica-index", "3"][..], None, "from 0 to 2"),
            (&["--replica-index", "1"], None, "from 0 to 0"),
            (&["--replicas", "3"], None, "needs --replica-index"),
            (&["--replicas", "3"], Some("storer-3"), "omit --replicas"),
            (&["--replicas", "3"], Some("storer-x"), "run it as a StatefulSet"),
        ] {
            let error = share(args, pod).expect_err("refused");
            assert!(error.contains(advice), "{error}");
        }
    }

    #[test]
    fn bad_values_are_refused() {
        for args in [
            ["--replicas", "0"],
            ["--replicas", "-1"],
            ["--replicas", "101"],
            ["--replicas", "many"],
            ["--replica-index", "-1"],
            ["--interval", "0"],
            ["--interval", "0s"],
            ["--interval", "-5s"],
            ["--interval", "10"],
            ["--interval", "99ms"],
            ["--interval", "2h"],
            ["--interval", "soon"],
            ["--concurrency", "0"],
            ["--nodes", "[a"],
            ["--log-level", "loud"],
            ["--log-format", "xml"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn a_share_is_a_shard_of_the_matching_nodes() {
        let mine = |args: &[&str]| {
            let share = parse(args).expect("good flags").share(&Surroundings::default()).expect("a share");
            ["a-1", "a-2", "b-1", "b-2"].into_iter().filter(|node| share.includes(*node)).collect::<Vec<_>>()
        };
        assert_eq!(mine(&[]), ["a-1", "a-2", "b-1", "b-2"]);
        assert_eq!(mine(&["--nodes", "a-*"]), ["a-1", "a-2"]);
        assert_eq!(mine(&["--nodes", "{a,b}-1"]), ["a-1", "b-1"]);
        let halves = ["0", "1"].map(|index| mine(&["--replicas", "2", "--replica-index", index]).len());
        assert_eq!(halves.iter().sum::<usize>(), 4);
    }
}
