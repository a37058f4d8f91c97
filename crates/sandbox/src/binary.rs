//! The programs that the sandbox can find or build.

use std::fmt;
use std::path::Path;

use crate::modules::{self, Module};

/// A program of the control plane, a client of it, or a tool for the chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Binary {
    /// The storage of the API server.
    Etcd,
    KubeApiserver,
    /// The built-in controllers: node lifecycle, garbage collection, service accounts and so on.
    KubeControllerManager,
    /// The command line client.
    Kubectl,
    /// Renders and installs the chart.
    Helm,
    /// Scrapes the daemons in tests.
    Prometheus,
    /// Checks and tests Prometheus's rules.
    Promtool,
}

impl Binary {
    /// The control plane and kubectl.
    pub const CONTROL_PLANE: [Self; 4] =
        [Self::Etcd, Self::KubeApiserver, Self::KubeControllerManager, Self::Kubectl];

    /// The name of its file.
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

    /// The arguments that print the version of the program on `PATH`, and the oldest usable version. `None` if it is never taken from there.
    pub(crate) fn on_path(self) -> Option<(&'static [&'static str], (u32, u32))> {
        match self {
            // The first version with everything that the chart and its tests need.
            Self::Helm => Some((&["version", "--template", "{{.Version}}"], (3, 14))),
            // Older versions counted the samples at both ends of a range, so rates differed.
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

/// The binaries among `needed` that `folder` lacks.
pub(crate) fn missing(folder: &Path, needed: &[Binary]) -> Vec<Binary> {
    needed.iter().copied().filter(|binary| !folder.join(binary.file_name()).is_file()).collect()
}
