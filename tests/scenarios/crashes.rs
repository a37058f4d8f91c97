//! Daemons end: suddenly, or when asked to.

use anyhow::Result;
use sandbox::process::Signal;

use crate::command_line::kubeconfig_for;
use crate::daemon::Daemon;
use crate::scenario::{Scenario, labels};
use crate::slow_server::SlowServer;

pub async fn a_signal_ends_an_idle_daemon_in_order(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    s.create(&node, labels([("pool", "gold")])).await?;
    for signal in [Signal::TERM, Signal::INT] {
        for kind in ["storer", "restorer"] {
            let daemon = s.daemon(kind, &["--interval", "1h"])?;
            s.eventually("a pass", true, async || Ok(daemon.decisions(&node) > 0)).await?;
            daemon.process.signal(signal)?;
            assert_eq!(daemon.exit().await?.code(), 0, "{kind} {signal:?}");
            assert!(daemon.has_logged(&["INFO", "stopped"]));
        }
    }
    Ok(())
}

/// A storer in the middle of a write, which the server does not answer yet.
async fn in_the_middle_of_a_write(s: &Scenario) -> Result<(SlowServer, Daemon)> {
    let server = SlowServer::start().await?;
    let kubeconfig = s.file("slow");
    std::fs::write(&kubeconfig, kubeconfig_for(&server.url))?;
    let daemon = s.run_binary("storer", &[], Some(kubeconfig))?;
    s.eventually("a write under way", true, async || Ok(server.has_writes())).await?;
    Ok((server, daemon))
}

async fn has_heard(s: &Scenario, daemon: &Daemon) -> Result<()> {
    let words = ["INFO", "finishing the attempts in flight"];
    s.eventually("the signal was heard", true, async || Ok(daemon.has_logged(&words))).await
}

pub async fn a_write_in_flight_is_finished_after_the_first_signal(s: &Scenario) -> Result<()> {
    let (server, daemon) = in_the_middle_of_a_write(s).await?;
    daemon.process.signal(Signal::TERM)?;
    has_heard(s, &daemon).await?;
    server.answer();
    assert_eq!(daemon.exit().await?.code(), 0);
    assert!(daemon.has_logged(&["INFO", "stored"]), "{}", daemon.log());
    Ok(())
}

pub async fn a_write_that_is_never_answered_does_not_hold_up_the_end(s: &Scenario) -> Result<()> {
    let (_server, daemon) = in_the_middle_of_a_write(s).await?;
    daemon.process.signal(Signal::TERM)?;
    assert_eq!(daemon.exit().await?.code(), 0);
    Ok(())
}

pub async fn a_second_signal_ends_a_daemon_at_once(s: &Scenario) -> Result<()> {
    let (_server, daemon) = in_the_middle_of_a_write(s).await?;
    daemon.process.signal(Signal::TERM)?;
    // Two signals that are not apart are one.
    has_heard(s, &daemon).await?;
    daemon.process.signal(Signal::TERM)?;
    assert_eq!(daemon.exit().await?.code(), 130);
    Ok(())
}
