//! Fuzz bodies: functions that check a property for arbitrary bytes, and panic if it does not hold.
#![forbid(unsafe_code)]

mod bytes;
mod drivers;
mod dta;
mod intents;
mod sinks;
mod stages;

pub use bytes::{aggregate, headers, lldp, packet, reports};
pub use drivers::{path_map, pipeline_map, rules_file};
pub use dta::{dta, memory, roce};
pub use filter::fuzz as filter;
pub use intents::intents;
pub use sinks::{sink_http, sink_kafka, sink_redis, sink_scram};
pub use stages::{SEPARATOR, collect, rule, switch, time};

use wire::{Dialect, Profile};

/// Runs `body` over all of `input` but its first byte, which chooses the dialect: the form of a coverage-guided target's input.
/// `examples/corpus.rs` writes the vectors in the same form.
///
/// # Panics
/// When `body` does.
pub fn with_profile(input: &[u8], body: fn(&[u8], &Profile)) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let dialect = Dialect::ALL[usize::from(*choice) % Dialect::ALL.len()];
    body(bytes, &Profile::new(dialect));
}
