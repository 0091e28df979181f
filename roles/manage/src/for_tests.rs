//! Reads managers from files, for tests.

use std::sync::Arc;

use manager::{intent::IntentSettings, inventory::InventorySettings};
use runtime::control::IntentDetection;
use settings::{
    read::Reader,
    section,
    setting::{Setting, tables},
};

use crate::{
    program::{Configuration, Detection},
    settings::{ManagerSettings, check},
};

section! {
    /// A file with a manager alone.
    struct File("the file") {
        /// The manager.
        pub(crate) manager: Option<ManagerSettings> = None,
        /// Devices, links and hosts.
        pub(crate) inventory: InventorySettings = InventorySettings::default(),
        /// Flows to measure.
        pub(crate) intents: Vec<IntentSettings> = Vec::new(),
    }
}

/// The problems of a file with a manager, and without a collector.
pub(crate) fn problems(text: &str) -> String {
    let mut reader = Reader::new(text);
    if let Some(root) = reader.parse(tables::<File>) {
        let file = File::read(&root, &mut reader).unwrap_or_default();
        reader.end_values(&root);
        check(
            file.manager.as_ref(),
            &file.inventory,
            &file.intents,
            false,
            &root,
            &mut reader,
        );
    }
    reader
        .finish("h.toml")
        .map_or_else(|error| error.to_string(), |()| String::new())
}

/// Reads a file with a manager, beside a collector that listens at 127.0.0.1:9555.
pub(crate) fn configuration(text: &str) -> Arc<Configuration> {
    let mut reader = Reader::new(text);
    let root = reader.parse(tables::<File>).unwrap();
    let file = File::read(&root, &mut reader).unwrap();
    reader.finish("h.toml").unwrap();
    Arc::new(Configuration {
        manager: file.manager.unwrap(),
        inventory: file.inventory,
        intents: file.intents,
        listens: Some(vec!["udp://127.0.0.1:9555".parse().unwrap()]),
        detection: Arc::new(Anything),
    })
}

/// A configuration beside which everything fits.
#[derive(Debug)]
struct Anything;

impl Detection for Anything {
    fn check(&self, _: &IntentDetection) -> Result<(), String> {
        Ok(())
    }
}
