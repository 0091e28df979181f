//! `hopwise sketch`: queries a sketch that the translator merged in collector memory (Count-Min, Count, HyperLogLog, AROMA).

use std::process::ExitCode;

use super::{Source, print, url_query};
use dta::{key::Key, source::SketchAnswer};
use net::client::escape;
use terminal::CliError;

/// Query a sketch in collector memory: count of a key, number of distinct items, or samples
///
/// Count-Min and Count estimate the count of a key, HyperLogLog the number of distinct items; AROMA returns samples.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise sketch heavy '10.0.0.1:1234 > 10.0.0.2:80 tcp'
  hopwise sketch sources                     number of distinct items (hyperloglog)
  hopwise sketch packets --samples 100 --json")]
pub struct Args {
    /// Name of the sketch, or its ID
    store: String,

    /// The key, for count-min and count
    key: Option<Key>,

    /// Query this epoch instead of the newest
    #[arg(long)]
    epoch: Option<u16>,

    /// Number of samples to show (aroma)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    samples: u32,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Source,
}

/// Runs `hopwise sketch`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let answer: SketchAnswer = match args.source.source()? {
        Some(source) => {
            let store = source.find(&args.store).map_err(CliError::new)?;
            store
                .sketch(args.key.as_ref(), args.epoch, args.samples as usize)
                .map_err(CliError::new)?
        }
        None => {
            let map = args.source.map()?;
            let collector = map.as_ref().and_then(|map| map.collector_of_sketches());
            let params = url_query(&[
                ("key", args.key.as_ref().map(Key::to_string)),
                ("epoch", args.epoch.map(|epoch| epoch.to_string())),
                ("samples", Some(args.samples.to_string())),
            ]);
            let path = format!("/dta/stores/{}/sketch{params}", escape(&args.store));
            args.source
                .query_collectors(collector.as_slice(), &path, |_| true, |_, _| {})?
        }
    };
    print(&answer, args.json, text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(answer: &SketchAnswer) -> String {
    let epoch = &answer.epoch;
    let mut out = format!(
        "epoch {}, {} columns of {} reporter(s){}\n",
        epoch.epoch,
        epoch.columns,
        epoch.reporters,
        if answer.certain {
            ""
        } else {
            ", possibly mixed with a newer epoch"
        }
    );
    if let Some(estimate) = answer.estimate {
        let label = match answer.question.as_str() {
            "count" => "counted",
            "distinct" => "different",
            _ => "sampled from",
        };
        let bound = match (answer.error, answer.confidence) {
            (Some(error), Some(confidence)) => {
                format!(
                    "  (within {error:.0} with a probability of {:.1} %)",
                    confidence * 100.0
                )
            }
            _ => String::new(),
        };
        out.push_str(&format!("{label}: {estimate:.0}{bound}\n"));
    }
    for sample in &answer.samples {
        out.push_str(&format!("{sample}\n"));
    }
    out
}
