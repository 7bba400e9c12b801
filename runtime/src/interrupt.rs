//! The wish of another thread that a run stops.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A wish to stop; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Wishes; says whether somebody had done so before.
    pub fn raise(&self) -> bool {
        self.0.swap(true, Ordering::Relaxed)
    }

    /// Whether somebody wishes.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
