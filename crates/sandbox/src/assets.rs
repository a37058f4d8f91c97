//! Where the binaries are.
//!
//! `KUBEBUILDER_ASSETS` is where people who have envtest keep a ready control plane, so it wins. Otherwise binaries come
//! from the user's cache folder, and what is missing there is built with Go first. A tool that many people have
//! anyway is taken from their `PATH`, if it is new enough.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::go_build;
use crate::modules::{self, Module};

const KUBEBUILDER_ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Why a binary is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder that the user named lacks something. Building it would hide the mistake.
    #[error(
        "KUBEBUILDER_ASSETS is {}, but there is no {binary} in it: add it, or unset the variable to have it built with Go",
        folder.display()
    )]
    Incomplete {
        /// What `KUBEBUILDER_ASSETS` says.
        folder: PathBuf,
        /// The first binary that is missing.
        binary: Binary,
    },
    /// There is no home for the cache.
    #[error("neither XDG_CACHE_HOME nor HOME is set: set one, or {instead}")]
    NoCacheFolder {
        /// The other way to get what was asked for.
        instead: &'static str,
    },
    /// A binary could not be built.
    #[error(transparent)]
    Build(#[from] go_build::Error),
}

/// A program of the control plane, one that talks to it, or one that the chart is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Binary {
    /// The store behind the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The built-in controllers: node lifecycle, garbage collection, service accounts and so on.
    KubeControllerManager,
    /// The command line client, for people.
    Kubectl,
    /// Renders and installs the chart.
    Helm,
    /// Scrapes the daemons.
    Prometheus,
    /// Checks and tests Prometheus's rules.
    Promtool,
}

impl Binary {
    /// Those that make up the control plane, with the client for people.
    pub const CONTROL_PLANE: [Self; 4] =
        [Self::Etcd, Self::KubeApiserver, Self::KubeControllerManager, Self::Kubectl];

    /// The name of its file, the same wherever it comes from.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Prometheus => "prometheus",
            Self::Promtool => "promtool",
        }
    }

    /// The module that it is built from, and cached with.
    pub(crate) fn module(self) -> &'static Module {
        match self {
            Self::Etcd | Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl => {
                &modules::CONTROL_PLANE
            }
            Self::Helm => &modules::HELM,
            Self::Prometheus | Self::Promtool => &modules::PROMETHEUS,
        }
    }

    /// The Go package that it is built from.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
            Self::Prometheus => "github.com/prometheus/prometheus/cmd/prometheus",
            Self::Promtool => "github.com/prometheus/prometheus/cmd/promtool",
        }
    }

    /// How to ask the one on `PATH` for its version, and the least that will do. `None` for what is never taken from there.
    fn on_path(self) -> Option<(&'static [&'static str], (u32, u32))> {
        match self {
            // Since then helm does all that the chart and its tests need.
            Self::Helm => Some((&["version", "--template", "{{.Version}}"], (3, 14))),
            // Before, the samples at both ends of a range counted, and rates were others.
            Self::Prometheus | Self::Promtool => Some((&["--version"], (3, 0))),
            Self::Etcd | Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl => None,
        }
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name())
    }
}

/// Finds a program wherever it may come from, builds it if it is nowhere, and says on stderr which it is if it is the
/// user's own.
pub fn find(binary: Binary) -> Result<PathBuf, Error> {
    let Some((question, least)) = binary.on_path() else {
        return Ok(Assets::find(&[binary])?.path(binary));
    };
    match version_on_path(binary, question).filter(|version| is_new_enough(version, least)) {
        Some(version) => {
            eprintln!("using the {binary} on PATH, {version}");
            Ok(binary.file_name().into())
        }
        None => built(binary.module(), &[binary]).map(|folder| folder.join(binary.file_name())),
    }
}

/// A folder that holds the binaries of the control plane that were asked for.
#[derive(Debug, Clone)]
pub struct Assets {
    folder: PathBuf,
}

impl Assets {
    /// Finds `needed`, and builds what is missing unless `KUBEBUILDER_ASSETS` says where they should be.
    pub fn find(needed: &[Binary]) -> Result<Self, Error> {
        let folder = match variable(KUBEBUILDER_ASSETS) {
            Some(folder) => {
                if let Some(&binary) = missing(&folder, needed).first() {
                    return Err(Error::Incomplete { folder, binary });
                }
                folder
            }
            None => built(&modules::CONTROL_PLANE, needed)?,
        };
        Ok(Self { folder })
    }

    /// The folder itself, for a `PATH`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a binary that was asked for.
    pub fn path(&self, binary: Binary) -> PathBuf {
        self.folder.join(binary.file_name())
    }
}

/// Those of `needed` that `folder` lacks.
pub(crate) fn missing(folder: &Path, needed: &[Binary]) -> Vec<Binary> {
    needed.iter().copied().filter(|binary| !folder.join(binary.file_name()).is_file()).collect()
}

/// The cache folder of `module`, with `needed` in it.
fn built(module: &Module, needed: &[Binary]) -> Result<PathBuf, Error> {
    let folder = cache_folder(module)?;
    if !missing(&folder, needed).is_empty() {
        go_build::build(module, &folder, needed)?;
    }
    Ok(folder)
}

/// Where built binaries are kept: a folder for each version and set of dependencies, so that a change builds anew.
fn cache_folder(module: &Module) -> Result<PathBuf, Error> {
    let cache = variable("XDG_CACHE_HOME")
        // The XDG specification has relative paths ignored.
        .filter(|folder| folder.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".cache")))
        .ok_or(Error::NoCacheFolder { instead: module.instead })?;
    Ok(cache.join("label-storage").join(module.folder).join(module.key()))
}

/// What the program on `PATH` says of its version, if it is there: `v3.14.2`, or `promtool, version 3.5.0 (branch: ...)`.
fn version_on_path(binary: Binary, question: &[&str]) -> Option<String> {
    let output = Command::new(binary.file_name()).args(question).stderr(Stdio::null()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let mut words = said.split_whitespace().skip_while(|word| numbers(word).is_none());
    words.next().map(str::to_owned)
}

fn is_new_enough(version: &str, least: (u32, u32)) -> bool {
    numbers(version).is_some_and(|numbers| numbers >= least)
}

/// The first two numbers of a version such as `v3.14.2`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// An environment variable that holds a path. Empty is as good as unset, as in a shell's `${X:-}`.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_helm_is_not_used() {
        for (version, enough) in [
            ("v3.13.9", false),
            ("v3.14.0", true),
            ("v4.0.0-rc.1", true),
            ("v4.3.1", true),
            ("v2.17.0", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version, (3, 14)), enough, "{version}");
        }
    }
}
