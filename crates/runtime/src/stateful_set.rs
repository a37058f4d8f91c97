//! In a pod, the number of shards is `spec.replicas` of the pod's own StatefulSet.

use std::num::NonZeroU32;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::args::{MAX_REPLICAS, shards};
use crate::{backoff, call, preflight};

const READ_EVERY: Duration = Duration::from_secs(20);

pub(crate) struct OwnSet {
    api: Api<StatefulSet>,
    name: String,
}

impl OwnSet {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned() }
    }

    pub(crate) async fn replicas(&self) -> anyhow::Result<NonZeroU32> {
        let replicas = preflight::patiently(async || self.read().await).await.map_err(|error| {
            let advice = match error.code {
                Some(403) => {
                    "allow this account to get statefulsets there, as deploy/label-storage.yaml does, or give --replicas"
                }
                Some(404) => "run the pod in a StatefulSet of that name, or give --replicas",
                _ => "correct that, try again later, or give --replicas",
            };
            let (name, namespace) = (&self.name, self.api.namespace().unwrap_or_default());
            anyhow::anyhow!("can't read statefulset {name} in namespace {namespace}: {}: {advice}", error.message)
        })?;
        Ok(replicas.unwrap_or(NonZeroU32::MIN))
    }

    /// Follows the number of shards. It stays the same while it can't be read.
    pub(crate) async fn follow(self, shards: watch::Sender<NonZeroU32>) {
        let mut is_failing = false;
        loop {
            tokio::time::sleep(backoff::around(READ_EVERY)).await;
            match self.read().await {
                Ok(replicas) => {
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("the StatefulSet can be read again");
                    }
                    replicas.map(|replicas| shards.send_replace(replicas));
                }
                Err(error) if std::mem::replace(&mut is_failing, true) => {
                    tracing::debug!(%error, "the StatefulSet can't be read: keeping the number of shards");
                }
                Err(error) => {
                    let shards = *shards.borrow();
                    tracing::warn!(%error, shards, "the StatefulSet can't be read: keeping the number of shards");
                }
            }
        }
    }

    /// Returns `None` for 0 replicas: the pods are about to end, and share the Nodes as before until then. It does not read
    /// from the API server's cache: with several API servers the number could go back.
    async fn read(&self) -> Result<Option<NonZeroU32>, call::Error> {
        const WHAT: &str = "read the StatefulSet";
        let set = call::one(WHAT, self.api.get(&self.name)).await?;
        let replicas = set.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let number = u32::try_from(replicas).unwrap_or_default();
        match shards(number) {
            None if number > 0 => {
                Err(call::Error::refused(WHAT, format!("{number} replicas are more than {MAX_REPLICAS}")))
            }
            shards => Ok(shards),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Answers with one of these after the other, and then not at all.
    fn set(answers: impl IntoIterator<Item = (u16, Value)>) -> OwnSet {
        let answers = Mutex::new(answers.into_iter().collect::<VecDeque<_>>());
        let server = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri().path(), "/apis/apps/v1/namespaces/ns/statefulsets/storer");
            let answer = answers.lock().expect("no panic").pop_front();
            async move {
                let Some((code, body)) = answer else { return std::future::pending().await };
                let response =
                    Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        OwnSet::new(Client::new(server, "ns"), "ns", "storer")
    }

    fn of(replicas: Value) -> (u16, Value) {
        let spec = json!({"replicas": replicas, "selector": {}, "serviceName": "", "template": {}});
        (200, json!({"metadata": {"name": "storer"}, "spec": spec}))
    }

    fn refusal(code: u16) -> (u16, Value) {
        (code, json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": code}))
    }

    #[tokio::test]
    async fn at_start_there_are_as_many_shards_as_replicas() {
        for (answer, expected) in [(of(json!(3)), 3), (of(json!(null)), 1), (of(json!(0)), 1)] {
            assert_eq!(set([answer]).replicas().await.expect("a number").get(), expected);
        }
        let error = set([of(json!(101))]).replicas().await.expect_err("too many").to_string();
        assert!(error.contains("101 replicas are more than 100: correct that"), "{error}");
        for (code, advice) in [(403, "to get statefulsets there"), (404, "in a StatefulSet of that name")] {
            let error = set([refusal(code)]).replicas().await.expect_err("refused").to_string();
            assert!(error.starts_with("can't read statefulset storer in namespace ns: no"), "{error}");
            assert!(error.contains(advice) && error.ends_with("or give --replicas"), "{error}");
        }
    }

    #[test]
    fn the_chart_has_the_same_limit() {
        let schema = include_str!("../../../deploy/chart/values.schema.json");
        let schema: Value = serde_json::from_str(schema).expect("JSON");
        assert_eq!(schema["definitions"]["replicas"]["maximum"], MAX_REPLICAS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_is_followed_and_stays_where_there_is_no_other() {
        let answers =
            [of(json!(5)), refusal(403), of(json!(0)), refusal(500), of(json!(i32::MAX)), of(json!(2))];
        let (sender, mut shards) = watch::channel(NonZeroU32::MIN);
        let follow = set(answers).follow(sender);
        let seen = async {
            let mut seen = Vec::new();
            while seen.last() != Some(&2) {
                shards.changed().await.expect("somebody follows");
                seen.push(shards.borrow_and_update().get());
            }
            seen
        };
        tokio::select! {
            seen = seen => assert_eq!(seen, [5, 2]),
            () = follow => unreachable!("it follows for ever"),
        }
    }
}
