//! Which calls of a pass touch the tensors whose memory the pass may use as it likes.

use super::{
    call::{Step, Tensor},
    hashed::HashedMap,
    interleave::{done, goes_on},
    layout::Layout,
    memory::Life,
};
use roundelay_schedule::{Bytes, Role};

/// Where a tensor lies: an argument, and the first byte in it.
pub(crate) type Home = (Role, Bytes);

/// The lives of tensors that are scratch, and of those that are kept until this pass.
#[derive(Default)]
pub(crate) struct Lives {
    all: Vec<(Life, Option<Home>)>,
    places: HashedMap<Tensor, usize>,
}

impl Lives {
    /// Of tensors without a home, and of those in the arguments `shared`; `homes` are those of the
    /// terms of all steps.
    pub(crate) fn new(
        layout: &Layout<'_>,
        steps: &[Step],
        homes: &[Option<Home>],
        shared: &[Role],
    ) -> Self {
        let mut lives = Self::default();
        let numbered = steps.iter().enumerate();
        let terms = numbered
            .flat_map(|(index, step)| step.terms.iter().map(move |term| (index, term)));
        for ((index, term), home) in terms.zip(homes) {
            if home.is_some_and(|(role, _)| !shared.contains(&role)) {
                continue;
            }
            let place = *lives.places.get_or_insert(term.tensor, lives.all.len());
            if place == lives.all.len() {
                let width = layout.element(term).size(layout.dtype);
                let (tensor, size) = (term.tensor, Bytes(term.elements()) * width);
                lives.all.push((Life { tensor, size, first: index, last: index }, *home));
            }
            lives.all[place].0.last = index;
        }
        // What is exchanged beside other calls stays as it is until the exchange is done.
        for (index, step) in steps.iter().enumerate().filter(|(_, step)| goes_on(step)) {
            let end = done(steps, index);
            for term in &step.terms {
                if let Some(place) = lives.places.get(&term.tensor) {
                    let life = &mut lives.all[*place].0;
                    life.last = life.last.max(end);
                }
            }
        }
        lives
    }

    /// All of them, each with the tensor's home if it has one.
    pub(crate) fn all(&self) -> &[(Life, Option<Home>)] {
        &self.all
    }

    /// The place of a tensor's life among all, unless it lies elsewhere.
    pub(crate) fn number_of(&self, tensor: Tensor) -> Option<usize> {
        self.places.get(&tensor).copied()
    }
}
