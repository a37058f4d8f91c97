//! The user of a client, by its kubeconfig.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use sandbox::{Options, Sandbox};
use serde_json::json;

async fn client(kubeconfig: &Path) -> (Client, String) {
    assert_eq!(fs::metadata(kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
    let config = sandbox::client_config(kubeconfig).await.unwrap();
    let namespace = config.default_namespace.clone();
    (Client::try_from(config).unwrap(), namespace)
}

async fn user_name(client: Client) -> String {
    let review =
        Api::all(client).create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    review.status.unwrap().user_info.unwrap().username.unwrap()
}

/// Calls it from async code on purpose: starting blocks, but must not conflict with the runtime of the caller.
#[tokio::test]
async fn a_kubeconfig_is_for_the_admin_or_for_whoever_a_token_stands_for() {
    let sandbox = Sandbox::start(Options::default()).unwrap();
    let (admin, namespace) = client(sandbox.kubeconfig()).await;
    assert_eq!((user_name(admin.clone()).await.as_str(), namespace.as_str()), ("admin", "default"));

    let accounts = Api::<ServiceAccount>::namespaced(admin, "kube-system");
    let account = serde_json::from_value(json!({ "metadata": { "name": "storer" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = TokenRequest::default();
    let token = accounts.create_token_request("storer", &PostParams::default(), &request).await.unwrap();
    let token = token.status.unwrap().token.unwrap();

    let kubeconfig = sandbox.kubeconfig_with_token(&token, Some("kube-system")).unwrap();
    let (storer, namespace) = client(&kubeconfig).await;
    assert_eq!(namespace, "kube-system");
    assert_eq!(user_name(storer).await, "system:serviceaccount:kube-system:storer");
    let another = sandbox.kubeconfig_with_token(&token, None).unwrap();
    assert_ne!(another, kubeconfig);
    sandbox.check().unwrap();
}
