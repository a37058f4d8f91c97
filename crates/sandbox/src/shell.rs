//! Lines to paste into a shell.

use std::path::Path;

/// `export VARIABLE=PATH`, quoted if the path needs it.
pub fn export(variable: &str, path: &Path) -> String {
    format!("export {variable}={}", quoted(path))
}

/// `export PATH=FOLDER:"$PATH"`.
pub fn export_path(folder: &Path) -> String {
    format!("export PATH={}:\"$PATH\"", quoted(folder))
}

fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    if path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c)) {
        path.into_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_stays_as_it_is() {
        assert_eq!(
            export("KUBECONFIG", Path::new("/tmp/a-1/kubeconfig")),
            "export KUBECONFIG=/tmp/a-1/kubeconfig"
        );
        assert_eq!(export_path(Path::new("/tmp/bin")), "export PATH=/tmp/bin:\"$PATH\"");
    }

    #[test]
    fn a_path_that_a_shell_would_read_otherwise_is_quoted() {
        assert_eq!(export("KUBECONFIG", Path::new("/it's $HOME/k")), r"export KUBECONFIG='/it'\''s $HOME/k'");
    }
}
