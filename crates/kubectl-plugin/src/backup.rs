//! The format of a backup: the ConfigMaps themselves, as YAML documents that `kubectl apply` can read, too.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use label_storage::Record;
use label_storage::record::{Damage, Decoded, Unreadable};
use label_storage_runtime::records::Found;

/// Begins the first line of an export. A file with this line and without [`END`] was cut off.
pub(crate) const HEADER: &str = "# Label Storage export";
/// Begins the last line of an export.
pub(crate) const END: &str = "# End of export";

/// At most this many problems or nodes are listed one by one.
pub(crate) const SHOWN: usize = 20;

/// A ConfigMap without its namespace and the fields that the API server and kubectl add, its record, and the entries that
/// an import refuses. Annotations that an import sets itself may be missing.
pub(crate) fn read(found: Found) -> Result<(ConfigMap, Record, Vec<String>), Unreadable> {
    let Found { mut config_map, content } = found;
    let Decoded { mut record, damage } = content?;
    (record.config_map, record.generation) = (None, record.generation.max(1));
    let ObjectMeta { name, labels, mut annotations, .. } = config_map.metadata;
    annotations.get_or_insert_default().remove("kubectl.kubernetes.io/last-applied-configuration");
    let value = |key: &str| annotations.as_ref().and_then(|annotations| annotations.get(key));
    let problem = |damage: Damage| match &damage {
        Damage::Annotation(key) => Some(format!("{damage}: {:?}", value(key)?)),
        _ => Some(damage.to_string()),
    };
    let name_it = |problem| format!("configmap {}: {problem}", name.as_deref().unwrap_or_default());
    let problems = damage.into_iter().filter_map(problem).map(name_it).collect();
    config_map.metadata = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
    config_map.binary_data.take_if(|data| data.is_empty());
    Ok((ConfigMap { immutable: None, ..config_map }, record, problems))
}

pub(crate) fn to_yaml(config_map: &ConfigMap) -> Result<String> {
    // YAML readers disagree about line breaks in block scalars.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(config_map, options)?)
}
