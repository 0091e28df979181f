//! `hopwise export`: shows the progress of exports, waits until they are drained, and sends a time range of the store again.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::remote::{Api, fetch};
use config::Settings;

use crate::silences::NotedSilences;
use ::export_role::{
    role as export_role,
    role::view::{ExportView, ExportsView},
};
use history::alerts::Notes;
use terminal::text::json_line;
use terminal::{Align, CliError, Table, units};

/// Show the progress of exports, wait for them, send a time range again
///
/// Exports are the tables [exports.NAME] of the configuration: each sends what is stored to another system, at least once. `status` and
/// `drain` talk to a running hopwise; `replay` reads the store itself, beside a running hopwise or without one.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise export status                          records pending and delivered, and the latest errors
  hopwise export drain --wait 60                 until all records are sent; exit code 1 if some are still pending
  hopwise export replay -c hopwise.toml lake --from 2h --to 1h    the hour before the last
  hopwise check -c hopwise.toml --connect        check that each system is reachable and has what is needed
  hopwise schema show -c hopwise.toml lake       the statements that make its tables")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show each stream of each export
    Status(Status),
    /// Wait until all pending records are sent
    Drain(Drain),
    /// Send a time range again
    ///
    /// Records are sent as they are stored. A system that recognises them by their id does not keep them twice; others do.
    Replay(Replay),
}

#[derive(clap::Args, Debug)]
struct Status {
    /// JSON instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    api: Api,
}

#[derive(clap::Args, Debug)]
struct Drain {
    /// Name of the export; without it, all of them
    name: Option<String>,

    /// Seconds to wait at most
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,

    #[command(flatten)]
    api: Api,
}

#[derive(clap::Args, Debug)]
struct Replay {
    /// The export: NAME of [exports.NAME]
    name: String,

    /// Configuration file to read
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Records of this time and later: UTC such as 2026-11-26T03:10Z or 2026-11-26, an age such as 2h, or ns since 1970 (years 2000 to 2199)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = super::store_query::time)]
    from: u64,

    /// Records of about this time and earlier; default: all that are stored now
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = super::store_query::time)]
    to: Option<u64>,

    /// Only this stream; default: those of the export
    #[arg(long)]
    stream: Vec<String>,
}

/// Runs `hopwise export`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Status(args) => status(&args),
        Command::Drain(args) => drain(&args),
        Command::Replay(args) => replay(args),
    }
}

fn status(args: &Status) -> Result<ExitCode, CliError> {
    let view: ExportsView = fetch(&args.api.client()?, "/exports")?;
    let text = if args.json {
        json_line(&view)?
    } else if view.exports.is_empty() {
        "This hopwise exports nothing; add [exports.NAME] to its configuration.\n".to_owned()
    } else {
        table(&view.exports)
    };
    terminal::print(&text)?;
    let has_errors = view.exports.iter().any(|export| export.last_error.is_some());
    Ok(if has_errors {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn table(exports: &[ExportView]) -> String {
    let mut table = Table::new([
        ("export", Align::Left),
        ("stream", Align::Left),
        ("to", Align::Left),
        ("delivered", Align::Right),
        ("waiting", Align::Right),
        ("memory", Align::Right),
        ("rejected", Align::Right),
        ("expired", Align::Right),
        ("shed", Align::Right),
        ("left out", Align::Right),
        ("repeated", Align::Right),
    ]);
    for export in exports {
        table.row([
            export.export.clone(),
            stream(export),
            format!("{} {}", export.kind, export.server),
            units::count(export.delivered),
            units::count(export.waiting),
            units::bytes(export.memory),
            units::count(export.rejected),
            units::count(export.expired),
            units::count(export.shed),
            units::count(export.left_out),
            units::count(export.repeated),
        ]);
    }
    let mut text = table.render();
    for export in exports {
        if let Some(error) = &export.last_error {
            text.push_str(&format!("{} {}: {error}\n", export.export, stream(export)));
        }
    }
    text
}

/// Formats the stream of an export; for an outlet, with the partition of the topic.
fn stream(export: &ExportView) -> String {
    match export.partition {
        Some(partition) => format!("{} {partition}", export.stream),
        None => export.stream.clone(),
    }
}

fn drain(args: &Drain) -> Result<ExitCode, CliError> {
    let client = args.api.client()?;
    let until = Instant::now() + Duration::from_secs(args.wait);
    // Times of the first counts seen. Only a later count is certain to include everything stored before this command.
    let mut first_counts: Option<Vec<u64>> = None;
    loop {
        let view: ExportsView = fetch(&client, "/exports")?;
        let selected: Vec<&ExportView> = view
            .exports
            .iter()
            .filter(|export| args.name.as_ref().is_none_or(|name| *name == export.export))
            .collect();
        if selected.is_empty() {
            let name = args.name.as_deref().unwrap_or("any name");
            return Err(CliError::new(format!(
                "this hopwise has no export of {name}; `hopwise export status` lists them"
            )));
        }
        let waiting: u64 = selected.iter().map(|export| export.waiting + export.held).sum();
        let counts: Vec<u64> = selected.iter().map(|export| export.counted).collect();
        let first = first_counts.get_or_insert_with(|| counts.clone());
        let has_advanced =
            first.len() == counts.len() && first.iter().zip(&counts).all(|(old, new)| old < new);
        if waiting == 0 && has_advanced {
            terminal::print("nothing waits\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= until {
            terminal::print(&table(&selected.into_iter().cloned().collect::<Vec<_>>()))?;
            return Ok(ExitCode::FAILURE);
        }
        thread::sleep(Duration::from_millis(500));
    }
}

fn replay(args: Replay) -> Result<ExitCode, CliError> {
    let settings = Settings::load(Some(&args.config))?;
    let mut export = settings.export(&args.name, &args.config)?.clone();
    if !args.stream.is_empty() {
        export.streams = args.stream;
    }
    let range = (args.from, args.to);
    let notes = Notes::open(&settings.store_directory())?;
    let silences = Arc::new(NotedSilences(Arc::new(notes)));
    let sent = export_role::replay(&args.name, &export, &settings.all_exports(), silences, range)?;
    terminal::print(&table(&sent))?;
    let all_accepted = sent
        .iter()
        .all(|export| export.rejected == 0 && export.expired == 0 && export.waiting == 0);
    Ok(if all_accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
