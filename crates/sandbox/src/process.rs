//! Processes that end with their owner, even if the owner is killed with SIGKILL.
//!
//! The kernel has no portable way to tie one process's life to another's, and Linux's parent-death signal fires when
//! the *thread* that forked ends. So each process runs under a guard, a small shell script that waits on a pipe. Only
//! the owner holds the pipe's other end, and the kernel closes that in every case: a return, a panic, a signal.
//!
//! ```text
//!   owner ──pipe──▶ guard (sh, a process group of its own) ──▶ program ──▶ log file
//!     ▲               │ pipe closed: TERM, then KILL
//!     └──exit status──┘ program ended: ends with its status
//! ```

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
pub use rustix::process::Signal;

const GUARD: &str = include_str!("guard.sh");

/// The default time between TERM and KILL.
pub const GRACE: Duration = Duration::from_secs(5);

/// The interval at which a waiting owner checks. It is short against the waits, and long against the cost of a check.
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shell that guards the process did not start.
    #[error("can't start {name} under /bin/sh")]
    Spawn {
        /// The name that was given to [`Guarded::spawn`].
        name: String,
        #[source]
        source: io::Error,
    },
    /// The shell ended without starting the process.
    #[error("the guard of {name} ended before it reported a process id: check that {} is writable", log.display())]
    NoPid {
        name: String,
        /// The file for its output.
        log: PathBuf,
    },
    /// The signal can't be sent.
    #[error("can't signal {name} (pid {pid})")]
    Signal {
        name: String,
        pid: u32,
        #[source]
        source: io::Error,
    },
}

/// The end of a process as a shell reports it: its exit code, or 128+n if signal n killed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit(i32);

impl Exit {
    /// The exit code, or 128+n if signal n killed the process.
    pub fn code(self) -> i32 {
        self.0
    }

    /// True if the process ended with code 0.
    pub fn success(self) -> bool {
        self.0 == 0
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        // If the guard itself was killed, its program gets the same signal.
        Self(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            code @ 129..=192 => write!(f, "signal {}", code - 128),
            code => write!(f, "exit code {code}"),
        }
    }
}

/// A running process that ends at the latest when this value, or the process that holds it, does.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    pid: Pid,
    log: PathBuf,
    grace: Duration,
    /// Behind a lock, so that the threads of all tests can use a shared control plane.
    guard: Mutex<Guard>,
}

/// The way to end a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Afterwards<'a> {
    /// The time between TERM and KILL, both in a stop and after the owner has ended.
    pub(crate) grace: Duration,
    /// A folder to delete if the owner ends without a stop.
    pub(crate) remove: Option<&'a Path>,
}

impl Default for Afterwards<'_> {
    fn default() -> Self {
        Self { grace: GRACE, remove: None }
    }
}

#[derive(Debug)]
struct Guard {
    shell: Child,
    /// Never written to: it is open as long as the owner lives. It is not part of `shell`, whose `wait` would close it.
    _lifeline: Option<ChildStdin>,
    exit: Option<Exit>,
}

impl Guarded {
    /// Starts `command`, and appends its output to `log`. Errors and messages contain `name`.
    ///
    /// Of `command`, the program, the arguments, the working folder and the environment variables that were set or
    /// removed are used. Stdin is `/dev/null`.
    pub fn spawn(name: &str, command: &Command, log: &Path) -> Result<Self, Error> {
        Self::spawn_with(name, command, log, Afterwards::default())
    }

    /// Like [`Guarded::spawn`], with the way to end it.
    pub(crate) fn spawn_with(
        name: &str,
        command: &Command,
        log: &Path,
        afterwards: Afterwards<'_>,
    ) -> Result<Self, Error> {
        let Afterwards { grace, remove } = afterwards;
        let mut guard = Command::new("/bin/sh");
        guard
            .args(["-c", GUARD, "guard"])
            .arg(log)
            .arg((grace.as_millis() / 100).to_string())
            .arg(remove.unwrap_or(Path::new("")))
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A terminal sends Ctrl-C to its whole foreground group. In another group, the owner decides what ends, and in which order.
            .process_group(0);
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => guard.env(key, value),
                None => guard.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            guard.current_dir(folder);
        }

        let mut shell = guard.spawn().map_err(|source| Error::Spawn { name: name.to_owned(), source })?;
        let lifeline = shell.stdin.take();
        let pid = shell.stdout.take().and_then(|stdout| {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).ok()?;
            Pid::from_raw(line.trim().parse().ok()?)
        });
        let Some(pid) = pid else {
            drop(lifeline);
            // Reaps it: a shell that reported no pid has ended, or does so now that its pipe is closed.
            let _ = shell.wait();
            return Err(Error::NoPid { name: name.to_owned(), log: log.to_owned() });
        };
        let guard = Mutex::new(Guard { shell, _lifeline: lifeline, exit: None });
        Ok(Self { name: name.to_owned(), pid, log: log.to_owned(), grace, guard })
    }

    /// The name that was given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id of the program itself, not of its guard.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The file that its output goes to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its last `lines` lines of output, for an error message.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    /// Sends a signal to the program itself. If it has ended already, this does nothing.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        if self.try_wait().is_some() {
            return Ok(());
        }
        match rustix::process::kill_process(self.pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(source) => {
                Err(Error::Signal { name: self.name.clone(), pid: self.pid(), source: source.into() })
            }
        }
    }

    /// The exit status, or `None` while it runs.
    pub fn try_wait(&self) -> Option<Exit> {
        let mut guard = self.guard();
        if guard.exit.is_none() {
            guard.exit = guard.shell.try_wait().ok().flatten().map(Exit::from);
        }
        guard.exit
    }

    /// Waits until it ends, at most for `limit`.
    pub fn wait_timeout(&self, limit: Duration) -> Option<Exit> {
        let deadline = Instant::now() + limit;
        loop {
            let exit = self.try_wait();
            if exit.is_some() || Instant::now() >= deadline {
                return exit;
            }
            thread::sleep(POLL);
        }
    }

    /// Ends it with TERM, or with KILL after the grace time, and waits until it has ended. Dropping does the same.
    pub fn stop(&self) -> Option<Exit> {
        // If the signal fails, the waits below return `None`.
        let _ = self.signal(Signal::TERM);
        // A suspended process would not receive the TERM.
        let _ = self.signal(Signal::CONT);
        self.wait_timeout(self.grace).or_else(|| {
            let _ = self.signal(Signal::KILL);
            self.wait_timeout(GRACE)
        })
    }

    fn guard(&self) -> MutexGuard<'_, Guard> {
        // A panic elsewhere does not leave this state inconsistent.
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last `lines` lines of a file, or nothing if it can't be read.
pub(crate) fn tail(file: &Path, lines: usize) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
