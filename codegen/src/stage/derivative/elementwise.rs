//! Element by element: activations, masks, sums, products, factors.

use super::{Derivative, Site};
use crate::stage::call::{Step, Term, call};
use roundelay_schedule::Id;

/// y = max(x, 0); dx = dy where y > 0.
pub(super) fn relu(site: &Site<'_>) -> Derivative {
    let forward = call("relu", [site.operand(0), site.result()]);
    site.unary(forward, "relu_backward", site.result())
}

/// y = x Φ(x); dx = dy (Φ(x) + x φ(x)).
pub(super) fn gelu(site: &Site<'_>) -> Derivative {
    let forward = call("gelu", [site.operand(0), site.result()]);
    site.unary(forward, "gelu_backward", site.operand(0))
}

/// y = x σ(2u); dx = dy (σ(2u) + x σ(2u) (1 − σ(2u)) 2u'), u = √(2/π) (x + 0.044715 x³).
pub(super) fn gelu_tanh(site: &Site<'_>) -> Derivative {
    let forward = call("gelu_tanh", [site.operand(0), site.result()]);
    site.unary(forward, "gelu_tanh_backward", site.operand(0))
}

/// y = cap · tanh(x / cap); dx = dy (1 − (y / cap)²).
pub(super) fn soft_cap(site: &Site<'_>, cap: f64) -> Derivative {
    let capped = |step: Step| step.real("cap", cap);
    let back =
        |dx| capped(call("soft_cap_backward", [site.result(), site.gradient(), dx]));
    Derivative {
        forward: vec![capped(call("soft_cap", [site.operand(0), site.result()]))],
        backward: site.each([(0, &back)]),
    }
}

/// y = x σ(x); dx = dy σ(x) (1 + x (1 − σ(x))).
pub(super) fn silu(site: &Site<'_>) -> Derivative {
    let forward = call("silu", [site.operand(0), site.result()]);
    site.unary(forward, "silu_backward", site.operand(0))
}

/// What a dropout leaves out.
#[derive(Clone, Copy)]
pub(super) struct Mask {
    pub(super) rate: f64,
    /// The number that it is drawn for.
    pub(super) operator: u64,
}

impl Mask {
    /// A call that draws it.
    pub(super) fn of(self, step: Step) -> Step {
        step.real("rate", self.rate).count("operator", self.operator)
    }
}

/// y = mask x / (1 − rate). The mask follows from the node's number in the whole model, so it
/// does not depend on cuts.
pub(super) fn dropout(site: &Site<'_>, rate: f64) -> Derivative {
    let mask = Mask { rate, operator: site.node.number().into() };
    let masked = |step: Step| mask.of(step);
    let step = |dx| masked(call("dropout_backward", [site.gradient(), dx]));
    Derivative {
        forward: vec![masked(call("dropout", [site.operand(0), site.result()]))],
        backward: site.each([(0, &step)]),
    }
}

/// y = a + b, b repeated; da = dy, db = dy summed over the repetitions. The copy for a comes
/// last, where it may become a handing over.
pub(super) fn add(site: &Site<'_>) -> Derivative {
    let [a, b] = site.operands();
    let repeated = b.elements() < a.elements();
    let step = |db: Term| {
        let columns = b.elements();
        match repeated {
            true => call("sum_rows", [site.gradient().rows_of(columns), db.flat()]),
            false => call("copy", [site.gradient(), db]),
        }
    };
    let copy = |da| call("copy", [site.gradient(), da]);
    Derivative {
        forward: vec![call("add", [a.clone(), b.clone(), site.result()])],
        backward: site.each([(1, &step), (0, &copy)]),
    }
}

/// y = a · b, b repeated; da = dy · b, db = dy · a summed over the repetitions.
pub(super) fn multiply(site: &Site<'_>) -> Derivative {
    let [a, b] = site.operands();
    let columns = b.elements();
    let repeated = columns < a.elements();
    let for_b = |db: Term| match repeated {
        true => {
            let [dy, a] = [site.gradient(), a.clone()].map(|term| term.rows_of(columns));
            call("multiply_sum_rows", [dy, a, db.flat()])
        }
        false => call("multiply", [site.gradient(), a.clone(), db]),
    };
    let for_a = |da| call("multiply", [site.gradient(), b.clone(), da]);
    Derivative {
        forward: vec![call("multiply", [a.clone(), b.clone(), site.result()])],
        backward: site.each([(0, &for_a), (1, &for_b)]),
    }
}

/// y = factor · x; dx = factor · dy.
pub(super) fn scale(site: &Site<'_>, factor: f64) -> Derivative {
    let scaled = |from, to| call("scale", [from, to]).real("factor", factor);
    Derivative {
        forward: vec![scaled(site.operand(0), site.result())],
        backward: site.each([(0, &|dx| scaled(site.gradient(), dx))]),
    }
}
