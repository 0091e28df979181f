//! `hopwise calculate`: calculates the size of a Key-Write store and its query success rate (see `dta::calculate`).

use std::process::ExitCode;

use super::print;
use dta::calculate::{self, Calculation, Requirements};
use dta::settings::Count;
use terminal::{CliError, units};

/// Calculate the probability that a key-write store answers, from its keys, slots and copies
///
/// Each key is written once; later keys may overwrite some of its copies. Without --slots, the command finds the smallest store that
/// answers enough keys; without --copies, the number of copies that answers most keys.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise calculate 1M                       a million keys, 20 bytes each, 99 % to be answered
  hopwise calculate 100000 --answered 0.999
  hopwise calculate 1M --slots 1M --copies 2 --data 4
  hopwise calculate 1M --slots 1M --json")]
pub struct Args {
    /// Number of different keys, such as 100000 or 1M (1024^2)
    #[arg(value_parser = count)]
    keys: u64,

    /// Slots, a power of two
    #[arg(long, value_parser = count)]
    slots: Option<u64>,

    /// Copies of each key, 1 to 4
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: Option<u8>,

    /// Bytes of data of a key
    #[arg(long, default_value_t = 20)]
    data: u16,

    /// Share of keys to be answered, when --slots is absent
    #[arg(long, default_value_t = 0.99)]
    answered: f64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn count(text: &str) -> Result<u64, String> {
    Count::parse(text)
        .map(|count| count.0)
        .ok_or_else(|| "write a number such as 100000, 64K or 1M".to_owned())
}

/// Runs `hopwise calculate`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let result = calculate::calculate(&Requirements {
        keys: args.keys,
        slots: args.slots,
        copies: args.copies,
        data: args.data,
        answered: args.answered,
    })
    .map_err(CliError::new)?;
    print(&result, args.json, text)?;
    Ok(ExitCode::SUCCESS)
}

fn percent(share: f64) -> String {
    format!("{:.3} %", share * 100.0)
}

fn text(result: &Calculation) -> String {
    let mut out = format!(
        "{} keys in {} slots, {} cop{} each: {} keys per slot, {} of memory\n\
         answered {} (the oldest key {}), unknown {}, ambiguous {:.1e}, wrong {:.1e}\n\
         a key that was never reported is answered with a probability of {:.1e}\n",
        units::count(result.keys),
        units::count(result.slots),
        result.copies,
        if result.copies == 1 { "y" } else { "ies" },
        (result.load * 1000.0).round() / 1000.0,
        units::bytes(result.bytes),
        percent(result.answered),
        percent(result.oldest),
        percent(result.empty),
        result.ambiguous,
        result.wrong,
        result.false_answer,
    );
    for choice in &result.by_copies {
        let answered = percent(choice.answered);
        let oldest = percent(choice.oldest);
        out.push_str(&format!(
            "  copies {}: answered {answered}, the oldest {oldest}\n",
            choice.copies
        ));
    }
    out
}
