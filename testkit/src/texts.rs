//! Fuzz tests for text formats: runs a parser on corrupted copies of valid examples, the same ones on every machine.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::rng::Rng;

/// Runs `body` on the examples and on corrupted copies: 20,000, or as many as `HOPWISE_FUZZ_SECONDS` allows.
pub fn fuzz(body: fn(&[u8]), seed: u64, examples: &[String]) {
    let seconds = std::env::var("HOPWISE_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    examples.iter().for_each(|example| body(example.as_bytes()));
    let mut rng = Rng(seed);
    let mut count = 0_u64;
    while end.map_or(count < 20_000, |end| Instant::now() < end) {
        for _ in 0..100 {
            let mut bytes = examples[rng.below(examples.len())].clone().into_bytes();
            corrupt(&mut rng, &mut bytes);
            let shown = String::from_utf8_lossy(&bytes).into_owned();
            let outcome = std::panic::catch_unwind(|| body(&bytes));
            assert!(outcome.is_ok(), "mutation {count} under seed {seed}: {shown:?}");
            count += 1;
        }
    }
    println!("{count} mutations");
}

/// Reads the inputs of coverage-guided fuzzing, `fuzz/corpus/TARGET.txt`, one per line in hex. Empty if there is no file.
///
/// # Panics
/// Panics if the file is malformed.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target)
        .with_extension("txt");
    let Ok(text) = std::fs::read_to_string(&file) else {
        return Vec::new();
    };
    text.lines()
        .map(|line| {
            line.as_bytes()
                .chunks(2)
                .map(|hex| {
                    let hex = std::str::from_utf8(hex).expect("ASCII");
                    u8::from_str_radix(hex, 16).expect("hex digits")
                })
                .collect()
        })
        .collect()
}

/// Tokens of the grammars and values at the edges of integer types, inserted at random.
const WORDS: [&str; 30] = [
    ":",
    ">",
    "/6",
    ",",
    "u8:",
    "u16:",
    "u64:",
    "0x",
    "::ffff:10.0.0.1",
    "[",
    "]",
    "256",
    "-1",
    "4294967296",
    "null",
    "[]",
    "{}",
    "u32[5]",
    "hex[256]",
    "ipv6",
    "data[0:4]",
    " and ",
    "&0xff",
    ">=",
    "time",
    "\"slots\":16",
    "18446744073709551615",
    "tcp",
    "\0",
    "1e9",
];

/// Makes one to three random changes: flips a bit, removes bytes, inserts a token, or replaces a number.
fn corrupt(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() + 1);
        match rng.below(4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => {
                let end = (at + 1 + rng.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
            2 => {
                let word = WORDS[rng.below(WORDS.len())].as_bytes();
                bytes.splice(at..at, word.iter().copied());
            }
            _ => {
                let digit = bytes.iter().skip(at).position(u8::is_ascii_digit);
                if let Some(place) = digit.map(|digit| at + digit) {
                    let end = bytes[place..].iter().position(|byte| !byte.is_ascii_digit());
                    let end = end.map_or(bytes.len(), |end| place + end);
                    let word = ["0", "1", "255", "65536", "4294967295", "99999999999"][rng.below(6)];
                    bytes.splice(place..end, word.bytes());
                }
            }
        }
    }
}
