//! The crates linked into hopwise have licences that `deny.toml` allows and come from the registry. cargo-deny checks more where it is
//! installed (`scripts/check-deps`); this test needs cargo only.

use std::path::Path;
use std::process::Command;

fn metadata() -> serde_json::Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Without a platform, cargo requires packages for other systems, which are not downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--offline",
        "--filter-platform",
        &platform,
    ]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The licences that `deny.toml` allows.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml")).unwrap();
    let list = text
        .split_once("\nallow = [")
        .unwrap()
        .1
        .split_once(']')
        .unwrap()
        .0;
    list.split(',')
        .map(|name| name.trim().trim_matches('"').to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Whether `allowed` satisfies an SPDX expression. `OR` binds weaker than `AND`; parentheses enclose alternatives only.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let outer = |text: &str, operator: &str| -> Vec<String> {
        let (mut depth, mut parts, mut part) = (0, Vec::new(), Vec::new());
        for word in text.replace('(', "( ").replace(')', " )").split_whitespace() {
            depth += i32::from(word == "(") - i32::from(word == ")");
            if word == operator && depth == 0 {
                parts.push(part.join(" "));
                part.clear();
            } else {
                part.push(word.to_owned());
            }
        }
        parts.push(part.join(" "));
        parts
    };
    let bare = |text: &str| {
        text.trim()
            .trim_start_matches("( ")
            .trim_end_matches(" )")
            .to_owned()
    };
    let choices = outer(&expression, "OR");
    if choices.len() > 1 {
        return choices.iter().any(|choice| is_allowed(choice, allowed));
    }
    let all = outer(&expression, "AND");
    if all.len() > 1 {
        return all.iter().all(|part| is_allowed(&bare(part), allowed));
    }
    let name = bare(&expression);
    if name.contains(" OR ") {
        is_allowed(&name, allowed)
    } else {
        allowed.contains(&name)
    }
}

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_the_registry() {
    let (metadata, allowed) = (metadata(), allowed());
    let packages = metadata["packages"].as_array().unwrap();
    let others: Vec<_> = packages
        .iter()
        .filter(|package| !package["source"].is_null())
        .collect();
    assert!(others.len() > 50, "{}", others.len());
    let bad: Vec<String> = others
        .iter()
        .filter(|package| {
            let is_registry = package["source"]
                .as_str()
                .is_some_and(|source| source.starts_with("registry+"));
            !is_registry
                || !package["license"]
                    .as_str()
                    .is_some_and(|licence| is_allowed(licence, &allowed))
        })
        .map(|package| {
            format!(
                "{} {}: {} from {}",
                package["name"], package["version"], package["license"], package["source"]
            )
        })
        .collect();
    assert_eq!(bad, Vec::<String>::new());
}

#[test]
fn licence_expressions_are_read() {
    let allowed = ["MIT", "Apache-2.0"].map(str::to_owned);
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/Apache-2.0",
        "(GPL-3.0 OR MIT) AND Apache-2.0",
        "MIT AND Apache-2.0",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR LGPL-2.1) AND MIT", ""] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
