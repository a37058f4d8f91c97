//! The Go modules that binaries are built from. Each is a folder of this crate, with a go.mod and a go.sum that pin
//! everything, and has a constant here.

use std::borrow::Cow;

use ring::digest;

/// A set of binaries that are built from the same pinned modules, and cached together.
#[derive(Debug)]
pub(crate) struct Module {
    /// The name of its folder, here and in the cache.
    pub(crate) folder: &'static str,
    /// The name of the result in messages.
    pub(crate) what: &'static str,
    pub(crate) go_mod: Cow<'static, str>,
    /// Empty if the go.mod was generated for a version that is not pinned.
    pub(crate) go_sum: Cow<'static, str>,
    /// The module whose version stands for all.
    pub(crate) main: &'static str,
    /// The Go variable that the linker sets to the version.
    pub(crate) version_variable: &'static str,
    /// Build tags that leave parts out, separated by commas.
    pub(crate) tags: &'static str,
    /// The duration of the first build on 2 cores.
    pub(crate) takes: &'static str,
    /// The advice if it can't be built.
    pub(crate) instead: &'static str,
}

/// etcd, kube-apiserver, kube-controller-manager and kubectl.
pub(crate) const CONTROL_PLANE: Module = Module {
    folder: "control-plane",
    what: "the control plane",
    go_mod: Cow::Borrowed(include_str!("../control-plane/go.mod")),
    go_sum: Cow::Borrowed(include_str!("../control-plane/go.sum")),
    main: "k8s.io/kubernetes",
    version_variable: "k8s.io/component-base/version.gitVersion",
    tags: "",
    takes: "7 minutes",
    instead: "set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver, e.g. from envtest's setup-envtest",
};

/// Renders and installs the chart.
pub(crate) const HELM: Module = Module {
    folder: "helm",
    what: "helm",
    go_mod: Cow::Borrowed(include_str!("../helm/go.mod")),
    go_sum: Cow::Borrowed(include_str!("../helm/go.sum")),
    main: "helm.sh/helm/v4",
    version_variable: "helm.sh/helm/v4/internal/version.version",
    tags: "",
    takes: "4 minutes",
    instead: "install helm v3.14 or later",
};

/// Prometheus and promtool. The module does not contain the web pages, so this Prometheus has none.
pub(crate) const PROMETHEUS: Module = Module {
    folder: "prometheus",
    what: "Prometheus",
    go_mod: Cow::Borrowed(include_str!("../prometheus/go.mod")),
    go_sum: Cow::Borrowed(include_str!("../prometheus/go.sum")),
    main: "github.com/prometheus/prometheus",
    version_variable: "github.com/prometheus/common/version.Version",
    // Targets are given here, so service discovery for clouds is left out. It would be half of the build.
    tags: "remove_all_sd",
    takes: "4 minutes",
    instead: "install prometheus and promtool v3 or later",
};

impl Module {
    /// The version that go.mod pins, e.g. `v1.36.3`.
    pub(crate) fn version(&self) -> &str {
        self.word_after(self.main).unwrap_or("unknown")
    }

    /// The Go version that go.mod requires.
    pub(crate) fn go_version(&self) -> &str {
        self.word_after("go").unwrap_or("1.26")
    }

    /// The linker flag that sets the version.
    pub(crate) fn linker_flags(&self) -> String {
        format!("-s -w -X {}={}", self.version_variable, self.version())
    }

    /// The name of a build: the version, and a digest of all pinned versions, so that any change causes a new build.
    pub(crate) fn key(&self) -> String {
        let mut pinned = digest::Context::new(&digest::SHA256);
        pinned.update(self.go_mod.as_bytes());
        pinned.update(self.go_sum.as_bytes());
        let short: String = pinned.finish().as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{short}", self.version())
    }

    /// The first word after `name` on a line of go.mod that starts with it.
    fn word_after(&self, name: &str) -> Option<&str> {
        self.go_mod.lines().find_map(|line| {
            let mut words = line.trim_start_matches("require ").split_whitespace();
            (words.next() == Some(name)).then(|| words.next()).flatten()
        })
    }
}
