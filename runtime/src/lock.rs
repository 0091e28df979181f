//! Locks whose value stays valid when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value that every critical section leaves valid, so that a panic in another thread does not corrupt it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
