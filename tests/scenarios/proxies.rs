//! HTTP proxies between us and the API server.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use sandbox::itself;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::scenario::Scenario;

/// A proxy that knows CONNECT. Returns its address, and the number of tunnels so far.
async fn proxy() -> Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, tunnels) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&tunnels);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(tunnel(client));
        }
    });
    Ok((format!("127.0.0.1:{}", address.port()), tunnels))
}

async fn tunnel(client: TcpStream) -> Result<()> {
    let mut client = BufReader::new(client);
    let (mut request, mut line) = (String::new(), String::new());
    client.read_line(&mut request).await?;
    while client.read_line(&mut line).await? > 2 {
        line.clear();
    }
    let target = request.split_whitespace().nth(1).context("a target")?;
    let mut server = TcpStream::connect(target).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

pub async fn proxies_of_the_environment_and_of_the_kubeconfig_are_used(s: &Scenario) -> Result<()> {
    let (address, tunnels) = proxy().await?;
    let url = format!("http://{address}");
    let kubeconfig = s.sandbox.kubeconfig();
    // Each says that there is no such namespace, once it has asked the API server.
    const NOWHERE: [&str; 2] = ["--namespace", "nowhere"];
    let run = async |mut command: Command| -> Result<usize> {
        let before = tunnels.load(Ordering::Relaxed);
        command.args(NOWHERE).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let said = String::from_utf8(output.stderr)?;
        assert!(output.status.code() == Some(1) && said.contains("nowhere does not exist"), "{said}");
        Ok(tunnels.load(Ordering::Relaxed) - before)
    };
    let command = |kind: &str, args: &[&str], variables: &[(&str, &str)]| -> Result<Command> {
        let mut command = itself::command(kind, Some(kubeconfig))?;
        command.args(args).envs(variables.iter().copied());
        Ok(command)
    };
    for (kind, args) in [("plugin", &["get"][..]), ("storer", &[]), ("restorer", &[])] {
        assert!(run(command(kind, args, &[("HTTPS_PROXY", &url)])?).await? > 0, "{kind}");
        assert!(
            run(command(kind, args, &[("HTTPS_PROXY", &address)])?).await? > 0,
            "{kind}: without a scheme"
        );
        for excepted in ["127.0.0.1", "example.com,127.0.0.0/8", "*"] {
            let variables = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", excepted)];
            assert_eq!(run(command(kind, args, &variables)?).await?, 0, "{kind}: {excepted}");
        }
        let elsewhere = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "example.com")];
        assert!(run(command(kind, args, &elsewhere)?).await? > 0, "{kind}: another host");
    }
    let mut own: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    own["clusters"][0]["cluster"]["proxy-url"] = json!(url);
    let file = s.file("with-proxy");
    std::fs::write(&file, own.to_string())?;
    for (kind, args) in [("plugin", &["get"][..]), ("storer", &[])] {
        let mut command = itself::command(kind, Some(&file))?;
        command.args(args);
        assert!(run(command).await? > 0, "{kind}: proxy-url");
    }
    Ok(())
}
