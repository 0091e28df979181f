//! Fuzz bodies for what drivers of devices read.

use files::Content;
use gnmi::PathMap;
use manager::device::Rule;
use p4runtime::map;

/// Reads `bytes` as a file of rules. What is written again is read as the same, and what is no rule is kept as it is.
pub fn rules_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let content = Content::parse(text);
    let lines = content.render();
    assert_eq!(Content::parse(&lines), content, "{lines}");
}

/// Reads `bytes` as a pipeline map. What is refused has a message.
pub fn pipeline_map(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(error) = map::read(text, "fuzz.toml") {
        assert!(!error.to_string().is_empty());
    }
}

/// Reads `bytes` as a path map of gNMI. What is accepted makes objects of a rule or says why not, and what is refused has a message.
pub fn path_map(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let map = match PathMap::read(text, "fuzz.toml") {
        Ok(map) => map,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for rule in [Rule::Sink(3), Rule::Instruction(2), Rule::Source(3)] {
        if let Err(message) = map.entries(&rule) {
            assert!(!message.is_empty());
        }
    }
}
