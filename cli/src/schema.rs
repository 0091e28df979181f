//! `hopwise schema`: prints or executes the statements that create tables or topics for an export in the receiving system
//! (ClickHouse, Kafka, …).

use std::{io::Write, path::PathBuf, process::ExitCode};

use ::export_role::role as export_role;
use ::export_role::settings::outlet::OutletSettings;
use config::Settings;
use terminal::CliError;

/// Show or make the tables or topics that an export needs
///
/// Every statement can be executed again. Columns are only added between versions.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise schema show -c hopwise.toml lake       print the statements
  hopwise schema apply -c hopwise.toml lake      execute them")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Print the statements without executing them
    Show(Which),
    /// Execute the statements on the database
    Apply(Which),
}

#[derive(clap::Args, Debug)]
struct Which {
    /// The export: NAME of [exports.NAME]; `outlet`: the tables of the section outlet
    name: String,

    /// Configuration file to read
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs `hopwise schema`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let (Command::Show(which) | Command::Apply(which)) = &args.command;
    let settings = Settings::load(Some(&which.config))?;
    let outlet = settings
        .outlet
        .as_ref()
        .filter(|_| which.name == "outlet")
        .map(OutletSettings::clickhouse);
    let export = match &outlet {
        Some(outlet) => outlet,
        None => settings.export(&which.name, &which.config)?,
    };
    let statements = export
        .schema()
        .map_err(|(key, message)| CliError::new(format!("{key}: {message}")))?;
    if statements.is_empty() {
        terminal::print("nothing to create: the system creates what is missing\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = terminal::stdout();
    match args.command {
        Command::Show(_) => {
            for statement in &statements {
                write!(out, "{}", statement.text()).map_err(CliError::output)?;
            }
        }
        Command::Apply(_) => {
            let count = statements.len();
            export_role::execute(export, statements)?;
            writeln!(out, "{count} statement(s) executed").map_err(CliError::output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
