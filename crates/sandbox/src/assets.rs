//! Finds the binaries.
//!
//! `KUBEBUILDER_ASSETS` comes first: envtest users keep a control plane there. Otherwise binaries come from the user's cache folder,
//! and missing ones are built with Go first. Common tools such as helm are taken from the `PATH` if they are new enough.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

pub use crate::binary::Binary;
use crate::binary::missing;
use crate::go_build;
use crate::kubernetes::{self, Version};
use crate::modules::{self, Module};

const KUBEBUILDER_ASSETS: &str = "KUBEBUILDER_ASSETS";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder that the user named lacks a binary. Building it would hide the mistake.
    #[error(
        "KUBEBUILDER_ASSETS is {}, which has no {binary}: add it, or unset the variable to build it with Go",
        folder.display()
    )]
    Incomplete {
        /// The value of `KUBEBUILDER_ASSETS`.
        folder: PathBuf,
        /// The first binary that is missing.
        binary: Binary,
    },
    /// There is no folder for the cache.
    #[error("neither XDG_CACHE_HOME nor HOME is set: set one, or {instead}")]
    NoCacheFolder {
        /// The other way to get the binary.
        instead: &'static str,
    },
    /// Two variables name two control planes.
    #[error(
        "KUBEBUILDER_ASSETS names a control plane, and Kubernetes {0} is requested, too: unset one of them"
    )]
    TwoVersions(Version),
    /// `SANDBOX_KUBERNETES` is not a version.
    #[error(transparent)]
    Version(#[from] kubernetes::InvalidVersion),
    /// A binary could not be built.
    #[error(transparent)]
    Build(#[from] go_build::Error),
}

/// Finds a program, or builds it. Prints a line on stderr if it is the one on `PATH`.
pub fn find(binary: Binary) -> Result<PathBuf, Error> {
    let Some((question, least)) = binary.on_path() else {
        return Ok(Assets::find(None, &[binary])?.path(binary));
    };
    match version_on_path(binary, question).filter(|version| is_new_enough(version, least)) {
        Some(version) => {
            eprintln!("using the {binary} on PATH, {version}");
            Ok(binary.file_name().into())
        }
        None => built(binary.module(), &[binary]).map(|folder| folder.join(binary.file_name())),
    }
}

/// A folder with the requested binaries.
#[derive(Debug, Clone)]
pub struct Assets {
    folder: PathBuf,
}

impl Assets {
    /// Finds `needed`, and builds the missing ones unless `KUBEBUILDER_ASSETS` is set. Without a version, that of `SANDBOX_KUBERNETES`
    /// is used, or the pinned one.
    pub fn find(version: Option<&Version>, needed: &[Binary]) -> Result<Self, Error> {
        let version = match version {
            Some(version) => Some(version.clone()),
            None => kubernetes::from_environment()?,
        };
        let folder = match (variable(KUBEBUILDER_ASSETS), version) {
            (Some(_), Some(version)) => return Err(Error::TwoVersions(version)),
            (Some(folder), None) => {
                if let Some(&binary) = missing(&folder, needed).first() {
                    return Err(Error::Incomplete { folder, binary });
                }
                folder
            }
            (None, Some(version)) if !version.includes(modules::CONTROL_PLANE.version()) => {
                other_version(&version, needed)?
            }
            (None, _) => built(&modules::CONTROL_PLANE, needed)?,
        };
        Ok(Self { folder })
    }

    /// The folder itself, for a `PATH`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a requested binary.
    pub fn path(&self, binary: Binary) -> PathBuf {
        self.folder.join(binary.file_name())
    }
}

/// The cache folder of another version of Kubernetes, with `needed` in it. etcd is the pinned one.
fn other_version(version: &Version, needed: &[Binary]) -> Result<PathBuf, Error> {
    let all = cache_folder(&modules::CONTROL_PLANE)?.with_file_name("");
    let (etcd, others): (Vec<_>, Vec<_>) = needed.iter().partition(|binary| **binary == Binary::Etcd);
    let has_all = |folder: &PathBuf| missing(folder, &others).is_empty();
    let known = fs::read_dir(&all).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let known = known.filter_map(|name| name.into_string().ok()).filter(|name| version.includes(name));
    // The newest patch has the longest or last name.
    let newest = |folder: &PathBuf| (folder.as_os_str().len(), folder.clone());
    let folder = match known.map(|name| all.join(name)).filter(has_all).max_by_key(newest) {
        Some(folder) => folder,
        None => {
            let module = kubernetes::module(version)?;
            let folder = all.join(module.version());
            go_build::build(&module, &folder, &others)?;
            folder
        }
    };
    for binary in missing(&folder, &etcd) {
        let pinned = built(&modules::CONTROL_PLANE, &etcd)?.join(binary.file_name());
        let link = folder.join(binary.file_name());
        symlink(pinned, &link).map_err(|source| go_build::Error::Cache { path: link, source })?;
    }
    Ok(folder)
}

/// The cache folder of `module`, with `needed` in it.
fn built(module: &Module, needed: &[Binary]) -> Result<PathBuf, Error> {
    let folder = cache_folder(module)?;
    if !missing(&folder, needed).is_empty() {
        go_build::build(module, &folder, needed)?;
    }
    Ok(folder)
}

/// The folder of built binaries: one for each version and set of dependencies, so that a change causes a new build.
fn cache_folder(module: &Module) -> Result<PathBuf, Error> {
    let cache = variable("XDG_CACHE_HOME")
        // The XDG specification ignores relative paths.
        .filter(|folder| folder.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".cache")))
        .ok_or(Error::NoCacheFolder { instead: module.instead })?;
    Ok(cache.join("label-storage").join(module.folder).join(module.key()))
}

/// The version of the program on `PATH`, if there is one: `v3.14.2`, or `promtool, version 3.5.0 (branch: ...)`.
fn version_on_path(binary: Binary, question: &[&str]) -> Option<String> {
    let output = Command::new(binary.file_name()).args(question).stderr(Stdio::null()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let mut words = said.split_whitespace().skip_while(|word| numbers(word).is_none());
    words.next().map(str::to_owned)
}

fn is_new_enough(version: &str, least: (u32, u32)) -> bool {
    numbers(version).is_some_and(|numbers| numbers >= least)
}

/// The first two numbers of a version such as `v3.14.2`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// An environment variable that holds a path. Empty counts as unset, as in a shell's `${X:-}`.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_helm_is_not_used() {
        for (version, enough) in [
            ("v3.13.9", false),
            ("v3.14.0", true),
            ("v4.0.0-rc.1", true),
            ("v4.3.1", true),
            ("v2.17.0", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version, (3, 14)), enough, "{version}");
        }
    }
}
