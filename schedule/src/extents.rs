//! The extents of an array. Calls have many of them, and copy them often.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// Extents of an array, slowest first; so few take no memory of their own.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extents(SmallVec<[u64; 4]>);

impl Clone for Extents {
    /// As one piece of memory: numbers need not be cloned one by one.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl Deref for Extents {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Extents {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl From<&[u64]> for Extents {
    fn from(extents: &[u64]) -> Self {
        Self(SmallVec::from_slice(extents))
    }
}

impl<const N: usize> From<[u64; N]> for Extents {
    fn from(extents: [u64; N]) -> Self {
        Self::from(&extents[..])
    }
}

impl From<Vec<u64>> for Extents {
    fn from(extents: Vec<u64>) -> Self {
        Self(SmallVec::from_vec(extents))
    }
}

impl FromIterator<u64> for Extents {
    fn from_iter<I: IntoIterator<Item = u64>>(extents: I) -> Self {
        Self(SmallVec::from_iter(extents))
    }
}

impl fmt::Debug for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
