//! Where the control plane's binaries are.
//!
//! `KUBEBUILDER_ASSETS` is where people who have envtest keep ready ones, so it wins. Otherwise they come from the
//! user's cache folder, and what is missing there is built with Go first.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::go_build;

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
    #[error(
        "neither XDG_CACHE_HOME nor HOME is set: set one, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver"
    )]
    NoCacheFolder,
    /// A binary could not be built.
    #[error(transparent)]
    Build(#[from] go_build::Error),
}

/// A program of the control plane, or one that talks to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// The store behind the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The built-in controllers: node lifecycle, garbage collection, service accounts and so on.
    KubeControllerManager,
    /// The command line client, for people.
    Kubectl,
}

impl Binary {
    /// Every binary that can be built.
    pub const ALL: [Self; 4] = [Self::Etcd, Self::KubeApiserver, Self::KubeControllerManager, Self::Kubectl];

    /// The name of its file, the same wherever it comes from.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
        }
    }

    /// The Go package that it is built from.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
        }
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name())
    }
}

/// A folder that holds the binaries that were asked for.
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
            None => {
                let folder = cache_folder()?;
                if !missing(&folder, needed).is_empty() {
                    go_build::build(&folder, needed)?;
                }
                folder
            }
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

/// Where built binaries are kept: a folder for each version and set of dependencies, so that a change builds anew.
fn cache_folder() -> Result<PathBuf, Error> {
    let cache = variable("XDG_CACHE_HOME")
        // The XDG specification has relative paths ignored.
        .filter(|folder| folder.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".cache")))
        .ok_or(Error::NoCacheFolder)?;
    Ok(cache.join("label-storage/control-plane").join(go_build::key()))
}

/// An environment variable that holds a path. Empty is as good as unset, as in a shell's `${X:-}`.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
