//! What a backward pass makes in the memory of what it has read for the last time.
//!
//! The law: an array takes the place of a kept one that is as large where an earlier call was the last one to
//! touch that; or where the call is that makes it, and the catalogue says that the two may be one memory. Nobody
//! reads what was kept until this pass after it, so nobody misses it. So the gradient of the
//! logits lies where the logits lay, and scratch memory is what the pass takes before it has read much. That
//! sizes are the same and do not only fit keeps what is found the same for micro-batches of all sizes.

use super::{
    call::{Step, Tensor, Term},
    hashed::HashedMap,
    layout::Layout,
    lives::{Home, Lives},
    memory::Life,
};
use roundelay_kernels::Kernel;
use roundelay_schedule::{Bytes, Pass, Role};
use std::collections::BTreeMap;

/// The argument with arrays that are kept until a pass, and no further.
pub(crate) fn kept_until(pass: Pass) -> Option<Role> {
    match pass {
        Pass::Backward | Pass::InputGradient => Some(Role::Activation),
        Pass::Forward
        | Pass::WeightGradient
        | Pass::Combine
        | Pass::Norm
        | Pass::Update => None,
    }
}

/// The homes of arrays that take the place of kept ones, or of others that do.
#[derive(Default)]
pub(crate) struct Replaced {
    homes: HashedMap<Tensor, Home>,
    /// By size, places that nobody needs any more.
    free: BTreeMap<Bytes, Vec<Home>>,
}

impl Replaced {
    /// By the calls of a pass.
    pub(crate) fn new(layout: &Layout<'_>, steps: &[Step], lives: &Lives) -> Self {
        let mut replaced = Self::default();
        let ending = lives.ending(steps.len());
        for (index, (step, ending)) in steps.iter().zip(ending).enumerate() {
            let handed = replaced.hand_over(layout, (index, step), lives);
            replaced.take_free((index, step), lives);
            let left = ending.into_iter().filter(|(life, _)| Some(life.tensor) != handed);
            left.for_each(|(life, kept)| replaced.leave(life, kept));
        }
        replaced
    }

    /// The home of an array that took the place of another one.
    pub(crate) fn home(&self, tensor: Tensor) -> Option<Home> {
        self.homes.get(&tensor).copied()
    }

    /// Whether no array did.
    pub(crate) fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// Gives the place of an array that a call touches last to one that it makes; the array that had it.
    fn hand_over(
        &mut self,
        layout: &Layout<'_>,
        (index, step): (usize, &Step),
        lives: &Lives,
    ) -> Option<Tensor> {
        let left = |term: &Term| {
            let (life, home) = lives.of(term.tensor)?;
            let home = home.or(self.home(term.tensor))?;
            (life.last == index).then_some((home, life.size))
        };
        let begun = |term: &Term| {
            let (life, home) = lives.of(term.tensor)?;
            (life.first == index && home.is_none()).then_some(life.size)
        };
        let sizes = || step.terms.iter().filter_map(begun);
        let fits = |term: &Term| {
            left(term).is_some_and(|(_, size)| sizes().any(|other| other == size))
        };
        if !step.terms.iter().any(fits) {
            return None;
        }
        let [read, written] = one_memory(layout, step)?;
        let alone = |term: &Term| {
            step.terms.iter().filter(|other| other.tensor == term.tensor).count() == 1
        };
        let ((home, size), fresh) = (left(read)?, begun(written)?);
        let alike = size == fresh && layout.element(read) == layout.element(written);
        (alike && alone(read) && alone(written)).then(|| {
            self.homes.insert(written.tensor, home);
            read.tensor
        })
    }

    /// Gives places that earlier calls left to arrays that a call makes.
    fn take_free(&mut self, (index, step): (usize, &Step), lives: &Lives) {
        for term in &step.terms {
            let Some((life, None)) = lives.of(term.tensor) else { continue };
            if life.first != index || self.home(term.tensor).is_some() {
                continue;
            }
            let places = self.free.get_mut(&life.size);
            if let Some(home) = places.and_then(Vec::pop) {
                self.homes.insert(term.tensor, home);
            }
        }
    }

    /// The place of an array that was touched for the last time is free.
    fn leave(&mut self, life: Life, kept: Option<Home>) {
        if let Some(home) = kept.or(self.home(life.tensor)) {
            self.free.entry(life.size).or_default().push(home);
        }
    }
}

/// What a call reads and what it makes, where the two may be one memory.
fn one_memory<'a>(layout: &Layout<'_>, step: &'a Step) -> Option<[&'a Term; 2]> {
    let call = step.unplaced(|term| layout.element(term));
    let operands = Kernel::parse(&call).ok()?.replaces()?;
    Some(operands.map(|operand| &step.terms[operand]))
}
