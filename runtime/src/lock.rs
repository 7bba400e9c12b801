//! Locks that are taken after a panic too: a panic elsewhere is told by whoever had it, and nothing
//! here is left half written by one.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Takes a lock.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    held(mutex.lock())
}

/// What waiting for a lock gives.
pub(crate) fn held<T>(taken: LockResult<T>) -> T {
    taken.unwrap_or_else(PoisonError::into_inner)
}
