//! deploy/release.sh: all of a release that needs no compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sandbox::assets::{self, Binary};
use serde_json::{Value, json};

use super::manifests::{self, documents, of_kind};
use crate::scenario::Scenario;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PLATFORMS: [&str; 6] =
    ["linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64", "windows-arm64"];

fn digest() -> String {
    format!("sha256:{}", "0123456789abcdef".repeat(4))
}

/// Runs a script of `deploy` in the source, or in a copy of it, as the release workflow of `Acme/labels` does.
fn run(script: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(script);
    command.args(arguments).env("GITHUB_REPOSITORY", "Acme/labels").env_remove("IMAGE");
    command.env("HELM", assets::find(Binary::Helm)?).env("SOURCE_DATE_EPOCH", "1700000000");
    let output = command.output().with_context(|| format!("{}", script.display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}

fn release(arguments: &[&str]) -> Result<String> {
    run(&manifests::path("release.sh"), arguments)
}

fn pack(arguments: &[&str]) -> Result<String> {
    run(&manifests::path("pack.py"), arguments)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().context("a folder")?)?;
        fs::copy(from, to).with_context(|| format!("{}", from.display()))?;
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

pub async fn versions_that_disagree_are_refused(s: &Scenario) -> Result<()> {
    let (source, tree) = (manifests::path(".."), s.file("source"));
    for path in
        ["Cargo.toml", "CHANGELOG.md", "Dockerfile", "README.md", ".github", "deploy", "docs", "tests/e2e.sh"]
    {
        copy(&source.join(path), &tree.join(path))?;
    }
    let script = tree.join("deploy/release.sh");
    run(&script, &["check"])?;
    run(&script, &["check", &format!("v{VERSION}")])?;
    let error = run(&script, &["check", "v9.9.9"]).expect_err("a tag of another version");
    assert!(format!("{error:#}").contains("the tag has v9.9.9"), "{error:#}");

    let image = format!("label-storage:{VERSION}");
    let section = format!("## {VERSION}");
    let chart = (format!("\nversion: {VERSION}"), format!("appVersion: \"{VERSION}\""));
    let label = format!("helm.sh/chart: label-storage-{VERSION}");
    let disagreements = [
        ("Cargo.toml", "\nversion = \"", "\nversion = \"9", "CHANGELOG.md: the first section has"),
        ("Cargo.toml", "\nversion = \"", "\nversion = \"v", "[workspace.package]"),
        ("deploy/chart/Chart.yaml", &chart.0, "\nversion: 9.9.9", "version has 9.9.9"),
        ("deploy/chart/Chart.yaml", &chart.1, "appVersion: \"9.9.9\"", "appVersion has 9.9.9"),
        ("deploy/chart/Chart.yaml", &image, "label-storage:9.9.9", "has 9.9.9"),
        ("CHANGELOG.md", &section, "## 9.9.9", "the first section has 9.9.9"),
        ("CHANGELOG.md", &section, &format!("{section}\n\n## 0.0.0"), "is empty"),
        ("deploy/label-storage.yaml", &label, "helm.sh/chart: label-storage-9.9.9", "9.9.9"),
        ("deploy/label-storage.yaml", &image, "label-storage:9.9.9", "has 9.9.9"),
        ("Dockerfile", &image, "label-storage:9.9.9", "has 9.9.9"),
        (".github/workflows/ci.yaml", &image, "label-storage:9.9.9", "has 9.9.9"),
        (".github/workflows/release.yml", "RUST: 1.", "RUST: 9.", "has Rust 9."),
    ];
    for (file, has, instead, said) in disagreements {
        let path = tree.join(file);
        let before = fs::read_to_string(&path)?;
        assert!(before.contains(has), "{file} has no {has}");
        fs::write(&path, before.replacen(has, instead, 1))?;
        let error = format!("{:#}", run(&script, &["check"]).expect_err(instead));
        // All that disagrees with Cargo.toml is named, not Cargo.toml itself.
        assert!(file == "Cargo.toml" || error.contains(file), "{file}, {instead}: {error}");
        assert!(error.contains(said), "{file}, {instead}: {error}");
        fs::write(&path, before)?;
    }
    run(&script, &["check"])?;
    Ok(())
}

pub async fn a_release_is_the_same_to_the_byte(s: &Scenario) -> Result<()> {
    assert_eq!(release(&["version"])?.trim(), VERSION);
    let digest = digest();
    let [first, second] = [s.file("first"), s.file("second")];
    for out in [&first, &second] {
        plugin_archives(s, out)?;
        release(&["chart", text(out)?, &digest])?;
        release(&["manifest", text(out)?, &digest])?;
        release(&["krew", text(out)?])?;
        release(&["sums", text(out)?])?;
    }
    let sums = fs::read_to_string(first.join("SHA256SUMS"))?;
    assert_eq!(sums.lines().count(), PLATFORMS.len() + 3, "{sums}");
    assert_eq!(sums, fs::read_to_string(second.join("SHA256SUMS"))?);

    the_chart_names_its_image(s, &first.join(format!("label-storage-{VERSION}.tgz")), &digest)?;
    let objects = documents(&fs::read_to_string(first.join("label-storage.yaml"))?)?;
    assert_eq!(of_kind(&objects, "StatefulSet").count(), 2);
    for set in of_kind(&objects, "StatefulSet") {
        let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, json!(format!("ghcr.io/acme/labels@{digest}")));
    }
    for command in ["chart", "manifest"] {
        let error = release(&[command, text(&first)?, "latest"]).expect_err(command);
        assert!(format!("{error:#}").contains("sha256:"), "{error:#}");
    }

    let notes = release(&["notes"])?;
    assert!(!notes.contains("\n## ") && !notes.contains("](docs/"), "{notes}");
    assert!(notes.contains(&format!("https://github.com/Acme/labels/blob/v{VERSION}/docs/")), "{notes}");
    Ok(())
}

/// Archives with the layout of real ones, and a script instead of the program.
fn plugin_archives(s: &Scenario, out: &Path) -> Result<()> {
    fs::create_dir_all(out)?;
    let license = manifests::path("../LICENSE");
    for platform in PLATFORMS {
        let (program, suffix) = match platform.starts_with("windows") {
            true => ("kubectl-label_storage.exe", "zip"),
            false => ("kubectl-label_storage", "tar.gz"),
        };
        let program = s.file(program);
        fs::write(&program, "#!/bin/sh\n")?;
        Command::new("chmod").arg("+x").arg(&program).status()?;
        let archive = out.join(format!("kubectl-label_storage-v{VERSION}-{platform}.{suffix}"));
        pack(&["archive", text(&archive)?, text(&program)?, text(&license)?])?;
    }
    Ok(())
}

fn the_chart_names_its_image(s: &Scenario, package: &Path, digest: &str) -> Result<()> {
    let package = text(package)?;
    let rendered = documents(&manifests::helm(s, &["template", "label-storage", package])?)?;
    for set in of_kind(&rendered, "StatefulSet") {
        let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, json!(format!("ghcr.io/acme/labels@{digest}")));
    }
    let shown = manifests::helm(s, &["show", "all", package])?;
    assert!(!shown.contains("OWNER") && !shown.contains("](../"), "{shown}");
    let chart: Value = serde_saphyr::from_str(&manifests::helm(s, &["show", "chart", package])?)?;
    assert_eq!(chart["home"], "https://github.com/Acme/labels");
    assert_eq!([&chart["version"], &chart["appVersion"]], [VERSION, VERSION]);
    let annotation = |name: &str| -> Result<Value> {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str();
        Ok(serde_saphyr::from_str(text.with_context(|| format!("no {name}: {chart}"))?)?)
    };
    assert_eq!(annotation("images")?[0]["image"], format!("ghcr.io/acme/labels:{VERSION}@{digest}"));
    assert!(annotation("changes")?.as_array().is_some_and(|it| !it.is_empty()));
    let raw = format!("https://raw.githubusercontent.com/Acme/labels/v{VERSION}/");
    let screenshots = annotation("screenshots")?;
    let mut pictures: Vec<_> = screenshots.as_array().into_iter().flatten().map(|it| &it["url"]).collect();
    pictures.push(&chart["icon"]);
    assert_eq!(pictures.len(), 3);
    for url in pictures {
        let path = url.as_str().and_then(|url| url.strip_prefix(&raw)).with_context(|| format!("{url}"))?;
        assert!(manifests::path("..").join(path).is_file(), "{path}");
    }
    for link in annotation("links")?.as_array().into_iter().flatten() {
        let path = link["url"].as_str().and_then(|url| url.split_once(&format!("/blob/v{VERSION}/")));
        assert!(path.is_none_or(|(_, path)| manifests::path("..").join(path).is_file()), "{link}");
    }
    Ok(())
}

pub async fn what_krew_would_refuse_is_refused(s: &Scenario) -> Result<()> {
    let out = s.file("dist");
    plugin_archives(s, &out)?;
    release(&["krew", text(&out)?])?;
    let path = out.join("label-storage.krew.yaml");
    let manifest = fs::read_to_string(&path)?;
    let plugin: Value = serde_saphyr::from_str(&manifest)?;
    let platforms = plugin["spec"]["platforms"].as_array().context("platforms")?;
    assert_eq!(platforms.len(), PLATFORMS.len());
    for (platform, name) in platforms.iter().zip(PLATFORMS) {
        let labels = &platform["selector"]["matchLabels"];
        assert_eq!(format!("{}-{}", labels["os"], labels["arch"]).replace('"', ""), name);
        let uri = platform["uri"].as_str().context("uri")?;
        let prefix = format!("https://github.com/Acme/labels/releases/download/v{VERSION}/");
        let archive = out.join(uri.strip_prefix(&prefix).context("another prefix")?);
        let sum = Command::new("sha256sum").arg(&archive).output()?.stdout;
        assert!(String::from_utf8(sum)?.starts_with(platform["sha256"].as_str().context("sha256")?));
        // krew runs `bin` of the unpacked archive, and wants a license beside it.
        let files: PathBuf = s.file(&format!("unpacked-{name}"));
        fs::create_dir_all(&files)?;
        let unpack = ["-c", "import shutil, sys; shutil.unpack_archive(*sys.argv[1:])"];
        let status = Command::new("python3").args(unpack).args([&archive, &files]).status()?;
        assert!(status.success());
        assert!(
            files.join("LICENSE").is_file() && files.join(platform["bin"].as_str().context("bin")?).is_file()
        );
    }

    for (has, instead) in [
        ("v1alpha2", "v1alpha1"),
        ("kind: Plugin", "kind: Plug"),
        ("name: label-storage", "name: other"),
        ("shortDescription:", "summary:"),
        ("version: v", "version: "),
        ("  homepage:", "  home: a\n  homepage:"),
        ("bin:", "binary:"),
        ("os: linux", "os: plan9"),
        ("arch: arm64", "architecture: arm64"),
        ("uri: https", "uri: http"),
        ("      sha256: ", "      sha256: x"),
    ] {
        assert!(manifest.contains(has), "{has}");
        fs::write(&path, manifest.replacen(has, instead, 1))?;
        let error = release(&["validate-krew", text(&path)?]).expect_err(instead);
        assert!(format!("{error:#}").contains("no manifest that krew accepts"), "{instead}: {error:#}");
    }

    fs::remove_file(out.join(format!("kubectl-label_storage-v{VERSION}-darwin-arm64.tar.gz")))?;
    let error = format!("{:#}", release(&["krew", text(&out)?]).expect_err("an archive is missing"));
    assert!(error.contains("release.sh plugin darwin-arm64"), "{error}");
    Ok(())
}

pub async fn an_image_is_the_same_to_the_byte(s: &Scenario) -> Result<()> {
    let programs = s.file("programs");
    fs::create_dir_all(&programs)?;
    for program in ["storer", "restorer"] {
        fs::write(programs.join(program), program)?;
    }
    let bundle = s.file("bundle.crt");
    fs::write(&bundle, "certificates")?;
    let programs = [format!("amd64={}", programs.display()), format!("arm64={}", programs.display())];
    let image = |name: &str| -> Result<(String, Vec<u8>)> {
        let out = s.file(name);
        let named = format!("ghcr.io/acme/labels:{VERSION}");
        let digest = pack(&["oci", text(&out)?, &named, text(&bundle)?, &programs[0], &programs[1]])?;
        Ok((digest, fs::read(&out)?))
    };
    let (digest, bytes) = image("first.tar")?;
    assert!((&digest, &bytes) == (&image("second.tar")?.0, &image("third.tar")?.1));

    let files = s.file("image");
    fs::create_dir_all(&files)?;
    assert!(
        Command::new("tar").arg("-xf").arg(s.file("first.tar")).arg("-C").arg(&files).status()?.success()
    );
    let blob = |descriptor: &Value| -> Result<Value> {
        let digest =
            descriptor["digest"].as_str().and_then(|it| it.strip_prefix("sha256:")).context("a digest")?;
        Ok(serde_json::from_slice(&fs::read(files.join("blobs/sha256").join(digest))?)?)
    };
    let top: Value = serde_json::from_slice(&fs::read(files.join("index.json"))?)?;
    assert_eq!(top["manifests"][0]["digest"], digest.trim());
    let index = blob(&top["manifests"][0])?;
    let dockerfile = fs::read_to_string(manifests::path("../Dockerfile"))?;
    for (manifest, architecture) in
        index["manifests"].as_array().into_iter().flatten().zip(["amd64", "arm64"])
    {
        let config = blob(&blob(manifest)?["config"])?;
        assert_eq!([&config["architecture"], &config["os"]], [architecture, "linux"]);
        assert!(
            dockerfile
                .contains(&format!("\nUSER {}\n", config["config"]["User"].as_str().context("a user")?))
        );
        let labels = config["config"]["Labels"].as_object().context("labels")?;
        assert_eq!(labels.len(), dockerfile.matches("org.opencontainers.image.").count());
        for (label, value) in labels {
            assert!(dockerfile.contains(&format!("{label}={value}")), "{label}");
        }
    }
    Ok(())
}
