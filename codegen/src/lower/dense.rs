//! Maps whose keys are small numbers.

use roundelay_schedule::{Id, MicroBatch, Pass};
use std::{marker::PhantomData, ops::Index};

/// A key that is a row and a column of a table without large gaps.
pub(crate) trait Key: Copy {
    /// Row and column.
    fn place(self) -> (usize, usize);
}

impl Key for MicroBatch {
    fn place(self) -> (usize, usize) {
        (0, self.index())
    }
}

impl Key for (Pass, MicroBatch) {
    fn place(self) -> (usize, usize) {
        (self.0 as usize, self.1.index())
    }
}

/// A map from such keys.
#[derive(Clone, Debug)]
pub(crate) struct Dense<K, T> {
    rows: Vec<Vec<Option<T>>>,
    key: PhantomData<fn(K)>,
}

impl<K, T> Default for Dense<K, T> {
    fn default() -> Self {
        Self { rows: Vec::new(), key: PhantomData }
    }
}

impl<K: Key, T> Dense<K, T> {
    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: T) {
        let (row, column) = key.place();
        if row >= self.rows.len() {
            self.rows.resize_with(row + 1, Vec::new);
        }
        let row = &mut self.rows[row];
        if column >= row.len() {
            row.resize_with(column + 1, || None);
        }
        row[column] = Some(value);
    }
}

impl<K: Key, T> Index<&K> for Dense<K, T> {
    type Output = T;
    fn index(&self, key: &K) -> &T {
        let (row, column) = key.place();
        let found = self.rows.get(row).and_then(|row| row.get(column)?.as_ref());
        found.expect("every key that is asked for has a value")
    }
}
