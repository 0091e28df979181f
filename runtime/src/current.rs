//! A shared value that a reload replaces as a whole, such as the active configuration.

use std::sync::{Arc, PoisonError, RwLock};

/// Holds the current value; readers get a cheap snapshot.
#[derive(Debug)]
pub struct Current<T> {
    value: RwLock<Arc<T>>,
}

impl<T> Current<T> {
    /// Holds `value` until another replaces it.
    pub fn new(value: T) -> Self {
        Self {
            value: RwLock::new(Arc::new(value)),
        }
    }

    /// Returns a snapshot of the current value.
    pub fn get(&self) -> Arc<T> {
        // The value is replaced as a whole, so it is valid even after a panic of another thread.
        Arc::clone(&self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value by another.
    pub fn replace(&self, value: T) {
        *self.value.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}
