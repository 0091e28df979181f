//! The command line of `hopwise`: all subcommands, and the function that runs each. A command declares its arguments beside
//! its code, in the crate `cli`, or in `commands/` if it runs the daemon.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands;
use terminal::CliError;

/// Collector for In-band Network Telemetry (INT).
///
/// Receives telemetry reports, detects significant changes, stores them, and shows them.
#[derive(Parser, Debug)]
#[command(
    name = "hopwise",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success, 1 negative result (no match, check failed), 2 wrong usage or input.\nStart here: hopwise demo"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(commands::run::Args),
    Console(commands::console::Args),
    Outlet(commands::outlet::Args),
    Check(cli::check::Args),
    Doctor(cli::doctor::Args),
    Decode(cli::decode::Args),
    Replay(cli::replay::Args),
    Query(cli::query::Args),
    Store(cli::store::Args),
    Path(cli::path::Args),
    Events(cli::events::Args),
    Top(cli::top::Args),
    Intent(Box<cli::intent::Args>),
    Device(cli::device::Args),
    Alerts(cli::alerts::Args),
    Export(cli::export::Args),
    Schema(cli::schema::Args),
    P4(cli::p4::Args),
    Get(cli::dta::get::Args),
    Count(cli::dta::count::Args),
    Sketch(cli::dta::sketch::Args),
    Tail(cli::dta::tail::Args),
    Stores(cli::dta::stores::Args),
    Calculate(cli::dta::calculate::Args),
    Map(cli::dta::map::Args),
    Demo(commands::demo::Args),
    /// Run a network on this machine: hosts, links and INT switches in namespaces, from one file
    ///
    /// A program of its own, hopwise-lab; `hopwise lab --help` shows its commands.
    Lab(commands::programs::Args),
    /// Measure the published figures on this machine
    ///
    /// A program of its own, hopwise-bench; `hopwise bench --help` shows its options.
    Bench(commands::programs::Args),
    /// Repeat an experiment of a paper: a table (CSV), plots (SVG) and a page with the figures of the paper and of hopwise
    ///
    /// A part of the program hopwise-bench; `hopwise experiment --help` shows its options.
    Experiment(commands::programs::Args),
    Report(cli::report::Args),
    Generate(commands::generate::Args),
    #[command(hide = true)]
    SqlHelper(cli::sql_helper::Args),
}

/// Parses the command line and runs the command. Wrong usage ends the process with code 2, `--help` with code 0.
pub(crate) fn run() -> Result<ExitCode, CliError> {
    match Cli::parse().command {
        Command::Run(args) => commands::run::run(args),
        Command::Console(args) => commands::console::run(args),
        Command::Outlet(args) => commands::outlet::run(args),
        Command::Check(args) => cli::check::run(args),
        Command::Doctor(args) => cli::doctor::run(args),
        Command::Decode(args) => cli::decode::run(args),
        Command::Replay(args) => cli::replay::run(args),
        Command::Query(args) => cli::query::run(args),
        Command::Store(args) => cli::store::run(args),
        Command::Path(args) => cli::path::run(args),
        Command::Events(args) => cli::events::run(args),
        Command::Top(args) => cli::top::run(args),
        Command::Intent(args) => cli::intent::run(*args),
        Command::Device(args) => cli::device::run(args),
        Command::Alerts(args) => cli::alerts::run(args),
        Command::Export(args) => cli::export::run(args),
        Command::Schema(args) => cli::schema::run(args),
        Command::P4(args) => cli::p4::run(args),
        Command::Get(args) => cli::dta::get::run(args),
        Command::Count(args) => cli::dta::count::run(args),
        Command::Sketch(args) => cli::dta::sketch::run(args),
        Command::Tail(args) => cli::dta::tail::run(args),
        Command::Stores(args) => cli::dta::stores::run(args),
        Command::Calculate(args) => cli::dta::calculate::run(args),
        Command::Map(args) => cli::dta::map::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Lab(args) => Err(commands::programs::lab(args)),
        Command::Bench(args) => Err(commands::programs::bench(args)),
        Command::Experiment(args) => Err(commands::programs::experiment(args)),
        Command::Report(args) => cli::report::run(args),
        Command::Generate(args) => commands::generate::run(args, Cli::command()),
        Command::SqlHelper(args) => cli::sql_helper::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_arguments_of_another_program_are_passed_on_unchanged() {
        for words in [
            &["lab", "exec", "h1", "--", "ping", "-c", "3"][..],
            &["lab", "--help"],
            &["lab", "--version"],
            &["bench", "--all", "--json"],
            &["experiment", "-h"],
            &["lab"],
        ] {
            let parsed = Cli::try_parse_from(["hopwise"].iter().chain(words)).unwrap();
            let (Command::Lab(args) | Command::Bench(args) | Command::Experiment(args)) = parsed.command
            else {
                panic!("{words:?}");
            };
            assert_eq!(args.arguments, words[1..], "{words:?}");
        }
    }
}
