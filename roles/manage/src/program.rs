//! The parts of the process's configuration that the manager role reads.

use std::{fmt::Debug, sync::Arc};

use manager::{intent::IntentSettings, inventory::InventorySettings};
use runtime::control::IntentDetection;
use settings::listen::Listen;

use crate::settings::ManagerSettings;

/// Configuration of a manager.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings of `[manager]`.
    pub manager: ManagerSettings,
    /// The settings of `[inventory]`.
    pub inventory: InventorySettings,
    /// The settings of `[[intents]]`.
    pub intents: Vec<IntentSettings>,
    /// Inputs of the collector in this process, or `None` without a collector.
    pub listens: Option<Vec<Listen>>,
    /// The collector's configured rules and thresholds.
    pub detection: Arc<dyn Detection>,
}

impl Configuration {
    /// Returns whether this process has a collector.
    pub fn collects(&self) -> bool {
        self.listens.is_some()
    }
}

/// The collector's configured rules and thresholds, to which intents add their own.
pub trait Detection: Debug + Send + Sync {
    /// Checks that the demands of intents on the collector fit beside the configured rules and thresholds.
    ///
    /// # Errors
    /// The reason, as a message.
    fn check(&self, asked: &IntentDetection) -> Result<(), String>;
}
