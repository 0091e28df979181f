//! Writes `vectors/` and the inputs in `corpus/` as the seeds of a coverage-guided target:
//! `cargo run --example corpus -- DIRECTORY [TARGET]`.
#![allow(
    clippy::unwrap_used,
    reason = "a corpus that cannot be written is an error, with its position"
)]

#[allow(dead_code, reason = "shared by tests")]
use std::path::PathBuf;
use testkit::vectors;
use wire::Dialect;

fn main() {
    let directory = PathBuf::from(std::env::args().nth(1).expect("usage: corpus DIRECTORY"));
    std::fs::create_dir_all(&directory).unwrap();
    let target = std::env::args().nth(2);
    // A datagram of a history begins with its step of the clock: here 1 ms.
    let step: &[u8] = if target.as_deref() == Some("time") {
        &[1]
    } else {
        &[]
    };
    let vectors = vectors::all();
    for vector in &vectors {
        let choice = Dialect::ALL
            .iter()
            .position(|dialect| *dialect == vector.profile.dialect)
            .unwrap_or_default();
        let input = [&[choice as u8], step, vector.bytes.as_slice()].concat();
        std::fs::write(directory.join(&vector.name), input).unwrap();
    }
    let kept = target.map_or(Vec::new(), |target| testkit::texts::corpus(&target));
    for (number, input) in kept.iter().enumerate() {
        std::fs::write(directory.join(format!("kept-{number}")), input).unwrap();
    }
    println!("{} inputs in {}", vectors.len() + kept.len(), directory.display());
}
