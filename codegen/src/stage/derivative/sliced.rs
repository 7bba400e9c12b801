//! What slices of a sequence do: cut out of the whole, joined again for attention, with their own
//! positions and masks; and what parts of the examples do.

use super::{Derivative, Site, attention, elementwise::Mask};
use crate::stage::call::{Step, Term, call};
use roundelay_dsl::Sliced;
use roundelay_schedule::Element;

pub(super) fn sliced(site: &Site<'_>, sliced: Sliced) -> Derivative {
    match sliced {
        Sliced::Cut { first } => cut(site, first),
        Sliced::Join => join(site),
        Sliced::Rotary { turning, first } => attention::rotary_from(site, turning, first),
        Sliced::Dropout { rate, operator, own, slices } => {
            let columns = site.shape().iter().skip(1).product();
            dropout(site, Mask { rate, operator }, (own, slices), columns)
        }
        Sliced::Examples { own, .. } => examples(site, u64::from(own)),
        Sliced::ExamplesDropout { rate, operator, own, parts } => {
            let columns = site.result().elements();
            dropout(site, Mask { rate, operator }, (own, parts), columns)
        }
    }
}

/// y = the own one of several equal parts of x, which lie one behind the other; inputs have no
/// gradient.
fn examples(site: &Site<'_>, own: u64) -> Derivative {
    let x = site.operand(0);
    let y = Term { element: x.element, ..site.result() };
    let (whole_count, count) = (x.elements(), y.elements());
    let flat = |term: Term, count| Term { shape: [1, count, 1][..].into(), ..term };
    let (x, y) = (flat(x, whole_count), flat(y, count));
    let forward = match x.element {
        Element::I32 => call("slice_integers", [x.flat(), y.flat()])
            .count("sequence", whole_count)
            .count("length", count),
        Element::Real | Element::Wide => call("slice", [x, y]),
    };
    let forward = vec![forward.count("first", own * count)];
    Derivative { forward, backward: vec![] }
}

/// y = places `first` .. of x; inputs have no gradient.
fn cut(site: &Site<'_>, first: u64) -> Derivative {
    let x = site.operand(0);
    let y = Term { element: x.element, ..site.result() };
    let tokens = |term: &Term| term.shape.get(1).copied().unwrap_or(1);
    let forward = match x.element {
        Element::I32 => {
            let (sequence, length) = (tokens(&x), tokens(&y));
            call("slice_integers", [x, y])
                .count("sequence", sequence)
                .count("length", length)
        }
        Element::Real | Element::Wide => call("slice", [x, y]),
    };
    Derivative { forward: vec![forward.count("first", first)], backward: vec![] }
}

/// y = the slices one behind the other: the first one among zeros, the others added in their
/// places; dx of each = its part of dy.
fn join(site: &Site<'_>) -> Derivative {
    let mut first = 0;
    let (mut forward, mut backward): (Vec<Step>, Vec<Step>) = (vec![], vec![]);
    for operand in 0..site.count() {
        let x = site.operand(operand);
        let length = x.shape.get(1).copied().unwrap_or(1);
        let placed = |step: Step| step.count("first", first);
        let put = placed(call("slice_backward", [x, site.result()]));
        forward.push(if operand == 0 { put } else { put.flag("accumulate") });
        backward.extend(
            site.contribution(operand)
                .map(|dx| placed(call("slice", [site.gradient(), dx]))),
        );
        first += length;
    }
    Derivative { forward, backward }
}

/// y = x · mask / (1 − rate), dx = dy · mask / (1 − rate), with part number `own` of the mask.
fn dropout(
    site: &Site<'_>,
    mask: Mask,
    (own, slices): (u32, u32),
    columns: u64,
) -> Derivative {
    let of = |step: Step| {
        mask.of(step).count("parts", slices).count("columns", columns).count("own", own)
    };
    let forward = of(call("dropout", [site.operand(0), site.result()]));
    let back = |dx| of(call("dropout_backward", [site.gradient(), dx]));
    Derivative { forward: vec![forward], backward: site.each([(0, &back)]) }
}
