//! `hopwise-bench`: benchmarks, and the experiments of papers. `hopwise bench` and `hopwise experiment` execute it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Exit codes: 0 success, 2 wrong usage or input.
fn main() -> ExitCode {
    terminal::exit_code(bench::run(std::env::args_os()))
}
