//! Neighbouring calls that one kernel does in one pass over memory.
//!
//! Every rule replaces two calls by one that computes the same bits: what fused kernels compute
//! is defined as the kernels one by one. Nothing is kept that was not kept before; a tensor that
//! only went from the one call to the other is not made any more. Rules repeat until none fits,
//! so a product grows into an affine map, and that into one with an activation, and a batch norm
//! into one with the residual that is added to it and the activation of their sum.

use super::call::{Step, Tensor, Term, call};
use roundelay_schedule::Attribute;
use std::collections::{BTreeMap, BTreeSet};

/// The call that does two; `private` says of a tensor that these two calls alone touch it.
type Fused = fn(&Step, &Step, private: &dyn Fn(Tensor) -> bool) -> Option<Step>;

/// One rewrite of two neighbours.
struct Rule {
    /// The kernels it replaces.
    kernels: [&'static str; 2],
    /// The call that does both, if they fit.
    fused: Fused,
}

/// All rewrites.
const RULES: [Rule; 7] = [
    Rule { kernels: ["matmul", "add_rows"], fused: affine },
    Rule { kernels: ["affine", "relu"], fused: affine_relu },
    Rule { kernels: ["affine", "gelu"], fused: affine_gelu },
    Rule { kernels: ["affine", "add"], fused: affine_add },
    Rule { kernels: ["batch_norm", "relu"], fused: batch_norm_relu },
    Rule { kernels: ["batch_norm", "add"], fused: batch_norm_add },
    Rule {
        kernels: ["relu_backward", "batch_norm_backward"],
        fused: relu_batch_norm_backward,
    },
];

/// A call of a pass, and the node that it completes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made<N> {
    /// The node.
    pub(crate) node: N,
    /// The call.
    pub(crate) step: Step,
    /// The calls of nodes before it that it does as well, each with those before.
    pub(crate) contains: Vec<(N, Step)>,
}

/// Fuses what can be fused of a pass. `kept` says of a tensor that it outlives the pass.
pub(crate) fn fuse(steps: Vec<Step>, kept: impl Fn(Tensor) -> bool) -> Vec<Step> {
    let made = fuse_nodes(steps.into_iter().map(|step| ((), step)).collect(), kept);
    made.into_iter().map(|made| made.step).collect()
}

/// As [`fuse`], and says which calls of which nodes went together.
pub(crate) fn fuse_nodes<N: Copy + PartialEq>(
    steps: Vec<(N, Step)>,
    kept: impl Fn(Tensor) -> bool,
) -> Vec<Made<N>> {
    let mut touched = Touched::new(steps.iter().map(|(_, step)| step));
    let mut fused: Vec<Made<N>> = Vec::new();
    for (node, step) in steps {
        let mut made = Made { node, step, contains: vec![] };
        while let Some(before) = fused.pop() {
            let pair = [&before.step, &made.step];
            let private = |tensor| !kept(tensor) && !touched.besides(tensor, pair);
            let Some(step) = both(pair[0], pair[1], &private) else {
                fused.push(before);
                break;
            };
            touched.replace(pair, &step);
            let mut contains = before.contains;
            if before.node != made.node {
                contains.push((before.node, before.step));
            }
            made = Made { node: made.node, step, contains };
        }
        fused.push(made);
    }
    fused
}

/// How many calls of a pass touch each tensor.
struct Touched(BTreeMap<Tensor, usize>);

impl Touched {
    fn new<'a>(steps: impl Iterator<Item = &'a Step>) -> Self {
        let mut touched = Self(BTreeMap::new());
        steps.for_each(|step| touched.add(step));
        touched
    }

    fn add(&mut self, step: &Step) {
        for tensor in tensors(step) {
            *self.0.entry(tensor).or_default() += 1;
        }
    }

    /// Whether any call besides two touches a tensor.
    fn besides(&self, tensor: Tensor, pair: [&Step; 2]) -> bool {
        let own = pair.into_iter().filter(|step| tensors(step).contains(&tensor)).count();
        self.0.get(&tensor).is_some_and(|all| *all > own)
    }

    /// One call takes the place of two.
    fn replace(&mut self, pair: [&Step; 2], step: &Step) {
        for tensor in pair.into_iter().flat_map(tensors) {
            if let Some(count) = self.0.get_mut(&tensor) {
                *count -= 1;
            }
        }
        self.add(step);
    }
}

/// The tensors of a call, each once.
fn tensors(step: &Step) -> BTreeSet<Tensor> {
    step.terms.iter().map(|term| term.tensor).collect()
}

/// The one call for two neighbours, if a rule fits.
fn both(first: &Step, second: &Step, private: &dyn Fn(Tensor) -> bool) -> Option<Step> {
    let rule = RULES.iter().find(|rule| rule.kernels == [first.kernel, second.kernel]);
    rule.and_then(|rule| (rule.fused)(first, second, private))
}

/// y = x Wᵀ, y += bias.
fn affine(product: &Step, sum: &Step, _: &dyn Fn(Tensor) -> bool) -> Option<Step> {
    let ([x, weight, y], [bias, into]) = (&product.terms[..], &sum.terms[..]) else {
        return None;
    };
    let transposed = [("transpose_b".to_owned(), Attribute::Flag(true))].into();
    let fits = product.attributes == transposed && y.tensor == into.tensor;
    let terms = [x, weight, bias, y].map(Term::clone);
    fits.then(|| call("affine", terms))
}

/// t = x Wᵀ + bias, y = max(t, 0), where t is not needed again.
fn affine_relu(
    map: &Step,
    relu: &Step,
    private: &dyn Fn(Tensor) -> bool,
) -> Option<Step> {
    let ([x, weight, bias, t], [from, y]) = (&map.terms[..], &relu.terms[..]) else {
        return None;
    };
    let fits = t.tensor == from.tensor && private(t.tensor);
    let y = alike(y, t)?;
    let [x, weight, bias] = [x, weight, bias].map(Term::clone);
    fits.then(|| call("affine_relu", [x, weight, bias, y]))
}

/// z = x Wᵀ + bias, y = GELU(z).
fn affine_gelu(map: &Step, gelu: &Step, _: &dyn Fn(Tensor) -> bool) -> Option<Step> {
    let ([x, weight, bias, z], [from, y]) = (&map.terms[..], &gelu.terms[..]) else {
        return None;
    };
    let fits = z.tensor == from.tensor;
    let y = alike(y, z)?;
    let [x, weight, bias, z] = [x, weight, bias, z].map(Term::clone);
    fits.then(|| call("affine_gelu", [x, weight, bias, z, y]))
}

/// t = x Wᵀ + bias, y = a + t or t + a, where t is not needed again.
fn affine_add(map: &Step, sum: &Step, private: &dyn Fn(Tensor) -> bool) -> Option<Step> {
    let [x, weight, bias, t] = &map.terms[..] else { return None };
    let [a, y] = added(sum, t)?;
    let [x, weight, bias] = [x, weight, bias].map(Term::clone);
    private(t.tensor).then(|| call("affine_add", [x, weight, bias, a, y]))
}

/// t = batch_norm(x), perhaps with a residual, y = max(t, 0), where t is not needed again.
fn batch_norm_relu(
    norm: &Step,
    relu: &Step,
    private: &dyn Fn(Tensor) -> bool,
) -> Option<Step> {
    let ([read @ .., t, mean, variance], [from, y]) = (&norm.terms[..], &relu.terms[..])
    else {
        return None;
    };
    let open = !norm.attributes.contains_key("relu");
    let fits = open && t.tensor == from.tensor && private(t.tensor);
    let made = [alike(y, t)?, mean.clone(), variance.clone()];
    let terms = read.iter().cloned().chain(made).collect();
    fits.then(|| Step { terms, ..norm.clone() }.flag("relu"))
}

/// t = batch_norm(x), y = a + t or t + a, where t is not needed again.
fn batch_norm_add(
    norm: &Step,
    sum: &Step,
    private: &dyn Fn(Tensor) -> bool,
) -> Option<Step> {
    let [read @ .., t, mean, variance] = &norm.terms[..] else { return None };
    let bare =
        ["relu", "residual"].iter().all(|tail| !norm.attributes.contains_key(*tail));
    let [a, y] = added(sum, t)?;
    let made = [a, y, mean.clone(), variance.clone()];
    let terms = read.iter().cloned().chain(made).collect();
    let fits = bare && private(t.tensor);
    fits.then(|| Step { terms, ..norm.clone() }.flag("residual"))
}

/// dt = dy where y > 0, and the gradients of a batch norm from dt, which is not needed again.
fn relu_batch_norm_backward(
    relu: &Step,
    norm: &Step,
    private: &dyn Fn(Tensor) -> bool,
) -> Option<Step> {
    let ([y, dy, dt], [x, gain, mean, variance, from, made @ ..]) =
        (&relu.terms[..], &norm.terms[..])
    else {
        return None;
    };
    let alone = relu.attributes.is_empty() && !norm.attributes.contains_key("relu");
    let fits = alone && dt.tensor == from.tensor && private(dt.tensor);
    let [x, gain, mean, variance] = [x, gain, mean, variance].map(Term::clone);
    let read = [x, gain, mean, variance, alike(y, from)?, alike(dy, from)?];
    let terms = read.into_iter().chain(made.iter().cloned()).collect();
    fits.then(|| Step { terms, ..norm.clone() }.flag("relu"))
}

/// The other addend and the result of a sum of two, in the shape of the one addend.
fn added(sum: &Step, addend: &Term) -> Option<[Term; 2]> {
    let [left, right, y] = &sum.terms[..] else { return None };
    let other = match [left, right].map(|term| term.tensor == addend.tensor) {
        [false, true] => left,
        [true, false] => right,
        [true, true] | [false, false] => return None,
    };
    Some([alike(other, addend)?, alike(y, addend)?])
}

/// A term in the shape of another one of as many elements.
fn alike(term: &Term, other: &Term) -> Option<Term> {
    let same = term.elements() == other.elements();
    same.then(|| Term { shape: other.shape.clone(), ..term.clone() })
}

#[cfg(test)]
mod tests;
