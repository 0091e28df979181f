//! A folder may use only folders that stand above it in the list of `ARCHITECTURE.md`.

use std::fs;
use std::path::Path;

/// The folders with a manifest, in the order the data walks.
const ORDER: &[&str] = &[
    "wire",
    "detect",
    "dataplane",
    "memory",
    "nic",
    "rdma",
    "dta",
    "translator",
    "aggregator",
    "xdp",
    "collector",
    "store",
    "export",
    "manager",
    // The ground of command-line programs; the program itself, `src/`, uses everything here.
    "settings",
    "terminal",
    "bench",
    "lab",
];

/// The name by which manifests call the crate of a folder.
fn crate_of(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

/// The workspace crates that a manifest depends on; dev-dependencies included, because a test that reaches down the list
/// ties the folders together just as well.
fn dependencies(folder: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("Cargo.toml");
    let Ok(manifest) = fs::read_to_string(path) else { return Vec::new() };
    let names = manifest.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| layer(name).is_some()).map(str::to_owned).collect()
}

/// Where in the order a crate stands.
fn layer(name: &str) -> Option<usize> {
    ORDER.iter().position(|folder| crate_of(folder) == name)
}

fn violations<'a>(graph: impl Iterator<Item = (&'a str, Vec<String>)>) -> Vec<String> {
    graph
        .flat_map(|(folder, used)| {
            let later = used.into_iter().filter(move |name| layer(name) >= layer(crate_of(folder)));
            later.map(move |name| format!("{folder} uses {name}"))
        })
        .collect()
}

#[test]
fn no_folder_uses_a_later_one() {
    let graph = ORDER.iter().map(|folder| (*folder, dependencies(folder)));
    assert_eq!(violations(graph), Vec::<String>::new());
}

#[test]
fn a_later_folder_would_be_noticed() {
    let graph = [
        ("wire", vec!["store".to_owned()]),
        ("nic", vec!["xdp".to_owned()]),
        ("store", vec!["xdp".to_owned()]),
    ];
    assert_eq!(violations(graph.into_iter()), ["wire uses store", "nic uses xdp"]);
}

#[test]
fn the_manifests_are_found_and_read() {
    assert_eq!(dependencies("store").first().map(String::as_str), Some("wire"));
    assert!(dependencies("xdp").iter().any(|name| name == "nic"));
}

#[test]
fn unsafe_code_is_forbidden_in_all_crates_but_two() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let forbids = |folder: &str, file: &str| {
        let text = fs::read_to_string(root.join(folder).join("src").join(file)).unwrap_or_default();
        text.contains("#![forbid(unsafe_code)]")
    };
    let lax: Vec<_> = ORDER.iter().filter(|f| root.join(f).is_dir() && !forbids(f, "lib.rs")).collect();
    assert_eq!(lax, [&"memory", &"nic"]);
    assert!(forbids(".", "main.rs"));
}
