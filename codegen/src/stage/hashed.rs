//! Sets and maps that are asked and never walked: their order is that of hashes, so nothing that
//! is made may follow it.

use rustc_hash::FxBuildHasher;
use std::collections::{HashMap, HashSet};

/// Says whether something belongs to it.
pub(crate) type HashedSet<K> = HashSet<K, FxBuildHasher>;

/// Says what belongs to something.
pub(crate) type HashedMap<K, V> = HashMap<K, V, FxBuildHasher>;
