//! Links, their names and their sizes; messages of files with faults.

use settings::read::ConfigError;

use super::parse_example as parse;

/// A valid file.
const GOOD: &str = include_str!("../good.toml");

#[test]
fn links_between_switches_have_room_for_int() {
    let topology = parse(GOOD);
    let mtus: Vec<(&str, u32)> = topology
        .links
        .iter()
        .map(|link| (link.interfaces[0].as_str(), link.mtu))
        .collect();
    assert_eq!(mtus, [("h1-s1", 1500), ("h2-s2", 1500), ("s1-s2", 2140)]);
}

#[test]
fn further_links_between_two_switches_are_numbered() {
    let more = "[[links]]\nbetween = [\"s2\", \"s1\"]\n[[links]]\nbetween = [\"s1\", \"s2\"]\n";
    let topology = parse(&format!("{GOOD}{more}"));
    let names: Vec<[&str; 2]> = topology
        .links
        .iter()
        .map(|link| link.interfaces.each_ref().map(String::as_str))
        .collect();
    assert_eq!(
        names[2..],
        [["s1-s2", "s2-s1"], ["s2-s1.2", "s1-s2.2"], ["s1-s2.3", "s2-s1.3"]]
    );
    assert_eq!(topology.find_link("s2-s1.2").ok(), Some(3));
    assert_eq!(topology.find_link("s1-s2.2").ok(), Some(3));
    let error = topology.find_link("s1-s9").err().map(|error| error.to_string());
    let expected = "there is no link `s1-s9` in the lab t; there are h1-s1, h2-s2, s1-s2, s2-s1.2, s1-s2.3";
    assert_eq!(error.as_deref(), Some(expected));
}

/// `=== change` old `=== to` new `=== message` message, and again.
const CASES: &str = include_str!("../bad_files.txt");

fn check(text: &str) -> Result<(), ConfigError> {
    super::parse(text, "lab.toml").map(|_| ())
}

#[test]
fn every_fault_is_refused_with_its_line_and_a_remedy() {
    assert_eq!(check(GOOD), Ok(()));
    let cases: Vec<&str> = CASES.split("=== change\n").skip(1).collect();
    assert!(cases.len() >= 25);
    let mut all = String::new();
    for case in &cases {
        let (change, _) = case.split_once("=== message\n").unwrap();
        let (old, new) = change.split_once("=== to\n").unwrap();
        assert!(
            old.is_empty() || GOOD.contains(old),
            "{old:?} is not in the good file"
        );
        let text = if old.is_empty() {
            format!("{GOOD}{new}")
        } else {
            GOOD.replacen(old, new, 1)
        };
        let message = check(&text).map_err(|error| error.to_string()).err();
        let message = message.unwrap_or_else(|| panic!("accepted: {new:?}"));
        all += &format!("=== change\n{change}=== message\n{message}\n");
    }
    testkit::compare_page("lab/src/bad_files.txt", &all);
}

#[test]
fn the_examples_are_good() {
    for text in [
        include_str!("../../../examples/lab/three-switches.toml"),
        include_str!("../../../examples/lab/leaf-spine.toml"),
        include_str!("../../../examples/lab/dta.toml"),
        include_str!("../../../examples/lab/three-bmv2.toml"),
    ] {
        assert_eq!(check(text), Ok(()));
    }
}

#[test]
fn any_text_is_read_or_refused() {
    // Truncated anywhere, or with any one byte replaced: no panic, and a refusal names a line.
    for cut in 0..GOOD.len() {
        if let Err(error) = check(&GOOD[..cut]) {
            assert!(error.to_string().starts_with("lab.toml:"), "{error}");
        }
        for other in ["\"", "0", "-", "[", "9999999999999", "\n"] {
            let text = format!("{}{other}{}", &GOOD[..cut], GOOD.get(cut + 1..).unwrap_or(""));
            if let Err(error) = check(&text) {
                assert!(error.to_string().starts_with("lab.toml:"), "{error}");
            }
        }
    }
}
