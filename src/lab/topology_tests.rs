//! Every refusal of a topology file, and the files that are shipped.

use super::*;

/// A good file; each case below says what to change in it.
const GOOD: &str = include_str!("good.toml");

/// `=== change` old `=== to` new `=== told` message, and again.
const CASES: &str = include_str!("bad_files.txt");

#[test]
fn every_fault_is_refused_with_its_line_and_a_remedy() {
    assert_eq!(Topology::parse(GOOD, "lab.toml").map(|made| made.switches.len()), Ok(2));
    let cases: Vec<&str> = CASES.split("=== change\n").skip(1).collect();
    assert!(cases.len() >= 25);
    let mut all = String::new();
    for case in &cases {
        let (change, _) = case.split_once("=== told\n").unwrap();
        let (old, new) = change.split_once("=== to\n").unwrap();
        assert!(old.is_empty() || GOOD.contains(old), "{old:?} is not in the good file");
        let text = if old.is_empty() { format!("{GOOD}{new}") } else { GOOD.replacen(old, new, 1) };
        let told = Topology::parse(&text, "lab.toml").map_err(|error| error.to_string()).err();
        let told = told.unwrap_or_else(|| panic!("accepted: {new:?}"));
        all += &format!("=== change\n{change}=== told\n{told}\n");
    }
    crate::config::compare_page("src/lab/bad_files.txt", &all);
}

#[test]
fn the_examples_are_good() {
    for (text, name, hosts, switches) in [
        (include_str!("../../examples/lab/three-switches.toml"), "three", 3, 3),
        (include_str!("../../examples/lab/leaf-spine.toml"), "fabric", 6, 5),
    ] {
        let made = Topology::parse(text, "example.toml").map_err(|error| error.to_string()).unwrap();
        assert_eq!((made.name.as_str(), made.hosts.len(), made.switches.len()), (name, hosts, switches));
    }
}

#[test]
fn links_between_switches_have_room_for_int() {
    let made = Topology::parse(GOOD, "lab.toml").unwrap();
    let mtus: Vec<(&str, u32)> =
        made.links.iter().map(|link| (link.interfaces[0].as_str(), link.mtu)).collect();
    assert_eq!(mtus, [("h1-s1", 1500), ("h2-s2", 1500), ("s1-s2", 2140)]);
}

#[test]
fn further_links_between_two_switches_are_numbered() {
    let more = "[[links]]\nbetween = [\"s2\", \"s1\"]\n[[links]]\nbetween = [\"s1\", \"s2\"]\n";
    let made = Topology::parse(&format!("{GOOD}{more}"), "lab.toml").unwrap();
    let names: Vec<[&str; 2]> =
        made.links.iter().map(|link| link.interfaces.each_ref().map(String::as_str)).collect();
    assert_eq!(names[2..], [["s1-s2", "s2-s1"], ["s2-s1.2", "s1-s2.2"], ["s1-s2.3", "s2-s1.3"]]);
    assert_eq!(made.find_link("s2-s1.2").ok(), Some(3));
    assert_eq!(made.find_link("s1-s2.2").ok(), Some(3));
    let error = made.find_link("s1-s9").err().map(|error| error.to_string());
    let expected = "there is no link `s1-s9` in the lab t; there are h1-s1, h2-s2, s1-s2, s2-s1.2, s1-s2.3";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn any_text_is_read_or_refused() {
    // Cut anywhere, and with any one byte another: no panic, and a refusal names a line.
    for cut in 0..GOOD.len() {
        if let Err(error) = Topology::parse(&GOOD[..cut], "lab.toml") {
            assert!(error.to_string().starts_with("lab.toml:"), "{error}");
        }
        for other in ["\"", "0", "-", "[", "9999999999999", "\n"] {
            let text = format!("{}{other}{}", &GOOD[..cut], GOOD.get(cut + 1..).unwrap_or(""));
            if let Err(error) = Topology::parse(&text, "lab.toml") {
                assert!(error.to_string().starts_with("lab.toml:"), "{error}");
            }
        }
    }
}
