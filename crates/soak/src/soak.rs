//! Runs storms and calms, one after the other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use faults::{Fault, Proxy, Request, Verb};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use sandbox::Sandbox;
use sandbox::etcd::Etcd;
use sandbox::process::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::eyes::{Eyes, Shared};
use crate::fleet::{Fleet, Launch, Role};
use crate::object::Place;
use crate::oracle::Oracle;
use crate::person::People;
use crate::report::Report;
use crate::rules;
use crate::settings::Settings;
use crate::weather::{self, Blow, Refusal, Weather};

/// The interval at which daemons are restarted and resumed.
const TEND: Duration = Duration::from_millis(200);

/// The interval of checks for the expected state in a calm.
const LOOK: Duration = Duration::from_millis(250);

/// The cluster of a soak.
pub struct Stage {
    /// For the people.
    pub kubeconfig: PathBuf,
    /// For the oracle.
    pub etcd: Etcd,
    /// The control plane, if its parts may be killed.
    pub control_plane: Option<Arc<Mutex<Sandbox>>>,
    /// The namespace must exist, and no Node may exist.
    pub place: Place,
    /// The folder of the logs.
    pub folder: PathBuf,
}

/// The progress of a soak.
#[derive(Debug, Clone)]
pub struct Status {
    pub phase: String,
    pub elapsed: Duration,
    pub acts: u64,
    pub blows: u64,
    /// The number of broken guarantees so far.
    pub wrongs: usize,
    /// The broken guarantees since the last status, one a line.
    pub news: Vec<String>,
    pub undetermined: u64,
}

struct Soak<'a> {
    settings: &'a Settings,
    stage: &'a Stage,
    oracle: Shared,
    people: People,
    fleet: Fleet,
    proxy: Arc<Proxy>,
    weather: Weather,
    refusal: Refusal,
    outages: JoinSet<anyhow::Result<()>>,
    blows: BTreeMap<String, u64>,
    storms: u64,
    convergences: Vec<Duration>,
    began: Instant,
    show: &'a mut dyn FnMut(&Status),
}

/// Runs a soak. Calls `show` with the progress a few times a second. An error is one of the soak itself: broken guarantees are in the
/// report.
pub async fn run(
    settings: &Settings,
    stage: &Stage,
    show: &mut dyn FnMut(&Status),
) -> anyhow::Result<Report> {
    let mut config = sandbox::client_config(&stage.kubeconfig).await?;
    config.default_retry = false;
    let nodes: Api<Node> = Api::all(Client::try_from(config)?);
    rules::judgeable(&settings.rules)?;
    let rules_file = stage.folder.join("rules.yaml");
    std::fs::write(&rules_file, settings.rules.to_string())
        .with_context(|| format!("can't write {}", rules_file.display()))?;
    let machines: Vec<_> =
        (0..settings.nodes).map(|number| format!("{}n{number:04}", stage.place.prefix)).collect();
    let oracle = Oracle::new(stage.place.clone(), settings.rules.clone(), &machines, settings.watch);
    let oracle = Shared::new(oracle);
    let mut eyes = Eyes::open(&stage.etcd, &stage.place, oracle.clone()).await?;
    let people = People::new(nodes, oracle.clone(), machines, &settings.rules, settings.seed);
    let proxy =
        Proxy::start(&stage.kubeconfig, &stage.folder.join("kubeconfig-of-the-daemons"), fair).await?;
    let glob = format!("{}*", stage.place.prefix);
    let mut flags: Vec<_> =
        ["--namespace", &stage.place.namespace, "--nodes", &glob].map(str::to_owned).into();
    flags.push(format!("--watch={}", settings.watch));
    flags.push(format!("--config={}", rules_file.display()));
    flags.extend(settings.flags.iter().cloned());
    let witness = oracle.clone();
    proxy.set_witness(move |request, watched| {
        if let Some(version) = request.resource_version()
            && request.is(Verb::Watch, "nodes")
            && request.client.starts_with(Role::Storer.name())
        {
            witness.lock().watched(&request.client, version, watched);
        }
    });
    let proxy = Arc::new(proxy);
    let launch = Launch { proxy: Arc::clone(&proxy), flags, folder: stage.folder.clone() };
    let fleet = Fleet::start(launch, settings.replicas)?;
    let mut soak = Soak {
        settings,
        stage,
        oracle,
        people,
        fleet,
        proxy,
        // Independent of the acts of people.
        weather: Weather::new(settings.climate, settings.seed ^ 0x5eed),
        refusal: Refusal::default(),
        outages: JoinSet::new(),
        blows: BTreeMap::new(),
        storms: 0,
        convergences: Vec::new(),
        began: Instant::now(),
        show,
    };
    tokio::select! {
        done = soak.weather_the_storms() => done?,
        error = eyes.blinded() => return Err(error).context("the oracle has missed a part of the history, and can't judge"),
    }
    Ok(soak.report())
}

impl Soak<'_> {
    async fn weather_the_storms(&mut self) -> anyhow::Result<()> {
        self.tell("creating nodes");
        self.people.populate().await;
        self.calm().await?;
        self.began = Instant::now();
        while self.began.elapsed() < self.settings.duration {
            let rest = self.settings.duration.saturating_sub(self.began.elapsed());
            self.storm(self.settings.storm.min(rest)).await?;
            self.calm().await?;
        }
        Ok(())
    }

    async fn storm(&mut self, time: Duration) -> anyhow::Result<()> {
        self.storms += 1;
        let storm = self.weather.storm();
        let end = Instant::now() + time;
        if storm.has_faults {
            let script =
                weather::faults(storm, self.settings.climate, self.weather.seed(), Arc::clone(&self.refusal));
            self.proxy.set_script(script);
        }
        let is_fair = !(storm.has_faults || storm.has_outages || storm.has_kills || storm.has_resizing);
        self.oracle.lock().ledger.is_fair = is_fair;
        let (waves, mut coming) = mpsc::unbounded_channel();
        let mut next_blow = Instant::now() + self.weather.pause();
        let mut tick = tokio::time::interval(TEND);
        let pause = Duration::from_secs_f64(1.0 / self.settings.rate.max(0.01));
        // Taken out, because people act independently of blows.
        let people = &mut self.people;
        let mut acting = std::pin::pin!(async {
            let mut due = tokio::time::interval(pause);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = due.tick() => people.act().await,
                    Some((percent, away)) = coming.recv() => people.wave(percent, away),
                }
            }
        });
        let phase = format!("storm {}: {storm}", self.storms);
        let mut told = Teller { oracle: &self.oracle, began: self.began, show: self.show };
        while Instant::now() < end {
            tokio::select! {
                () = &mut acting => {}
                _ = tick.tick() => {
                    self.fleet.tend()?;
                    told.tell(&phase, self.blows.values().sum());
                }
            }
            while let Some(outage) = self.outages.try_join_next() {
                outage??;
            }
            if Instant::now() >= next_blow {
                next_blow = Instant::now() + self.weather.pause();
                if let Some(blow) = self.weather.blow(storm, &self.fleet.up()) {
                    let strikes = match blow {
                        Blow::ApiServer(_) | Blow::Etcd(_) => self.outages.is_empty(),
                        _ => true,
                    };
                    if strikes {
                        *self.blows.entry(blow.name()).or_default() += 1;
                        if let Blow::Refusal(code, time) = blow {
                            let refusal = Some((code, Instant::now() + time));
                            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
                        }
                        strike(
                            blow,
                            &mut self.fleet,
                            &self.proxy,
                            &mut self.outages,
                            self.stage,
                            &self.oracle,
                            &waves,
                        )?;
                    }
                }
            }
        }
        self.proxy.set_script(fair);
        Ok(())
    }

    /// Ends all faults and acts, and waits for the expected state.
    async fn calm(&mut self) -> anyhow::Result<()> {
        let phase = format!("calm after {} storms", self.storms);
        // First ends the faults that would block acts in flight, such as an API server that is down.
        while let Some(outage) = self.outages.join_next().await {
            outage??;
        }
        self.people.rest().await;
        self.fleet.hurry();
        while !self.fleet.is_whole() {
            self.fleet.tend()?;
            self.tell(&phase);
            tokio::time::sleep(TEND).await;
        }
        let began = Instant::now();
        loop {
            self.fleet.tend()?;
            let not_right = self.oracle.lock().not_right();
            if not_right.is_empty() {
                break;
            }
            if began.elapsed() > self.settings.patience {
                self.oracle.lock().not_in_time(not_right);
                break;
            }
            let first = not_right.iter().min().map(|(name, why)| format!("such as {name}: {why}"));
            self.tell(&format!("{phase}: {} nodes left, {}", not_right.len(), first.unwrap_or_default()));
            tokio::time::sleep(LOOK).await;
        }
        self.convergences.push(began.elapsed());
        self.take_times(&phase).await
    }

    async fn take_times(&mut self, phase: &str) -> anyhow::Result<()> {
        {
            let ledger = &mut self.oracle.lock().ledger;
            (ledger.is_timing, ledger.is_fair) = (true, true);
        }
        for _ in 0..self.settings.probes {
            for blinks in [false, true] {
                let name = if blinks { self.people.blink_one().await } else { self.people.label_one().await };
                let Some(name) = name else { continue };
                let began = Instant::now();
                while !self.oracle.lock().is_right(&name) && began.elapsed() < self.settings.patience {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            self.fleet.tend()?;
            self.tell(phase);
        }
        self.oracle.lock().ledger.is_timing = false;
        Ok(())
    }

    fn tell(&mut self, phase: &str) {
        let mut teller = Teller { oracle: &self.oracle, began: self.began, show: self.show };
        teller.tell(phase, self.blows.values().sum());
    }

    fn report(self) -> Report {
        let (acts, unanswered) = self.people.tally();
        let faults =
            self.proxy.counts().into_iter().map(|(class, count)| (class.to_string(), count)).collect();
        let oracle = self.oracle.lock();
        Report::new(
            self.settings,
            self.began.elapsed(),
            &oracle.ledger,
            crate::report::Events {
                acts: acts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
                unanswered,
                blows: self.blows,
                faults,
                ended_by_themselves: self.fleet.ended_by_themselves.clone(),
                storms: self.storms,
                convergences: self.convergences,
            },
        )
    }
}

struct Teller<'a> {
    oracle: &'a Shared,
    began: Instant,
    show: &'a mut dyn FnMut(&Status),
}

impl Teller<'_> {
    fn tell(&mut self, phase: &str, blows: u64) {
        let mut oracle = self.oracle.lock();
        let news = oracle.ledger.news();
        let status = Status {
            phase: phase.to_owned(),
            elapsed: self.began.elapsed(),
            acts: oracle.ledger.versions,
            blows,
            wrongs: oracle.ledger.wrongs.len(),
            news,
            undetermined: oracle.ledger.undetermined.total(),
        };
        drop(oracle);
        (self.show)(&status);
    }
}

/// The script without faults.
fn fair(_: &Request) -> Fault {
    Fault::None
}

fn strike(
    blow: Blow,
    fleet: &mut Fleet,
    proxy: &Proxy,
    outages: &mut JoinSet<anyhow::Result<()>>,
    stage: &Stage,
    oracle: &Shared,
    waves: &mpsc::UnboundedSender<(u32, Duration)>,
) -> anyhow::Result<()> {
    match blow {
        Blow::Kill(slot, down) => fleet.kill(slot, down)?,
        Blow::Terminate(slot, down) => fleet.terminate(slot, down)?,
        Blow::Suspend(slot, time) => fleet.suspend(slot, time)?,
        // Clients have to open their watches again, and are refused.
        Blow::Cut | Blow::Refusal(..) => proxy.cut(),
        Blow::Silence => proxy.silence(),
        Blow::Resize(count) if count != fleet.count() && fleet.is_whole() => fleet.resize(count),
        Blow::Resize(_) => {}
        Blow::Wave(percent, away) => drop(waves.send((percent, away))),
        Blow::Compaction => {
            let (etcd, revision) = (stage.etcd.clone(), oracle.lock().revision);
            // While etcd is down, there is nothing to compact.
            outages.spawn(async move { etcd.compact(revision).await.or(Ok(())) });
        }
        Blow::ApiServer(down) | Blow::Etcd(down) => {
            if let Some(control_plane) = stage.control_plane.clone() {
                let is_api_server = matches!(blow, Blow::ApiServer(_));
                outages.spawn(outage(control_plane, is_api_server, down));
            }
        }
    }
    Ok(())
}

/// Kills a part of the control plane, and restarts it.
async fn outage(
    control_plane: Arc<Mutex<Sandbox>>,
    is_api_server: bool,
    down: Duration,
) -> anyhow::Result<()> {
    {
        let sandbox = control_plane.lock().unwrap_or_else(PoisonError::into_inner);
        let part = if is_api_server { sandbox.api_server() } else { sandbox.etcd() };
        part.signal(Signal::KILL)?;
    }
    tokio::time::sleep(down).await;
    let restarting = tokio::task::spawn_blocking(move || {
        let sandbox = control_plane.lock().unwrap_or_else(PoisonError::into_inner);
        let is_etcd_back = !is_api_server && sandbox.restart_etcd().is_ok();
        // An API server that does not recover from the loss of etcd is restarted, too.
        if is_etcd_back { Ok(()) } else { Ok(sandbox.restart_api_server()?) }
    });
    restarting.await?
}
