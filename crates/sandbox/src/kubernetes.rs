//! Versions of Kubernetes other than the pinned one. Their go.mod is generated from the go.mod of Kubernetes.

use std::borrow::Cow;
use std::fmt;
use std::process::Command;
use std::str::FromStr;

use crate::go_build;
use crate::modules::{CONTROL_PLANE, Module};

/// A version such as `1.30`, for the newest of its patches, or `1.30.14`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(String);

/// The text is not a version.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a version of Kubernetes: give one such as 1.30 or 1.30.14")]
pub struct InvalidVersion(String);

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let version = text.strip_prefix('v').unwrap_or(text);
        let parts: Vec<_> = version.split('.').collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_version = parts.iter().all(is_number) && matches!(parts.len(), 2 | 3) && parts[0] == "1";
        is_version.then(|| Self(version.to_owned())).ok_or_else(|| InvalidVersion(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Version {
    /// True if `v1.30.14` is this version, or one of its patches.
    pub(crate) fn includes(&self, full: &str) -> bool {
        let rest = full.strip_prefix('v').and_then(|full| full.strip_prefix(&self.0));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The version that `SANDBOX_KUBERNETES` names.
pub(crate) fn from_environment() -> Result<Option<Version>, InvalidVersion> {
    let text = std::env::var("SANDBOX_KUBERNETES").ok().filter(|text| !text.is_empty());
    text.map(|text| text.parse()).transpose()
}

/// The module that builds this version, from the Go module proxy.
pub(crate) fn module(version: &Version) -> Result<Module, go_build::Error> {
    let query = format!("k8s.io/kubernetes@v{version}");
    // Outside of any module.
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", &query]).env("GOWORK", "off").env("GOFLAGS", "");
    let unknown = |said: String| go_build::Error::UnknownVersion { version: version.to_string(), said };
    let answer = go.current_dir("/").output().map_err(|error| unknown(error.to_string()))?;
    let said = String::from_utf8_lossy(&answer.stdout).into_owned();
    let downloaded: serde_json::Value = serde_json::from_str(&said).map_err(|_| unknown(said.clone()))?;
    let refusal = downloaded["Error"].as_str().unwrap_or(&said);
    let field = |name: &str| downloaded[name].as_str().ok_or_else(|| unknown(refusal.to_owned()));
    let text = std::fs::read_to_string(field("GoMod")?).map_err(|error| unknown(error.to_string()))?;
    let go_mod = Cow::Owned(go_mod(&text, field("Version")?));
    Ok(Module { go_mod, go_sum: Cow::Borrowed(""), ..CONTROL_PLANE })
}

/// A go.mod that requires Kubernetes, with the published modules in the place of those in its own repository.
fn go_mod(its_own: &str, version: &str) -> String {
    let staging = version.replacen("v1.", "v0.", 1);
    let go = its_own.lines().find(|line| line.starts_with("go ")).unwrap_or("go 1.26");
    let mut text =
        format!("module label-storage/control-plane\n\n{go}\n\nrequire k8s.io/kubernetes {version}\n\n");
    for line in its_own.lines().filter(|line| line.contains("=> ./staging/")) {
        let name = line.trim().trim_start_matches("replace ").split(' ').next().unwrap_or_default();
        text += &format!("replace {name} => {name} {staging}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_of_kubernetes() {
        let version = |text: &str| text.parse::<Version>().ok().map(|version| version.to_string());
        assert_eq!(version("1.30").as_deref(), Some("1.30"));
        assert_eq!(version("v1.30.14").as_deref(), Some("1.30.14"));
        for text in ["", "1", "30", "1.", "1.x", "2.0", "1.30.1.2", "latest", "1.30-rc.1"] {
            assert_eq!(version(text), None, "{text}");
        }
        let minor: Version = "1.3".parse().unwrap();
        assert!(minor.includes("v1.3.2") && minor.includes("v1.3") && !minor.includes("v1.30.14"));
    }

    #[test]
    fn modules_of_its_own_repository_are_replaced_by_published_ones() {
        let own = "module k8s.io/kubernetes\n\ngo 1.22.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\ta => b v1\n)\n";
        let expected = "module label-storage/control-plane\n\ngo 1.22.0\n\nrequire k8s.io/kubernetes v1.30.14\n\n\
                        replace k8s.io/api => k8s.io/api v0.30.14\n";
        assert_eq!(go_mod(own, "v1.30.14"), expected);
    }
}
