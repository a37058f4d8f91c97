//! The rules: whether the daemons can read them.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use label_storage::Rules;
use label_storage_runtime::rules_file;

use super::{Checked, Finding, Judged, Look, why};
use crate::advice::quoted;
use crate::cli::Global;
use crate::cluster::RULES;

pub(super) async fn check(look: &Look, global: &Global) -> (Judged, Checked) {
    let (name, file) = RULES;
    let checked = |summary: String, findings| Checked::new("rules", summary, findings);
    if let Some(path) = &global.config {
        let rules = rules_file::load(Some(path));
        let path = path.display().to_string();
        return match rules {
            Ok(rules) => (Some(rules), checked(format!("{path} can be used"), Vec::new())),
            Err(error) => {
                let edit = format!("\"${{EDITOR:-vi}}\" {}", quoted(&path));
                (None, checked(String::new(), vec![Finding::error(error.to_string()).mend(edit)]))
            }
        };
    }
    let namespace = &look.namespace;
    let config_maps: Api<ConfigMap> = Api::namespaced(look.client.clone(), namespace);
    let edit = format!("kubectl edit configmap {name} --namespace {namespace}");
    let (rules, finding) = match config_maps.get_opt(name).await {
        Err(error) => (None, Some(Finding::unknown("by which rules the daemons work", why(&error)))),
        Ok(None) => {
            let message = format!(
                "there is no ConfigMap {name}: the default rules apply, unless the daemons read another file"
            );
            (None, Some(Finding::note(message)))
        }
        Ok(Some(config_map)) => match config_map.data.as_ref().and_then(|data| data.get(file)) {
            None => {
                let message = format!(
                    "the ConfigMap {name} has no {file}: a daemon that starts with it does not start"
                );
                (None, Some(Finding::error(message).mend(edit)))
            }
            Some(text) => match Rules::from_yaml(text) {
                Ok(rules) => (Some(rules), None),
                Err(error) => {
                    let message = format!(
                        "{file} in ConfigMap {name} is refused: {error}. A daemon that starts with it does not start"
                    );
                    (None, Some(Finding::error(message).mend(edit)))
                }
            },
        },
    };
    (rules, checked(format!("{name} can be read"), finding.into_iter().collect()))
}
