//! `hopwise map`: which of several collectors has a key.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use serde_json::json;

use crate::config::dta::load_map;
use dta::collector_map::{Collector, CollectorMap};
use dta::key::Key;
use terminal::CliError;

/// Make, grow and read the map of several collectors: which of them has which keys
///
/// The file is made in one place and given to everyone who asks and to everyone who reports ([switch.dta] map, hopwise report --map).
/// Reporters without it spread keys in the same way if they have the same collectors in the same order. From n to n + 1 collectors
/// only the keys of the new one move, 1 in n + 1.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise map new a=http://10.0.0.9:8080 b=http://10.0.0.10:8080 > map.json
  hopwise map new a=http://10.0.0.9:8080,10.0.0.9:40040 > map.json   also says where reports go
  hopwise map show map.json
  hopwise map show map.json '10.0.0.1:1234 > 10.0.0.2:80 tcp'   whose is this key?
  hopwise map grow map.json c=http://10.0.0.11:8080 > new.json  says on standard error what moves
  hopwise get paths 10.0.0.1 --map map.json")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// A map that spreads keys evenly over these collectors
    New {
        /// NAME=URL of each collector's API, in the order of their numbers; with a comma behind it where reports for it go
        #[arg(required = true, value_parser = collector)]
        collectors: Vec<Collector>,
    },
    /// A map with one more collector
    Grow {
        /// The map
        file: PathBuf,
        /// NAME=URL of the new collector's API; with a comma behind it where reports for it go
        #[arg(value_parser = collector)]
        collector: Collector,
        /// Lists 0 to this number less 1 stay where they are
        #[arg(long, default_value_t = 0, value_name = "LISTS", value_parser = clap::value_parser!(u32).range(0..=65_536))]
        lists: u32,
    },
    /// What a map says, of all or of one key
    Show {
        /// The map
        file: PathBuf,
        /// A key
        key: Option<Key>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

fn collector(text: &str) -> Result<Collector, String> {
    let wrong = || {
        "write NAME=URL, such as a=http://10.0.0.9:8080, or a=http://10.0.0.9:8080,10.0.0.9:40040".to_owned()
    };
    let (name, api) = text.split_once('=').ok_or_else(wrong)?;
    let (api, reports) = match api.split_once(',') {
        Some((api, address)) => (api, Some(address.parse().map_err(|_| wrong())?)),
        None => (api, None),
    };
    if name.is_empty() || api.is_empty() {
        return Err(wrong());
    }
    Ok(Collector { name: name.to_owned(), api: api.to_owned(), reports })
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let out = match args.what {
        What::New { collectors } => CollectorMap::even(collectors).map_err(CliError::new)?.to_text(),
        What::Grow { file, collector, lists } => {
            let name = collector.name.clone();
            let (map, moved) = load_map(&file)?.grown(collector, lists).map_err(CliError::new)?;
            eprintln!(
                "hopwise: {moved} of 256 parts of the keys ({:.1} %) move to `{name}`; until they are reported again they are asked for \
                 where they were. Give the new map to whoever asks, and to the reporters (those without a map: the collectors in this order).",
                moved as f64 / 2.56
            );
            map.to_text()
        }
        What::Show { file, key, json } => show(&load_map(&file)?, key.as_ref(), json),
    };
    io::stdout().write_all(out.as_bytes()).map_err(CliError::output)?;
    Ok(ExitCode::SUCCESS)
}

fn show(map: &CollectorMap, key: Option<&Key>, json: bool) -> String {
    if let Some(key) = key {
        let names: Vec<&str> = map.of_key(key).iter().map(|collector| collector.name.as_str()).collect();
        let (now, before) = (names.first().copied().unwrap_or_default(), names.get(1).copied());
        if json {
            return format!("{}\n", json!({ "key": key.to_string(), "collector": now, "before": before }));
        }
        let before = before.map(|name| format!("  (before the map grew: {name})")).unwrap_or_default();
        return format!("{now}{before}\n");
    }
    let shares = map.shares();
    let rows = map.collectors.iter().zip(&shares);
    if json {
        let rows: Vec<_> =
            rows.map(|(one, share)| json!({ "name": one.name, "api": one.api, "parts": share })).collect();
        return format!("{}\n", json!({ "collectors": rows }));
    }
    rows.map(|(one, share)| format!("{:4.1} % of keys  {}  {}\n", *share as f64 / 2.56, one.name, one.api))
        .collect()
}
