//! `check`: the problems with the installation.

use anyhow::{Context, Result};
use console::style;
use label_storage_runtime::lease::LIFETIME;
use serde::Serialize;

use crate::Ended;
use crate::cluster::Cluster;
use crate::diagnose::installation::{self, Installation};
use crate::diagnose::shards::Leases;
use crate::diagnose::survey::Survey;
use crate::diagnose::{Finding, Severity, permissions, policies};
use crate::flags::Global;
use crate::output::{Format, OF_OBJECTS, Table, counted, plain, print, typed};
use crate::server_time::ServerTime;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each finding has a command that fixes it or shows more. A part that you are not allowed to read is `unknown`, which does not count as a
problem. Exit codes: 0 no problems, 1 error, 3 problems found. Use `status` in scripts.

Examples:
  kubectl label-storage check
  kubectl label-storage check -n my-namespace -o yaml")]
pub struct Args {
    /// The output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = OF_OBJECTS)]
    output: Format,
}

/// One part of the installation.
#[derive(Debug, Serialize)]
struct Checked {
    name: &'static str,
    /// Printed if there are no findings.
    summary: String,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Checks {
    healthy: bool,
    namespace: String,
    checks: Vec<Checked>,
}

pub(crate) async fn run(global: &Global, args: &Args) -> Result<Ended> {
    let cluster = Cluster::connect_without_rules(global).await?;
    let time = ServerTime::ask(&cluster.client).await.context("the API server does not answer")?;
    let checks = match cluster.require_namespace().await {
        Err(error) => {
            let find = cluster.hints.kubectl(installation::FIND);
            let findings = vec![Finding::new(Severity::Error, "no-namespace", error.to_string()).fix(find)];
            vec![Checked { name: "namespace", summary: String::new(), findings }]
        }
        Ok(()) => checks(&cluster, &time).await,
    };
    let healthy = !checks.iter().flat_map(|checked| &checked.findings).any(Finding::is_problem);
    let checks = Checks { healthy, namespace: cluster.namespace, checks };
    if !args.output.print(&typed("Checks", &checks))? {
        print(&text(&checks))?;
    }
    Ok(if healthy { Ended::Well } else { Ended::Unwell })
}

async fn checks(cluster: &Cluster, time: &ServerTime) -> Vec<Checked> {
    let installation = Installation::read(cluster).await;
    let expected = installation.expected();
    let leases = Leases::settle(cluster, time, LIFETIME, |leases| leases.shards(None, &expected));
    let (permitted, (policies, in_force), shards, survey, yours) = tokio::join!(
        permissions::of_daemons(cluster, &installation),
        policies::findings(cluster, &installation),
        leases,
        Survey::take(cluster, None, time.now(), None),
        permissions::of_user(cluster, &installation),
    );
    let (held, shards) = match shards {
        Ok(shards) => {
            let held = shards.iter().filter(|shard| shard.is_held()).count();
            (held, shards.iter().filter_map(|shard| shard.finding(&cluster.hints, time.now())).collect())
        }
        Err(error) => (0, vec![Finding::unknown("leases-unknown", error)]),
    };
    let (seen, nodes) = match survey {
        _ if cluster.rules_unknown.is_some() => {
            (String::new(), vec![Finding::unknown("nodes-unknown", "the rules can't be read")])
        }
        Ok(survey) => {
            let seen = [(survey.node_count(), "node"), (survey.records, "record")];
            (seen.map(|(count, thing)| counted(count, thing)).join(", "), survey.findings(&cluster.hints))
        }
        Err(error) => (String::new(), vec![Finding::unknown("nodes-unknown", error)]),
    };
    let checked = |name, summary: &str, findings| Checked { name, summary: summary.to_owned(), findings };
    vec![
        checked("statefulsets", "both daemons run this version", installation.findings(cluster)),
        checked("permissions", "both accounts have all permissions", permitted),
        checked("policies", &format!("{in_force} in force"), policies),
        checked("rules", "the rules can be read", Vec::from_iter(installation::rules(cluster))),
        checked("shards", &format!("{} held", counted(held, "shard")), shards),
        checked("records", &seen, nodes),
        checked("you", "you can use every command", yours),
    ]
}

fn text(checks: &Checks) -> String {
    let mut table = Table::new(&["STATUS", "CHECK", "FOUND"]);
    let mut counts = [0_usize; 4];
    for Checked { name, summary, findings } in &checks.checks {
        if findings.is_empty() {
            table.row([style("ok").green().to_string(), (*name).to_owned(), summary.clone()]);
        }
        for finding in findings {
            counts[finding.severity as usize] += 1;
            let status = match finding.severity {
                Severity::Error => style("error").red().bold(),
                Severity::Warning => style("warning").yellow(),
                Severity::Unknown => style("unknown").cyan(),
                Severity::Note => style("note").dim(),
            };
            table.row([status.to_string(), (*name).to_owned(), plain(&finding.message)]);
            if let Some(command) = &finding.fix {
                table.row([String::new(), String::new(), format!("  {}", style(plain(command)).bold())]);
            }
        }
    }
    let [errors, warnings, unknown, _] = counts;
    let verdict = if checks.healthy { "No problems found" } else { "Problems found" };
    let found = format!("{}, {}, {unknown} unknown", counted(errors, "error"), counted(warnings, "warning"));
    format!("{}\n{verdict} in namespace {}: {found}.\n", table.to_text(), plain(&checks.namespace))
}
