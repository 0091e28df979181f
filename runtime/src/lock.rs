//! Mutex locking that ignores poisoning, for values that are valid between any two statements.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Critical sections must leave the value valid at every point, because a poisoned lock is used as it is.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
