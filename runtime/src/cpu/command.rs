//! Commands on their way to a queue's thread: a bounded ring of plain words, one writer, one
//! reader, allocated once.

use roundelay_schedule::{ActionId, Id, Instance};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An instance of an action, on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) action: ActionId,
    pub(super) period: i64,
    pub(super) instance: Instance,
}

/// What a later instance waits for: that a queue has completed this many of its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) queue: usize,
    pub(super) sequence: u64,
}

/// A ring of commands with their waits. Commands are numbered from one; the words of a number
/// are ordered by the counters that the ring's owner publishes.
pub(super) struct Commands {
    words: Box<[AtomicU64]>,
    stride: usize,
    capacity: u64,
}

const HEADER: usize = 4;
const SKIP: u64 = i64::MIN as u64;

impl Commands {
    /// Room for `capacity` commands with at most `waits` waits each.
    pub(super) fn new(capacity: u64, waits: usize) -> Self {
        let stride = HEADER + 2 * waits;
        let words = (0..stride * capacity as usize).map(|_| AtomicU64::new(0)).collect();
        Self { words, stride, capacity }
    }

    /// Number of commands under way at most.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Writes command `number`; its predecessor in the ring has been read.
    pub(super) fn write(&self, number: u64, command: &Command, waits: &[Mark]) {
        let words = self.slot(number);
        let step = match command.instance {
            Instance::Execute(step) => step as u64,
            Instance::Skip => SKIP,
        };
        let header = [
            command.action.index() as u64,
            command.period as u64,
            step,
            waits.len() as u64,
        ];
        let tail = waits.iter().flat_map(|mark| [mark.queue as u64, mark.sequence]);
        for (word, value) in words.iter().zip(header.into_iter().chain(tail)) {
            word.store(value, Relaxed);
        }
    }

    /// Reads command `number`.
    pub(super) fn read(&self, number: u64) -> Command {
        let word = |index: usize| self.slot(number)[index].load(Relaxed);
        let instance = match word(2) {
            SKIP => Instance::Skip,
            step => Instance::Execute(step as i64),
        };
        let action = ActionId::new(word(0) as usize);
        Command { action, period: word(1) as i64, instance }
    }

    /// Reads the waits of command `number`.
    pub(super) fn waits(&self, number: u64) -> impl Iterator<Item = Mark> {
        let words = self.slot(number);
        let count = words[3].load(Relaxed) as usize;
        let pairs = words[HEADER..].chunks_exact(2).take(count);
        pairs.map(|pair| Mark {
            queue: pair[0].load(Relaxed) as usize,
            sequence: pair[1].load(Relaxed),
        })
    }

    fn slot(&self, number: u64) -> &[AtomicU64] {
        let start = (number % self.capacity) as usize * self.stride;
        &self.words[start..start + self.stride]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_comes_out_as_it_went_in() {
        let ring = Commands::new(3, 2);
        let instances = [Instance::Skip, Instance::Execute(-1), Instance::Execute(7)];
        for (number, instance) in (4..).zip(instances) {
            let command = Command { action: ActionId::new(9), period: -2, instance };
            let waits: Vec<_> = (0..number as usize - 4)
                .map(|queue| Mark { queue, sequence: 5 })
                .collect();
            ring.write(number, &command, &waits);
            assert_eq!(ring.read(number), command);
            assert_eq!(ring.waits(number).collect::<Vec<_>>(), waits);
        }
    }
}
