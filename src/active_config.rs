//! The active configuration, shared by all threads and replaced as a whole by a reload.

use std::sync::{Arc, PoisonError, RwLock};

use crate::config::Settings;

/// Holds the active configuration.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    settings: RwLock<Arc<Settings>>,
}

impl ActiveConfig {
    /// These settings, until others replace them.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings: RwLock::new(Arc::new(settings)),
        }
    }

    /// The settings now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        // The value is replaced as a whole, so it is valid even after a panic of another thread.
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings.
    pub(crate) fn replace(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}
