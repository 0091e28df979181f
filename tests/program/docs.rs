//! Checks of the documentation: links have targets, and every page is reachable from the first one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Targets of the Markdown links of a page that point into this repository, without their anchors.
fn links(page: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(root().join(page)).expect("a page that exists");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local =
        targets.filter(|target| !target.contains("://") && !target.starts_with('#') && !target.contains(' '));
    local
        .map(|target| {
            let target = target.split('#').next().unwrap_or_default();
            normal(&page.parent().unwrap_or(Path::new("")).join(target))
        })
        .collect()
}

/// A path without `..` and `.`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut so_far, part| {
        match part {
            Component::ParentDir => {
                so_far.pop();
            }
            Component::CurDir => {}
            other => so_far.push(other),
        }
        so_far
    })
}

/// Adds the files below `folder` that have one of these extensions, without what builds make.
fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(folder)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = normal(&folder.join(entry.file_name()));
        let skipped = ["target", "node_modules", "dist"]
            .iter()
            .any(|name| path.ends_with(name));
        if skipped || entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().expect("its type").is_dir() {
            files(&path, extensions, found);
        } else if has_extension(&path, extensions) {
            found.push(path);
        }
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| extensions.contains(&extension))
}

fn all_pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(Path::new("."), &["md"], &mut found);
    found
}

#[test]
fn links_lead_somewhere() {
    let pages = all_pages();
    assert!(pages.len() > 15, "{pages:?}");
    let dead: Vec<_> = pages
        .iter()
        .flat_map(|page| links(page).into_iter().map(move |target| (page, target)))
        .filter(|(_, target)| !root().join(target).exists())
        .collect();
    assert!(dead.is_empty(), "dead links: {dead:#?}");
}

/// The source files that a page names in backquotes, with at least one folder.
fn source_files(page: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(root().join(page)).expect("a page that exists");
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|words| words.contains('/') && !words.contains([' ', '\n', ':', '*']))
        .map(PathBuf::from)
        .filter(|path| path.is_relative() && has_extension(path, SOURCES))
        .collect()
}

/// Extensions of source files.
const SOURCES: &[&str] = &["rs", "c", "h", "p4", "ts", "tsx"];

#[test]
fn source_files_that_pages_name_exist() {
    let mut sources = Vec::new();
    files(Path::new("."), SOURCES, &mut sources);
    let mut missing = Vec::new();
    for page in all_pages() {
        for named in source_files(&page) {
            if !sources.iter().any(|file| file.ends_with(&named)) {
                missing.push((page.clone(), named));
            }
        }
    }
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}

#[test]
fn every_page_of_the_documentation_is_three_steps_from_the_readme() {
    let mut reached = BTreeSet::from([PathBuf::from("README.md")]);
    for _ in 0..3 {
        let pages: Vec<_> = reached
            .iter()
            .filter(|page| page.extension().is_some_and(|e| e == "md"))
            .cloned()
            .collect();
        reached.extend(pages.iter().flat_map(|page| links(page)));
    }
    let in_linked_folder = |page: &Path| page.parent().is_some_and(|folder| reached.contains(folder));
    let lost: Vec<_> = all_pages()
        .into_iter()
        .filter(|page| page.starts_with("docs") && !reached.contains(page) && !in_linked_folder(page))
        .collect();
    assert!(lost.is_empty(), "unreachable: {lost:#?}");
}

/// Adds each command below `parents` that has no subcommands, with the names that lead to it.
fn commands(parents: &str, found: &mut BTreeSet<String>) {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_hopwise"))
        .args(parents.split_whitespace())
        .arg("--help")
        .output()
        .expect("help");
    let help = String::from_utf8(help.stdout).expect("text");
    let Some((_, list)) = help.split_once("Commands:\n") else {
        found.insert(parents.to_owned());
        return;
    };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        commands(format!("{parents} {name}").trim(), found);
    }
}

/// The command of a row such as "| `hopwise map show FILE [KEY]` | … |": its words in lower case.
fn command_of_row(line: &str) -> Option<String> {
    let command = line.strip_prefix("| `hopwise ")?.split('`').next()?;
    let names: Vec<&str> = command
        .split_whitespace()
        .take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    Some(names.join(" "))
}

#[test]
fn the_page_of_commands_has_every_command_of_the_program_and_no_other() {
    let mut expected = BTreeSet::new();
    commands("", &mut expected);
    assert!(expected.contains("run"), "{expected:?}");
    let page = fs::read_to_string(root().join("docs/reference/commands.md")).expect("the page");
    let listed: BTreeSet<String> = page.lines().filter_map(command_of_row).collect();
    let missing: Vec<_> = expected.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&expected).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/reference/commands.md lacks {missing:?} and has {unknown:?}, which the program does not have"
    );
}
