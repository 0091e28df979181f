//! `hopwise stores`: what lies in a collector's memory, how full it is, and what can be expected of it.

use std::{path::Path, process::ExitCode};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Source, print};
use crate::{
    commands::remote::fetch,
    dta::{
        memory::snapshots::SnapshotView,
        shelf::{Shape, StoreView},
    },
    error::CliError,
    output::{Align, Table, units},
};

/// List the stores of a collector's memory: how full they are, and what share of keys they can be expected to answer
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise stores
  hopwise stores --json | jq '.stores[] | {name, occupied}'
  hopwise stores --directory /dev/shm/hopwise
  hopwise stores --take-snapshot paths       copy a store to a file now; without a name all of them
  hopwise stores --list-snapshots")]
pub(crate) struct Args {
    /// Take a snapshot of this store now, or of all; wait until it is on the disk
    #[arg(long, value_name = "STORE", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["directory", "snapshot"])]
    take_snapshot: Option<String>,

    /// List the snapshots that are there
    #[arg(long, conflicts_with_all = ["directory", "snapshot", "take_snapshot"])]
    list_snapshots: bool,

    /// One JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Source,
}

/// `/dta/stores`.
#[derive(Serialize, Deserialize)]
struct Stores {
    stores: Vec<StoreView>,
}

/// `/dta/snapshots`.
#[derive(Serialize, Deserialize)]
struct Snapshots {
    snapshots: Vec<SnapshotView>,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    if args.list_snapshots {
        let answer: Snapshots = fetch(&args.source.client(None)?, "/dta/snapshots")?;
        print(&answer, args.json, snapshot_table)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(store) = &args.take_snapshot {
        let names: Vec<&str> = Some(store.as_str()).filter(|name| !name.is_empty()).into_iter().collect();
        let answer = args.source.client(None)?.send("POST", "/dta/snapshots", &json!({ "stores": names }))?;
        let answer: Snapshots =
            serde_json::from_value(answer).map_err(|error| CliError::new(error.to_string()))?;
        print(&answer, args.json, snapshot_table)?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = match args.source.shelf()? {
        Some(shelf) => Stores { stores: shelf.stores().iter().map(|store| store.view()).collect() },
        None => fetch(&args.source.client(None)?, "/dta/stores")?,
    };
    print(&answer, args.json, table)?;
    Ok(ExitCode::SUCCESS)
}

fn table(answer: &Stores) -> String {
    let mut table = Table::new([
        ("store", Align::Left),
        ("kind", Align::Left),
        ("id", Align::Right),
        ("shape", Align::Left),
        ("memory", Align::Right),
        ("pages", Align::Left),
        ("occupied", Align::Right),
        ("answered, 2 copies", Align::Right),
        ("fields", Align::Left),
    ]);
    for store in &answer.stores {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let two = store.expected.iter().find(|expected| expected.copies == 2);
        table.row([
            store.name.clone(),
            store.shape.kind().to_owned(),
            store.id.to_string(),
            shape(store),
            units::bytes(store.bytes),
            store.pages.clone(),
            store.occupied.map(percent).unwrap_or_default(),
            two.map(|expected| percent(expected.answered)).unwrap_or_default(),
            store.fields.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

fn shape(store: &StoreView) -> String {
    match &store.shape {
        Shape::KeyWrite { slots, data, .. } => format!("{} slots of {data} B", units::count(*slots)),
        Shape::KeyIncrement { slots, .. } => format!("{} counters", units::count(*slots)),
        Shape::Postcarding { slots, hops, .. } => format!("{} slots of {hops} hops", units::count(*slots)),
        Shape::Append { lists, entry, entries, batch, .. } => {
            let last = u64::from(store.id) + u64::from(*lists) - 1;
            format!(
                "lists {} to {last}, {} entries of {entry} B, batches of {batch}",
                store.id,
                units::count(*entries)
            )
        }
        Shape::Sketch { sketch, depth, columns, .. } => {
            format!("{sketch}, {depth} x {}", units::count(u64::from(*columns)))
        }
    }
}

fn snapshot_table(answer: &Snapshots) -> String {
    let columns =
        [("store", Align::Left), ("taken", Align::Left), ("size", Align::Right), ("file", Align::Left)];
    let mut table = Table::new(columns);
    for snapshot in &answer.snapshots {
        let file = Path::new(&snapshot.file).display().to_string();
        table.row([
            snapshot.store.clone(),
            units::date_time(snapshot.ts),
            units::bytes(snapshot.bytes),
            file,
        ]);
    }
    if table.is_empty() { "no snapshots\n".to_owned() } else { table.render() }
}
