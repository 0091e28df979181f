//! `fuzz::sink_scram`, guided by coverage.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::sink_scram(input));
