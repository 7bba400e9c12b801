//! What a backward pass makes in the memory of what it has read for the last time.
//!
//! The law: an array takes the place of a kept one where the call that makes it is the last one to
//! touch that, both are as large, and the catalogue says that the two may be one memory. Nobody
//! reads what was kept until this pass after it, so nobody misses it. So the gradient of the
//! logits lies where the logits lay.

use super::{
    call::{Step, Tensor, Term},
    hashed::HashedMap,
    layout::Layout,
    lives::{Home, Lives},
};
use roundelay_kernels::Kernel;
use roundelay_schedule::{Pass, Role};

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
pub(crate) struct Replaced(HashedMap<Tensor, Home>);

impl Replaced {
    /// By the calls of a pass.
    pub(crate) fn new(layout: &Layout<'_>, steps: &[Step], lives: &Lives) -> Self {
        let mut replaced = Self::default();
        for (index, step) in steps.iter().enumerate() {
            if let Some((tensor, home)) = replaced.by(layout, (index, step), lives) {
                replaced.0.insert(tensor, home);
            }
        }
        replaced
    }

    /// The home of an array that took the place of another one.
    pub(crate) fn home(&self, tensor: Tensor) -> Option<Home> {
        self.0.get(&tensor).copied()
    }

    /// Whether no array did.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The array that a call makes in the place of one that it touches last, and that place.
    fn by(
        &self,
        layout: &Layout<'_>,
        (index, step): (usize, &Step),
        lives: &Lives,
    ) -> Option<(Tensor, Home)> {
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
        (alike && alone(read) && alone(written)).then_some((written.tensor, home))
    }
}

/// What a call reads and what it makes, where the two may be one memory.
fn one_memory<'a>(layout: &Layout<'_>, step: &'a Step) -> Option<[&'a Term; 2]> {
    let call = step.unplaced(|term| layout.element(term));
    let operands = Kernel::parse(&call).ok()?.replaces()?;
    Some(operands.map(|operand| &step.terms[operand]))
}
