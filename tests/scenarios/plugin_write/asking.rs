//! A person at a terminal, who is asked.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sandbox::itself;

use super::departed;
use crate::scenario::{Labels, Scenario, labels};

/// The plugin, and a person who can answer it.
struct Dialogue {
    child: Child,
    terminal: File,
    heard: String,
}

impl Dialogue {
    fn with(s: &Scenario, args: &[&str]) -> Result<Self> {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let path = ptsname(&terminal, Vec::new())?;
        let stdin = File::options().read(true).write(true).open(path.to_str()?)?;
        let mut command = itself::command("plugin", Some(s.sandbox.kubeconfig()))?;
        command.args(args).env("LABEL_STORAGE_NAMESPACE", &s.namespace);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self { child: command.spawn()?, terminal: terminal.into(), heard: String::new() })
    }

    /// Waits until it is asked something.
    fn is_asked(&mut self) -> Result<()> {
        let stderr = self.child.stderr.as_mut().context("its stderr")?;
        self.heard.clear();
        while !self.heard.ends_with("[y/N] ") {
            let mut byte = [0];
            anyhow::ensure!(stderr.read(&mut byte)? == 1, "not asked: {}", self.heard);
            self.heard.push(char::from(byte[0]));
        }
        Ok(())
    }

    fn answers(&mut self, what: &str) -> Result<()> {
        Ok(self.terminal.write_all(format!("{what}\n").as_bytes())?)
    }

    /// Waits for its end: the exit code, and what it says on stdout.
    fn ends(self) -> Result<(Option<i32>, String)> {
        let output = self.child.wait_with_output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?))
    }
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
    // Ctrl-C.
    let mut dialogue = Dialogue::with(s, &["forget", &node])?;
    dialogue.is_asked()?;
    kill_process(Pid::from_child(&dialogue.child), Signal::INT)?;
    let status = dialogue.child.wait()?;
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
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
    assert!(dialogue.heard.contains("it has changed meanwhile"), "{}", dialogue.heard);
    dialogue.answers("y")?;
    let (code, said) = dialogue.ends()?;
    assert_eq!(code, Some(0));
    assert!(said.contains("+pool=gold") && said.contains("! pool stays silver"), "{said}");
    assert_eq!(s.labels(&node).await?, labels([("pool", "silver")]));
    Ok(())
}
