//! Every exchange against its adjoint: ⟨F x, y⟩ = ⟨x, F* y⟩ for values x and gradients y, by the
//! kernels that exchanges become.

use super::layout::{Along, Layout, Step};
use crate::stage::{Array, Term, moved};
use roundelay_dsl::{Extent, Motion, NodeId};
use roundelay_kernels::{Context, Kernel, Mode, random::Stream};
use roundelay_schedule::{Bytes, Call, Direction, Element, Id, Operand, Tensor};
use std::collections::BTreeSet;

/// Extents of the whole array; some grids leave the last part of them partly empty.
const SHAPE: [u64; 3] = [4, 7, 6];

/// What every part of a grid holds.
type Held = Vec<Vec<f64>>;

fn context(part: u32) -> Context {
    let (step, updates, micro_batch, seed) = (0, 1, 0, 0);
    let (rate, slice_offset) = (0.0, 0);
    let (mode, threads) = (Mode::Training, 1);
    Context { step, updates, micro_batch, seed, mode, rate, slice_offset, part, threads }
}

/// Whether the parts of a direction have alike, have a share of a sum, or have parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alike,
    Summand,
    Part,
}

fn kind(along: Along, is_gradient: bool) -> Kind {
    match (along, is_gradient) {
        (Along::Split(_) | Along::Tokens, _) => Kind::Part,
        (Along::Varying, true) | (Along::Partial, false) => Kind::Summand,
        _ => Kind::Alike,
    }
}

fn shape(layout: Layout, tensor: Tensor) -> Vec<u64> {
    let whole = SHAPE.map(Extent::fixed);
    layout.own(&whole, tensor).iter().map(|extent| extent.size).collect()
}

/// Random numbers in a layout: parts that have the same have the same, and what lies behind the
/// end of the whole is zero.
fn random(layout: Layout, tensor: Tensor, is_gradient: bool, seed: u64) -> Held {
    let count = SHAPE.iter().product::<u64>();
    let along = [layout.rows, layout.columns].map(|own| kind(own, is_gradient));
    (0..tensor.parts())
        .map(|part| {
            let places = [Direction::Rows, Direction::Columns]
                .map(|direction| u64::from(tensor.line(direction).place(part)));
            let own = [0, 1].map(|k| match along[k] {
                Kind::Summand => places[k] + 1,
                Kind::Alike | Kind::Part => 0,
            });
            let stream = Stream::new(seed, &own);
            let whole: Vec<f64> = (0..count).map(|k| stream.normal(k)).collect();
            cut(whole, layout, tensor, part)
        })
        .collect()
}

/// The part of a whole array.
fn cut(whole: Vec<f64>, layout: Layout, tensor: Tensor, part: u32) -> Vec<f64> {
    let own = shape(layout, tensor);
    let first = |extent: usize| {
        let number = u32::try_from(extent).expect("three extents");
        let place = match layout.divides(number) {
            Some(direction) => tensor.line(direction).place(part),
            None => 0,
        };
        u64::from(place) * own[extent]
    };
    let first = [0, 1, 2].map(first);
    let count: u64 = own.iter().product();
    let at = |k: u64| {
        let inside = [k / (own[1] * own[2]), k / own[2] % own[1], k % own[2]];
        let place = [0, 1, 2].map(|extent| first[extent] + inside[extent]);
        let exists = (0..3).all(|extent| place[extent] < SHAPE[extent]);
        let index = (place[0] * SHAPE[1] + place[1]) * SHAPE[2] + place[2];
        if exists { whole[index as usize] } else { 0.0 }
    };
    (0..count).map(at).collect()
}

/// What a motion makes of what all parts hold, by its kernel.
fn run(
    motion: Motion,
    step: Step,
    held: &Held,
    [from, to]: [Layout; 2],
    tensor: Tensor,
) -> Held {
    let line = tensor.line(step.direction);
    let [before, after] = [from, to].map(|layout| shape(layout, tensor));
    let count = |shape: &[u64]| shape.iter().product::<u64>() as usize;
    if motion == Motion::Keep {
        return held.clone();
    }
    let term = |number, shape: &[u64]| {
        Term::real(Array::Auxiliary(NodeId::new(0), number), shape)
    };
    let made = moved(motion, term(0, &before), term(1, &after), line);
    let operand = |term: &Term| Operand {
        argument: 0,
        offset: Bytes(0),
        element: Element::Real,
        shape: term.shape.clone(),
    };
    let call = Call {
        kernel: made.kernel.into(),
        attributes: made.attributes.clone(),
        operands: made.terms.iter().map(operand).collect(),
    };
    let kernel = Kernel::parse(&call).expect("the call is well formed");
    let one = |part: u32| {
        let mut out = vec![f64::NAN; count(&after)];
        match kernel.exchange() {
            Some(exchange) => {
                let brought: Vec<&[f64]> =
                    line.members(part).map(|own| held[own as usize].as_slice()).collect();
                exchange.join(&brought, line.place(part) as usize, &mut out);
            }
            None => alone(&kernel, &mut held[part as usize].clone(), &mut out, part),
        }
        out
    };
    (0..tensor.parts()).map(one).collect()
}

#[allow(unsafe_code, reason = "kernels take addresses")]
fn alone(kernel: &Kernel, read: &mut [f64], out: &mut [f64], part: u32) {
    let operands = [read.as_mut_ptr().cast(), out.as_mut_ptr().cast()];
    // SAFETY: both arrays are as long as the call says, and nobody else has them.
    unsafe { kernel.run_plain::<f64>(&operands, &context(part)) };
}

/// ⟨value, gradient⟩ of the whole arrays that two layouts hold: what all have alike counts once.
fn pair(values: &Held, gradients: &Held, layout: Layout, tensor: Tensor) -> f64 {
    let counts = |part: &u32| {
        [(Direction::Rows, layout.rows), (Direction::Columns, layout.columns)]
            .into_iter()
            .all(|(direction, along)| {
                along != Along::Whole || tensor.line(direction).place(*part) == 0
            })
    };
    let one = |part: u32| -> f64 {
        let both = values[part as usize].iter().zip(&gradients[part as usize]);
        both.map(|(value, gradient)| value * gradient).sum()
    };
    (0..tensor.parts()).filter(counts).map(one).sum()
}

fn norm(held: &Held) -> f64 {
    held.iter().flatten().map(|x| x * x).sum::<f64>().sqrt()
}

/// By how much an exchange and its adjoint differ, whose gradients are scaled by so much.
fn error(from: Layout, step: Step, tensor: Tensor, scale: f64) -> f64 {
    let [value, gradient] = step.motions;
    let x = random(from, tensor, false, 3);
    let y = random(step.to, tensor, true, 5);
    let ahead = run(value, step, &x, [from, step.to], tensor);
    let mut back = run(gradient, step, &y, [step.to, from], tensor);
    back.iter_mut().flatten().for_each(|x| *x *= scale);
    let difference = pair(&ahead, &y, step.to, tensor) - pair(&x, &back, from, tensor);
    let size = (norm(&ahead) * norm(&y)).max(norm(&x) * norm(&back));
    difference.abs() / size
}

/// Every step on the way between two layouts that values are ever in.
fn steps() -> BTreeSet<(Layout, Layout)> {
    let along = [
        Along::Whole,
        Along::Varying,
        Along::Split(0),
        Along::Split(1),
        Along::Split(2),
        Along::Partial,
    ];
    let all: Vec<Layout> = along
        .into_iter()
        .flat_map(|rows| along.map(|columns| Layout { rows, columns }))
        .collect();
    let made =
        |own: &&Layout| own.rows != Along::Varying && own.columns != Along::Varying;
    let wanted =
        |own: &&Layout| own.rows != Along::Partial && own.columns != Along::Partial;
    let mut found = BTreeSet::new();
    for from in all.iter().filter(made) {
        for to in all.iter().filter(wanted) {
            let mut have = *from;
            while let Some(step) = have.step(*to) {
                assert!(found.len() < 2000, "the way from {from:?} to {to:?} ends");
                found.insert((have, step.to));
                have = step.to;
            }
            assert_eq!(have, *to);
        }
    }
    found
}

const GRIDS: [(u32, u32); 6] = [(2, 1), (3, 1), (1, 4), (2, 2), (3, 2), (2, 4)];

#[test]
fn every_exchange_has_its_adjoint_and_no_other() {
    let steps = steps();
    let mut kinds = BTreeSet::new();
    for (rows, columns) in GRIDS {
        let tensor = Tensor::grid(rows, columns);
        for (from, to) in &steps {
            let step = from.step(*to).expect("they differ");
            if step.to != *to || tensor.line(step.direction).parts == 1 {
                continue;
            }
            kinds.insert(step.motions);
            let found = error(*from, step, tensor, 1.0);
            assert!(found < 1e-14, "{tensor:?} {from:?} to {to:?}: {found}");
            // Chance makes some products small, and with them the error of a scaled adjoint.
            let scaled = error(*from, step, tensor, 1.001);
            assert!(scaled > 1e-9, "{tensor:?} {from:?} to {to:?}: {scaled}");
        }
    }
    // Sums, gathers, scatters and cuts in one pass or the other, as the layouts need them.
    assert!(kinds.len() >= 8, "{kinds:?}");
}

/// A value is what it was on every way: it is only laid out otherwise.
#[test]
fn layouts_hold_the_same_value_on_every_way() {
    for (rows, columns) in GRIDS {
        let tensor = Tensor::grid(rows, columns);
        for (from, to) in steps() {
            let step = from.step(to).expect("they differ");
            let is_value =
                |own: Layout| own.rows != Along::Partial && own.columns != Along::Partial;
            if step.to != to || !is_value(from) {
                continue;
            }
            let x = random(from, tensor, false, 7);
            let found = match tensor.line(step.direction).parts {
                1 => x,
                _ => run(step.motions[0], step, &x, [from, to], tensor),
            };
            assert_eq!(found, random(to, tensor, false, 7), "{tensor:?} {from:?} {to:?}");
        }
    }
}
