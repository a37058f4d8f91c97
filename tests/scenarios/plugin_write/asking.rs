//! Confirmation by a person at a terminal.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sandbox::itself;
use serde_json::json;

use super::departed;
use crate::scenario::{Labels, PATIENCE, Scenario, TERMINAL, labels};

/// A terminal: what a person sits at, and what a program has of it.
pub fn terminal() -> Result<(File, File, String)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let path = ptsname(&terminal, Vec::new())?.to_str()?.to_owned();
    // Not of this process's own, which may well have none.
    let theirs = rustix::pty::ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    Ok((terminal.into(), theirs.into(), path))
}

/// The plugin, and a person who can answer it.
pub struct Dialogue {
    child: Child,
    terminal: File,
    /// Where questions are heard.
    questions: Receiver<u8>,
    heard: String,
    /// Held, so that the terminal is there until the end.
    _theirs: File,
}

impl Dialogue {
    fn with(s: &Scenario, args: &[&str]) -> Result<Self> {
        Self::through(s, s.sandbox.kubeconfig(), args)
    }

    /// The same, by way of a proxy.
    fn through(s: &Scenario, kubeconfig: &Path, args: &[&str]) -> Result<Self> {
        let (terminal, theirs, _) = terminal()?;
        let mut command = command(s, kubeconfig, args)?;
        let mut child = command.stdin(theirs.try_clone()?).spawn()?;
        let questions = heard_from(child.stderr.take().context("its stderr")?);
        Ok(Self { child, terminal, questions, heard: String::new(), _theirs: theirs })
    }

    /// The same, where it reads a file on stdin, and a person sits at the terminal.
    pub fn reading(s: &Scenario, file: &Path, args: &[&str]) -> Result<Self> {
        let (terminal, theirs, path) = terminal()?;
        let mut command = command(s, s.sandbox.kubeconfig(), args)?;
        let child = command.stdin(File::open(file)?).env(TERMINAL, path).spawn()?;
        let questions = heard_from(terminal.try_clone()?);
        Ok(Self { child, terminal, questions, heard: String::new(), _theirs: theirs })
    }

    /// Waits until it is asked something.
    pub fn is_asked(&mut self) -> Result<()> {
        self.heard.clear();
        while !self.heard.ends_with("[y/N] ") {
            let byte = self.questions.recv_timeout(PATIENCE);
            self.heard.push(char::from(byte.with_context(|| format!("not asked: {}", self.heard))?));
        }
        Ok(())
    }

    pub fn answers(&mut self, what: &str) -> Result<()> {
        Ok(self.terminal.write_all(format!("{what}\n").as_bytes())?)
    }

    /// Waits for its end: the exit code, and what it says on stdout.
    pub fn ends(self) -> Result<(Option<i32>, String)> {
        let output = self.child.wait_with_output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?))
    }

    /// The same, and what it has said on stderr since the last question.
    fn ends_with_words(self) -> Result<(Option<i32>, String)> {
        let status = { self.child }.wait()?;
        let words = self.questions.iter().map(char::from).collect();
        Ok((status.code(), words))
    }
}

fn command(s: &Scenario, kubeconfig: &Path, args: &[&str]) -> Result<Command> {
    let mut command = itself::command("plugin", Some(kubeconfig))?;
    command.args(args).env("LABEL_STORAGE_NAMESPACE", &s.namespace);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Reads everything from there, so that the writer never blocks.
fn heard_from(from: impl Read + Send + 'static) -> Receiver<u8> {
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        for byte in BufReader::new(from).bytes().map_while(std::io::Result::ok) {
            if sender.send(byte).is_err() {
                break;
            }
        }
    });
    heard
}

pub async fn nothing_is_changed_before_the_answer_is_yes(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    departed(s, &node, &labels([("pool", "gold")])).await?;
    let before = s.config_map(&node).await?;
    for answer in ["", "n", "no", "what?"] {
        let mut dialogue = Dialogue::with(s, &["forget", &node])?;
        dialogue.is_asked()?;
        dialogue.answers(answer)?;
        let (code, said) = dialogue.ends()?;
        assert_eq!(code, Some(1), "{answer}");
        assert!(said.contains("-pool=gold"), "{said}");
        assert_eq!(s.config_map(&node).await?, before);
    }
    // Ended by a signal, as by Ctrl-C. Not that one: where tests run in the background of a shell, it is ignored.
    let mut dialogue = Dialogue::with(s, &["forget", &node])?;
    dialogue.is_asked()?;
    kill_process(Pid::from_child(&dialogue.child), Signal::TERM)?;
    let status = dialogue.child.wait()?;
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(s.config_map(&node).await?, before);

    let mut dialogue = Dialogue::with(s, &["forget", &node])?;
    dialogue.is_asked()?;
    dialogue.answers("y")?;
    assert_eq!(dialogue.ends()?.0, Some(0));
    assert_eq!(s.config_map(&node).await?, None);
    Ok(())
}

pub async fn what_has_changed_before_the_answer_is_shown_again(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    departed(s, &node, &labels([("pool", "gold")])).await?;
    s.create(&node, Labels::new()).await?;
    let mut dialogue = Dialogue::with(s, &["restore", &node])?;
    dialogue.is_asked()?;
    s.label(&node, [("pool", Some("silver"))]).await?;
    dialogue.answers("y")?;
    dialogue.is_asked()?;
    assert!(dialogue.heard.contains("has changed meanwhile"), "{}", dialogue.heard);
    dialogue.answers("y")?;
    let (code, said) = dialogue.ends()?;
    assert_eq!(code, Some(0));
    assert!(said.contains("+pool=gold") && said.contains("! pool=silver is not changed"), "{said}");
    assert_eq!(s.labels(&node).await?, labels([("pool", "silver")]));
    Ok(())
}

pub async fn who_says_no_in_the_middle_is_told_what_was_done(s: &Scenario) -> Result<()> {
    let (old, new) = (s.node("old"), s.node("new"));
    departed(s, &old, &labels([("pool", "gold")])).await?;
    // The record is written under the new name. Before it is deleted under the old name, another client changes it.
    let (reached, is_reached) = channel();
    let (go, may_go) = channel::<()>();
    let proxy = s.proxy(move |request: &Request| {
        if request.is(Verb::Delete, "configmaps") && reached.send(()).is_ok() {
            // Until the other side is dropped.
            _ = tokio::task::block_in_place(|| may_go.recv());
        }
        Fault::None
    });
    let proxy = proxy.await?;
    let mut dialogue = Dialogue::through(s, proxy.kubeconfig(), &["rename", &old, &new, "--replace"])?;
    dialogue.is_asked()?;
    dialogue.answers("y")?;
    is_reached.recv_timeout(PATIENCE)?;
    s.patch_record(&old, json!({"data": {"pool": "theirs"}})).await?;
    drop(go);
    dialogue.is_asked()?;
    assert!(dialogue.heard.contains("has changed meanwhile"), "{}", dialogue.heard);
    dialogue.answers("n")?;
    let (code, words) = dialogue.ends_with_words()?;
    let begun = format!("done so far: create configmap {}", label_storage::name::record_name(&new));
    assert!(code == Some(1) && words.contains(&begun), "{words}");
    let labels_of =
        async |node: &str| Ok::<_, anyhow::Error>(s.record(node).await?.map(|record| record.labels));
    assert_eq!(labels_of(&old).await?, Some(labels([("pool", "theirs")])));
    assert_eq!(labels_of(&new).await?, Some(labels([("pool", "gold")])));
    Ok(())
}
