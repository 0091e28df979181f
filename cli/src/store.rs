//! `hopwise store`: checks the SQLite files of a store for damage and salvages readable records.

use std::{path::PathBuf, process::ExitCode};

use store::{FileCheck, FileState, Records};
use terminal::{Align, CliError, Table, json, units};

/// Check the files of a store, and salvage damaged ones
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise store check /var/lib/hopwise                list the files, and which are damaged
  hopwise store check /var/lib/hopwise --salvage      copy the readable records of damaged files to new files")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Check each file of a store
    ///
    /// Reads every page, a second or so per gigabyte, also while hopwise runs. Exit code 0: all are good; 1: a file is damaged or
    /// cannot be read; 2: wrong usage.
    Check(Check),
}

#[derive(clap::Args, Debug)]
struct Check {
    /// The directory of the store
    dir: PathBuf,

    /// Copy the readable records of damaged files to new files
    ///
    /// The records are in answers again. A damaged file is kept as ….salvaged-N. While hopwise runs, only files that it has set aside
    /// (….corrupt-N) are salvaged.
    #[arg(long)]
    salvage: bool,

    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs `hopwise store`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let Command::Check(args) = args.command;
    let files = store::check(&args.dir, args.salvage).map_err(|error| CliError::new(error.to_string()))?;
    let text = match (args.json, files.is_empty()) {
        (true, _) => files.iter().map(line).collect(),
        (false, true) => format!("there are no files of a store in {}\n", args.dir.display()),
        (false, false) => table(&files),
    };
    terminal::print(&text)?;
    let fails = files
        .iter()
        .any(|file| matches!(file.state, FileState::Damaged | FileState::Unreadable));
    Ok(if fails {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn table(files: &[FileCheck]) -> String {
    let mut table = Table::new([
        ("file", Align::Left),
        ("state", Align::Left),
        ("size", Align::Right),
        ("events", Align::Right),
        ("from", Align::Left),
        ("to", Align::Left),
    ]);
    for file in files {
        let events = file
            .records
            .map_or_else(|| "?".to_owned(), |records| units::count(records.events));
        let [from, to] = file
            .time
            .map_or_else(Default::default, |time| time.map(units::date_time));
        table.row([
            file.file.clone(),
            file.state.name().to_owned(),
            units::bytes(file.bytes),
            events,
            from,
            to,
        ]);
    }
    let mut out = table.render();
    for file in files {
        let notes = file
            .message
            .iter()
            .cloned()
            .chain(file.salvaged.as_ref().map(|salvaged| {
                let Records {
                    events,
                    rollups,
                    flows,
                    drops,
                    losses,
                } = salvaged.records;
                let renamed = &salvaged.renamed;
                match &salvaged.file {
                    Some(new) => format!(
                        "saved in {new}: {}, {}, {}, {}, {}; the damaged file is now {renamed}",
                        units::counted(events, "event"),
                        units::counted(rollups, "rollup"),
                        units::counted(flows, "flow"),
                        units::counted(drops, "drop"),
                        units::counted(losses, "loss record")
                    ),
                    None => format!("nothing in it is readable; it is now {renamed}"),
                }
            }));
        for note in notes {
            out.push_str(&format!("{}: {note}\n", file.file));
        }
    }
    out
}

/// Formats the check of one file as a line of JSON.
fn line(file: &FileCheck) -> String {
    let mut out = String::new();
    json::object(&mut out, |o| {
        o.field("file", file.file.as_str())
            .field("state", file.state.name())
            .field("bytes", file.bytes);
        o.present("message", file.message.as_deref());
        o.present("from", file.time.map(|[from, _]| from))
            .present("to", file.time.map(|[_, to]| to));
        if let Some(records) = file.records {
            o.object("records", |o| add(o, records));
        }
        if let Some(salvaged) = &file.salvaged {
            o.object("salvaged", |o| {
                o.present("file", salvaged.file.as_deref())
                    .field("renamed", salvaged.renamed.as_str());
                o.object("records", |o| add(o, salvaged.records));
            });
        }
    });
    out.push('\n');
    out
}

fn add(object: &mut json::Object<'_>, records: Records) {
    let Records {
        events,
        rollups,
        flows,
        drops,
        losses,
    } = records;
    object
        .field("events", events)
        .field("rollups", rollups)
        .field("flows", flows);
    object.field("drops", drops).field("losses", losses);
}
