//! Draws storms, and their faults and blows.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use faults::{Fault, Request, Script, Seeded, Verb};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::fleet::{Role, Slot};

/// In a forgetful storm, one in this many watches expires.
const EXPIRING: u32 = 8;

/// The faults that may occur in a soak.
#[derive(Debug, Clone, Copy)]
pub struct Climate {
    /// The average time between two blows.
    pub pause: Duration,
    /// The share of the daemons' requests that fail, in a storm that has faults.
    pub fault_rate: f64,
    /// The least time for which a daemon is suspended: longer than its lease.
    pub suspension: Duration,
    /// True if there are faults that daemons notice only after half a minute or more.
    pub lengthy: bool,
    /// True if the API server and etcd may be killed.
    pub control_plane: bool,
    /// True if the number of replicas may change.
    pub resizing: bool,
}

/// The faults of one storm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storm {
    /// Requests fail.
    pub(crate) has_faults: bool,
    /// Watches expire, so that storers can miss deletions.
    pub(crate) is_forgetful: bool,
    /// The API server and etcd are killed.
    pub(crate) has_outages: bool,
    /// Daemons are killed and suspended.
    pub(crate) has_kills: bool,
    /// The number of replicas changes.
    pub(crate) has_resizing: bool,
    /// Many Nodes are deleted at once.
    pub(crate) has_waves: bool,
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.has_faults && !self.is_forgetful, "faults"),
            (self.has_faults && self.is_forgetful, "faults with expired watches"),
            (self.has_kills, "kills"),
            (self.has_outages, "outages"),
            (self.has_resizing, "resizing"),
            (self.has_waves, "waves"),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        f.write_str(&if parts.is_empty() { "no faults".to_owned() } else { parts.join(", ") })
    }
}

/// One sudden fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Blow {
    /// SIGKILL, and a restart after a while.
    Kill(Slot, Duration),
    /// SIGTERM, and a restart after a while.
    Terminate(Slot, Duration),
    /// SIGSTOP, and SIGCONT after a while.
    Suspend(Slot, Duration),
    /// All connections of all daemons are reset.
    Cut,
    /// All connections of all daemons go silent.
    Silence,
    /// All requests of all daemons get this status for a while, as from an API server or a load balancer that is starting.
    Refusal(u16, Duration),
    /// The API server is killed, and restarted after a while.
    ApiServer(Duration),
    /// etcd is killed, and restarted after a while.
    Etcd(Duration),
    /// The history of etcd is compacted.
    Compaction,
    /// The number of replicas of each daemon changes to this.
    Resize(NonZeroU32),
    /// This percentage of all Nodes is deleted at once, and re-created after a while.
    Wave(u32, Duration),
}

impl Blow {
    /// The name in the report.
    pub(crate) fn name(self) -> String {
        let of = |what: &str, (role, _): Slot| format!("{what} of a {}", role.name());
        match self {
            Self::Kill(slot, _) => of("SIGKILL", slot),
            Self::Terminate(slot, _) => of("SIGTERM", slot),
            Self::Suspend(slot, _) => of("SIGSTOP", slot),
            Self::Cut => "all connections cut".to_owned(),
            Self::Silence => "all connections silenced".to_owned(),
            Self::Refusal(..) => "all requests refused for a while".to_owned(),
            Self::ApiServer(_) => "API server killed".to_owned(),
            Self::Etcd(_) => "etcd killed".to_owned(),
            Self::Compaction => "etcd compacted".to_owned(),
            Self::Resize(_) => "change of the number of replicas".to_owned(),
            Self::Wave(..) => "many nodes deleted at once".to_owned(),
        }
    }
}

/// Draws storms and blows.
pub(crate) struct Weather {
    climate: Climate,
    random: SmallRng,
    storms: u64,
}

impl Weather {
    pub(crate) fn new(climate: Climate, seed: u64) -> Self {
        Self { climate, random: SmallRng::seed_from_u64(seed), storms: 0 }
    }

    /// The next storm. The first has every kind of fault, so that a short soak has them all, except expired watches, which make the oracle
    /// lenient. The second always has these.
    pub(crate) fn storm(&mut self) -> Storm {
        let climate = self.climate;
        self.storms += 1;
        let (is_first, is_second) = (self.storms == 1, self.storms == 2);
        let mut chance = |percent: u32| self.random.random_range(0..100) < percent || is_first;
        let (faults, kills, outages, resizing, waves) =
            (chance(60), chance(70), chance(40), chance(35), chance(50));
        let is_forgetful = (chance(40) || is_second) && !is_first;
        Storm {
            has_faults: (faults || is_second) && climate.fault_rate > 0.0,
            is_forgetful,
            has_kills: kills,
            has_outages: outages && climate.control_plane,
            has_resizing: resizing && climate.resizing,
            has_waves: waves,
        }
    }

    /// A seed for the faults of one storm.
    pub(crate) fn seed(&mut self) -> u64 {
        self.random.random()
    }

    /// The time until the next blow.
    pub(crate) fn pause(&mut self) -> Duration {
        self.climate.pause.mul_f64(self.random.random_range(0.2..1.8))
    }

    /// The next blow of a storm, to one of the replicas that are up.
    pub(crate) fn blow(&mut self, storm: Storm, up: &[Slot]) -> Option<Blow> {
        let role = if self.random.random_ratio(3, 5) { Role::Storer } else { Role::Restorer };
        let of_role: Vec<_> = up.iter().filter(|slot| slot.0 == role).copied().collect();
        let slot = of_role.choose(&mut self.random).copied();
        let (short, long) = (self.millis(0..4_000), self.millis(10_000..45_000));
        let suspended = self.climate.suspension + self.millis(1_000..25_000);
        let percent = self.random.random_range(5..35);
        let code = [403, 500, 502, 503].choose(&mut self.random).copied();
        let refused = self.millis(2_000..12_000);
        let count = [1, 2, 3, 5].choose(&mut self.random).copied().and_then(NonZeroU32::new);
        let is_long = self.random.random_ratio(1, 4);
        let down = if is_long { long } else { short };
        let api_server = self.climate.control_plane && storm.has_outages;
        let kinds = [
            (30, storm.has_kills, slot.map(|slot| Blow::Kill(slot, down))),
            (15, storm.has_kills, slot.map(|slot| Blow::Terminate(slot, down))),
            (12, storm.has_kills, slot.map(|slot| Blow::Suspend(slot, suspended))),
            (10, storm.has_faults, Some(Blow::Cut)),
            (5, storm.has_faults && self.climate.lengthy, Some(Blow::Silence)),
            (8, storm.has_faults, code.map(|code| Blow::Refusal(code, refused))),
            (8, api_server, Some(Blow::ApiServer(short))),
            (8, api_server, Some(Blow::Etcd(short))),
            (5, api_server, Some(Blow::Compaction)),
            (8, storm.has_resizing, count.map(Blow::Resize)),
            (8, storm.has_waves, Some(Blow::Wave(percent, short))),
        ];
        let kinds: Vec<_> = kinds.into_iter().filter(|(_, is_on, _)| *is_on).collect();
        kinds.choose_weighted(&mut self.random, |(weight, ..)| *weight).ok()?.2
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(range))
    }
}

/// The status that all requests get, and until when.
pub(crate) type Refusal = Arc<Mutex<Option<(u16, Instant)>>>;

/// The faults of one storm.
pub(crate) fn faults(storm: Storm, climate: Climate, seed: u64, refusal: Refusal) -> impl Script {
    let mut seeded = Seeded::new(seed, climate.fault_rate)
        .resources(["nodes", "configmaps", "leases"])
        .excluding(is_impossible);
    let mut watches = 0;
    move |request: &Request| {
        let fault = seeded.fault(request);
        // Watches are opened rarely. By chance alone, an hour could pass without an expired one.
        watches += u32::from(request.verb == Verb::Watch);
        if storm.is_forgetful && request.verb == Verb::Watch && watches.is_multiple_of(EXPIRING) {
            return Fault::ExpiredWatch;
        }
        let refusal = *refusal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((code, _)) = refusal.filter(|(_, until)| Instant::now() < *until) {
            return Fault::Status { code, retry_after: None };
        }
        let is_spared = !storm.is_forgetful && is_forgetful(request, fault)
            || !climate.lengthy && is_lengthy(request, fault);
        if is_spared { Fault::None } else { fault }
    }
}

/// A read by name is answered from etcd, so it is never stale.
fn is_impossible(request: &Request, fault: Fault) -> bool {
    request.verb == Verb::Get && fault == Fault::Stale
}

/// True for a fault that makes a watch lose its position.
fn is_forgetful(request: &Request, fault: Fault) -> bool {
    let forgets = fault == Fault::ExpiredWatch || matches!(fault, Fault::Status { code: 410, .. });
    request.verb == Verb::Watch && forgets
}

/// True for a fault that is noticed only after half a minute or a minute.
fn is_lengthy(request: &Request, fault: Fault) -> bool {
    let waits = [Fault::BlackHole, Fault::SilentWatch].contains(&fault);
    waits && matches!(request.verb, Verb::List | Verb::Watch)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const CLIMATE: Climate = Climate {
        pause: Duration::from_secs(5),
        fault_rate: 0.1,
        suspension: Duration::from_secs(15),
        lengthy: true,
        control_plane: true,
        resizing: true,
    };

    #[test]
    fn watches_expire_in_the_second_storm_of_every_seed() {
        for seed in 0..20 {
            let mut weather = Weather::new(CLIMATE, seed);
            let watch = Request::new(&Method::GET, &"/api/v1/nodes?watch=true".parse().expect("a path"), b"");
            let expired = [weather.storm(), weather.storm()].map(|storm| {
                let mut script = faults(storm, CLIMATE, weather.seed(), Refusal::default());
                (0..EXPIRING).any(|_| script.fault(&watch) == Fault::ExpiredWatch)
            });
            assert_eq!(expired, [false, true], "{seed}");
        }
    }

    #[test]
    fn while_all_is_refused_no_request_is_answered_otherwise() {
        let mut weather = Weather::new(CLIMATE, 1);
        let (refusal, list) = (Refusal::default(), &"/api/v1/nodes".parse().expect("a path"));
        let list = Request::new(&Method::GET, list, b"");
        let climate = Climate { fault_rate: 0.0, ..CLIMATE };
        let mut script = faults(weather.storm(), climate, weather.seed(), Arc::clone(&refusal));
        assert_eq!(script.fault(&list), Fault::None);
        *refusal.lock().expect("nobody panics") = Some((502, Instant::now() + Duration::from_secs(600)));
        assert_eq!(script.fault(&list), Fault::Status { code: 502, retry_after: None });
        *refusal.lock().expect("nobody panics") = Some((502, Instant::now()));
        assert_eq!(script.fault(&list), Fault::None);
    }

    #[test]
    fn a_seed_says_all() {
        let up = [(Role::Storer, 0), (Role::Restorer, 0)];
        let play = |seed| {
            let mut weather = Weather::new(CLIMATE, seed);
            let storm = weather.storm();
            (0..200).map(|_| (weather.pause(), weather.blow(storm, &up))).collect::<Vec<_>>()
        };
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
        let names: std::collections::BTreeSet<_> =
            play(1).into_iter().filter_map(|(_, blow)| blow).map(Blow::name).collect();
        assert_eq!(names.len(), 14, "every kind of blow occurs: {names:?}");
    }
}
