//! Reads the rules file at start.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{anyhow, bail};
use label_storage::Rules;

/// A ConfigMap can't hold more.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the rules in `file`. Without a file, the defaults apply.
pub fn load(file: Option<&Path>) -> anyhow::Result<Rules> {
    let Some(file) = file else { return Ok(Rules::default()) };
    let (name, mut bytes) = (file.display(), Vec::new());
    File::open(file)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| anyhow!("can't read the rules in {name}: {error}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{name}: the file has more than 1 MiB: rules are a few lines");
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let lines = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        anyhow!("{name}: line {}: this is not valid UTF-8: save the file as UTF-8", lines + 1)
    })?;
    Rules::from_yaml(text).map_err(|refused| anyhow!("{name}: {refused}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_defaults_apply() {
        assert_eq!(load(None).expect("no file, no mistake"), Rules::default());
    }

    #[test]
    fn a_file_that_can_not_be_used_is_no_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules");
        let error = |file: &Path| load(Some(file)).expect_err("refused").to_string();
        let name = file.display();
        assert!(error(&file).starts_with(&format!("can't read the rules in {name}: No such file")));
        assert!(error(folder.path()).contains("s a directory"));
        for (text, refused) in [
            (
                &b"cordon: true\nretention: soon\n"[..],
                "line 2: retention: \"soon\" can't be used: give a time of at least 1m, such as 30d, or forever",
            ),
            (b"cordon: true\n# caf\xe9\n", "line 2: this is not valid UTF-8: save the file as UTF-8"),
            (&[b'#'; (1 << 20) + 1], "the file has more than 1 MiB: rules are a few lines"),
        ] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(error(&file), format!("{name}: {refused}"));
        }
        std::fs::write(&file, [b'#'; 1 << 20]).expect("a file");
        assert!(load(Some(&file)).is_ok());
    }
}
