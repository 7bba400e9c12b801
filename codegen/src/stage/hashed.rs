//! Sets and maps that are asked and never walked: their order is that of hashes, so there is no way
//! to see it.
#![expect(clippy::disallowed_types, reason = "nobody can walk them here")]

use rustc_hash::FxBuildHasher;
use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    ops::Index,
};

/// Says whether something belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct HashedSet<K>(HashSet<K, FxBuildHasher>);

impl<K> Default for HashedSet<K> {
    fn default() -> Self {
        Self(HashSet::default())
    }
}

impl<K: Eq + Hash> HashedSet<K> {
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.contains(key)
    }

    /// Whether it is new.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        self.0.insert(key)
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        self.0.remove(key)
    }
}

impl<K: Eq + Hash> FromIterator<K> for HashedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl<K: Eq + Hash> Extend<K> for HashedSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        self.0.extend(keys);
    }
}

/// Says what belongs to something.
#[derive(Clone, Debug)]
pub(crate) struct HashedMap<K, V>(HashMap<K, V, FxBuildHasher>);

impl<K, V> Default for HashedMap<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash, V> HashedMap<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, value);
    }

    /// What is there; the value if nothing was.
    pub(crate) fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        self.0.entry(key).or_insert(value)
    }
}

impl<K: Eq + Hash, V> Index<&K> for HashedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        &self.0[key]
    }
}

impl<K: Eq + Hash, V: PartialEq> PartialEq for HashedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: Eq + Hash, V> FromIterator<(K, V)> for HashedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}
