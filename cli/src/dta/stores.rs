//! `hopwise stores`: lists collector memory's stores, occupancy and expected share of answered keys; takes snapshots.

use std::{path::Path, process::ExitCode};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Source, print};
use crate::remote::fetch;
use dta::source::{Shape, StoreView};
use dta_role::memory::SnapshotView;
use net::client::Client;
use terminal::{Align, CliError, Table, units};

/// List the stores of collector memory with their occupancy and the expected share of answered keys
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise stores
  hopwise stores --json | jq '.stores[] | {name, occupied}'
  hopwise stores --directory /dev/shm/hopwise
  hopwise stores --map map.json              of all collectors of a map
  hopwise stores --take-snapshot paths       copy a store to a file now; without a name all of them
  hopwise stores --list-snapshots")]
pub struct Args {
    /// Take a snapshot of this store, or of all; wait until it is on disk
    #[arg(long, value_name = "STORE", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["directory", "snapshot"])]
    take_snapshot: Option<String>,

    /// List the snapshots on disk
    #[arg(long, conflicts_with_all = ["directory", "snapshot", "take_snapshot"])]
    list_snapshots: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Source,
}

/// Response of `/dta/stores`, merged over collectors.
#[derive(Default, Serialize, Deserialize)]
struct Stores {
    stores: Vec<FromCollector<StoreView>>,
}

/// Response of `/dta/snapshots`, merged over collectors.
#[derive(Default, Serialize, Deserialize)]
struct Snapshots {
    snapshots: Vec<FromCollector<SnapshotView>>,
}

/// Item with the collector that it came from.
#[derive(Serialize, Deserialize)]
struct FromCollector<T> {
    #[serde(flatten)]
    view: T,
    /// Name of the collector in the map; absent without a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    collector: Option<String>,
}

impl<T> FromCollector<T> {
    fn with_collector(mut self, name: Option<&str>) -> Self {
        self.collector = name.map(str::to_owned);
        self
    }
}

/// Runs `hopwise stores`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    if args.list_snapshots || args.take_snapshot.is_some() {
        let mut merged = Snapshots::default();
        let code = for_each_collector(&args.source, |client, name| {
            let answer = snapshots(client, args.take_snapshot.as_deref())?;
            merged
                .snapshots
                .extend(answer.snapshots.into_iter().map(|item| item.with_collector(name)));
            Ok(())
        })?;
        print(&merged, args.json, snapshot_table)?;
        return Ok(code);
    }
    let mut merged = Stores::default();
    let code = if let Some(source) = args.source.source()? {
        let views = source.stores().iter().map(|store| FromCollector {
            view: store.view(),
            collector: None,
        });
        merged.stores.extend(views);
        ExitCode::SUCCESS
    } else {
        for_each_collector(&args.source, |client, name| {
            let answer: Stores = fetch(client, "/dta/stores")?;
            merged
                .stores
                .extend(answer.stores.into_iter().map(|item| item.with_collector(name)));
            Ok(())
        })?
    };
    print(&merged, args.json, table)?;
    Ok(code)
}

/// Lists a collector's snapshots. With `take`, takes one of the store of this name (of all if empty) and returns only these.
fn snapshots(client: &Client, take: Option<&str>) -> Result<Snapshots, CliError> {
    let Some(store) = take else {
        return fetch(client, "/dta/snapshots");
    };
    let stores: Vec<&str> = Some(store).filter(|name| !name.is_empty()).into_iter().collect();
    let answer = client.send("POST", "/dta/snapshots", &json!({ "stores": stores }))?;
    serde_json::from_value(answer).map_err(|error| CliError::new(error.to_string()))
}

/// Queries the collector, or each collector of a map. If one of several fails, its error is printed, the others are still
/// queried, and
/// the exit code is 1.
fn for_each_collector(
    source: &Source,
    mut query: impl FnMut(&Client, Option<&str>) -> Result<(), CliError>,
) -> Result<ExitCode, CliError> {
    let mut code = ExitCode::SUCCESS;
    for (client, name) in source.clients()? {
        match (query(&client, name.as_deref()), name) {
            (Err(error), Some(name)) => {
                terminal::note(format_args!("{name}: {error}"));
                code = ExitCode::from(1);
            }
            (outcome, _) => outcome?,
        }
    }
    Ok(code)
}

/// Creates a table, with a first column for the collector if items come from a map.
fn columns<T, const N: usize>(of: &[FromCollector<T>], columns: [(&'static str, Align); N]) -> Table {
    let collector = of
        .iter()
        .any(|item| item.collector.is_some())
        .then_some(("collector", Align::Left));
    Table::new(collector.into_iter().chain(columns))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn table(answer: &Stores) -> String {
    let mut table = columns(
        &answer.stores,
        [
            ("store", Align::Left),
            ("kind", Align::Left),
            ("id", Align::Right),
            ("shape", Align::Left),
            ("memory", Align::Right),
            ("pages", Align::Left),
            ("occupied", Align::Right),
            ("answered, 2 copies", Align::Right),
            ("fields", Align::Left),
        ],
    );
    for FromCollector {
        view: store,
        collector,
    } in &answer.stores
    {
        let expected = store.expected.iter().find(|entry| entry.copies == 2);
        table.row(collector.clone().into_iter().chain([
            store.name.clone(),
            store.shape.kind().to_owned(),
            store.id.to_string(),
            shape(store),
            units::bytes(store.bytes),
            store.pages.clone(),
            store.occupied.map(percent).unwrap_or_default(),
            expected.map(|entry| percent(entry.answered)).unwrap_or_default(),
            store.fields.clone().unwrap_or_default(),
        ]));
    }
    table.render()
}

fn shape(store: &StoreView) -> String {
    match &store.shape {
        Shape::KeyWrite { slots, data, .. } => format!("{} slots of {data} B", units::count(*slots)),
        Shape::KeyIncrement { slots, .. } => format!("{} counters", units::count(*slots)),
        Shape::Postcarding { slots, hops, .. } => format!("{} slots of {hops} hops", units::count(*slots)),
        Shape::Append {
            lists,
            entry,
            entries,
            batch,
            ..
        } => {
            let last_list = u64::from(store.id) + u64::from(*lists) - 1;
            format!(
                "lists {} to {last_list}, {} entries of {entry} B, batches of {batch}",
                store.id,
                units::count(*entries)
            )
        }
        Shape::Sketch {
            sketch,
            depth,
            columns,
            ..
        } => {
            format!("{sketch}, {depth} x {}", units::count(u64::from(*columns)))
        }
    }
}

fn snapshot_table(answer: &Snapshots) -> String {
    let names = [
        ("store", Align::Left),
        ("taken", Align::Left),
        ("size", Align::Right),
        ("file", Align::Left),
    ];
    let mut table = columns(&answer.snapshots, names);
    for FromCollector {
        view: snapshot,
        collector,
    } in &answer.snapshots
    {
        let file = Path::new(&snapshot.file).display().to_string();
        table.row(collector.clone().into_iter().chain([
            snapshot.store.clone(),
            units::date_time(snapshot.ts),
            units::bytes(snapshot.bytes),
            file,
        ]));
    }
    if table.is_empty() {
        "no snapshots\n".to_owned()
    } else {
        table.render()
    }
}
