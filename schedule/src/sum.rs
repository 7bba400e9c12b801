//! Sums of micro-batch gradients as trees.

use crate::{Id, MicroBatch};
use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    num::NonZeroU32,
    ops,
    sync::Arc,
};

/// A sum of micro-batch gradients, from left to right. Floating-point addition does not
/// associate, so the shape matters. Where sequences are cut into slices each adds a gradient of its
/// own; numbers count these then ([`Plan::addition`](crate::Plan::addition)).
///
/// Every list has one form, so equal shapes are equal sums: two or more gradients that are evenly
/// spaced are a run, however many there are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sum {
    /// The gradient of one micro-batch.
    One(MicroBatch),
    /// Gradients of evenly spaced micro-batches, from left to right.
    Run(Run),
    /// These, from left to right, as [`Sum::all`] takes them.
    All(Parts),
}

/// Two or more micro-batches, evenly spaced and ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    first: MicroBatch,
    last: MicroBatch,
    step: NonZeroU32,
}

/// The parts of a sum that is no run. Sums that begin it share them.
#[derive(Clone)]
pub struct Parts {
    shared: Arc<[Sum]>,
    count: usize,
}

impl Sum {
    /// Most sums within sums that a file may hold.
    pub const DEPTH: usize = 4;

    /// These parts, from left to right.
    pub fn all(parts: Vec<Self>) -> Self {
        let count = parts.len();
        Self::of(Parts { shared: parts.into(), count })
    }

    fn of(parts: Parts) -> Self {
        Run::of(&parts).map_or(Self::All(parts), Self::Run)
    }

    /// The gradients of these micro-batches, from left to right.
    pub fn list(micro_batches: impl IntoIterator<Item = MicroBatch>) -> Self {
        Self::all(micro_batches.into_iter().map(Self::One).collect())
    }

    /// The gradients of all micro-batches up to one, from left to right.
    pub fn through(last: MicroBatch) -> Self {
        let run = Run::reaching(MicroBatch::new(0), last, NonZeroU32::MIN);
        run.map_or_else(|| Self::list([last]), Self::Run)
    }

    /// The sum of its first parts, or of all where there are fewer.
    pub fn beginning(&self, count: usize) -> Self {
        match self {
            Self::One(_) if count > 0 => self.clone(),
            Self::One(_) | Self::Run(_) => Self::list(self.micro_batches().take(count)),
            Self::All(Parts { shared, count: all }) => {
                Self::of(Parts { shared: shared.clone(), count: count.min(*all) })
            }
        }
    }

    /// What is added, from left to right: of a run its gradients, of a gradient itself.
    pub fn parts(&self) -> Vec<Self> {
        match self {
            Self::One(_) => vec![self.clone()],
            Self::Run(run) => run.micro_batches().map(Self::One).collect(),
            Self::All(parts) => parts.to_vec(),
        }
    }

    /// Every micro-batch that is added, in order.
    pub fn micro_batches(&self) -> Box<dyn Iterator<Item = MicroBatch> + '_> {
        match self {
            Self::One(i) => Box::new(std::iter::once(*i)),
            Self::Run(run) => Box::new(run.micro_batches()),
            Self::All(parts) => Box::new(parts.iter().flat_map(Self::micro_batches)),
        }
    }

    /// Its runs, and those of sums within.
    pub(crate) fn runs(&self) -> Box<dyn Iterator<Item = Run> + '_> {
        match self {
            Self::One(_) => Box::new(std::iter::empty()),
            Self::Run(run) => Box::new(std::iter::once(*run)),
            Self::All(parts) => Box::new(parts.iter().flat_map(Self::runs)),
        }
    }

    /// How many gradients are added.
    pub fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Run(run) => run.count(),
            Self::All(parts) => parts.iter().map(Self::count).sum(),
        }
    }

    /// The micro-batch with the largest number; none of an empty sum.
    pub fn largest(&self) -> Option<MicroBatch> {
        match self {
            Self::One(i) => Some(*i),
            Self::Run(run) => Some(run.last),
            Self::All(parts) => parts.iter().filter_map(Self::largest).max(),
        }
    }

    /// Whether some gradient is added twice.
    pub fn repeats(&self) -> bool {
        match self {
            Self::One(_) | Self::Run(_) => false,
            Self::All(_) => {
                let mut all: Vec<MicroBatch> = self.micro_batches().collect();
                all.sort_unstable();
                all.windows(2).any(|pair| pair[0] == pair[1])
            }
        }
    }

    /// Whether some sum in it adds nothing.
    pub fn has_gaps(&self) -> bool {
        match self {
            Self::One(_) | Self::Run(_) => false,
            Self::All(parts) => parts.is_empty() || parts.iter().any(Self::has_gaps),
        }
    }
}

impl Default for Sum {
    fn default() -> Self {
        Self::all(Vec::new())
    }
}

impl ops::Deref for Parts {
    type Target = [Sum];

    fn deref(&self) -> &[Sum] {
        &self.shared[..self.count]
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Parts {}

impl PartialOrd for Parts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Parts {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Parts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Run {
    /// From one micro-batch to another one in steps; none where these do not lead there.
    pub fn reaching(
        first: MicroBatch,
        last: MicroBatch,
        step: NonZeroU32,
    ) -> Option<Self> {
        let way = last.number().checked_sub(first.number())?;
        (way > 0 && way % step == 0).then_some(Self { first, last, step })
    }

    fn of(parts: &[Sum]) -> Option<Self> {
        let [Sum::One(first), Sum::One(next), ..] = parts else { return None };
        let Some(Sum::One(last)) = parts.last() else { return None };
        let step = NonZeroU32::new(next.number().checked_sub(first.number())?)?;
        let run = Self::reaching(*first, *last, step)?;
        let even = run.count() == parts.len() as u64
            && run.micro_batches().zip(parts).all(|(i, part)| *part == Sum::One(i));
        even.then_some(run)
    }

    /// The first one.
    pub fn first(self) -> MicroBatch {
        self.first
    }

    /// The last one.
    pub fn last(self) -> MicroBatch {
        self.last
    }

    /// How far the next one is.
    pub fn step(self) -> NonZeroU32 {
        self.step
    }

    /// How many there are.
    pub fn count(self) -> u64 {
        u64::from((self.last.number() - self.first.number()) / self.step) + 1
    }

    /// All of them, in order.
    pub fn micro_batches(self) -> impl Iterator<Item = MicroBatch> {
        self.numbers().map(MicroBatch::numbered)
    }

    /// Their numbers, of which any may be left out at no cost.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u32> {
        let numbers = self.first.number()..=self.last.number();
        numbers.step_by(self.step.get() as usize)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.first, self.last)?;
        match self.step.get() {
            1 => Ok(()),
            step => write!(f, " by {step}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(numbers: &[u32]) -> Sum {
        Sum::list(numbers.iter().copied().map(MicroBatch::numbered))
    }

    #[test]
    fn evenly_spaced_gradients_are_a_run_and_nothing_else_is() {
        for numbers in [&[0, 1][..], &[3, 8], &[0, 1, 2, 3], &[1, 5, 9]] {
            let sum = list(numbers);
            let Sum::Run(run) = sum else { panic!("{numbers:?} is a run") };
            let again: Vec<u32> = run.micro_batches().map(Id::number).collect();
            assert_eq!((again.as_slice(), run.count()), (numbers, numbers.len() as u64));
            assert_eq!(Run::reaching(run.first(), run.last(), run.step()), Some(run));
        }
        let others =
            [&[][..], &[7], &[1, 0], &[2, 2], &[0, 1, 3], &[0, 2, 1, 4], &[0, 2, 4, 4]];
        for numbers in others {
            assert!(matches!(list(numbers), Sum::All(_)), "{numbers:?}");
        }
        let nested = Sum::all(vec![list(&[0]), list(&[1])]);
        assert!(matches!(nested, Sum::All(_)), "lists of one stay lists");
        assert_eq!(Sum::through(MicroBatch::new(0)), list(&[0]));
        assert_eq!(Sum::through(MicroBatch::new(3)), list(&[0, 1, 2, 3]));
    }

    #[test]
    fn a_sum_answers_for_its_runs_as_for_their_gradients() {
        let sum = Sum::all(vec![list(&[0, 4, 8]), list(&[5]), list(&[9, 1, 3])]);
        let all = [0, 4, 8, 5, 9, 1, 3].map(MicroBatch::numbered);
        assert_eq!(sum.micro_batches().collect::<Vec<_>>(), all);
        assert_eq!((sum.count(), sum.largest()), (7, Some(MicroBatch::new(9))));
        assert!(!sum.repeats() && !sum.has_gaps());
        assert_eq!(Sum::all(sum.parts()), sum);
        assert!(Sum::all(vec![list(&[0, 4, 8]), list(&[8])]).repeats());
        let begun = Sum::all(vec![list(&[0, 4, 8]), list(&[5])]);
        assert_eq!((sum.beginning(2), sum.beginning(9)), (begun, sum.clone()));
        assert_eq!(list(&[0, 1, 3]).beginning(2), list(&[0, 1]));
        assert_eq!(list(&[0, 1, 2, 3]).beginning(3), list(&[0, 1, 2]));
        let one = Sum::One(MicroBatch::new(4));
        assert_eq!((one.beginning(1), one.beginning(0)), (one, Sum::default()));
        assert_eq!(sum.runs().map(Run::count).collect::<Vec<_>>(), [3]);
        assert!(Sum::all(vec![list(&[0, 4, 8]), Sum::default()]).has_gaps());
    }
}
