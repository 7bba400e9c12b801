//! What an action waits for: mostly one or two others, which take no memory of their own.

use crate::Wait;
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// The waits of an action, as a list.
#[derive(Clone, Default, PartialEq)]
pub struct Waits(List);

/// So many waits; three at least are more.
#[derive(Clone, Default, PartialEq)]
enum List {
    #[default]
    None,
    One([Wait; 1]),
    Two([Wait; 2]),
    More(Box<[Wait]>),
}

impl Waits {
    /// Adds one more.
    pub fn push(&mut self, wait: Wait) {
        *self = self.iter().copied().chain([wait]).collect();
    }
}

impl From<&[Wait]> for Waits {
    fn from(waits: &[Wait]) -> Self {
        Self(match *waits {
            [] => List::None,
            [one] => List::One([one]),
            [one, two] => List::Two([one, two]),
            _ => List::More(waits.into()),
        })
    }
}

impl FromIterator<Wait> for Waits {
    fn from_iter<S: IntoIterator<Item = Wait>>(waits: S) -> Self {
        waits.into_iter().collect::<Vec<_>>().as_slice().into()
    }
}

impl Deref for Waits {
    type Target = [Wait];
    fn deref(&self) -> &[Wait] {
        match &self.0 {
            List::None => &[],
            List::One(waits) => waits,
            List::Two(waits) => waits,
            List::More(waits) => waits,
        }
    }
}

impl DerefMut for Waits {
    fn deref_mut(&mut self) -> &mut [Wait] {
        match &mut self.0 {
            List::None => &mut [],
            List::One(waits) => waits,
            List::Two(waits) => waits,
            List::More(waits) => waits,
        }
    }
}

impl<'a> IntoIterator for &'a Waits {
    type Item = &'a Wait;
    type IntoIter = std::slice::Iter<'a, Wait>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActionId, Id};

    #[test]
    fn waits_are_a_list_of_any_length() {
        let wait = |line| Wait { action: ActionId::new(line), distance: 1 };
        let (mut waits, mut list) = (Waits::default(), Vec::new());
        for line in 0..5 {
            assert_eq!((&*waits, waits.len()), (&*list, line));
            assert_eq!(waits, list.iter().copied().collect());
            waits.push(wait(line));
            list.push(wait(line));
            waits[line].distance = 0;
            assert_ne!(&*waits, &*list);
            waits[line].distance = 1;
        }
    }
}
