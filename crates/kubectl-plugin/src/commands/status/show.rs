//! The report for people.

use console::style;
use jiff::{SignedDuration, Timestamp};

use super::report::{Group, NodeCounts, Records, Report, names};
use super::shards::{Shard, State};
use crate::advice::Advice;
use crate::output::{Table, age, plain};

/// The report as text: what is not well comes first.
pub(super) fn text(report: &Report, now: Timestamp, advice: &Advice) -> String {
    let mut text = if report.healthy {
        format!("{}\n", style("Healthy").green().bold())
    } else {
        let mut text = format!("{}\n", style("Not healthy").red().bold());
        for reason in &report.reasons {
            text += &format!("- {}\n", style(plain(&reason.message)).red());
        }
        if report.reasons.iter().any(super::report::Reason::is_about_nodes) {
            text += &format!("`{}` says why.\n", advice.plugin("explain NODE"));
        }
        text
    };
    text.push('\n');
    text += &figures(report).to_text();
    if let Some(shards) = &report.shards {
        text.push('\n');
        text += &held(shards, now).to_text();
    }
    text
}

fn figures(report: &Report) -> Table {
    let mut table = Table::new(["WHAT", "COUNT", ""]);
    match &report.nodes {
        Some(nodes) => {
            row(&mut table, "nodes", nodes.total, String::new());
            match &nodes.standing {
                Some(counts) => node_rows(&mut table, counts),
                None => table.row(["  how they stand", "?", ""].map(str::to_owned)),
            }
        }
        None => table.row(["nodes", "?", ""].map(str::to_owned)),
    }
    match &report.records {
        Some(records) => record_rows(&mut table, records),
        None => table.row(["records", "?", ""].map(str::to_owned)),
    }
    table
}

fn node_rows(table: &mut Table, counts: &NodeCounts) {
    row(table, "  up to date", counts.up_to_date, String::new());
    row(table, "  waiting for their labels", counts.pending_restore.count, oldest(&counts.pending_restore));
    row(table, "  waiting for a first record", counts.without_record.count, oldest(&counts.without_record));
    let differing = names(counts.differing.nodes.iter(), counts.differing.count);
    row(table, "  changed, not yet stored", counts.differing.count, differing);
    row(table, "  without labels", counts.without_labels, String::new());
    let contested = counts.contested.iter().map(|contested| contested.count).sum();
    let fenced_off = &counts.other_machine;
    if fenced_off.count > 0 {
        let nodes = names(fenced_off.nodes.iter(), fenced_off.count);
        row(table, "  another machine, fenced off", fenced_off.count, nodes);
    }
    for (what, count) in [
        ("  record unreadable", counts.record_unreadable),
        ("  claiming to be the same", contested),
        ("  ignored", counts.ignored),
        ("  not selected", counts.not_selected),
        ("  without identity", counts.without_identity),
    ] {
        if count > 0 {
            row(table, what, count, String::new());
        }
    }
}

fn record_rows(table: &mut Table, records: &Records) {
    let latest = records.latest.as_ref().map(|latest| {
        let age = age(SignedDuration::from_secs(latest.age_seconds));
        format!("latest change stored {age} ago, of {}", latest.node)
    });
    row(table, "records", records.total, latest.unwrap_or_default());
    match records.departed {
        Some(departed) => row(table, "  of departed nodes", departed, String::new()),
        None => table.row(["  of departed nodes", "?", ""].map(str::to_owned)),
    }
    let unreadable = &records.unreadable;
    row(table, "  unreadable", unreadable.count, names(unreadable.records.keys(), unreadable.count));
    for (what, count) in
        [("  damaged, the rest is used", records.damaged), ("  empty, soon gone", records.empty)]
    {
        if count > 0 {
            row(table, what, count, String::new());
        }
    }
}

fn row(table: &mut Table, what: &str, count: usize, detail: String) {
    table.row([what.to_owned(), count.to_string(), plain(&detail)]);
}

fn oldest(group: &Group) -> String {
    let oldest = group.oldest.as_ref().map(|oldest| {
        let age = age(SignedDuration::from_secs(oldest.age_seconds));
        format!("the oldest was created {age} ago: {}", oldest.node)
    });
    oldest.unwrap_or_else(|| names(group.nodes.iter(), group.count))
}

fn held(shards: &[Shard], now: Timestamp) -> Table {
    let has_scopes = shards.iter().any(|shard| !shard.scope.is_empty());
    let mut heads = vec!["DAEMON", "SHARD", "HOLDER", "RENEWED", "STATE"];
    heads.extend(has_scopes.then_some("SCOPE"));
    let mut table = Table::default();
    table.row(heads.into_iter().map(str::to_owned));
    let none = || "-".to_owned();
    for shard in shards {
        let number = shard.replicas.map_or_else(none, |replicas| format!("{}/{replicas}", shard.index));
        let renewed = shard.renewed.map(|at| age(now.duration_since(at)));
        let state = match shard.state {
            State::Home => style(shard.state.as_str()).green(),
            State::Adopted | State::Retired => style(shard.state.as_str()).yellow(),
            State::NotRenewed | State::Released | State::Absent => style(shard.state.as_str()).red(),
        };
        let mut cells = vec![
            plain(&shard.daemon),
            number,
            shard.holder.as_deref().map_or_else(none, plain),
            renewed.unwrap_or_else(none),
            state.to_string(),
        ];
        cells.extend(has_scopes.then(|| plain(&shard.scope)));
        table.row(cells);
    }
    table
}
