//! The sources of the binaries, and the errors if they are missing. Go and etcd are small scripts here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A fake Go: it lists two packages, and the file that it "builds" contains the name of the package.
const GO: &str = r#"#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
for package; do :; done
case $1 in
list) printf 'one\ntwo\n' ;;
build)
    while [ "$1" != -o ]; do shift; done
    echo one >&2
    sleep 0.3
    echo "$package" >"$2" ;;
esac
"#;

fn script(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The `sandbox` binary, in an environment with only a cache folder, and with `bin` first on the PATH.
fn sandbox(bin: &Path, cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
    command.env_clear().env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("XDG_CACHE_HOME", cache);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn assert_fails(output: &Output, stderr: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_incomplete_assets_folder_is_an_error_that_names_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "etcd", "");
    let mut command = sandbox(folder.path(), folder.path());
    let output = command.env("KUBEBUILDER_ASSETS", folder.path()).output().unwrap();
    let expected = format!(
        "error: KUBEBUILDER_ASSETS is {}, which has no kube-apiserver: add it, or unset the variable to build it with Go\n",
        folder.path().display()
    );
    assert_fails(&output, &expected);
}

#[test]
fn without_binaries_and_without_go_the_error_names_both_ways_out() {
    let folder = tempfile::tempdir().unwrap();
    let output = sandbox(folder.path(), folder.path()).env("PATH", folder.path()).output().unwrap();
    assert_fails(
        &output,
        "error: can't build etcd without Go on PATH: install Go 1.26.0 or later, or set KUBEBUILDER_ASSETS to a folder \
         with etcd and kube-apiserver, e.g. from envtest's setup-envtest\n",
    );
}

#[test]
fn two_processes_that_build_at_the_same_time_share_one_build() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "go", GO);
    let cache = folder.path().join("cache");
    let processes: Vec<_> =
        (0..2).map(|_| sandbox(folder.path(), &cache).arg("--build-only").spawn().unwrap()).collect();
    let outputs: Vec<_> = processes.into_iter().map(|process| process.wait_with_output().unwrap()).collect();

    let mut told = 0;
    for output in &outputs {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        told += stderr.matches("another process builds the control plane").count();
    }
    assert_eq!(told, 1, "the waiting process prints this once");
    assert_eq!(outputs[0].stdout, outputs[1].stdout);

    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    let builds: Vec<_> = calls.lines().filter(|line| line.starts_with("build")).collect();
    assert_eq!(builds.len(), 4, "each binary is built once: {builds:?}");

    let keys: Vec<_> = fs::read_dir(cache.join("label-storage/control-plane")).unwrap().collect();
    let built = keys[0].as_ref().unwrap().path();
    let mut files: Vec<_> = fs::read_dir(&built)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "lock", "module"]);
    assert_eq!(fs::read_to_string(built.join("etcd")).unwrap(), "go.etcd.io/etcd/server/v3\n");
}

#[test]
fn a_build_that_fails_shows_its_last_lines_and_leaves_no_binary() {
    let folder = tempfile::tempdir().unwrap();
    script(
        folder.path(),
        "go",
        "#!/bin/sh\n[ \"$1\" != build ] || { echo 'no space left on device' >&2; exit 2; }\n",
    );
    let output = sandbox(folder.path(), folder.path()).arg("--build-only").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let [_announcement, error, line, advice] = stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("not four lines: {stderr}");
    };
    assert!(error.starts_with("error: go build of etcd failed (exit code 2); its last lines"), "{error}");
    assert_eq!(line, "no space left on device");
    assert!(advice.contains("KUBEBUILDER_ASSETS"), "{advice}");
}

#[test]
fn a_server_that_ends_at_once_is_noticed_and_its_log_shown() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "etcd", "#!/bin/sh\necho 'disk full'; exit 1\n");
    script(folder.path(), "kube-apiserver", "");
    let mut command = sandbox(folder.path(), folder.path());
    let output = command.env("KUBEBUILDER_ASSETS", folder.path()).output().unwrap();
    assert_fails(
        &output,
        "error: etcd ended unexpectedly (exit code 1); the last lines of its log:\ndisk full\n",
    );
}

#[test]
fn a_port_that_was_taken_in_the_meantime_is_tried_again_with_another() {
    let folder = tempfile::tempdir().unwrap();
    let etcd =
        "#!/bin/sh\necho \"$@\" >>\"$(dirname \"$0\")/calls\"; echo 'bind: address already in use'; exit 1\n";
    script(folder.path(), "etcd", etcd);
    script(folder.path(), "kube-apiserver", "");
    let mut command = sandbox(folder.path(), folder.path());
    let output = command.env("KUBEBUILDER_ASSETS", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    let distinct: std::collections::BTreeSet<_> = calls.lines().collect();
    assert_eq!((calls.lines().count(), distinct.len()), (5, 5), "{calls}");
}

#[test]
fn a_tool_that_is_new_enough_is_used_and_another_is_built() {
    let said = "promtool, version {version} (branch: HEAD, revision: 0123)";
    for (tool, answer, version, is_built) in [
        ("helm", "{version}", "v3.14.2", false),
        ("helm", "{version}", "v3.13.0", true),
        ("promtool", said, "3.5.0", false),
        ("promtool", said, "2.42.0+ds", true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        script(folder.path(), "go", GO);
        let answer = answer.replace("{version}", version);
        script(folder.path(), tool, &format!("#!/bin/sh\nprintf '{answer}'\n"));
        let output = sandbox(folder.path(), folder.path()).args(["tool", tool]).output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        if is_built {
            let built = fs::read_to_string(stdout.trim_end()).unwrap();
            assert!(built.ends_with(&format!("/cmd/{tool}\n")), "{built}: {stderr}");
        } else {
            let expected = (format!("{tool}\n"), format!("using the {tool} on PATH, {version}\n"));
            assert_eq!((stdout.into_owned(), stderr.into_owned()), expected);
        }
    }
}
