//! Copies of gradients that stand between two calls which a rule may join.
//!
//! A sum hands its gradient on to its terms by copies, right behind the call that makes it and before
//! the one that takes it back through the first term. The law: a copy may be made later as long as
//! nobody writes what it copies, or touches the copy; and whoever reads the copy may read what was
//! copied instead. So the bits are the same, and the two calls are neighbours.

use super::super::{
    call::{Step, Tensor},
    share::handed_on,
};
use crate::rewrite::FORMS;
use roundelay_kernels::Kernel;
use roundelay_schedule::Access;

/// The same calls with such copies behind the second of the two.
pub(super) fn past_copies<N>(steps: Vec<(N, Step)>) -> Vec<(N, Step)> {
    let mut ordered: Vec<(N, Step)> = Vec::with_capacity(steps.len());
    for (node, step) in steps {
        let is_copy = |(_, step): &&(N, Step)| handed_on(step).is_some();
        let copies = ordered.iter().rev().take_while(is_copy).count();
        let (before, copies) = ordered.split_at(ordered.len() - copies);
        match before.last().and_then(|(_, first)| ahead(first, copies, &step)) {
            Some(step) => ordered.insert(before.len(), (node, step)),
            None => ordered.push((node, step)),
        }
    }
    ordered
}

/// A call as it is made before these copies, right behind `first`, if a rule may then join the two.
fn ahead<N>(first: &Step, copies: &[(N, Step)], step: &Step) -> Option<Step> {
    let kernels = [first.kernel, step.kernel];
    let has_rule = FORMS.iter().any(|form| form.before.map(|l| l.kernel) == kernels);
    if copies.is_empty() || !has_rule {
        return None;
    }
    let kernel = Kernel::parse(&step.unplaced(|term| term.element)).ok()?;
    let mut moved = step.clone();
    for (_, copy) in copies.iter().rev() {
        let [from, to] = handed_on(copy)?;
        let touches = |tensor: Tensor| tensor == from || tensor == to;
        let mut own = moved.terms.iter().zip(kernel.accesses());
        let writes =
            own.any(|(term, access)| *access != Access::Read && touches(term.tensor));
        if writes || copy.strand != step.strand {
            return None;
        }
        let copied = moved.terms.iter_mut().filter(|term| term.tensor == to);
        copied.for_each(|term| term.tensor = from);
    }
    let mut joined = moved.terms.iter();
    let reads =
        joined.any(|term| first.terms.iter().any(|own| own.tensor == term.tensor));
    reads.then_some(moved)
}
