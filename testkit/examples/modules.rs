//! Prints the module graph of each crate named on the command line: its levels, lowest first, and its cycles.
//!
//! `scripts/modules` runs it. Exit status: 0 without cycles, 1 with cycles, 2 if a crate cannot be read.

use std::{path::Path, process::ExitCode};
use testkit::modules::Graph;

fn main() -> ExitCode {
    let mut is_sound = true;
    for folder in std::env::args().skip(1) {
        let graph = match Graph::read(&Path::new(&folder).join("src")) {
            Ok(graph) => graph,
            Err(error) => {
                eprintln!("{folder}: {error}");
                return ExitCode::from(2);
            }
        };
        if let Some(levels) = graph.levels() {
            let levels: Vec<String> = levels.iter().map(|level| level.join(", ")).collect();
            println!("{folder}: {}", levels.join(" < "));
        }
        for cycle in graph.cycles() {
            is_sound = false;
            println!(
                "{folder}: cycle of {} below {}\n    {}",
                cycle.modules.join(", "),
                cycle.parent,
                cycle.uses.join("\n    ")
            );
        }
    }
    if is_sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}
