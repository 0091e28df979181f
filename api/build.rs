//! Build script: writes `pages.rs`, which embeds the files of the web UI; an empty list without `ui/dist`.

use std::{
    env, fs,
    hash::{DefaultHasher, Hasher},
    io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let mut root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    root.pop();
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let pages = root.join("ui").join("dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::rerun-if-changed={}",
        if pages.is_dir() {
            pages.clone()
        } else {
            root.join("ui")
        }
        .display()
    );
    let mut files = Vec::new();
    if pages.join("index.html").is_file() {
        collect(&pages, "", &mut files)?;
    }
    files.sort();
    let mut list = String::from("static PAGES: &[Asset] = &[\n");
    for (path, file) in files {
        list.push_str(&entry(&path, &file)?);
    }
    list.push_str("];\n");
    fs::write(out.join("pages.rs"), list)
}

/// Returns the Rust literal of one file: path, hash, content, and the gzip variant if Vite wrote one beside it.
fn entry(path: &str, file: &Path) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(file)?);
    let hash = format!("{:016x}", hasher.finish());
    let compressed = PathBuf::from(format!("{}.gz", file.display()));
    let gzip = match compressed.is_file() {
        true => format!("Some(include_bytes!({:?}))", compressed.display().to_string()),
        false => "None".to_owned(),
    };
    let plain = file.display().to_string();
    Ok(format!(
        "    Asset {{ path: {path:?}, hash: {hash:?}, plain: include_bytes!({plain:?}), gzip: {gzip} }},\n"
    ))
}

/// Collects all files below `directory` with their URL paths, except source maps and gzip variants.
fn collect(directory: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else if !name.ends_with(".map") && !name.ends_with(".gz") {
            files.push((name, entry.path()));
        }
    }
    Ok(())
}
