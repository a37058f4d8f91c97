//! Builds binaries with Go, from the versions that the go.mod of their module (`modules`) pins.
//!
//! No package has kube-apiserver alone, but its Go module can be built like any other. The result is kept in a cache
//! folder; a lock file there lets several test runs that start at the same time share one build.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::binary::{Binary, missing};
use crate::modules::Module;
use crate::process::{self, Afterwards, Exit, Guarded};
use crate::progress::Progress;

/// For versions that are not pinned: Go finds the dependencies of these imports.
const TOOLS: &str = r#"//go:build tools

package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
"#;

/// The interval at which the build's log is read for progress.
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Go is not installed.
    #[error("can't build {binary} without Go on PATH: install Go {go} or later, or {instead}")]
    NoGo {
        /// The first binary that is missing.
        binary: Binary,
        /// The Go version that go.mod requires.
        go: String,
        /// The other way to get it.
        instead: &'static str,
    },
    /// The cache folder can't be used.
    #[error("can't write {}", path.display())]
    Cache {
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Go failed.
    #[error(
        "{step} of {binary} failed ({exit}); its last lines, from {}:\n{tail}\nfix the cause and try again (finished parts of the build are kept), or {instead}",
        log.display()
    )]
    Go {
        /// `go list` or `go build`.
        step: &'static str,
        binary: Binary,
        exit: Exit,
        tail: String,
        /// The file with all lines.
        log: PathBuf,
        /// The other way to get the binary.
        instead: &'static str,
    },
    /// The Go module proxy does not have it.
    #[error(
        "can't find Kubernetes {version}: give a version that the Go module proxy has, such as 1.30.14. Go reports: {said}"
    )]
    UnknownVersion {
        version: String,
        /// The output of Go.
        said: String,
    },
    /// Go can't be started.
    #[error(transparent)]
    Process(#[from] process::Error),
}

/// Builds the binaries among `needed`, all from `module`, that `folder` still lacks once this process has the lock.
pub(crate) fn build(module: &Module, folder: &Path, needed: &[Binary]) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    let _lock = lock(folder, module.what)?;
    let missing = missing(folder, needed);
    let Some(&first) = missing.first() else {
        return Ok(());
    };
    if !go_is_on_path() {
        return Err(Error::NoGo {
            binary: first,
            go: module.go_version().to_owned(),
            instead: module.instead,
        });
    }

    let names: Vec<_> = missing.iter().map(|binary| binary.file_name()).collect();
    eprintln!(
        "building {} ({}) with Go into {}: the first time this downloads the modules and takes about {} on 2 cores",
        names.join(", "),
        module.version(),
        folder.display(),
        module.takes
    );
    let sources = folder.join("module");
    fs::create_dir_all(&sources).map_err(at(&sources))?;
    let write = |name, text: &str| fs::write(sources.join(name), text).map_err(at(&sources.join(name)));
    if !module.go_sum.is_empty() {
        write("go.mod", &module.go_mod)?;
        write("go.sum", &module.go_sum)?;
    } else if !has_sums(&sources) {
        write("go.mod", &module.go_mod)?;
        write("tools.go", TOOLS)?;
    }
    missing.into_iter().try_for_each(|binary| build_one(module, folder, &sources, binary))
}

fn build_one(module: &Module, folder: &Path, sources: &Path, binary: Binary) -> Result<(), Error> {
    // Beside the target, so that the finished file can be renamed into place, and never exists in part. Go's
    // own temporary files go there too, and the guard removes it all if this process is killed.
    let work = tempfile::Builder::new().prefix("work-").tempdir_in(folder).map_err(at(folder))?;
    let afterwards = Afterwards { remove: Some(work.path()), ..Afterwards::default() };
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).args(["-tags", module.tags]).arg(binary.package());
        go.current_dir(sources);
        go.env("CGO_ENABLED", "0").env("GOTMPDIR", work.path());
        // Settings of the caller for cross-compilation or a workspace do not apply to this module.
        go.env("GOOS", "").env("GOARCH", "").env("GOWORK", "off");
        go
    };
    let run = |step: &'static str, command: &Command, on_packages: &mut dyn FnMut(u64)| {
        let log = sources.join(format!("{binary}-{}.log", step.replace(' ', "-")));
        let mut packages = Packages::in_new(&log)?;
        let go = Guarded::spawn_with(step, command, &log, afterwards)?;
        loop {
            let exit = go.wait_timeout(POLL);
            on_packages(packages.count().map_err(at(&log))?);
            match exit {
                None => {}
                Some(exit) if exit.success() => return Ok(()),
                Some(exit) => {
                    let (tail, instead) = (go.log_tail(15), module.instead);
                    return Err(Error::Go { step, binary, exit, tail, log, instead });
                }
            }
        }
    };

    if !has_sums(sources) {
        let mut tidy = Command::new("go");
        tidy.args(["mod", "tidy"]).current_dir(sources).env("GOWORK", "off");
        run("go mod tidy", &tidy, &mut |_| ())?;
    }
    // The length of the list is the total of the progress bar. Listing also downloads the modules, which the build needs anyway.
    let mut total = 0;
    run("go list", &go(&["list", "-deps"]), &mut |packages| total = packages)?;

    let target = folder.join(binary.file_name());
    let finished = work.path().join(binary.file_name());
    let mut progress = Progress::new(format!("building {binary}, Go packages"), total);
    let command = go(&["build", "-v", "-ldflags", &module.linker_flags(), "-o", &finished.to_string_lossy()]);
    run("go build", &command, &mut |packages| progress.set(packages))?;
    progress.clear();
    fs::rename(&finished, &target).map_err(at(&target))?;
    eprintln!("built {}", target.display());
    Ok(())
}

/// True if the versions of all dependencies are known: they are pinned, or Go has found them before.
fn has_sums(sources: &Path) -> bool {
    sources.join("go.sum").is_file()
}

/// A file lock that is held during the build. The kernel releases it when this process ends, for any reason.
fn lock(folder: &Path, what: &str) -> Result<File, Error> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("another process builds {what} into {}: waiting until it is done", folder.display());
            file.lock().map_err(at(&path))?;
        }
        Err(TryLockError::Error(source)) => return Err(at(&path)(source)),
    }
    Ok(file)
}

fn go_is_on_path() -> bool {
    Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Counts the packages in Go's log, one a line.
struct Packages {
    log: File,
    unfinished_line: Vec<u8>,
    count: u64,
}

impl Packages {
    /// Empties or creates the log before Go writes to it.
    fn in_new(log: &Path) -> Result<Self, Error> {
        let log =
            File::options().read(true).write(true).create(true).truncate(true).open(log).map_err(at(log))?;
        Ok(Self { log, unfinished_line: Vec::new(), count: 0 })
    }

    /// Reads up to the present end of the log.
    fn count(&mut self) -> io::Result<u64> {
        self.log.read_to_end(&mut self.unfinished_line)?;
        while let Some(end) = self.unfinished_line.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unfinished_line.drain(..=end).collect();
            // Such as `go: downloading k8s.io/api v0.36.3`.
            if !line.starts_with(b"go: ") {
                self.count += 1;
            }
        }
        Ok(self.count)
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error::Cache { path, source }
}
