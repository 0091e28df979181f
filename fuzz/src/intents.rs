//! A fuzz body for files of intents: whatever is accepted can be compiled or is refused with a sentence.

use std::collections::BTreeMap;

use manager::compile::{Compiler, DomainSettings};
use manager::intent;
use manager::inventory::{self, Inventory};

/// The time at which the file is read, ns since 1970.
const NOW: u64 = 1_700_000_000_000_000_000;

const NETWORK: &str = r#"
devices = [{ name = "leaf1", ports = 3 }, { name = "leaf2", ports = 3, edge = [3] }]
links = [{ between = ["leaf1:1", "leaf2:1"], mtu = 1600 }]
hosts = [
    { name = "h1", addresses = ["10.0.0.1", "fd00::1"], at = "leaf1:2", mtu = 1500 },
    { name = "h9", addresses = ["10.20.0.9", "fd00::9"], at = "leaf2:2" },
]
"#;

/// Reads `bytes` as a file of intents and as an inventory. What is accepted is valid, and what is refused has a message.
pub fn intents(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(error) = inventory::read(text, "fuzz.toml") {
        assert!(!error.to_string().is_empty());
    }
    let intents = match intent::read(text, "fuzz.toml", NOW) {
        Ok(intents) => intents,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let network: Inventory = inventory::read(NETWORK, "network.toml").expect("a valid network");
    let mut compiler = Compiler::new(&network, &BTreeMap::new(), DomainSettings::default());
    let empty = compiler.desired().clone();
    for intent in &intents {
        assert_eq!(intent.check(NOW), Ok(()));
        let entries = intent.entries().expect("checked");
        assert!(!entries.is_empty() && entries.iter().all(|entry| !entry.mixes_families()));
        match compiler.add(intent) {
            Ok(outcome) => assert_eq!(compiler.outcome(&intent.name), Some(outcome)),
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
    // Removing all of them leaves nothing.
    intents
        .iter()
        .for_each(|intent| _ = compiler.remove(&intent.name));
    assert_eq!(*compiler.desired(), empty);
}
