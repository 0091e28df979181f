//! The program `hopwise-bench`, which `hopwise bench` and `hopwise experiment` execute.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Exit codes: 0 success, 1 a bar is missed without a known reason (`--bars`), 2 wrong usage or input.
fn main() -> ExitCode {
    terminal::exit_code(bench::run(std::env::args_os()))
}
