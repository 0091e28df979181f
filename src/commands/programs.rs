//! Commands that execute other programs: `lab` (`hopwise-lab`), `bench` and `experiment` (`hopwise-bench`). They are separate
//! so that the daemon's binary does not contain them.

use std::ffi::OsString;

use terminal::{CliError, programs};

const BENCH_REMEDY: &str = "install the package hopwise-lab, or build it with `make bench`";

/// Arguments that are passed on unchanged; the other program parses them.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Args {
    /// Arguments of the command: see its --help
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Replaces this process by `hopwise-lab`. Returns only if that fails.
pub(crate) fn lab(args: Args) -> CliError {
    let remedy = "install the package hopwise-lab, or build it with `make lab`";
    programs::execute("hopwise-lab", args.arguments, remedy)
}

/// Replaces this process by `hopwise-bench`. Returns only if that fails.
pub(crate) fn bench(args: Args) -> CliError {
    programs::execute("hopwise-bench", args.arguments, BENCH_REMEDY)
}

/// Replaces this process by `hopwise-bench experiment`. Returns only if that fails.
pub(crate) fn experiment(args: Args) -> CliError {
    let arguments = std::iter::once(OsString::from("experiment")).chain(args.arguments);
    programs::execute("hopwise-bench", arguments, BENCH_REMEDY)
}
