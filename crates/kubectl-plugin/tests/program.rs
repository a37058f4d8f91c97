//! The program as it is shipped, without a cluster.

#![allow(clippy::expect_used, reason = "a test")]

use std::process::Command;

/// The exit code, stdout and stderr of the program without a kubeconfig.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-label_storage"))
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent")
        .output()
        .expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn it_says_what_it_is() {
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("Usage: kubectl label-storage [OPTIONS] <COMMAND>"), "{out}");
    let (code, out, err) = run(&["--version"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.trim_end().ends_with(env!("CARGO_PKG_VERSION")), "{out}");
}

#[test]
fn bad_usage_is_told_apart_from_a_cluster_that_is_not_there() {
    for args in [&["--nonsense"][..], &["nonsense"], &["get", "--nonsense"], &[]] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(err.contains("Usage: kubectl label-storage"), "{args:?}: {err}");
    }
    for command in [&["status"][..], &["get", "--all"], &["check"]] {
        let (code, out, err) = run(command);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{command:?}");
        assert!(err.starts_with("error: no cluster to connect to") && err.lines().count() == 1, "{err}");
    }
}

#[test]
fn completion_needs_no_cluster_and_says_nothing_of_its_absence() {
    assert_eq!(run(&["__complete", "--", "--context", ""]), (Some(0), ":4\n".to_owned(), String::new()));
    let (code, out, err) = run(&["__complete", "--", "get", "a"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), ":4\n", ""));
}
