//! This very program once more, as something else: so that a daemon is found wherever its starter is, and is never older than it.

use std::io;
use std::path::Path;
use std::process::Command;

/// Set for a process that is to be something else than what its program usually is.
const RUN_AS: &str = "SANDBOX_RUN_AS";

/// What this process was started as by [`command`], if it was.
pub fn role() -> Option<String> {
    std::env::var(RUN_AS).ok()
}

/// A command that runs this program as `role`, on the cluster that `kubeconfig` names, or on none. What it is given beyond that is
/// up to the caller: the environment that this process has may be meant for something else, and tell of a pod that it runs in.
pub fn command(role: &str, kubeconfig: Option<&Path>) -> io::Result<Command> {
    Ok(other(&std::env::current_exe()?, role, kubeconfig))
}

/// The same for another program.
pub fn other(program: &Path, role: &str, kubeconfig: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if is_meant_for_daemons(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.env(RUN_AS, role);
    match kubeconfig {
        Some(path) => command.env("KUBECONFIG", path),
        None => command.env_remove("KUBECONFIG"),
    };
    command
}

/// Whether a daemon reads this variable, or its Kubernetes client does.
fn is_meant_for_daemons(name: &str) -> bool {
    ["POD_NAME", "POD_NAMESPACE", "HOSTNAME"].contains(&name)
        || ["LABEL_STORAGE_", "KUBERNETES_"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_told_and_nothing_else_that_a_daemon_would_read() {
        let told = |kubeconfig| {
            let command = command("storer", kubeconfig).unwrap();
            let told = command.get_envs().filter_map(|(name, value)| {
                Some(format!("{}={}", name.to_str().unwrap(), value?.to_str().unwrap()))
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(Some(Path::new("/k"))), ["KUBECONFIG=/k", "SANDBOX_RUN_AS=storer"]);
        assert_eq!(told(None), ["SANDBOX_RUN_AS=storer"]);
        for name in ["POD_NAME", "HOSTNAME", "LABEL_STORAGE_WATCH", "KUBERNETES_SERVICE_HOST"] {
            assert!(is_meant_for_daemons(name), "{name}");
        }
        assert!(!is_meant_for_daemons("PATH"));
    }
}
