//! The command `hopwise experiment`: repeats experiments of papers about INT, SF-INT, postcards and DTA. Each experiment writes
//! tables (CSV), plots (SVG) and a page (Markdown) that compares hopwise with the paper.
//!
//! An experiment has two functions: `run` measures or simulates and returns tables; `observe` computes comparisons and remarks
//! from the rows, also from stored ones. [`figures`] and [`machine`] serve the benchmarks too.
#![forbid(unsafe_code)]

mod adaptive;
mod bursts;
mod collector_cpu;
mod convert;
mod dta;
mod event_detection;
mod event_filter;
pub mod figures;
mod inferred;
mod int_latency;
mod loopback;
pub mod machine;
mod monitor_rate;
mod p4_resources;
mod page;
mod postcards;
mod rows;
mod settings;
mod sf;
mod sf_delay;
mod sf_rate;
mod svg;
mod switch_cost;
mod timing;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use self::convert::Format;
use self::page::Findings;
use self::rows::{Observations, Results};
use self::settings::{Given, Parameter, Scale, Settings};
use crate::machine::Machine;
use clap::Parser;
use terminal::CliError;
use terminal::progress::Waiting;

/// Repeat an experiment of a paper: a table (CSV), plots (SVG) and a page with the figures of the paper and of hopwise
///
/// Everything runs on this machine. Simulated figures are the same on every machine; pages with measured figures name the
/// machine.
#[derive(Parser, Debug)]
#[command(
    name = "hopwise-experiment",
    bin_name = "hopwise experiment",
    version,
    after_help = "Examples:
  hopwise experiment --list
  hopwise experiment event-detection
  hopwise experiment event-detection --out /tmp/pages --quick
  hopwise experiment --list sf-delay
  hopwise experiment sf-delay --rate 645000 --nodes 8 --out /tmp/pages
  hopwise experiment sf-delay --format pdf --out /tmp/pages
  hopwise experiment --all --measured"
)]
pub struct Args {
    /// Experiments to run
    #[arg(value_name = "NAME", required_unless_present_any = ["list", "all"])]
    names: Vec<String>,

    /// Run every experiment
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// With --all: only experiments whose figures depend on the machine and its load
    #[arg(long, requires = "all")]
    measured: bool,

    /// List the experiments and exit; with names, list their parameters
    #[arg(long)]
    list: bool,

    /// Write the files to this directory; created if missing
    #[arg(long, value_name = "DIR", default_value = "docs/experiments")]
    out: PathBuf,

    /// Do about a tenth of the work: a test run, not for quoting figures
    #[arg(long)]
    quick: bool,

    /// Formats of the plots; SVG is always written
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', default_value = "svg")]
    format: Vec<Format>,

    #[command(flatten)]
    given: Given,
}

/// An experiment, with its name on the command line, subject, paper and parameters.
struct Experiment {
    name: &'static str,
    about: &'static str,
    paper: &'static str,
    parameters: &'static [Parameter],
    /// The result depends on the machine and its load.
    is_measured: bool,
    run: fn(&Settings) -> Result<Findings, CliError>,
    /// Computes the remarks from the rows, and the comparisons unless the findings contain them.
    observe: fn(&Results) -> Observations,
}

macro_rules! experiments {
    ($($name:literal $about:literal, $paper:literal, $parameters:expr, $is_measured:literal, $run:path, $observe:path;)+) => {
        &[$(Experiment {
            name: $name,
            about: $about,
            paper: $paper,
            parameters: $parameters,
            is_measured: $is_measured,
            run: $run,
            observe: $observe,
        }),+]
    };
}

// Name, subject, paper; then parameters, `is_measured`, and the functions `run` and `observe`.
const EXPERIMENTS: &[Experiment] = experiments! {
    "sf-overhead" "Packet size and goodput of SF-INT and INT", "Xiong et al., SF-INT, Fig. 7",
        sf::OVERHEAD, false, sf::overhead, sf::observe_overhead;
    "sf-delay" "Delay until a path is complete with SF-INT", "Xiong et al., SF-INT, Fig. 8b",
        sf_delay::PARAMETERS, false, sf_delay::run, sf_delay::observe;
    "sf-yield" "Which packets' paths become complete with SF-INT", "Xiong et al., SF-INT, 4.4 (not measured there)",
        sf::YIELD, false, sf::yields, sf::observe_yields;
    "sf-rate" "Reports of SF-INT that one core processes", "Xiong et al., SF-INT, Figs. 8a, 9a and 9b",
        sf_rate::PARAMETERS, true, sf_rate::run, sf_rate::observe;
    "monitor-rate" "Reports per second of one core, by hops and items", "Vestin et al., Programmable Event Detection, Fig. 3",
        monitor_rate::PARAMETERS, true, monitor_rate::run, monitor_rate::observe;
    "event-filter" "Event detection in the sink: savings and missed changes", "Vestin et al., Programmable Event Detection, Figs. 4 and 5",
        event_filter::PARAMETERS, false, event_filter::run, event_filter::observe;
    "adaptive" "Thresholds that follow a budget of reports", "Vestin et al., Programmable Event Detection, III (not measured there)",
        adaptive::PARAMETERS, false, adaptive::run, adaptive::observe;
    "postcards" "Savings of an aggregator at the server, by R", "Alhamed et al., P4 Postcard Telemetry Collector, Figs. 2 and 3",
        postcards::PARAMETERS, true, postcards::run, postcards::observe;
    "event-detection" "Stored rows and accuracy by threshold of event detection", "INTCollector, 6.2.3 (not measured there)",
        event_detection::PARAMETERS, false, event_detection::run, event_detection::observe;
    "collector-cpu" "CPU time of the collector per report", "INTCollector, Figs. 11, 12 and 14",
        collector_cpu::PARAMETERS, true, collector_cpu::run, collector_cpu::observe;
    "switch-cost" "Time that INT adds to a packet in a switch", "INTCollector, Fig. 9",
        switch_cost::PARAMETERS, true, switch_cost::run, switch_cost::observe;
    "int-latency" "Latency that INT adds to a packet in a software switch", "INTCollector, Fig. 9",
        int_latency::PARAMETERS, true, int_latency::run, int_latency::observe;
    "p4-resources" "What the P4 programs take of a Tofino", "Langlet et al., Direct Telemetry Access, Table 3 and Fig. 13",
        &[], false, p4_resources::run, p4_resources::observe;
    "dta-report-rate" "Reports per second of one switch", "Langlet et al., Direct Telemetry Access, Table 1",
        dta::REPORT_RATE, false, dta::report_rate, dta::observe_report_rate;
    "dta-breakdown" "Where a collector on the CPU spends its time", "Langlet et al., Direct Telemetry Access, Fig. 1",
        dta::BREAKDOWN, true, dta::breakdown, dta::observe_breakdown;
    "dta-cpu" "Collection by DTA and by the CPU", "Langlet et al., Direct Telemetry Access, Fig. 6",
        dta::TIMED, true, dta::cpu, dta::observe_cpu;
    "dta-append" "DTA Append by batch, lists and size of a list", "Langlet et al., Direct Telemetry Access, Fig. 7",
        dta::TIMED, true, dta::append, dta::observe_append;
    "dta-polling" "Reading DTA lists, with and without collection", "Langlet et al., Direct Telemetry Access, Fig. 8",
        dta::TIMED, true, dta::polling, dta::observe_polling;
    "dta-key-write" "DTA Key-Write by copies and size of the data", "Langlet et al., Direct Telemetry Access, Fig. 9",
        dta::TIMED, true, dta::key_write, dta::observe_key_write;
    "dta-query" "DTA queries: rate and time of the parts, by copies", "Langlet et al., Direct Telemetry Access, Fig. 10",
        dta::TIMED, true, dta::query, dta::observe_query;
    "dta-answers" "Share of keys that a DTA store answers, by load and copies", "Langlet et al., Direct Telemetry Access, Fig. 11",
        dta::ANSWERS, false, dta::answers, dta::observe_answers;
    "dta-longevity" "Share of keys that a DTA store answers, by age", "Langlet et al., Direct Telemetry Access, Fig. 12",
        &[], false, dta::longevity, dta::observe_longevity;
    "dta-reports" "Cost of a report at its sender: DTA and RDMA from the switch", "Langlet et al., Direct Telemetry Access, 5.5 and Fig. 13",
        dta::TIMED, true, dta::reports, dta::observe_reports;
};

/// Runs the command.
///
/// # Errors
/// Fails if a name or a parameter is unknown, an experiment fails, or its files cannot be written.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let chosen = if args.names.is_empty() {
        EXPERIMENTS
            .iter()
            .filter(|one| one.is_measured || !args.measured)
            .collect()
    } else {
        chosen(&args.names)?
    };
    if args.list {
        let mut list = String::new();
        for one in chosen {
            list += &format!("{:<18}{}. {}\n", one.name, one.about, one.paper);
            if !args.names.is_empty() {
                list.extend(one.parameters.iter().map(Parameter::line));
            }
        }
        return terminal::print(&list).map(|()| ExitCode::SUCCESS);
    }
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    // All settings are checked first, so that an error does not end a command that has run for minutes.
    let settings = chosen
        .iter()
        .map(|one| Settings::with(scale, one.name, one.parameters, &args.given))
        .collect::<Result<Vec<_>, _>>()?;
    convert::check(&args.format)?;
    let machine = Machine::read();
    for (done, (experiment, settings)) in chosen.iter().zip(&settings).enumerate() {
        let begun = Instant::now();
        let waiting = Waiting::part(experiment.name, done as u64, chosen.len() as u64);
        let findings = (experiment.run)(settings);
        drop(waiting);
        let findings = findings?;
        let page = write(&args.out, &args.format, experiment, findings, settings, &machine)?;
        eprintln!(
            "hopwise: {}: {:.0} s",
            experiment.name,
            begun.elapsed().as_secs_f64()
        );
        println!("{}", page.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Load average per core above which a page warns not to quote its measured figures.
const BUSY: f64 = 0.5;

/// Adds the conditions of every page: the parameters, and for measured figures the machine and its load before the first run.
fn add_conditions(findings: &mut Findings, experiment: &Experiment, settings: &Settings, machine: &Machine) {
    if !experiment.parameters.is_empty() {
        findings
            .conditions
            .push(format!("parameters: {}", settings.sentence()));
    }
    if experiment.is_measured {
        let load = machine
            .load
            .map_or("unknown".to_owned(), |load| format!("{load:.2}"));
        findings
            .conditions
            .push(format!("{machine}; load average before the first run: {load}"));
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, CliError> {
    names
        .iter()
        .map(|name| {
            EXPERIMENTS.iter().find(|one| one.name == name).ok_or_else(|| {
                CliError::new(format!(
                    "there is no experiment `{name}`; `hopwise experiment --list` names them"
                ))
            })
        })
        .collect()
}

/// Writes an experiment's files. Returns the path of its page.
fn write(
    out: &Path,
    formats: &[Format],
    experiment: &Experiment,
    mut findings: Findings,
    settings: &Settings,
    machine: &Machine,
) -> Result<PathBuf, CliError> {
    let name = experiment.name;
    add_conditions(&mut findings, experiment, settings, machine);
    let observations = (experiment.observe)(&Results::new(&findings.tables));
    findings.remarks = observations.remarks;
    findings.comparisons = observations.comparisons.unwrap_or(findings.comparisons);
    let is_busy = experiment.is_measured
        && machine
            .load
            .is_some_and(|load| load > BUSY * machine.cores as f64);
    let page = out.join(format!("{name}.md"));
    let title = (name, experiment.about, experiment.paper);
    let mut files = vec![(page.clone(), findings.markdown(title, settings, is_busy))];
    let mut plots = Vec::new();
    for table in &findings.tables {
        files.push((out.join(format!("{name}-{}.csv", table.name)), table.csv()));
        for (at, plot) in table.plots.iter().enumerate() {
            let file = out.join(page::plot_file(name, table, at));
            files.push((file.clone(), plot.to_svg()));
            plots.push(file);
        }
    }
    fs::create_dir_all(out)
        .and_then(|()| files.iter().try_for_each(|(file, text)| fs::write(file, text)))
        .map_err(|error| {
            CliError::io(
                format!("cannot write to {}", out.display()),
                error,
                "name a writable directory",
            )
        })?;
    for plot in &plots {
        formats
            .iter()
            .try_for_each(|format| convert::convert(plot, *format))?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_runs_and_writes_its_files() {
        let out = std::env::temp_dir().join(format!("hopwise-experiments-{}", std::process::id()));
        for experiment in EXPERIMENTS {
            let settings = Settings::new(Scale::Smallest, experiment.parameters);
            let begun = Instant::now();
            let findings = match (experiment.run)(&settings) {
                // It starts `hopwise` itself: tests/program runs it.
                Err(error) if error.to_string().starts_with("needs the program `hopwise`") => continue,
                findings => findings.unwrap(),
            };
            eprintln!("{}: {} ms", experiment.name, begun.elapsed().as_millis());
            assert!(!findings.tables.is_empty() && !findings.conditions.is_empty());
            let tables = findings.tables.clone();
            let page = write(
                &out,
                &[Format::Svg],
                experiment,
                findings,
                &settings,
                &Machine::read(),
            )
            .unwrap();
            let page = fs::read_to_string(page).unwrap();
            assert!(page.starts_with(&format!("# {}\n", experiment.about)), "{page}");
            for table in &tables {
                assert!(!table.rows.is_empty(), "{}", table.name);
                assert!(
                    table
                        .rows
                        .iter()
                        .all(|row| row.len() == table.columns.split(',').count()),
                    "{}",
                    table.name
                );
                for (at, plot) in table.plots.iter().enumerate() {
                    let svg =
                        fs::read_to_string(out.join(page::plot_file(experiment.name, table, at))).unwrap();
                    assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
                    assert!(
                        plot.series.iter().any(|series| series.points.len() > 1),
                        "{}",
                        plot.title
                    );
                }
            }
        }
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn the_reference_of_p4_resources_is_made_from_the_compilers_reports() {
        let experiment = EXPERIMENTS.iter().find(|one| one.name == "p4-resources").unwrap();
        let (committed, settings) = (
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments")),
            Settings::new(Scale::Full, &[]),
        );
        let made = std::env::temp_dir().join(format!("hopwise-p4-resources-{}", std::process::id()));
        let is_update = std::env::var_os("UPDATE_REFERENCE").is_some();
        for out in is_update.then_some(committed).into_iter().chain([made.as_path()]) {
            let findings = (experiment.run)(&settings).unwrap();
            write(
                out,
                &[Format::Svg],
                experiment,
                findings,
                &settings,
                &Machine::read(),
            )
            .unwrap();
        }
        for file in fs::read_dir(&made).unwrap() {
            let name = file.unwrap().file_name();
            let texts = [&made, committed].map(|folder| fs::read_to_string(folder.join(&name)).ok());
            assert!(
                texts[0] == texts[1],
                "{name:?} is of other reports; run `make docs`"
            );
        }
        fs::remove_dir_all(made).unwrap();
    }

    #[test]
    fn the_reference_pages_say_what_their_stored_rows_carry() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments"));
        let mut faults = Vec::new();
        for experiment in EXPERIMENTS {
            let prefix = format!("{}-", experiment.name);
            let mut tables = Vec::new();
            for file in fs::read_dir(folder).unwrap() {
                let path = file.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                let table = name
                    .strip_prefix(&prefix)
                    .and_then(|name| name.strip_suffix(".csv"));
                if let Some(table) = table {
                    tables.push((table.to_owned(), fs::read_to_string(&path).unwrap()));
                }
            }
            assert!(!tables.is_empty(), "{}", experiment.name);
            let tables = tables.iter().map(|(name, csv)| (name.as_str(), csv.as_str()));
            let path = folder.join(format!("{}.md", experiment.name));
            let page = fs::read_to_string(&path).unwrap();
            let observations = (experiment.observe)(&Results::parse(tables));
            let made = rows::replace(&page, &observations);
            if std::env::var_os("UPDATE_REFERENCE").is_some() {
                fs::write(&path, &made).unwrap();
            } else {
                assert!(
                    page == made,
                    "{} contradicts its rows; run `make docs`",
                    path.display()
                );
            }
            assert!(!made.contains("NaN"), "{}", path.display());
            faults.extend(english_faults(&observations));
        }
        assert_eq!(faults, Vec::<String>::new());
    }

    /// Remarks without a full stop, plurals of one, and numbers without separators of thousands.
    fn english_faults(observations: &Observations) -> Vec<String> {
        let stops = observations
            .remarks
            .iter()
            .filter(|remark| !remark.ends_with('.'))
            .cloned();
        let comparisons = observations.comparisons.iter().flatten().map(|one| &one.hopwise);
        let mut faults: Vec<String> = stops.collect();
        for text in observations.remarks.iter().chain(comparisons) {
            // Not `N - 1 reports`.
            let text = text.replace("- 1 ", "");
            let words: Vec<&str> = text
                .split([' ', '(', ')', ';', ':'])
                .map(|word| word.trim_end_matches('.'))
                .collect();
            let plural = words.windows(2).any(|pair| {
                pair[0] == "1" && pair[1].len() > 3 && pair[1].ends_with('s') && pair[1] != "times"
            });
            let mut wholes = words.iter().filter_map(|word| word.split('.').next());
            let long = wholes.any(|whole| whole.len() > 3 && whole.bytes().all(|byte| byte.is_ascii_digit()));
            if plural || long {
                faults.push(text);
            }
        }
        faults
    }

    #[test]
    fn without_rows_only_judgements_remain() {
        for experiment in EXPERIMENTS {
            let observations = (experiment.observe)(&Results::default());
            for remark in observations.remarks {
                assert!(
                    remark.starts_with("Judgement: "),
                    "{}: not of the rows: {remark}",
                    experiment.name
                );
            }
            for comparison in observations.comparisons.unwrap_or_default() {
                assert!(
                    comparison.hopwise.starts_with("not "),
                    "{}: {}",
                    experiment.name,
                    comparison.line()
                );
            }
        }
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        let error = chosen(&["nothing".into()]).err().unwrap().to_string();
        assert!(error.contains("--list"), "{error}");
    }
}
