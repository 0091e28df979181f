//! `hopwise count`: estimates the count of a key from a Key-Increment store of collector memory.

use std::process::ExitCode;

use super::{Source, print, url_query};
use dta::{key::Key, source::CountAnswer};
use net::client::escape;
use terminal::{CliError, units};

/// Get the count of a key from a key-increment store of collector memory
///
/// If each report added to at least --copies counters, the estimate is never too small; the command also prints the range in
/// which the true count is, with its probability. The memory does not show how many counters each report adds to: if --copies is larger
/// than that, the count is too small.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise count bytes 10.0.0.1               the key is the address
  hopwise count bytes '10.0.0.1:1234 > 10.0.0.2:80 tcp' --json
  hopwise count bytes 10.0.0.1 --copies 4    if reports use four counters each")]
pub struct Args {
    /// Name of the store, or its ID
    store: String,

    /// The key to count
    key: Key,

    /// Counters that each report adds to, 1 to 4
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: u8,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Source,
}

/// Runs `hopwise count`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let answer = match args.source.source()? {
        Some(source) => {
            let store = source.find(&args.store).map_err(CliError::new)?;
            store.count(&args.key, args.copies).map_err(CliError::new)?
        }
        None => {
            let map = args.source.map()?;
            let collectors = map
                .as_ref()
                .map(|map| map.collectors_of_key(&args.key))
                .unwrap_or_default();
            // Only the key's current collector is queried; counts from before the map grew are elsewhere and cannot be added.
            let collectors = &collectors[..collectors.len().min(1)];
            let params = url_query(&[
                ("key", Some(args.key.to_string())),
                ("copies", Some(args.copies.to_string())),
            ]);
            let path = format!("/dta/stores/{}/count{params}", escape(&args.store));
            args.source.query_collectors(
                collectors,
                &path,
                |_| true,
                |answer: &mut CountAnswer, name| {
                    answer.collector = Some(name.to_owned());
                },
            )?
        }
    };
    print(&answer, args.json, |answer| text(answer, args.copies))?;
    Ok(ExitCode::SUCCESS)
}

/// Formats an estimate with the range of the true count: reports of other keys can only make it too large.
fn text(answer: &CountAnswer, copies: u8) -> String {
    let estimate = answer.estimate;
    let lowest = estimate.saturating_sub(answer.error.ceil() as u64);
    let counters = match copies {
        1 => "at least 1 counter",
        2 => "at least 2 counters",
        3 => "at least 3 counters",
        _ => "4 counters",
    };
    let range = match lowest < estimate {
        true => format!("{} to {}", units::count(lowest), units::count(estimate)),
        false => format!("exactly {}", units::count(estimate)),
    };
    format!(
        "{}  (true count: {range}, with {:.1} % probability, if each report adds to {counters})\n",
        units::count(estimate),
        answer.confidence * 100.0
    )
}
