//! `fuzz::time`, guided by coverage.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::with_profile(input, fuzz::time));
