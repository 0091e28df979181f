//! `hopwise map`: creates, extends and shows a collector map, which assigns DTA keys to one of several collectors.

use std::{path::PathBuf, process::ExitCode};

use serde_json::json;

use dta::collector_map::{Collector, CollectorMap};
use dta::key::Key;
use runtime::collector_map;
use terminal::{CliError, text::json_line};

const COLLECTOR_SYNTAX: &str =
    "write NAME=URL, such as a=http://10.0.0.9:8080, or a=http://10.0.0.9:8080,10.0.0.9:40040";

/// Create, extend and show the map that assigns keys to collectors
///
/// Create the file once and distribute it to all reporters ([switch.dta] map, hopwise report --map) and to all users of query commands
/// (--map). Reporters without a map assign keys in the same way if they list the same collectors in the same order. Extending a map from n to
/// n + 1 collectors moves only the keys of the new collector, 1 in n + 1.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise map new a=http://10.0.0.9:8080 b=http://10.0.0.10:8080 > map.json
  hopwise map new a=http://10.0.0.9:8080,10.0.0.9:40040 > map.json   with the address for reports
  hopwise map show map.json
  hopwise map show map.json '10.0.0.1:1234 > 10.0.0.2:80 tcp'   the collector of this key
  hopwise map grow map.json c=http://10.0.0.11:8080 > new.json  prints the moved keys to standard error
  hopwise get paths 10.0.0.1 --map map.json")]
pub struct Args {
    #[command(subcommand)]
    command: MapCommand,
}

#[derive(clap::Subcommand, Debug)]
enum MapCommand {
    /// Create a map that assigns keys evenly to these collectors
    New {
        /// NAME=URL of each collector's API, in the order of their numbers; optionally followed by a comma and the address for its reports
        #[arg(required = true, value_parser = collector)]
        collectors: Vec<Collector>,
    },
    /// Add a collector to a map
    Grow {
        /// File with the map of collectors
        file: PathBuf,
        /// NAME=URL of the new collector's API; optionally followed by a comma and the address for its reports
        #[arg(value_parser = collector)]
        collector: Collector,
        /// Number of lists, from 0, that stay on their collectors
        #[arg(long, default_value_t = 0, value_name = "LISTS", value_parser = clap::value_parser!(u32).range(0..=65_536))]
        lists: u32,
    },
    /// Show a map, or the collector of one key
    Show {
        /// File with the map of collectors
        file: PathBuf,
        /// A key, to show its collector
        key: Option<Key>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

fn collector(text: &str) -> Result<Collector, String> {
    let (name, api) = text.split_once('=').ok_or(COLLECTOR_SYNTAX)?;
    let (api, reports) = match api.split_once(',') {
        Some((api, address)) => (api, Some(address.parse().map_err(|_| COLLECTOR_SYNTAX)?)),
        None => (api, None),
    };
    if name.is_empty() || api.is_empty() {
        return Err(COLLECTOR_SYNTAX.to_owned());
    }
    Ok(Collector {
        name: name.to_owned(),
        api: api.to_owned(),
        reports,
    })
}

/// Runs `hopwise map`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let out = match args.command {
        MapCommand::New { collectors } => json_line(&CollectorMap::even(collectors).map_err(CliError::new)?)?,
        MapCommand::Grow {
            file,
            collector,
            lists,
        } => {
            let name = collector.name.clone();
            let (map, moved_parts) = collector_map::load(&file)?
                .grown(collector, lists)
                .map_err(CliError::new)?;
            terminal::note(format_args!(
                "{moved_parts} of 256 parts of the keys ({:.1} %) move to `{name}`; until they are reported again, queries also go to \
                 their previous collector. Distribute the new map to users and reporters (to reporters without a map: the collectors in this order).",
                moved_parts as f64 / 2.56
            ));
            json_line(&map)?
        }
        MapCommand::Show { file, key, json } => show(&collector_map::load(&file)?, key.as_ref(), json)?,
    };
    terminal::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn show(map: &CollectorMap, key: Option<&Key>, json: bool) -> Result<String, CliError> {
    if let Some(key) = key {
        let names: Vec<&str> = map
            .collectors_of_key(key)
            .iter()
            .map(|collector| collector.name.as_str())
            .collect();
        let current = names.first().copied().unwrap_or_default();
        let previous = names.get(1).copied();
        if json {
            return json_line(&json!({ "key": key.to_string(), "collector": current, "before": previous }));
        }
        let previous = previous
            .map(|name| format!("  (before the map grew: {name})"))
            .unwrap_or_default();
        return Ok(format!("{current}{previous}\n"));
    }
    let shares = map.shares();
    let rows = map.collectors.iter().zip(&shares);
    if json {
        let rows: Vec<_> = rows
            .map(|(collector, share)| json!({ "name": collector.name, "api": collector.api, "parts": share }))
            .collect();
        return json_line(&json!({ "collectors": rows }));
    }
    let lines = rows.map(|(collector, share)| {
        format!(
            "{:4.1} % of keys  {}  {}\n",
            *share as f64 / 2.56,
            collector.name,
            collector.api
        )
    });
    Ok(lines.collect())
}
