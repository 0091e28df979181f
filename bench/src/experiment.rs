//! `hopwise experiment`: repeats experiments of papers; writes tables, plots and a page for each.

mod bursts;
mod dta;
mod event_detection;
mod event_filter;
mod inferred;
mod page;
mod postcards;
mod sf;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use self::page::Findings;
use terminal::CliError;

/// Repeat an experiment of a paper: a table (CSV), plots (SVG) and a page with the figures of the paper and of hopwise
///
/// Everything runs on this machine. Simulated figures are the same on every machine; pages with measured figures name the machine.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise experiment --list
  hopwise experiment event-detection
  hopwise experiment event-detection --out /tmp/pages --quick
  hopwise experiment --all")]
pub struct Args {
    /// Experiments to run
    #[arg(value_name = "NAME", required_unless_present_any = ["list", "all"])]
    names: Vec<String>,

    /// Run every experiment
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// List the experiments and exit
    #[arg(long)]
    list: bool,

    /// Write the files to this directory; created if missing
    #[arg(long, value_name = "DIR", default_value = "docs/experiments")]
    out: PathBuf,

    /// Do a tenth of the work: a test run, not for quoting figures
    #[arg(long)]
    quick: bool,
}

/// Amount of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// As in the committed pages.
    Full,
    /// About a tenth.
    Quick,
}

impl Scale {
    /// `full`, or a tenth of it.
    fn of(self, full: u64) -> u64 {
        match self {
            Self::Full => full,
            Self::Quick => (full / 10).max(1),
        }
    }
}

/// An experiment: its name, its subject, its paper, and the function that runs it.
struct Experiment {
    name: &'static str,
    about: &'static str,
    paper: &'static str,
    run: fn(Scale) -> Result<Findings, CliError>,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "sf-overhead",
        about: "Packet size and goodput of SF-INT and INT",
        paper: "Xiong et al., SF-INT, Fig. 7",
        run: sf::overhead,
    },
    Experiment {
        name: "sf-delay",
        about: "Delay until a path is complete with SF-INT",
        paper: "Xiong et al., SF-INT, Fig. 8b",
        run: sf::delay,
    },
    Experiment {
        name: "sf-yield",
        about: "Which packets' paths become complete with SF-INT",
        paper: "Xiong et al., SF-INT, 4.4 (not measured there)",
        run: sf::yields,
    },
    Experiment {
        name: "event-filter",
        about: "Event detection in the sink: savings and missed changes",
        paper: "Vestin et al., Programmable Event Detection, Figs. 4 and 5",
        run: event_filter::run,
    },
    Experiment {
        name: "postcards",
        about: "Savings of an aggregator at the server, by R",
        paper: "Alhamed et al., P4 Postcard Telemetry Collector, Figs. 2 and 3",
        run: postcards::run,
    },
    Experiment {
        name: "event-detection",
        about: "Stored rows and accuracy by threshold of event detection",
        paper: "INTCollector, 6.2.3 (not measured there)",
        run: event_detection::run,
    },
    Experiment {
        name: "dta-cpu",
        about: "Collection by DTA and by the CPU",
        paper: "Langlet et al., Direct Telemetry Access, Fig. 6",
        run: dta::cpu,
    },
    Experiment {
        name: "dta-append",
        about: "DTA Append by batch, lists and size of a list",
        paper: "Langlet et al., Direct Telemetry Access, Fig. 7",
        run: dta::append,
    },
    Experiment {
        name: "dta-polling",
        about: "Reading DTA lists, with and without collection",
        paper: "Langlet et al., Direct Telemetry Access, Fig. 8",
        run: dta::polling,
    },
    Experiment {
        name: "dta-key-write",
        about: "DTA Key-Write by copies and size of the data",
        paper: "Langlet et al., Direct Telemetry Access, Fig. 9",
        run: dta::key_write,
    },
    Experiment {
        name: "dta-query",
        about: "DTA queries: rate and time of the parts, by copies",
        paper: "Langlet et al., Direct Telemetry Access, Fig. 10",
        run: dta::query,
    },
    Experiment {
        name: "dta-answers",
        about: "Share of keys that a DTA store answers, by load and copies",
        paper: "Langlet et al., Direct Telemetry Access, Fig. 11",
        run: dta::answers,
    },
    Experiment {
        name: "dta-longevity",
        about: "Share of keys that a DTA store answers, by age",
        paper: "Langlet et al., Direct Telemetry Access, Fig. 12",
        run: dta::longevity,
    },
    Experiment {
        name: "dta-reports",
        about: "Cost of a report at its sender: DTA and RDMA from the switch",
        paper: "Langlet et al., Direct Telemetry Access, 5.5 and Fig. 13",
        run: dta::reports,
    },
];

/// Runs the command.
///
/// # Errors
/// A name is unknown, an experiment failed, or its files cannot be written.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    if args.list {
        for one in EXPERIMENTS {
            println!("{:<18}{}. {}", one.name, one.about, one.paper);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    let chosen = if args.all { EXPERIMENTS.iter().collect() } else { chosen(&args.names)? };
    for experiment in chosen {
        eprintln!("hopwise: {} …", experiment.name);
        let findings = (experiment.run)(scale)?;
        let page = write(&args.out, experiment, &findings, scale)?;
        println!("{}", page.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, CliError> {
    let find = |name: &String| {
        EXPERIMENTS.iter().find(|one| one.name == name).ok_or_else(|| {
            CliError::new(format!("there is no experiment `{name}`; `hopwise experiment --list` names them"))
        })
    };
    names.iter().map(find).collect()
}

/// Writes an experiment's files; returns the path of its page.
fn write(
    out: &Path,
    experiment: &Experiment,
    findings: &Findings,
    scale: Scale,
) -> Result<PathBuf, CliError> {
    let name = experiment.name;
    let failed = |error| {
        CliError::io(format!("cannot write to {}", out.display()), error, "name a directory you may write")
    };
    fs::create_dir_all(out).map_err(failed)?;
    for table in &findings.tables {
        fs::write(out.join(format!("{name}-{}.csv", table.name)), table.csv()).map_err(failed)?;
        for (at, plot) in table.plots.iter().enumerate() {
            fs::write(out.join(page::plot_file(name, table, at)), plot.to_svg()).map_err(failed)?;
        }
    }
    let page = out.join(format!("{name}.md"));
    fs::write(&page, findings.markdown((name, experiment.about, experiment.paper), scale)).map_err(failed)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_runs_and_writes_its_files() {
        let out = std::env::temp_dir().join(format!("hopwise-experiments-{}", std::process::id()));
        for experiment in EXPERIMENTS {
            let findings = (experiment.run)(Scale::Quick).unwrap();
            let page = fs::read_to_string(write(&out, experiment, &findings, Scale::Quick).unwrap()).unwrap();
            assert!(page.starts_with(&format!("# {}\n", experiment.about)), "{page}");
            assert!(!findings.tables.is_empty() && !findings.conditions.is_empty());
            for table in &findings.tables {
                assert!(!table.rows.is_empty(), "{}", table.name);
                assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.name);
                for (at, plot) in table.plots.iter().enumerate() {
                    let svg =
                        fs::read_to_string(out.join(page::plot_file(experiment.name, table, at))).unwrap();
                    assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
                    assert!(plot.series.iter().any(|series| series.points.len() > 1), "{}", plot.title);
                }
            }
        }
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        let error = chosen(&["nothing".into()]).err().unwrap().to_string();
        assert!(error.contains("--list"), "{error}");
    }
}
