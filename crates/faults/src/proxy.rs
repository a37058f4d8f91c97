//! The server that daemons connect to.

use std::collections::BTreeMap;
use std::fs::File;
use std::future::poll_fn;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::exchange::{CLIENT, Exchange, Watched};
use crate::fault::Class;
use crate::request::Request;
use crate::script::Script;

/// A proxy for an API server. Dropping it ends all its connections.
pub struct Proxy {
    kubeconfig: PathBuf,
    upstream: Kubeconfig,
    server: String,
    exchange: Arc<Exchange>,
    orders: Arc<watch::Sender<Order>>,
    serving: AbortHandle,
}

/// An order to all open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Pass,
    Cut,
    Silence,
}

impl Proxy {
    /// Serves on the current runtime, for the server of `upstream_kubeconfig`'s current context. Writes `kubeconfig`, which differs only
    /// in the address, so its users keep their credentials. Client certificates can't be passed on: if there is one, the proxy uses it
    /// for all clients.
    pub async fn start(upstream_kubeconfig: &Path, kubeconfig: &Path, script: impl Script) -> Result<Self> {
        let upstream = Kubeconfig::read_from(upstream_kubeconfig)
            .with_context(|| format!("can't read {}", upstream_kubeconfig.display()))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = format!("http://{}", listener.local_addr()?);
        write(kubeconfig, &redirected(&upstream, &server))
            .with_context(|| format!("can't write {}", kubeconfig.display()))?;

        let mut config =
            Config::from_custom_kubeconfig(upstream.clone(), &KubeConfigOptions::default()).await?;
        // Each daemon sends its own credentials.
        config.auth_info = AuthInfo {
            client_certificate: config.auth_info.client_certificate,
            client_certificate_data: config.auth_info.client_certificate_data,
            client_key: config.auth_info.client_key,
            client_key_data: config.auth_info.client_key_data,
            ..AuthInfo::default()
        };
        config.default_retry = false;
        let exchange = Arc::new(Exchange::new(Client::try_from(config)?, script));
        let orders = Arc::new(watch::Sender::new(Order::Pass));
        let serving = tokio::spawn(accept(listener, Arc::clone(&exchange), Arc::clone(&orders)));
        let serving = serving.abort_handle();
        Ok(Self { kubeconfig: kubeconfig.to_owned(), upstream, server, exchange, orders, serving })
    }

    /// The kubeconfig for daemons.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Writes a kubeconfig for one client, so that the script can tell its requests from those of others.
    pub fn kubeconfig_of(&self, client: &str) -> Result<PathBuf> {
        let mut file = self.kubeconfig.clone().into_os_string();
        file.push(format!("-{client}"));
        let server = format!("{}{CLIENT}{client}", self.server);
        write(Path::new(&file), &redirected(&self.upstream, &server))
            .with_context(|| format!("can't write {}", file.display()))?;
        Ok(file.into())
    }

    /// Sets the callback for events about watches. There can be only one, and it must not block.
    pub fn set_witness(&self, witness: impl Fn(&Request, Watched) + Send + Sync + 'static) {
        let _ = self.exchange.witness.set(Arc::new(witness));
    }

    /// Replaces the script.
    pub fn set_script(&self, script: impl Script) {
        self.exchange.set_script(script);
    }

    /// The number of faults so far, by class.
    pub fn counts(&self) -> BTreeMap<Class, u64> {
        self.exchange.counts()
    }

    /// The number of requests so far that the server got late.
    pub fn late_arrivals(&self) -> usize {
        self.exchange.late_arrivals()
    }

    /// Resets all open connections.
    pub fn cut(&self) {
        self.orders.send_replace(Order::Cut);
    }

    /// Silently stops all traffic on the open connections.
    pub fn silence(&self) {
        self.orders.send_replace(Order::Silence);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: TcpListener, exchange: Arc<Exchange>, orders: Arc<watch::Sender<Order>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((connection, _)) = listener.accept() => {
                // Earlier orders do not apply to this connection.
                let mut orders = orders.subscribe();
                orders.mark_unchanged();
                connections.spawn(serve(connection, Arc::clone(&exchange), orders));
            }
            Some(_) = connections.join_next() => (),
            // The limit of open files may be reached. Other connections go on.
            else => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(connection: TcpStream, exchange: Arc<Exchange>, mut orders: watch::Receiver<Order>) {
    let service = service_fn(move |request| {
        let exchange = Arc::clone(&exchange);
        Box::pin(async move { exchange.answer(request).await })
    });
    // Small packets should not wait for an acknowledgement. If this fails, it is only slower.
    let _ = connection.set_nodelay(true);
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
    tokio::select! {
        result = poll_fn(|context| connection.poll_without_shutdown(context)) => {
            if result.is_ok() {
                return;
            }
        }
        Ok(()) = orders.changed() => {
            if *orders.borrow() == Order::Silence {
                std::future::pending::<()>().await;
            }
        }
    }
    // With this, closing the connection resets it.
    let _ = connection.into_parts().io.into_inner().set_zero_linger();
}

/// The same kubeconfig, for a server at this address.
fn redirected(kubeconfig: &Kubeconfig, server: &str) -> Kubeconfig {
    let mut kubeconfig = kubeconfig.clone();
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.server = Some(server.to_owned());
        (cluster.certificate_authority, cluster.certificate_authority_data) = (None, None);
        (cluster.insecure_skip_tls_verify, cluster.tls_server_name) = (None, None);
    }
    kubeconfig
}

/// Only its owner can read it, because it has credentials.
fn write(path: &Path, kubeconfig: &Kubeconfig) -> Result<()> {
    // JSON is YAML.
    let text = serde_json::to_vec_pretty(kubeconfig)?;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(&text)?;
    Ok(())
}

#[cfg(test)]
mod tests;
