//! Links, their names and their sizes. The tests of the program check the error messages, since the program checks parts of the
//! file.

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
