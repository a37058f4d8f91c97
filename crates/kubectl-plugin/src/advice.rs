//! Commands that a person may run next: for the same cluster and namespace, whatever words are in them.

use std::path::Path;

use crate::cli::{Global, NAMESPACE};

/// How to get to where this command has looked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Advice {
    /// Flags of kubectl itself: which cluster.
    cluster: String,
    /// And as whom.
    person: String,
    /// Flags of the plugin alone.
    own: String,
    namespace: String,
}

impl Advice {
    pub(crate) fn new(global: &Global) -> Self {
        let flag = |name: &str, value: Option<&str>| {
            value.map(|value| format!(" --{name} {}", quoted(value))).unwrap_or_default()
        };
        let path = |name: &str, path: Option<&Path>| flag(name, path.map(Path::to_string_lossy).as_deref());
        let groups = global.impersonate_group.iter().map(|group| flag("as-group", Some(group)));
        Self {
            cluster: path("kubeconfig", global.kubeconfig.as_deref())
                + &flag("context", global.context.as_deref()),
            person: flag("as", global.impersonate.as_deref()) + &groups.collect::<String>(),
            own: path("config", global.config.as_deref()),
            namespace: global.namespace.clone(),
        }
    }

    /// A command of this plugin, as in `get --all`.
    pub(crate) fn plugin(&self, words: &str) -> String {
        let namespace = match self.namespace.as_str() {
            NAMESPACE => String::new(),
            other => format!(" -n {}", quoted(other)),
        };
        let Self { cluster, person, own, .. } = self;
        format!("kubectl label-storage {words}{namespace}{cluster}{person}{own}")
    }

    /// A command of kubectl's about what is in no namespace, as in `label node a`.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        format!("kubectl{}{} {words}", self.cluster, self.person)
    }

    /// The same, about what is in the namespace.
    pub(crate) fn in_namespace(&self, words: &str) -> String {
        self.kubectl(&format!("-n {} {words}", quoted(&self.namespace)))
    }

    /// Commands that know their namespace, one after the other, for this cluster; whoever may run them.
    pub(crate) fn there(&self, commands: &str) -> String {
        let there = |command: &str| {
            let helm = self.cluster.replace(" --context", " --kube-context");
            let programs =
                [("kubectl label-storage ", &self.cluster), ("kubectl ", &self.cluster), ("helm ", &helm)];
            let program = programs.iter().find_map(|(program, flags)| {
                Some((program.trim_end(), *flags, command.strip_prefix(program)?))
            });
            program.map_or_else(
                || command.to_owned(),
                |(program, flags, rest)| format!("{program}{flags} {rest}"),
            )
        };
        commands.split(" && ").map(there).collect::<Vec<_>>().join(" && ")
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
    use crate::cli::Cli;

    fn advice(words: &[&str]) -> Advice {
        let namespace = if words.contains(&"-n") { &[][..] } else { &["-n", NAMESPACE] };
        let words = [&["x"], namespace, words, &["check"]].concat();
        Advice::new(&Cli::try_parse_from(words).expect("a command line").global)
    }

    #[test]
    fn commands_go_where_this_one_went() {
        let usual = advice(&[]);
        assert_eq!(usual.plugin("get --all"), "kubectl label-storage get --all");
        assert_eq!(usual.in_namespace("get pods"), "kubectl -n label-storage get pods");
        let other = advice(&["-n", "here", "--context", "my cluster", "--config", "r.yaml"]);
        assert_eq!(
            other.plugin("get --all"),
            "kubectl label-storage get --all -n here --context 'my cluster' --config r.yaml"
        );
        assert_eq!(other.kubectl("get nodes"), "kubectl --context 'my cluster' get nodes");
        assert_eq!(other.in_namespace("get pods"), "kubectl --context 'my cluster' -n here get pods");
        assert_eq!(other.there("kubectl get a && sudo b"), "kubectl --context 'my cluster' get a && sudo b");
        assert_eq!(other.there("kubectl label-storage x"), "kubectl label-storage --context 'my cluster' x");
        assert_eq!(other.there("helm upgrade"), "helm --kube-context 'my cluster' upgrade");
        assert_eq!(advice(&["--as", "me"]).there("kubectl get a"), "kubectl get a", "whoever may");
        assert_eq!(advice(&["--as", "me"]).kubectl("get a"), "kubectl --as me get a");
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
