//! Build script: compresses the compiled P4 programs for embedding, from 7 MB of JSON to 0.3 MB. Requires `gzip`.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The programs that `map::program` returns.
const PROGRAMS: [&str; 4] = ["int", "sf", "aggregator", "dta_translator"];

fn main() {
    let programs = Path::new("../../../p4/v1model");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    for name in PROGRAMS {
        let source = programs.join(format!("{name}.json"));
        println!("cargo::rerun-if-changed={}", source.display());
        if let Err(reason) = compress(&source, &out.join(format!("{name}.json.gz"))) {
            println!("cargo::error={}: {reason}", source.display());
        }
    }
}

fn compress(source: &Path, compressed: &Path) -> Result<(), String> {
    // -n omits the timestamp, so that builds are reproducible.
    let output = Command::new("gzip")
        .arg("-9nc")
        .arg(source)
        .output()
        .map_err(|error| format!("cannot run `gzip`: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    std::fs::write(compressed, output.stdout).map_err(|error| error.to_string())
}
