//! The parts of the program's configuration that a manager needs.

use std::{fmt::Debug, sync::Arc};

use manager::{intent::IntentSettings, inventory::InventorySettings};
use runtime::control::IntentDetection;
use settings::listen::Listen;

use crate::settings::ManagerSettings;

/// The part of a configuration that a manager uses.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings of `[manager]`.
    pub manager: ManagerSettings,
    /// The settings of `[inventory]`.
    pub inventory: InventorySettings,
    /// The settings of `[[intents]]`.
    pub intents: Vec<IntentSettings>,
    /// The inputs of the collector of this process; `None` if there is no collector.
    pub listens: Option<Vec<Listen>>,
    /// The rules and thresholds of the configuration.
    pub detection: Arc<dyn Detection>,
}

impl Configuration {
    /// Returns whether this process has a collector.
    pub fn collects(&self) -> bool {
        self.listens.is_some()
    }
}

/// The rules and thresholds of a configuration.
pub trait Detection: Debug + Send + Sync {
    /// Checks that what intents ask of the collector fits beside them.
    ///
    /// # Errors
    /// The reason, as a message.
    fn check(&self, asked: &IntentDetection) -> Result<(), String>;
}
