//! Writes the list of the pages' files, so that the program holds them. Without `ui/dist` the list is empty.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let pages = root.join("ui").join("dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::rerun-if-changed={}",
        if pages.is_dir() { pages.clone() } else { root.join("ui") }.display()
    );
    let mut files = Vec::new();
    if pages.join("index.html").is_file() {
        collect(&pages, "", &mut files)?;
    }
    files.sort();
    let mut list = String::from("pub(crate) static PAGES: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        list.push_str(&format!("    ({name:?}, include_bytes!({:?})),\n", path.display().to_string()));
    }
    list.push_str("];\n");
    fs::write(out.join("pages.rs"), list)
}

/// Every file below `directory`, with its path relative to the pages' root. Source maps are for the developer.
fn collect(directory: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else if !name.ends_with(".map") {
            files.push((name, entry.path()));
        }
    }
    Ok(())
}
