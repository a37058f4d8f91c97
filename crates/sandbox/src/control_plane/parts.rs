//! The command line and the ports of each part of the control plane.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::{Error, Files, GRACE, await_until, connect};
use crate::assets::{Assets, Binary};
use crate::process::{Afterwards, Guarded};

/// The commands of the parts that can be restarted.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) etcd: Command,
    pub(super) api_server: Command,
}

impl Commands {
    /// Starts etcd, and returns when it accepts connections. It ends last, so its guard cleans up after an owner that was killed.
    pub(super) fn start_etcd(
        &self,
        files: &Files,
        ports: Ports,
        remove: Option<&Path>,
        deadline: Instant,
    ) -> Result<Guarded, Error> {
        let (log, afterwards) = (files.at("etcd.log"), Afterwards { grace: GRACE, remove });
        let etcd = Guarded::spawn_with("etcd", &self.etcd, &log, afterwards)?;
        await_until(&etcd, deadline, || connect(ports.client))?;
        Ok(etcd)
    }

    /// Starts the API server, and returns when it accepts connections. It writes its certificate before it listens.
    pub(super) fn start_api_server(
        &self,
        files: &Files,
        ports: Ports,
        deadline: Instant,
    ) -> Result<Guarded, Error> {
        let (log, afterwards) = (files.at("kube-apiserver.log"), Afterwards { grace: GRACE, remove: None });
        let api_server = Guarded::spawn_with("kube-apiserver", &self.api_server, &log, afterwards)?;
        await_until(&api_server, deadline, || connect(ports.api))?;
        Ok(api_server)
    }
}

pub(super) fn etcd(assets: &Assets, files: &Files, ports: Ports) -> Command {
    let [client, peer] = [ports.client, ports.peer].map(|port| format!("http://127.0.0.1:{port}"));
    let mut etcd = Command::new(assets.path(Binary::Etcd));
    etcd.arg("--data-dir").arg(files.at("etcd"));
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    // The data need not survive a power cut, and waiting for the disk takes most of the time of a write. The quota is the
    // largest that etcd recommends, so that 100,000 nodes fit.
    etcd.args(["--unsafe-no-fsync", "--quota-backend-bytes", "8589934592", "--log-level", "error"]);
    etcd
}

pub(super) fn api_server(assets: &Assets, files: &Files, ports: Ports, further: &[String]) -> Command {
    let mut server = Command::new(assets.path(Binary::KubeApiserver));
    server.args(["--etcd-servers", &format!("http://127.0.0.1:{}", ports.client)]);
    server.args(["--bind-address", "127.0.0.1", "--secure-port", &ports.api.to_string()]);
    server.arg("--cert-dir").arg(files.at("certificates"));
    server.arg("--token-auth-file").arg(files.at("tokens.csv"));
    server.arg("--service-account-signing-key-file").arg(files.at("service-account.key"));
    server.arg("--service-account-key-file").arg(files.at("service-account.pub"));
    server.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    server.args(["--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged"]);
    // As in real clusters: tests cover the permissions of kubelets.
    server.args(["--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"]);
    // Several tests share one server.
    server.args(["--max-requests-inflight", "3000", "--max-mutating-requests-inflight", "2000"]);
    server.args(further);
    server
}

pub(super) fn controller_manager(assets: &Assets, files: &Files, kubeconfig: &Path) -> Command {
    let mut manager = Command::new(assets.path(Binary::KubeControllerManager));
    manager.arg("--kubeconfig").arg(kubeconfig);
    manager.arg("--service-account-private-key-file").arg(files.at("service-account.key"));
    // It is the only one, and has no clients: no election, no port.
    manager.args(["--use-service-account-credentials", "--leader-elect=false", "--secure-port=0"]);
    manager
}

/// The ports of the parts, on loopback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) api: u16,
    /// The port of etcd for clients.
    pub(super) client: u16,
    /// The port of etcd for other members, which do not exist.
    pub(super) peer: u16,
}

/// Three ports that are free at this moment. They are held together, so they differ.
pub(super) fn free_ports() -> io::Result<Ports> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = [bind()?, bind()?, bind()?];
    let port = |listener: &TcpListener| io::Result::Ok(listener.local_addr()?.port());
    let [api, client, peer] = &listeners;
    Ok(Ports { api: port(api)?, client: port(client)?, peer: port(peer)? })
}
