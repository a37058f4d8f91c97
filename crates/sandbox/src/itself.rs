//! Starts this program again in another role, such as a daemon. So the daemon needs no path, and is never older than its caller.

use std::io;
use std::path::Path;
use std::process::Command;

/// The environment variable with the role.
const RUN_AS: &str = "SANDBOX_RUN_AS";

/// The role of this process, if [`command`] has started it.
pub fn role() -> Option<String> {
    std::env::var(RUN_AS).ok()
}

/// A command that runs this program in a role, on the cluster of this kubeconfig, or on none. Variables that a daemon reads are removed
/// from the environment, such as those of a pod that this process runs in. The caller may set others.
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

/// True if a daemon or its Kubernetes client reads this variable.
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
