//! Checks files of the repository that are generated from the source, such as reference pages.

use std::{env, fs, path::Path};

/// Compares a file of the repository with the generated text `made`, after writing it if `UPDATE_REFERENCE` is set.
///
/// # Panics
/// Panics if the file differs or cannot be written.
pub fn compare_page(page: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    if env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&file, made).unwrap_or_else(|error| panic!("cannot write {page}: {error}"));
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == made, "{page} is stale: make docs");
}
