//! The compiled programs beside the sources are those of the sources.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn sources(root: &Path) -> Vec<PathBuf> {
    let folders =
        ["shared", "control", "v1model"].map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "p4"))
        .collect();
    files.sort();
    files
}

#[test]
fn the_programs_were_compiled_from_these_sources() {
    let root = std::env::current_dir().unwrap().join("../../p4");
    let mut hash = Sha256::new();
    for path in sources(&root) {
        hash.update(std::fs::read(path).unwrap());
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let stamp = std::fs::read_to_string(root.join("STAMP")).unwrap();
    let stamped = stamp
        .lines()
        .find_map(|line| line.strip_prefix("sources: "))
        .unwrap();
    assert_eq!(stamped, hash, "run scripts/build-p4");
}
