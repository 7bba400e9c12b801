//! Copies of gradients that are not made, because the copied one can be read instead.
//!
//! The law: from a copy on, both arrays hold the same until the next call that writes one of them. If
//! nobody touches the other one from that call on, one array is enough: whoever reads either
//! finds the same bits, and each sum is made of the same terms in the same order. An array with a
//! place of its own, in an argument, is read by others, so it stays.

use super::{
    call::{Step, Tensor, Term},
    interleave::{done, goes_on},
    layout::Layout,
};
use roundelay_dsl::Source;
use roundelay_kernels::Kernel;
use roundelay_schedule::Access;

/// What a call copies, and where to, if an operation hands its gradient on so.
pub(crate) fn handed_on(step: &Step) -> Option<[Tensor; 2]> {
    let [from, to] = &step.terms[..] else { return None };
    let sum = |term: &Term| matches!(term.tensor, Tensor::Gradient(Source::Node(_)));
    let copies = step.kernel == "copy" && step.node.is_some();
    (copies && sum(from) && sum(to)).then_some([from.tensor, to.tensor])
}

/// The calls of a pass without the copies that nobody needs; `has_home` says of a tensor that it lies
/// in an argument.
pub(crate) fn share(
    layout: &Layout<'_>,
    mut steps: Vec<Step>,
    has_home: impl Fn(Tensor) -> bool,
) -> Vec<Step> {
    let needless = |steps: &[Step], copy| {
        let both = handed_on(&steps[copy])?;
        let free = !both.iter().any(|own| has_home(*own));
        (free && is_needless(layout, steps, copy, both)).then_some(both)
    };
    let mut place = 0;
    while place < steps.len() {
        match needless(&steps, place) {
            Some(both) => {
                steps.remove(place);
                rename(&mut steps[place..], both);
            }
            None => place += 1,
        }
    }
    steps
}

/// Calls an array by the name of the one of which it was a copy.
fn rename(steps: &mut [Step], [from, to]: [Tensor; 2]) {
    let terms = steps.iter_mut().flat_map(|step| &mut step.terms);
    for term in terms.filter(|term| term.tensor == to) {
        term.tensor = from;
    }
}

/// Whether one array is enough for what is copied here and the copy.
fn is_needless(
    layout: &Layout<'_>,
    steps: &[Step],
    copy: usize,
    [from, to]: [Tensor; 2],
) -> bool {
    if steps[..copy].iter().any(|step| touches(step, to)) {
        return false;
    }
    let mut behind = (copy + 1)..steps.len();
    let written = behind.find_map(|place| {
        let changed = [from, to].map(|own| writes(layout, &steps[place], own));
        match changed {
            [false, false] => None,
            [true, _] => Some((place, to)),
            [false, true] => Some((place, from)),
        }
    });
    match written {
        None => true,
        Some((place, other)) => {
            let touched = (copy + 1)..steps.len();
            let mut touched = touched.filter(|at| touches(&steps[*at], other));
            touched.all(|at| left(steps, at) < place)
        }
    }
}

fn touches(step: &Step, tensor: Tensor) -> bool {
    step.terms.iter().any(|term| term.tensor == tensor)
}

/// The call with which another one is done with what it touches: itself, but for exchanges that go
/// on beside others.
fn left(steps: &[Step], place: usize) -> usize {
    match goes_on(&steps[place]) {
        true => done(steps, place),
        false => place,
    }
}

fn writes(layout: &Layout<'_>, step: &Step, tensor: Tensor) -> bool {
    if !touches(step, tensor) {
        return false;
    }
    let call = step.unplaced(|term| layout.element(term));
    let kernel = Kernel::parse(&call).expect("stages admits calls");
    let mut uses = step.terms.iter().zip(kernel.accesses());
    uses.any(|(term, access)| term.tensor == tensor && *access != Access::Read)
}
