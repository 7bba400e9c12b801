//! What e-graphs were asked, and what they said: equal questions are asked once.

use super::Stop;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What is known of an e-graph by its question: the answer, and why it grew no further.
type Known<Q, A> = BTreeMap<Q, (A, Stop)>;

/// The answers of e-graphs, which several threads ask.
#[derive(Debug)]
pub(crate) struct Answers<Q, A>(Mutex<Known<Q, A>>);

impl<Q, A> Default for Answers<Q, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Q: Ord, A: Clone> Answers<Q, A> {
    /// The answer to a question, found where it is new. Nobody waits for another thread that
    /// looks for it: both find the same.
    pub(crate) fn of(&self, question: Q, find: impl FnOnce(&Q) -> (A, Stop)) -> A {
        if let Some((answer, _)) = self.known().get(&question) {
            return answer.clone();
        }
        let found = find(&question);
        let answer = found.0.clone();
        self.known().insert(question, found);
        answer
    }

    /// How many e-graphs were made, by why they grew no further.
    pub(crate) fn stops(&self) -> BTreeMap<Stop, usize> {
        let mut stops = BTreeMap::new();
        for (_, stop) in self.known().values() {
            *stops.entry(*stop).or_default() += 1;
        }
        stops
    }

    fn known(&self) -> MutexGuard<'_, Known<Q, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
