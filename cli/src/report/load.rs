//! `hopwise report load`: sends many DTA reports at a constant rate. Keys and values follow from the report's number and a
//! seed, so a load can be repeated.

use std::time::Duration;

use clap::ValueEnum;
use nic::time;
use wire::{dta::Operation, dta::hash::MAX_KEY};

use super::ReportSender;
use terminal::{CliError, progress::Progress};

/// Maximum number of reports between two reads of the clock.
const BURST: u64 = 64;
/// Maximum length of the entries of a report, bytes.
const MAX_PAYLOAD_LEN: usize = 1300;
/// Length of a key, bytes: the IPv4 5-tuple.
const KEY_LEN: usize = 13;

/// Options of the load
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Operation that each report carries
    #[arg(value_enum)]
    operation: OperationArg,

    /// ID of the store
    #[arg(long, default_value_t = 1)]
    store: u16,

    /// ID of the list
    #[arg(long, default_value_t = 0)]
    list: u32,

    /// Spread entries over this many lists, from --list on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    lists: u32,

    /// Reports per second; 0: as fast as possible
    #[arg(long, default_value_t = 10_000)]
    rate: u64,

    /// Total number of reports
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    /// Number of different keys: random 5-tuples, used in turn
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,

    /// Bytes of a value or an entry; the first 4 are the number of the report
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1024))]
    data: u16,

    /// Number of entries in a report
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    entries: u8,

    /// Copies in the store, 1 to 4
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: u8,

    /// Hops of a key's path; the postcards of a key are sent in a row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    hops: u8,

    /// Random seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OperationArg {
    KeyWrite,
    Append,
    KeyIncrement,
    Postcard,
}

/// Sends the load at its rate and shows the progress.
pub(super) fn run(args: &Args, sender: &mut ReportSender) -> Result<(), CliError> {
    let payload_len = usize::from(args.data) * usize::from(args.entries);
    if args.operation == OperationArg::Append && payload_len > MAX_PAYLOAD_LEN {
        return Err(CliError::new(
            "a report would be too long; use fewer --entries or less --data",
        ));
    }
    let mut progress = Progress::new("load", "reports", Some(args.count)).silenced(sender.json);
    let mut scratch = vec![0; payload_len.max(usize::from(args.data))];
    let start = time::monotonic();
    let mut sent = 0;
    while sent < args.count {
        let due = match args.rate {
            0 => args.count,
            rate => reports_due(time::monotonic() - start, rate).min(args.count),
        };
        if due <= sent {
            sender.poll(0);
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        let end = due.min(sent + BURST);
        for number in sent..end {
            let mut key = [0; KEY_LEN];
            sender.send(&args.operation(number, &mut key, &mut scratch));
        }
        sent = end;
        sender.poll(0);
        progress.at(sent, sent);
    }
    progress.finish();
    Ok(())
}

/// Returns the number of reports due after `elapsed` ns; the first is due at once.
fn reports_due(elapsed: u64, rate: u64) -> u64 {
    (u128::from(elapsed) * u128::from(rate) / 1_000_000_000) as u64 + 1
}

const _: () = assert!(KEY_LEN <= MAX_KEY, "a key of a load is too long");

impl Args {
    /// Builds the report with this number. All hops of a key's path are consecutive reports.
    fn operation<'a>(&self, number: u64, key: &'a mut [u8; KEY_LEN], scratch: &'a mut [u8]) -> Operation<'a> {
        let hops = u64::from(self.hops);
        let key_number = if self.operation == OperationArg::Postcard {
            number / hops
        } else {
            number
        };
        write_key(key_number % self.keys, self.seed, key);
        let len = usize::from(self.data);
        match self.operation {
            OperationArg::KeyWrite => {
                let data = &mut scratch[..len];
                write_number(number, data);
                Operation::KeyWrite {
                    copies: self.copies,
                    store: self.store,
                    key,
                    data,
                }
            }
            OperationArg::Append => {
                let entries = &mut scratch[..len * usize::from(self.entries)];
                let first = number * u64::from(self.entries);
                entries
                    .chunks_mut(len)
                    .zip(first..)
                    .for_each(|(entry, number)| write_number(number, entry));
                let list = self.list.wrapping_add((number % u64::from(self.lists)) as u32);
                Operation::Append {
                    list,
                    entry_len: self.data,
                    entries,
                }
            }
            OperationArg::KeyIncrement => Operation::KeyIncrement {
                copies: self.copies,
                store: self.store,
                delta: 1,
                key,
            },
            OperationArg::Postcard => Operation::Postcard {
                hop: (number % hops) as u8 + 1,
                path_len: self.hops,
                store: self.store,
                value: (number % hops) as u32 + 11,
                key,
            },
        }
    }
}

/// Computes the output function of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Writes key `number`: an IPv4 5-tuple of UDP with random addresses and ports.
fn write_key(number: u64, seed: u64, key: &mut [u8; KEY_LEN]) {
    let first = mix(number.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..12].copy_from_slice(&mix(first).to_be_bytes()[..4]);
    key[12] = 17;
}

/// Writes a value: the report's number in big-endian order, then zeros.
fn write_number(number: u64, data: &mut [u8]) {
    data.fill(0);
    let bytes = (number as u32).to_be_bytes();
    let len = data.len().min(4);
    data[..len].copy_from_slice(&bytes[4 - len..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_any_time() {
        assert_eq!(
            (
                reports_due(0, 1000),
                reports_due(999_999, 1000),
                reports_due(1_000_000, 1000)
            ),
            (1, 1, 2)
        );
        assert_eq!(reports_due(3_600_000_000_000, 10_000_000), 36_000_000_001);
    }

    #[test]
    fn keys_differ_and_come_again_with_the_same_seed() {
        let of = |number, seed| {
            let mut key = [0; KEY_LEN];
            write_key(number, seed, &mut key);
            key
        };
        let mut keys: Vec<_> = (0..10_000).map(|number| of(number, 1)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 10_000);
        assert_eq!((of(5, 7), of(5, 7) == of(5, 8)), (of(5, 7), false));
    }
}
