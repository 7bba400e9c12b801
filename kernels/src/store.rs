//! What becomes of what a result held before.

use crate::Real;
use roundelay_schedule::Access;

/// What becomes of what a result held before: the meaning of the attributes `accumulate` and
/// `accumulate_sums`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// It is replaced.
    Write,
    /// It is added to.
    Add,
}

impl Store {
    /// Whether it is added to.
    pub(crate) fn of(adds: bool) -> Self {
        if adds { Store::Add } else { Store::Write }
    }
    /// The access that it means.
    pub fn access(self) -> Access {
        match self {
            Store::Write => Access::Write,
            Store::Add => Access::Update,
        }
    }
    /// Operands that may be one memory where nothing is added to what the output held.
    pub(crate) fn replaces(self, operands: [usize; 2]) -> Vec<[usize; 2]> {
        match self {
            Store::Write => vec![operands],
            Store::Add => Vec::new(),
        }
    }
    /// Prepares an output that is summed into.
    #[inline(always)]
    pub(crate) fn clear<R: Real>(self, out: &mut [R]) {
        match self {
            Store::Write => out.fill(R::ZERO),
            Store::Add => {}
        }
    }
    /// Stores one value.
    #[inline(always)]
    pub(crate) fn put<R: Real>(self, place: &mut R, value: R) {
        match self {
            Store::Write => *place = value,
            Store::Add => *place += value,
        }
    }
    /// Stores a whole array.
    pub(crate) fn put_all<R: Real>(self, places: &mut [R], values: &[R]) {
        for (place, value) in places.iter_mut().zip(values) {
            self.put(place, *value);
        }
    }
}
