//! This project's poll, and the lowest cost of any poll that reads the same bytes.

use anyhow::Context;
use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use label_storage_runtime::api_source::ApiSource;
use label_storage_runtime::cache::Cache;
use label_storage_runtime::projection::Projection;
use label_storage_wire::{Object, Undecodable};

use crate::cluster::NODES;

/// The metadata of all Nodes, as protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Lists all Nodes into a daemon's cache, with this projection. Returns the number of Nodes.
pub(crate) async fn poll(client: &Client, eyes: Projection) -> anyhow::Result<usize> {
    let mut table = Cache::default();
    let list = table.begin_list();
    let seen_by = eyes.clone();
    let each = move |object: Result<Object, Undecodable>| {
        if let Some(Ok(node)) = object.ok().map(|object| seen_by.node(object)) {
            table.see_node(Some(list), node.name.as_str(), node.summary());
        }
    };
    Ok(ApiSource::nodes(client.clone()).seen_by(eyes).list(each).await?.items)
}

/// Sends the same request, and discards the answer as it arrives.
pub(crate) async fn limit(client: &Client) -> anyhow::Result<()> {
    let request =
        Request::get(NODES).header(ACCEPT, PROTOBUF).header(ACCEPT_ENCODING, "gzip").body(Body::empty())?;
    let response = client.send(request).await?;
    let status = response.status();
    anyhow::ensure!(status.is_success(), "the API server answered {status}");
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.context("reading the list of nodes")?;
    }
    Ok(())
}
