//! Commands that a person may run next, for the same cluster and namespace.

use std::path::Path;

use crate::flags::Global;

/// The usual namespace of an installation.
pub(crate) const NAMESPACE: &str = "label-storage";

#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    /// Flags that choose the cluster.
    cluster: String,
    /// Flags that choose the user.
    user: String,
    config: String,
    namespace: String,
}

impl Hints {
    pub(crate) fn new(global: &Global, namespace: &str) -> Self {
        let flag = |name: &str, value: Option<&str>| {
            value.map(|value| format!(" --{name} {}", quoted(value))).unwrap_or_default()
        };
        let path = |name: &str, path: Option<&Path>| flag(name, path.map(Path::to_string_lossy).as_deref());
        let groups = global.impersonate_group.iter().map(|group| flag("as-group", Some(group)));
        Self {
            cluster: path("kubeconfig", global.kubeconfig.as_deref())
                + &flag("context", global.context.as_deref())
                + &flag("cluster", global.cluster.as_deref())
                + &flag("server", global.server.as_deref()),
            user: flag("user", global.user.as_deref())
                + &flag("as", global.impersonate.as_deref())
                + &groups.collect::<String>(),
            config: path("config", global.config.as_deref()),
            namespace: namespace.to_owned(),
        }
    }

    /// A command of this plugin, such as `get`.
    pub(crate) fn plugin(&self, words: &str) -> String {
        let Self { cluster, user, config, namespace } = self;
        let namespace = (namespace != NAMESPACE).then(|| format!(" -n {}", quoted(namespace)));
        format!("kubectl label-storage {words}{}{cluster}{user}{config}", namespace.unwrap_or_default())
    }

    /// A command of kubectl on a cluster-wide object, such as `label node a`.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        format!("kubectl{}{} {words}", self.cluster, self.user)
    }

    /// A command of kubectl in the namespace.
    pub(crate) fn in_namespace(&self, words: &str) -> String {
        self.kubectl(&format!("-n {} {words}", quoted(&self.namespace)))
    }

    /// A command of Helm in the namespace.
    pub(crate) fn helm(&self, words: &str) -> String {
        let cluster =
            self.cluster.replace(" --context", " --kube-context").replace(" --server", " --kube-apiserver");
        format!("helm{cluster} -n {} {words}", quoted(&self.namespace))
    }
}

/// One word for a shell, whatever is in it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
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
