//! Commands that a person may run next, for the same cluster and namespace.

use std::ffi::OsStr;

use crate::flags::Global;

/// The usual namespace of an installation.
pub(crate) const NAMESPACE: &str = "label-storage";

#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    /// The flags that choose the cluster, the user and the rules.
    cluster: String,
    user: String,
    config: String,
    namespace: String,
}

impl Hints {
    pub(crate) fn new(global: &Global, namespace: &str) -> Self {
        Self {
            cluster: flags("kubeconfig", &global.kubeconfig)
                + &flags("context", &global.context)
                + &flags("cluster", &global.cluster)
                + &flags("server", &global.server),
            user: flags("user", &global.user)
                + &flags("as", &global.impersonate)
                + &flags("as-group", &global.impersonate_group),
            config: flags("config", &global.config),
            namespace: quoted(namespace),
        }
    }

    /// A command of this plugin, such as `get`.
    pub(crate) fn plugin(&self, words: &str) -> String {
        let Self { cluster, user, config, namespace } = self;
        let namespace = if namespace == NAMESPACE { String::new() } else { format!(" -n {namespace}") };
        format!("kubectl label-storage {words}{namespace}{cluster}{user}{config}")
    }

    /// A command of kubectl on a cluster-wide object, such as `label node a`.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        format!("kubectl{}{} {words}", self.cluster, self.user)
    }

    /// A command of kubectl in the namespace.
    pub(crate) fn in_namespace(&self, words: &str) -> String {
        self.kubectl(&format!("-n {} {words}", self.namespace))
    }

    /// A command of Helm in the namespace.
    pub(crate) fn helm(&self, words: &str) -> String {
        let cluster = self.cluster.replace(" --context", " --kube-context");
        let cluster = cluster.replace(" --server", " --kube-apiserver");
        format!("helm{cluster} -n {} {words}", self.namespace)
    }
}

fn flags(name: &str, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    words.into_iter().map(|word| format!(" --{name} {}", quoted(&word.as_ref().to_string_lossy()))).collect()
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,".contains(&byte);
    let is_one = !word.is_empty() && word.bytes().all(is_plain);
    if is_one { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::Cli;

    fn hints(words: &[&str]) -> Hints {
        let words = [&["x"], words, &["check"]].concat();
        let global = Cli::try_parse_from(words).expect("a command line").global;
        let namespace = global.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
        Hints::new(&global, &namespace)
    }

    #[test]
    fn commands_go_where_this_one_went() {
        let usual = hints(&[]);
        assert_eq!(usual.plugin("get"), "kubectl label-storage get");
        assert_eq!(usual.in_namespace("get pods"), "kubectl -n label-storage get pods");
        let other = hints(&["-n", "here", "--context", "my cluster", "--config", "r.yaml"]);
        assert_eq!(
            other.plugin("get"),
            "kubectl label-storage get -n here --context 'my cluster' --config r.yaml"
        );
        assert_eq!(other.kubectl("get nodes"), "kubectl --context 'my cluster' get nodes");
        assert_eq!(other.in_namespace("get pods"), "kubectl --context 'my cluster' -n here get pods");
        assert_eq!(other.helm("upgrade"), "helm --kube-context 'my cluster' -n here upgrade");
        assert_eq!(hints(&["--as", "me"]).kubectl("get a"), "kubectl --as me get a");
        assert_eq!(hints(&["--as", "me"]).helm("list"), "helm -n label-storage list");
    }

    #[test]
    fn a_word_stays_one_word_and_nothing_in_it_is_run() {
        for (word, expected) in [
            ("node-1.example.com", "node-1.example.com"),
            ("", "''"),
            ("label:serial=a b", "'label:serial=a b'"),
            ("x'; rm -rf ~; '", r"'x'\''; rm -rf ~; '\'''"),
            ("$(id)", "'$(id)'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
