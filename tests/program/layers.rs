//! The storeys of `ARCHITECTURE.md`: a folder uses only folders above it, so that no engine uses a crate of the machine; modules inside
//! a crate form the levels in `levels.txt`; unsafe code is in two crates only.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::modules::Graph;

/// Crates that only dev-dependencies name; they are not part of the order.
const DEV_ONLY: [&str; 2] = ["testkit", "testkit/p4-model"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn architecture() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// The folders of crates in the order of the table of folders; `src` is the program.
fn folders(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("| [`")?.split_once("/`]"));
    let is_crate = |name: &&str| {
        !DEV_ONLY.contains(name) && (*name == "src" || root().join(name).join("Cargo.toml").exists())
    };
    names
        .map(|(name, _)| name)
        .filter(is_crate)
        .map(str::to_owned)
        .collect()
}

/// The manifest of a crate's folder.
fn manifest(folder: &str) -> String {
    let folder = if folder == "src" {
        root()
    } else {
        root().join(folder)
    };
    fs::read_to_string(folder.join("Cargo.toml")).unwrap()
}

/// The names in the tables of dependencies of a manifest, of the program and of its tests: a test that uses a later folder couples
/// the two just as well. With `shipped`, those of the program alone.
fn dependencies(manifest: &str, shipped: bool) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]" || (!shipped && line == "[dev-dependencies]");
        } else if inside && line.contains('=') {
            names.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    names
}

/// The folder of each crate of the workspace, by the name that manifests give it.
fn folders_by_name() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let path = |line: &str| Some(line.split_once("path = \"")?.1.split_once('"')?.0.to_owned());
    text.lines()
        .filter_map(|line| Some((line.split_once(" = {")?.0.to_owned(), path(line)?)))
        .collect()
}

/// The folders that a folder uses, in its tests as well.
fn used_folders(folder: &str) -> Vec<String> {
    let names = folders_by_name();
    dependencies(&manifest(folder), false)
        .iter()
        .filter_map(|name| names.get(name).cloned())
        .collect()
}

/// Folders of `order` that use one that is not above them.
fn violations(order: &[String], uses: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let place = |name: &str| order.iter().position(|folder| folder == name);
    let of = |folder: &String| {
        let later = uses(folder)
            .into_iter()
            .filter(|name| place(name) >= place(folder) && place(name).is_some());
        later
            .map(|name| format!("{folder} uses {name}"))
            .collect::<Vec<_>>()
    };
    order.iter().flat_map(of).collect()
}

#[test]
fn no_folder_uses_a_later_one() {
    let order = folders(&architecture());
    assert_eq!(violations(&order, used_folders), Vec::<String>::new());
}

#[test]
fn no_role_uses_another() {
    let is_role = |folder: &String| folder.starts_with("roles/");
    let roles: Vec<_> = folders(&architecture()).into_iter().filter(is_role).collect();
    assert!(roles.contains(&"roles/dta".to_owned()), "{roles:?}");
    let uses_a_role = |role: &&String| used_folders(role).iter().any(is_role);
    assert_eq!(
        roles.iter().filter(uses_a_role).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
}

#[test]
fn a_later_folder_would_be_noticed() {
    let order = ["wire", "nic", "store"].map(str::to_owned);
    let uses = |folder: &str| {
        if folder == "nic" {
            vec!["store".to_owned(), "wire".to_owned()]
        } else {
            Vec::new()
        }
    };
    assert_eq!(violations(&order, uses), ["nic uses store"]);
    let order = ["nic", "manager/drivers/files"].map(str::to_owned);
    assert_eq!(
        violations(&order, |_| vec!["manager/drivers/files".to_owned()]).len(),
        2
    );
}

#[test]
fn every_crate_stands_in_the_order() {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = text
        .split_once("members = [")
        .unwrap()
        .1
        .split_once(']')
        .unwrap()
        .0;
    let mut members: Vec<&str> = members
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .collect();
    members.retain(|name| !name.is_empty() && *name != "fuzz" && !DEV_ONLY.contains(name));
    members.push("src");
    let mut order = folders(&architecture());
    members.sort_unstable();
    order.sort_unstable();
    assert_eq!(order, members);
}

#[test]
fn test_code_is_not_in_the_program() {
    let is_test_code = |name: &String| ["testkit", "p4-model"].contains(&name.as_str());
    let order = folders(&architecture());
    let users: Vec<_> = order
        .iter()
        .filter(|folder| !["bench", "bench/experiments"].contains(&folder.as_str()))
        .filter(|folder| dependencies(&manifest(folder), true).iter().any(is_test_code))
        .collect();
    assert_eq!(users, Vec::<&String>::new());
    assert!(dependencies(&manifest("src"), false).iter().any(is_test_code));
}

/// The levels of `levels.txt`, by folder.
fn written_levels() -> Vec<(String, Vec<Vec<String>>)> {
    let text = fs::read_to_string(root().join("tests/program/levels.txt")).unwrap();
    let level = |names: &str| names.split(',').map(|name| name.trim().to_owned()).collect();
    let line = |line: &str| {
        let (folder, levels) = line.split_once(": ").unwrap();
        (folder.to_owned(), levels.split('<').map(level).collect())
    };
    // A crate may take several lines; continuation lines are indented.
    text.replace("\n    ", " ").lines().map(line).collect()
}

fn graph(folder: &str) -> Graph {
    let source = if folder == "src" {
        root().join("src")
    } else {
        root().join(folder).join("src")
    };
    Graph::read(&source).unwrap()
}

#[test]
fn no_crate_has_a_cycle_of_modules() {
    let outside_the_order = DEV_ONLY.into_iter().chain(["fuzz"]).map(str::to_owned);
    for folder in folders(&architecture()).into_iter().chain(outside_the_order) {
        assert_eq!(graph(&folder).cycles(), [], "{folder}; scripts/modules shows all");
    }
}

#[test]
fn modules_keep_to_the_levels_that_are_written_down() {
    let written = written_levels();
    let mut folders = folders(&architecture());
    // A crate with one module has no levels.
    folders.retain(|folder| graph(folder).levels().is_none_or(|levels| levels.len() > 1));
    assert_eq!(
        written
            .iter()
            .map(|(folder, _)| folder.clone())
            .collect::<Vec<_>>(),
        folders
    );
    for (folder, levels) in &written {
        assert_eq!(graph(folder).violations(levels), Vec::<String>::new(), "{folder}");
    }
}

#[test]
fn unsafe_code_is_forbidden_in_all_crates_but_two() {
    let forbids = |folder: &String| {
        let file = if folder == "src" {
            Path::new("src/main.rs").to_owned()
        } else {
            Path::new(folder).join("src/lib.rs")
        };
        fs::read_to_string(root().join(file))
            .unwrap()
            .contains("#![forbid(unsafe_code)]")
    };
    let lax: Vec<_> = folders(&architecture())
        .into_iter()
        .filter(|folder| !forbids(folder))
        .collect();
    assert_eq!(lax, ["memory", "nic"]);
}

#[test]
fn no_source_file_is_longer_than_1200_lines() {
    let mut open = vec![root()];
    let mut long = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_source = ["rs", "ts", "mjs", "c", "h"]
                .iter()
                .any(|end| path.extension().is_some_and(|e| e == *end));
            if path.is_dir() && !["target", "node_modules", "dist", ".git", "fuzz"].contains(&name.as_str()) {
                open.push(path);
            } else if is_source && !name.starts_with("generated.") {
                let lines = fs::read_to_string(&path).unwrap().lines().count();
                long.extend((lines > 1200).then(|| format!("{} has {lines} lines", path.display())));
            }
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn the_files_that_the_architecture_names_exist() {
    let text = architecture();
    let missing: Vec<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| {
            name.contains('/') && (name.ends_with(".rs") || name.ends_with('/')) && !name.contains(' ')
        })
        .filter(|name| !root().join(name).exists())
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
