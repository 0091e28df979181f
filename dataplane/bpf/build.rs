//! Compiles the C sources to BPF objects. Needs clang, and nothing else: no kernel headers, no libbpf.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where whoever has no clang can put objects that were built elsewhere.
const PREBUILT: &str = "HOPWISE_BPF_OBJECTS";

fn main() {
    let sources = Path::new("src");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::rerun-if-env-changed={PREBUILT}");
    println!("cargo::rerun-if-env-changed=HOPWISE_CLANG");
    println!("cargo::rerun-if-changed=src");
    let programs = std::fs::read_dir(sources).into_iter().flatten().flatten().map(|entry| entry.path());
    for source in programs.filter(|path| path.to_string_lossy().ends_with(".bpf.c")) {
        let object = out.join(source.with_extension("o").file_name().unwrap_or_default());
        let made = match env::var_os(PREBUILT) {
            Some(folder) => copy(&PathBuf::from(folder), &object),
            None => compile(&source, &object),
        };
        if let Err(reason) = made {
            // Each line of an error must be marked, or cargo does not show it.
            reason.lines().for_each(|line| println!("cargo::error={line}"));
        }
    }
}

fn copy(folder: &Path, object: &Path) -> Result<(), String> {
    let from = folder.join(object.file_name().unwrap_or_default());
    std::fs::copy(&from, object).map(|_| ()).map_err(|error| format!("{}: {error}", from.display()))
}

fn compile(source: &Path, object: &Path) -> Result<(), String> {
    let clang = env::var("HOPWISE_CLANG").unwrap_or_else(|_| "clang".to_owned());
    // No line of the object may depend on where it was built.
    let here = env::current_dir().map_err(|error| error.to_string())?;
    let output = Command::new(&clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-std=gnu11", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-fdebug-prefix-map={}=.", here.display()))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .map_err(|error| {
            format!(
                "cannot run `{clang}`: {error}. The kernel's part of hopwise is C: install clang (`apt-get install clang`), name \
                 one in HOPWISE_CLANG, or put objects built elsewhere into a folder and name it in {PREBUILT}"
            )
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{} was not compiled:\n{}", source.display(), String::from_utf8_lossy(&output.stderr)))
}
