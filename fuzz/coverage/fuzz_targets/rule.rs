//! `fuzz::rule`, guided by coverage.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::rule(input, &wire::Profile::default()));
