//! Compiles the C sources to BPF objects. Needs only clang: no kernel headers, no libbpf.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable that names a directory with prebuilt objects, for machines without clang.
const PREBUILT: &str = "HOPWISE_BPF_OBJECTS";

fn main() {
    let sources = Path::new("src");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::rerun-if-env-changed={PREBUILT}");
    println!("cargo::rerun-if-env-changed=HOPWISE_CLANG");
    println!("cargo::rerun-if-changed=src");
    if let Err(error) = std::fs::write(out.join("icrc_tables.h"), icrc_tables()) {
        println!("cargo::error=icrc_tables.h: {error}");
    }
    // Each program has a folder with its headers.
    let programs = files(sources)
        .filter(|path| path.is_dir())
        .flat_map(|folder| files(&folder));
    for source in programs.filter(|path| path.to_string_lossy().ends_with(".bpf.c")) {
        let object = out.join(source.with_extension("o").file_name().unwrap_or_default());
        let made = match env::var_os(PREBUILT) {
            Some(folder) => copy(&PathBuf::from(folder), &object),
            None => compile(&source, &object),
        };
        if let Err(reason) = made {
            // Cargo shows only lines with this prefix.
            reason.lines().for_each(|line| println!("cargo::error={line}"));
        }
    }
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn copy(folder: &Path, object: &Path) -> Result<(), String> {
    let from = folder.join(object.file_name().unwrap_or_default());
    std::fs::copy(&from, object)
        .map(|_| ())
        .map_err(|error| format!("{}: {error}", from.display()))
}

fn compile(source: &Path, object: &Path) -> Result<(), String> {
    let clang = env::var("HOPWISE_CLANG").unwrap_or_else(|_| "clang".to_owned());
    // Keeps the build path out of the object, so that builds are reproducible.
    let here = env::current_dir().map_err(|error| error.to_string())?;
    let output = Command::new(&clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-std=gnu11", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-fdebug-prefix-map={}=.", here.display()))
        .args(["-I", "src/include"])
        // The folder of `icrc_tables.h`.
        .arg("-I")
        .arg(object.parent().unwrap_or(Path::new(".")))
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
    Err(format!(
        "{} was not compiled:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Generates C tables of the CRC-32 of Ethernet, least significant bit first: row `table` has the contribution of a byte that
/// `table` further bytes follow.
fn icrc_tables() -> String {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    const TABLES: usize = 32;
    let mut rows: Vec<u32> = (0..256_u32)
        .map(|byte| {
            (0..8).fold(byte, |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 }
            })
        })
        .collect();
    for entry in 256..256 * TABLES {
        let before = rows[entry - 256];
        rows.push((before >> 8) ^ rows[(before & 0xff) as usize]);
    }
    let values: Vec<String> = rows.iter().map(|value| format!("{value}u")).collect();
    let rows: Vec<String> = values
        .chunks(256)
        .map(|row| format!("{{{}}}", row.join(",")))
        .collect();
    format!(
        "static const u32 icrc_tables[{TABLES}][256] = {{{}}};\n",
        rows.join(",\n")
    )
}
