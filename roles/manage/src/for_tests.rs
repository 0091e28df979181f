//! Reads managers from files, for tests.

use manager::{intent::IntentSettings, inventory::InventorySettings};
use settings::{
    read::Reader,
    section,
    setting::{Setting, tables},
};

use crate::settings::{ManagerSettings, check};

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
