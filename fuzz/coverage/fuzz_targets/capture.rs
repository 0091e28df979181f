//! `nic::capture::fuzz::capture`, guided by coverage.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nic::capture::fuzz::capture(input));
