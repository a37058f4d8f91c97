//! Checks the links in all Markdown files of the repository: files and anchors. No control plane is needed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test program")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// All Markdown files below `folder`, without build output and hidden folders other than `.github`.
fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let is_left_out = name == "target" || name.starts_with('.') && name != ".github";
        if entry.file_type().unwrap().is_dir() && !is_left_out {
            markdown(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The lines that are rendered as text, without blocks of code.
fn prose(page: &str) -> Vec<&str> {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ")
    };
    page.lines().filter(is_prose).collect()
}

/// The line without code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The targets of links and images: `[text](target)`, `[name]: target`, `href="target"` and `src="target"`.
fn links(page: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(page).into_iter().map(without_code) {
        for (opening, closing) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
            let rests = line.split(opening).skip(1);
            targets.extend(rests.filter_map(|rest| rest.split([closing, ' ']).next().map(str::to_owned)));
        }
        if let Some((_, target)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
            targets.push(target.trim().to_owned());
        }
    }
    targets
}

/// The anchors that GitHub makes of the headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(page)
        .into_iter()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    headings
        .map(|heading| {
            let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let plain: String = heading.trim().chars().filter(is_kept).collect();
            let slug = plain.to_lowercase().replace(' ', "-");
            let count = used.entry(slug.clone()).or_default();
            *count += 1;
            if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
        })
        .collect()
}

/// Resolves `..` without the file system, so that a link can't leave the repository by a symbolic link.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, component| {
        match component {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => (),
            other => path.push(other),
        }
        path
    })
}

/// The broken links of a page, each with the reason.
fn broken(root: &Path, file: &Path, page: &str) -> Vec<String> {
    let complaint = |target: &str| {
        if target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let linked = match path.strip_prefix('/') {
            Some(path) => root.join(path),
            None if path.is_empty() => file.to_owned(),
            None => file.parent()?.join(path),
        };
        let linked = normal(&linked);
        if !linked.starts_with(root) || linked != file && !linked.exists() {
            return Some("there is no such file");
        }
        if anchor.is_empty() {
            return None;
        }
        let text = if linked == file { page.to_owned() } else { std::fs::read_to_string(&linked).ok()? };
        (!anchors(&text).contains(anchor)).then_some("there is no such heading")
    };
    links(page).iter().filter_map(|target| Some(format!("{target}: {}", complaint(target)?))).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let (root, mut files) = (root(), Vec::new());
    markdown(&root, &mut files);
    assert!(files.len() > 15, "{files:?}");
    let mut all = Vec::new();
    for file in &files {
        let page = std::fs::read_to_string(file).unwrap();
        let name = file.strip_prefix(&root).unwrap().display();
        all.extend(broken(&root, file, &page).into_iter().map(|link| format!("{name}: {link}")));
    }
    assert!(all.is_empty(), "broken links:\n{}", all.join("\n"));
}

#[test]
fn the_index_lists_every_page() {
    let docs = root().join("docs");
    let index = std::fs::read_to_string(docs.join("README.md")).unwrap();
    let linked: BTreeSet<_> =
        links(&index).into_iter().map(|link| link.split('#').next().unwrap_or_default().to_owned()).collect();
    for entry in std::fs::read_dir(&docs).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let is_page = name.ends_with(".md") && name != "README.md";
        assert!(!is_page || linked.contains(&name), "docs/README.md has no link to {name}");
    }
}

#[test]
fn a_missing_file_and_a_missing_heading_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (root, file) = (folder.path(), folder.path().join("docs/page.md"));
    std::fs::create_dir(root.join("docs")).unwrap();
    std::fs::write(root.join("other.md"), "# Other\n\n## A `b` heading, here\n\n## Twice\n\n## Twice\n")
        .unwrap();
    for (page, reason) in [
        ("[a](../other.md)", ""),
        ("[a](../other.md#a-b-heading-here) ![b](../other.md)", ""),
        ("[a](../other.md#twice-1)", ""),
        ("[a](#here)\n\n# Here\n", ""),
        ("[a](https://example.com/none.md#none) [b](mailto:a@example.com)", ""),
        ("`[a](none.md)`\n\n    [b](none.md)\n\n```text\n[c](none.md)\n```\n", ""),
        ("[a](none.md)", "none.md: there is no such file"),
        ("![a](none.svg)", "none.svg: there is no such file"),
        ("<img src=\"none.svg\">", "none.svg: there is no such file"),
        ("[a]: none.md\n", "none.md: there is no such file"),
        ("[a](../../outside.md)", "../../outside.md: there is no such file"),
        ("[a](../other.md#none)", "../other.md#none: there is no such heading"),
        ("[a](../other.md#twice-2)", "../other.md#twice-2: there is no such heading"),
        ("[a](#none)\n\n# Here\n", "#none: there is no such heading"),
        ("[a](#code)\n\n```text\n# Code\n```\n", "#code: there is no such heading"),
    ] {
        let expected: Vec<_> = [reason].into_iter().filter(|reason| !reason.is_empty()).collect();
        assert_eq!(broken(root, &file, page), expected, "{page}");
    }
}
