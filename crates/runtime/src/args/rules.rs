//! The flags that say what operators choose. Each wins over what a file says about the same.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ArgAction;
use label_storage::rules::amount;
use label_storage::rules::draft::Choice;
use label_storage::rules::patterns::{Error, Kind, split};
use label_storage::rules::{Conflicts, Draft, IdentityBy, Patterns, Selector, Trust};

/// Under what they stand in the help, those of one daemon alone too.
pub const HEADING: &str = "Rules";

/// Flags about rules, to be the same for both daemons. An empty list of keys, an empty selector and empty conflicts are as none
/// given.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct RuleArgs {
    /// Read rules from this YAML file, and again whenever it changes. Flags win over it, one by one. Rules are to be the same for
    /// both daemons [default: no file]
    #[arg(long, env = "LABEL_STORAGE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Store only labels of these keys, with commas between them: keys, patterns such as 'example.com/*', or machine-facts, which
    /// are those that kubelet and cloud set themselves [default: all]
    #[arg(long, env = "LABEL_STORAGE_INCLUDE_LABELS", value_name = "KEYS", value_parser = include_labels)]
    pub include_labels: Option<Patterns>,

    /// Store no labels of these keys, even if they are included. What is stored already is left alone [default: none]
    #[arg(long, env = "LABEL_STORAGE_EXCLUDE_LABELS", value_name = "KEYS", value_parser = exclude_labels)]
    pub exclude_labels: Option<Patterns>,

    /// Store annotations of these keys too [default: none]
    #[arg(long, env = "LABEL_STORAGE_INCLUDE_ANNOTATIONS", value_name = "KEYS", value_parser = include_annotations)]
    pub include_annotations: Option<Patterns>,

    /// Store no annotations of these keys, even if they are included [default: none]
    #[arg(long, env = "LABEL_STORAGE_EXCLUDE_ANNOTATIONS", value_name = "KEYS", value_parser = exclude_annotations)]
    pub exclude_annotations: Option<Patterns>,

    /// Store taints of these keys too; never those of a node's life, such as node.kubernetes.io/not-ready [default: none]
    #[arg(long, env = "LABEL_STORAGE_INCLUDE_TAINTS", value_name = "KEYS", value_parser = include_taints)]
    pub include_taints: Option<Patterns>,

    /// Store no taints of these keys, even if they are included [default: none]
    #[arg(long, env = "LABEL_STORAGE_EXCLUDE_TAINTS", value_name = "KEYS", value_parser = exclude_taints)]
    pub exclude_taints: Option<Patterns>,

    /// Store that a node is cordoned, and cordon it again [default: false]
    #[arg(long, env = "LABEL_STORAGE_CORDON", value_name = "BOOL", action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub cordon: Option<bool>,

    /// Make records only for nodes with such labels, as in kubectl: 'pool=gold,!gpu,zone in (a,b)' [default: all nodes]
    #[arg(long, env = "LABEL_STORAGE_NODE_SELECTOR", value_name = "SELECTOR")]
    pub node_selector: Option<Selector>,

    /// Make records only for nodes that say what is to be kept, in their annotation label-storage/keep [default: false]
    #[arg(long, env = "LABEL_STORAGE_OPT_IN", value_name = "BOOL", action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub opt_in: Option<bool>,

    /// Whose value counts if a node that returns has another than its record, such as 'pool=record,example.com/*=report': node,
    /// record, or report, which leaves the node's and tells people. The first that matches counts [default: '*=node']
    #[arg(long, env = "LABEL_STORAGE_CONFLICTS", value_name = "KEY=WINNER,…")]
    pub conflicts: Option<Conflicts>,

    /// What makes a node the same when it returns: name, providerID, systemUUID, label:KEY or annotation:KEY [default: name]
    #[arg(long, env = "LABEL_STORAGE_IDENTITY", value_name = "WHAT")]
    pub identity: Option<IdentityBy>,

    /// Restore nothing to another machine than it was stored from, though it has the name [default: false]
    #[arg(long, env = "LABEL_STORAGE_FENCE", value_name = "BOOL", action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub fence: Option<bool>,

    /// To which machines labels that no kubelet can set itself, node-restriction.kubernetes.io/*, are restored: same-machine for the
    /// one that they were stored from, or name for any that --identity takes for the same [default: same-machine]
    #[arg(long, env = "LABEL_STORAGE_TRUST_LABELS", value_name = "WHOM")]
    pub trust_labels: Option<Trust>,

    /// Take the taint label-storage/restoring, which nodes may be created with, off once their labels are back, or after this
    /// time, from 1s to 1h, at the latest [default: false; without a time: 2m]
    #[arg(long, env = "LABEL_STORAGE_STARTUP_TAINT", value_name = "TIME", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub startup_taint: Option<StartupTaint>,
}

/// Whether there is a startup taint, and after what time it comes off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartupTaint {
    /// There is none, or there is one for as long as something else says.
    Is(bool),
    /// There is one.
    AtMost(Duration),
}

impl FromStr for StartupTaint {
    type Err = amount::Error;

    fn from_str(text: &str) -> Result<Self, amount::Error> {
        match text {
            "true" => Ok(Self::Is(true)),
            "false" => Ok(Self::Is(false)),
            _ => amount::startup_taint(text).map(Self::AtMost),
        }
    }
}

impl RuleArgs {
    /// What the flags say. Not what the file says: that may change.
    pub fn draft(&self) -> Draft {
        let choice = |include: &Option<Patterns>, exclude: &Option<Patterns>| Choice {
            include: include.clone().filter(|patterns| !patterns.is_empty()),
            exclude: exclude.clone().filter(|patterns| !patterns.is_empty()),
        };
        let (has_startup_taint, startup_taint) = match self.startup_taint {
            None => (None, None),
            Some(StartupTaint::Is(it)) => (Some(it), None),
            Some(StartupTaint::AtMost(time)) => (Some(true), Some(time)),
        };
        Draft {
            labels: choice(&self.include_labels, &self.exclude_labels),
            annotations: choice(&self.include_annotations, &self.exclude_annotations),
            taints: choice(&self.include_taints, &self.exclude_taints),
            cordon: self.cordon,
            selector: self.node_selector.clone().filter(|selector| !selector.is_empty()),
            opt_in: self.opt_in,
            conflicts: self.conflicts.clone().filter(|conflicts| !conflicts.is_empty()),
            identity: self.identity.clone(),
            fence: self.fence,
            trust: self.trust_labels,
            has_startup_taint,
            startup_taint,
            ..Draft::default()
        }
    }
}

fn include_labels(text: &str) -> Result<Patterns, Error> {
    Patterns::included(Kind::Label, split(text))
}

fn exclude_labels(text: &str) -> Result<Patterns, Error> {
    Patterns::of(Kind::Label, split(text))
}

fn include_annotations(text: &str) -> Result<Patterns, Error> {
    Patterns::included(Kind::Annotation, split(text))
}

fn exclude_annotations(text: &str) -> Result<Patterns, Error> {
    Patterns::of(Kind::Annotation, split(text))
}

fn include_taints(text: &str) -> Result<Patterns, Error> {
    Patterns::included(Kind::Taint, split(text))
}

fn exclude_taints(text: &str) -> Result<Patterns, Error> {
    Patterns::of(Kind::Taint, split(text))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Args {
        #[command(flatten)]
        rules: RuleArgs,
    }

    fn parse(args: &[&str]) -> Result<RuleArgs, clap::Error> {
        Args::try_parse_from(std::iter::once(&"daemon").chain(args)).map(|args| args.rules)
    }

    fn draft(args: &[&str]) -> Draft {
        parse(args).unwrap_or_else(|error| panic!("{args:?}: {error}")).draft()
    }

    #[test]
    fn no_flags_say_nothing() {
        assert_eq!(draft(&[]), Draft::default());
        // As in a manifest that has the variables but no values for them.
        let empty = [
            "--include-labels=",
            "--exclude-labels= ",
            "--include-taints=",
            "--node-selector=",
            "--conflicts=",
        ];
        assert_eq!(draft(&empty), Draft::default());
    }

    #[test]
    fn flags_say_what_the_file_would() {
        for (args, file) in [
            (&["--include-labels", "pool,example.com/*"][..], "labels: {include: [pool, example.com/*]}"),
            (&["--exclude-labels", "machine-facts"], "labels: {exclude: [machine-facts]}"),
            (
                &["--include-annotations=*", "--exclude-annotations", "Example.com/*"],
                "annotations: {include: ['*'], exclude: [Example.com/*]}",
            ),
            (&["--include-taints=*", "--exclude-taints=a"], "taints: {include: ['*'], exclude: [a]}"),
            (
                &["--cordon", "--opt-in", "--fence"],
                "{cordon: true, nodes: {optIn: true}, identity: {fence: true}}",
            ),
            (
                &["--cordon=false", "--opt-in=false", "--fence=false"],
                "{cordon: false, nodes: {optIn: false}, identity: {fence: false}}",
            ),
            (&["--fence", "--fence=false"], "identity: {fence: false}"),
            (&["--node-selector", "pool in (a,b),!gpu"], "nodes: {selector: 'pool in (a,b),!gpu'}"),
            (
                &["--conflicts", "pool=record,example.com/*=report"],
                "conflicts: [{keys: [pool], wins: record}, {keys: [example.com/*], wins: report}]",
            ),
            (&["--identity", "label:serial"], "identity: {by: 'label:serial'}"),
            (&["--trust-labels", "name"], "identity: {trustLabels: name}"),
            (&["--startup-taint"], "startupTaint: {enabled: true}"),
            (&["--startup-taint=30s"], "startupTaint: {enabled: true, atMost: 30s}"),
            (&["--startup-taint=false"], "startupTaint: {enabled: false}"),
        ] {
            assert_eq!(draft(args), Draft::from_yaml(file).expect(file), "{args:?}");
        }
    }

    #[test]
    fn what_can_not_have_been_meant_is_refused_with_advice() {
        for (arg, advice) in [
            ("--include-labels=a,,b", "remove a comma"),
            ("--include-labels=a b", "\"a b\" matches no label key"),
            ("--exclude-labels=[a", "matches no label key"),
            ("--include-annotations=a b", "matches no annotation key"),
            ("--include-annotations=csi.volume.kubernetes.io/nodeid", "is never kept"),
            (
                "--include-taints=dedicated,node.kubernetes.io/not-ready",
                "\"node.kubernetes.io/not-ready\" is never kept",
            ),
            ("--exclude-taints=machine-facts", "matches no taint key"),
            ("--cordon=perhaps", "[possible values: true, false]"),
            ("--node-selector=a b", "write a=b, a!=b"),
            ("--conflicts=pool", "write pool=node, pool=record or pool=report"),
            ("--conflicts=pool=me", "write node, record or report"),
            ("--identity=", "write name, providerID"),
            ("--identity=uid", "write name, providerID"),
            ("--trust-labels=all", "write same-machine or name"),
            ("--startup-taint=2h", "from 1s to 1h"),
            ("--startup-taint=yes", "from 1s to 1h"),
            ("--config=", "a value is required"),
        ] {
            let refused = parse(&[arg]).expect_err(arg).to_string();
            assert!(refused.contains(advice), "{arg}: {refused}");
        }
    }
}
