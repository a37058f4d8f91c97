//! A control plane whose parts are killed and restarted, and whose history is compacted or exchanged.

use std::path::Path;
use std::pin::pin;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{PostParams, WatchParams};
use kube::{Api, Client};
use sandbox::etcd::Error;
use sandbox::process::Signal;
use sandbox::{Options, Sandbox};
use serde_json::json;

/// A new client, without connections to an earlier API server.
async fn config_maps(kubeconfig: &Path) -> Api<ConfigMap> {
    Api::default_namespaced(Client::try_from(sandbox::client_config(kubeconfig).await.unwrap()).unwrap())
}

async fn create(kubeconfig: &Path, name: &str) -> u64 {
    let config_map = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let created = config_maps(kubeconfig).await.create(&PostParams::default(), &config_map).await.unwrap();
    created.metadata.resource_version.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_there_again_and_history_goes_on_until_it_is_cut() {
    let sandbox = Sandbox::start(Options::default()).unwrap();
    let kubeconfig = sandbox.kubeconfig().to_owned();
    let mut written = vec![create(&kubeconfig, "a").await];

    let (api_server, etcd) = (sandbox.api_server().pid(), sandbox.etcd().pid());
    sandbox.restart_api_server().unwrap();
    written.push(create(&kubeconfig, "b").await);
    // Killed before the restart, as in an outage.
    sandbox.etcd().signal(Signal::KILL).unwrap();
    sandbox.restart_etcd().unwrap();
    written.push(create(&kubeconfig, "c").await);
    assert_ne!((sandbox.api_server().pid(), sandbox.etcd().pid()), (api_server, etcd));
    sandbox.check().unwrap();
    for name in ["a", "b", "c"] {
        config_maps(&kubeconfig).await.get(name).await.unwrap();
    }

    let etcd = sandbox.etcd_client().unwrap();
    let prefix = "/registry/configmaps/default/";
    let mut history = pin!(etcd.watch(prefix, "/registry/configmaps/default0", written[0]).await.unwrap());
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(history.try_next().await.unwrap().unwrap());
    }
    let seen: Vec<_> = seen.into_iter().map(|event| (event.key, event.revision)).collect();
    assert_eq!(
        seen,
        [("a", 0), ("b", 1), ("c", 2)].map(|(name, at)| (format!("{prefix}{name}"), written[at]))
    );

    let now = etcd.revision().await.unwrap();
    assert!(now >= written[2]);
    etcd.compact(now).await.unwrap();
    let mut history = pin!(etcd.watch(prefix, "/registry/configmaps/default0", written[0]).await.unwrap());
    let forgotten = loop {
        match history.try_next().await {
            Ok(events) => assert_eq!(events, Some(Vec::new())),
            Err(error) => break error,
        }
    };
    assert!(matches!(forgotten, Error::Compacted(revision) if revision == now), "{forgotten:?}");

    // A new API server does not have the compacted history.
    sandbox.restart_api_server().unwrap();
    let api = config_maps(&kubeconfig).await;
    let mut watch = pin!(api.watch(&WatchParams::default(), &written[0].to_string()).await.unwrap());
    let gone = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(&gone, kube::api::WatchEvent::Error(status) if status.code == 410), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_etcd_can_be_exchanged_while_it_is_stopped() {
    let sandbox = Sandbox::start(Options::default()).unwrap();
    let kubeconfig = sandbox.kubeconfig().to_owned();
    create(&kubeconfig, "before").await;
    sandbox.with_etcd_stopped(|data| std::fs::rename(data, data.with_file_name("backup"))).unwrap();
    sandbox.restart_api_server().unwrap();
    assert_eq!(config_maps(&kubeconfig).await.get_opt("before").await.unwrap(), None);
    let backup = |data: &Path| {
        std::fs::remove_dir_all(data)?;
        std::fs::rename(data.with_file_name("backup"), data)
    };
    sandbox.with_etcd_stopped(backup).unwrap();
    sandbox.restart_api_server().unwrap();
    config_maps(&kubeconfig).await.get("before").await.unwrap();
    let failed = sandbox.with_etcd_stopped(|_| Err(std::io::Error::other("no room"))).unwrap_err();
    assert!(failed.to_string().contains("etcd"), "{failed}");
}
