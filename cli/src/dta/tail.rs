//! `hopwise tail`: prints the newest entries of an Append list and, with `--follow`, new ones as they arrive.

use std::{process::ExitCode, thread, time::Duration};

use super::{Source, fields_text, url_query};
use crate::remote::{self, fetch};
use dta::source::{DtaSource, Entry, TailAnswer};
use terminal::{CliError, text::json_line};
use view::Names;

/// Maximum number of entries of one read with `--follow`.
const MAX_ENTRIES: u32 = 10_000;
/// Interval between two polls with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Show the newest entries of a list in collector memory
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise tail 5                             the last 20 entries of list 5
  hopwise tail 5 --follow                    and new entries as they arrive
  hopwise tail 5 --json --limit 1000 | jq .fields
  hopwise tail 5 --directory /dev/shm/hopwise")]
pub struct Args {
    /// ID of the list
    list: u32,

    /// Wait for new entries and show them
    #[arg(short, long)]
    follow: bool,

    /// Maximum number of entries to start with
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Start at this batch
    #[arg(long)]
    from: Option<u32>,

    /// One JSON object per entry
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Source,
}

/// Source of entries: mapped memory or a running hopwise.
enum TailSource {
    DtaSource(DtaSource),
    Client(net::client::Client),
}

/// Runs `hopwise tail`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let source = match args.source.source()? {
        Some(source) => TailSource::DtaSource(source),
        None => {
            let map = args.source.map()?;
            TailSource::Client(
                args.source
                    .client(map.as_ref().and_then(|map| map.collector_of_list(args.list)))?,
            )
        }
    };
    let names = match &source {
        TailSource::Client(client) if !args.json => remote::names(client),
        _ => Names::default(),
    };
    let mut answer = fetch_tail(&source, args.list, args.from, args.limit)?;
    print_entries(&answer, args.json, &names)?;
    if answer.entries.is_empty() && !args.follow {
        terminal::note(format_args!(
            "{}; --follow waits for entries",
            empty_reason(&source, args.list, args.from)?
        ));
        return Ok(ExitCode::from(1));
    }
    if args.follow {
        loop {
            thread::sleep(POLL_INTERVAL);
            answer = fetch_tail(&source, args.list, Some(answer.next), MAX_ENTRIES)?;
            print_entries(&answer, args.json, &names)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains why there are no entries from this batch on.
fn empty_reason(source: &TailSource, list: u32, from: Option<u32>) -> Result<String, CliError> {
    let newest = match from {
        Some(_) => fetch_tail(source, list, None, 1)?
            .entries
            .last()
            .map(|entry| entry.sequence),
        None => None,
    };
    Ok(match (from, newest) {
        (Some(from), Some(newest)) => format!("list {list} has no batch {from}: its newest is {newest}"),
        _ => format!("list {list} is empty"),
    })
}

fn fetch_tail(source: &TailSource, list: u32, from: Option<u32>, limit: u32) -> Result<TailAnswer, CliError> {
    match source {
        TailSource::DtaSource(source) => source.tail(list, from, limit as usize).map_err(CliError::new),
        TailSource::Client(client) => {
            let params = url_query(&[
                ("from", from.map(|from| from.to_string())),
                ("limit", Some(limit.to_string())),
            ]);
            fetch(client, &format!("/dta/lists/{list}{params}"))
        }
    }
}

fn print_entries(answer: &TailAnswer, json: bool, names: &Names) -> Result<(), CliError> {
    for (lost, reason) in [
        (answer.overwritten, "overwritten before they were read"),
        (answer.missing, "never arrived"),
    ] {
        if lost > 0 {
            terminal::note(format_args!("{lost} batches {reason}"));
        }
    }
    let mut out = String::new();
    for entry in &answer.entries {
        match json {
            true => out.push_str(&json_line(entry)?),
            false => out.push_str(&line(entry, names)),
        }
    }
    terminal::print(&out)
}

fn line(entry: &Entry, names: &Names) -> String {
    let text = match &entry.fields {
        Some(fields) => fields_text(fields, names),
        None => format!("0x{}", entry.data),
    };
    format!("{}.{}  {text}\n", entry.sequence, entry.index)
}
