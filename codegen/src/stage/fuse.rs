//! Neighbouring calls that one kernel does in one pass over memory.
//!
//! Every rule replaces two calls by one that computes the same bits: what fused kernels compute
//! is defined as the kernels one by one. Nothing is kept that was not kept before; a tensor that
//! only went from the one call to the other is not made any more. Rules repeat until none fits,
//! so a product grows into an affine map, and that into one with an activation.

use super::call::{Step, Tensor, Term, call};
use roundelay_schedule::Attribute;

/// The call that does two; `private` says of a tensor that these two calls alone touch it.
type Fused = fn(&Step, &Step, private: &dyn Fn(Tensor) -> bool) -> Option<Step>;

/// One rewrite of two neighbours.
struct Rule {
    /// The kernels it replaces.
    kernels: [&'static str; 2],
    /// The call that does both, if they fit.
    fused: Fused,
}

/// All rewrites of a forward pass.
const RULES: [Rule; 4] = [
    Rule { kernels: ["matmul", "add_rows"], fused: affine },
    Rule { kernels: ["affine", "relu"], fused: affine_relu },
    Rule { kernels: ["affine", "gelu"], fused: affine_gelu },
    Rule { kernels: ["affine", "add"], fused: affine_add },
];

/// A call of a pass, and the node that it completes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made<N> {
    /// The node.
    pub(crate) node: N,
    /// The call.
    pub(crate) step: Step,
    /// The call of an earlier node that it does as well.
    pub(crate) contains: Option<(N, Step)>,
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
    let touches = |step: &Step, tensor| step.terms.iter().any(|t| t.tensor == tensor);
    let mut fused: Vec<Made<N>> = Vec::new();
    let mut rest = steps.into_iter();
    while let Some((node, step)) = rest.next() {
        let mut made = Made { node, step, contains: None };
        while let Some(before) = fused.pop() {
            let later = rest.as_slice().iter().map(|(_, step)| step);
            let private = |tensor| {
                let mut others = fused.iter().map(|made| &made.step).chain(later.clone());
                !kept(tensor) && !others.any(|other| touches(other, tensor))
            };
            let Some(step) = both(&before.step, &made.step, &private) else {
                fused.push(before);
                break;
            };
            let contains = match before.node == made.node {
                true => before.contains,
                false => Some((before.node, before.step)),
            };
            made = Made { node: made.node, step, contains };
        }
        fused.push(made);
    }
    fused
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
    let ([x, weight, bias, t], [left, right, y]) = (&map.terms[..], &sum.terms[..])
    else {
        return None;
    };
    let a = match [left.tensor == t.tensor, right.tensor == t.tensor] {
        [false, true] => alike(left, t)?,
        [true, false] => alike(right, t)?,
        [true, true] | [false, false] => return None,
    };
    let y = alike(y, t)?;
    let [x, weight, bias] = [x, weight, bias].map(Term::clone);
    private(t.tensor).then(|| call("affine_add", [x, weight, bias, a, y]))
}

/// A term in the shape of another one of as many elements.
fn alike(term: &Term, other: &Term) -> Option<Term> {
    let same = term.elements() == other.elements();
    same.then(|| Term { shape: other.shape.clone(), ..term.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_dsl::{NodeId, Source};
    use roundelay_schedule::Id;

    fn node(number: usize, shape: &[u64]) -> Term {
        Term::real(Tensor::Source(Source::Node(NodeId::new(number))), shape)
    }

    /// y = x Wᵀ + bias as two calls: nodes 0, 1, 2 and 3.
    fn linear() -> Vec<Step> {
        let product = [node(0, &[6, 4]), node(1, &[5, 4]), node(3, &[6, 5])];
        vec![
            call("matmul", product).flag("transpose_b"),
            call("add_rows", [node(2, &[5]), node(3, &[6, 5])]),
        ]
    }

    fn kernels(steps: &[Step]) -> Vec<&'static str> {
        steps.iter().map(|step| step.kernel).collect()
    }

    fn wide(number: usize) -> Term {
        node(number, &[2, 3, 5])
    }

    #[test]
    fn chains_of_neighbours_become_one_call() {
        let cases = [
            (call("relu", [wide(3), wide(4)]), "affine_relu", vec![0, 1, 2, 4]),
            (call("gelu", [wide(3), wide(4)]), "affine_gelu", vec![0, 1, 2, 3, 4]),
            (call("add", [wide(9), wide(3), wide(4)]), "affine_add", vec![0, 1, 2, 9, 4]),
            (call("add", [wide(3), wide(9), wide(4)]), "affine_add", vec![0, 1, 2, 9, 4]),
        ];
        for (last, name, nodes) in cases {
            let steps = linear().into_iter().chain([last]).collect();
            let fused = fuse(steps, |_| false);
            assert_eq!(kernels(&fused), [name]);
            let tensors: Vec<Tensor> = fused[0].terms.iter().map(|t| t.tensor).collect();
            let expected: Vec<Tensor> =
                nodes.into_iter().map(|number| wide(number).tensor).collect();
            assert_eq!(tensors, expected);
        }
    }

    #[test]
    fn what_is_needed_again_is_still_made() {
        let t = wide(3).tensor;
        for last in
            [call("relu", [wide(3), wide(4)]), call("add", [wide(9), wide(3), wide(4)])]
        {
            let name = last.kernel;
            let steps: Vec<Step> = linear().into_iter().chain([last]).collect();
            let kept = fuse(steps.clone(), |tensor| tensor == t);
            assert_eq!(kernels(&kept), ["affine", name]);
            let reader = call("gelu", [wide(3), wide(5)]);
            let read = fuse([steps, vec![reader]].concat(), |_| false);
            assert_eq!(kernels(&read), ["affine", name, "gelu"]);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_alone() {
        let twice = call("add", [wide(3), wide(3), wide(4)]);
        let double: &[u64] = &[2, 6, 5];
        let repeated = call("add", [node(9, double), node(3, &[6, 5]), node(4, double)]);
        for last in [twice, repeated] {
            let steps = linear().into_iter().chain([last]).collect();
            assert_eq!(kernels(&fuse(steps, |_| false)), ["affine", "add"]);
        }
        let mut plain = linear();
        plain[0].attributes.clear();
        assert_eq!(kernels(&fuse(plain, |_| false)), ["matmul", "add_rows"]);
        let mut elsewhere = linear();
        elsewhere[1].terms[1] = wide(7);
        assert_eq!(kernels(&fuse(elsewhere, |_| false)), ["matmul", "add_rows"]);
    }
}
