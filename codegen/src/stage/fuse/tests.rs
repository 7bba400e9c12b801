//! Which neighbours become one call, and which stay two.

use super::*;
use crate::{
    rewrite::{Everywhere, Listed},
    stage::call::call,
};

/// As [`super::fuse_nodes`], with every rule wherever it fits; calls stand for operations in their
/// order.
fn fuse_nodes<N: Copy + PartialEq>(
    steps: Vec<(N, Step)>,
    kept: impl Fn(Tensor) -> bool,
) -> Vec<Made<N>> {
    fuse_where(steps, &Everywhere, kept).0
}

fn fuse_where<N: Copy + PartialEq>(
    steps: Vec<(N, Step)>,
    choice: &dyn LoweringChoice,
    kept: impl Fn(Tensor) -> bool,
) -> (Vec<Made<N>>, Rewrites) {
    let numbered = steps.into_iter().enumerate();
    let standing = numbered.map(|(place, (node, step))| {
        (node, Step { node: Some(NodeId::new(place)), ..step })
    });
    let rewriting = Rewriting::new(choice, None);
    let mut made = super::fuse_nodes(standing.collect(), &rewriting, kept);
    for made in &mut made {
        let inner = made.contains.iter_mut().map(|(_, step)| step);
        inner.chain([&mut made.step]).for_each(|step| step.node = None);
    }
    (made, rewriting.all_done())
}

fn fuse(steps: Vec<Step>, kept: impl Fn(Tensor) -> bool) -> Vec<Step> {
    let steps = steps.into_iter().map(|step| ((), step)).collect();
    fuse_nodes(steps, kept).into_iter().map(|made| made.step).collect()
}

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
        (call("gelu_tanh", [wide(3), wide(4)]), "affine_gelu_tanh", vec![0, 1, 2, 3, 4]),
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

/// The gradient of W into node 3, the sum of dz into node 4, dz W into node 2, and dt, node 6, from t,
/// node 5: as backward passes make them of nodes of one, and the next.
fn bent() -> Vec<Step> {
    let dy = node(2, &[6, 5]);
    let product = call("matmul", [node(0, &[6, 4]), node(1, &[4, 5]), dy]);
    let weights = [node(0, &[6, 4]), node(7, &[6, 5]), node(3, &[4, 5])];
    let of = |operation: usize, step: Step| Step {
        node: Some(NodeId::new(operation)),
        ..step
    };
    vec![
        of(0, call("matmul", weights).flag("transpose_a")),
        of(0, call("sum_rows", [node(0, &[6, 4]), node(4, &[4])])),
        of(0, product),
        of(1, call("gelu_tanh_backward", [wide(5), wide(2), wide(6)])),
    ]
}

fn fuse_standing(steps: Vec<Step>, kept: impl Fn(Tensor) -> bool) -> Vec<Step> {
    super::fuse(steps, &Rewriting::new(&Everywhere, None), kept)
}

/// The product for what goes into a map does the slope of the activation before it.
#[test]
fn a_product_back_takes_in_the_slope_of_its_activation() {
    let fused = fuse_standing(bent(), |_| false);
    let both = "matmul_gelu_tanh_backward";
    assert_eq!(kernels(&fused), ["affine_gradients", both]);
    assert_eq!(numbers(&fused[1]), [0, 1, 5, 6].map(|number| wide(number).tensor));
    assert!(fused[1].terms[2..].iter().all(|term| *term.shape == [6, 5]));
    let apart = ["affine_gradients", "matmul", "gelu_tanh_backward"];
    let kept = fuse_standing(bent(), |tensor| tensor == wide(2).tensor);
    assert_eq!(kernels(&kept), apart, "somebody else reads dy");
    let mut adding = bent();
    adding[3] = adding[3].clone().flag("accumulate");
    assert_eq!(kernels(&fuse_standing(adding, |_| false)), apart);
}

/// Where the next operation does not take what it makes, a product stays alone.
#[test]
fn a_product_back_takes_in_no_other_call() {
    let mut elsewhere = bent();
    elsewhere[3].terms[1] = wide(8);
    let mut exact = bent();
    exact[3].kernel = "gelu_backward";
    let mut later = bent();
    later.insert(3, Step { node: Some(NodeId::new(2)), ..call("zero", [row(9)]) });
    for steps in [elsewhere, exact, later] {
        let mut expected = steps.clone();
        expected.splice(0..2, [gradients()]);
        assert_eq!(fuse_standing(steps, |_| false), expected);
    }
}

/// What the first two of [`bent`] are together.
fn gradients() -> Step {
    let [dy, x] = [node(0, &[6, 4]), node(7, &[6, 5])];
    call("affine_gradients", [dy, x, node(3, &[4, 5]), node(4, &[4])])
}

/// The gradients of a weight and of its bias are one call whoever reads them, where both are written, or
/// both added to.
#[test]
fn gradients_of_a_weight_and_its_bias_are_one_call() {
    let [product, sums, ..] = <[Step; 4]>::try_from(bent()).unwrap();
    let both = || [product.clone(), sums.clone()];
    assert_eq!(fuse_standing(both().into(), |_| true), [gradients()]);
    let added = both().map(|step| step.flag("accumulate")).into();
    let expected = [gradients().flag("accumulate")];
    assert_eq!(fuse_standing(added, |_| true), expected);
}

/// No gradient is lost that does not fit beside the other one.
#[test]
fn gradients_that_do_not_go_together_stay_two() {
    let [product, sums, ..] = <[Step; 4]>::try_from(bent()).unwrap();
    let changed = |change: &dyn Fn(&mut Step, &mut Step)| {
        let [mut first, mut second] = [product.clone(), sums.clone()];
        change(&mut first, &mut second);
        vec![first, second]
    };
    let added = |step: &mut Step| *step = step.clone().flag("accumulate");
    let turned = |step: &mut Step| *step = step.clone().flag("transpose_b");
    let cases = [
        changed(&|first, _| added(first)),
        changed(&|_, second| added(second)),
        changed(&|first, _| turned(first)),
        changed(&|first, _| first.attributes = Constants::default()),
        // Sums of something else, of other columns, of another shape.
        changed(&|_, second| second.terms[0] = node(8, &[6, 4])),
        changed(&|_, second| second.terms[1] = node(4, &[2])),
        changed(&|_, second| second.terms[0] = node(0, &[3, 2, 4])),
        // Sums of what the product makes, and into it.
        changed(&|_, second| {
            second.terms = vec![node(3, &[4, 5]), node(4, &[5])];
        }),
        changed(&|first, second| {
            (first.terms[2], second.terms[1]) = (node(4, &[4, 5]), node(4, &[4]));
        }),
        // A gradient of a parameter, which may be kept in a wider type than the other one.
        changed(&|_, second| second.terms[1].tensor = Tensor::Aside(NodeId::new(0), 0)),
    ];
    for steps in cases {
        assert_eq!(fuse_standing(steps.clone(), |_| false), steps);
    }
    let between = Step { node: product.node, ..call("zero", [node(9, &[4])]) };
    let parted = vec![product, between, sums];
    assert_eq!(fuse_standing(parted.clone(), |_| false), parted);
}

fn row(number: usize) -> Term {
    node(number, &[5])
}

/// t = batch_norm(x): x is node 0, t node 3; nodes from 10 on are numbers of channels.
fn norm() -> Step {
    let t = node(3, &[6, 5]);
    let rows = [10, 11, 12, 13].map(row);
    let terms = [vec![node(0, &[6, 5])], rows.into(), vec![t, row(14), row(15)]];
    Step { terms: terms.concat(), ..call("batch_norm", []) }
}

fn numbers(step: &Step) -> Vec<Tensor> {
    step.terms.iter().map(|term| term.tensor).collect()
}

fn flagged(names: &[&'static str]) -> Attributes {
    names.iter().map(|name| ((*name).into(), Attribute::Flag(true))).collect()
}

#[test]
fn a_batch_norm_takes_in_what_follows() {
    let relu = |from| call("relu", [wide(from), wide(4)]);
    let add = |left, right, y| call("add", [wide(left), wide(right), wide(y)]);
    let alone: &[usize] = &[0, 10, 11, 12, 13, 4, 14, 15];
    let both: &[usize] = &[0, 10, 11, 12, 13, 9, 4, 14, 15];
    let cases = [
        (vec![relu(3)], alone, flagged(&["relu"])),
        (vec![add(9, 3, 4)], both, flagged(&["residual"])),
        (vec![add(3, 9, 4)], both, flagged(&["residual"])),
        (vec![add(3, 9, 5), relu(5)], both, flagged(&["residual", "relu"])),
    ];
    for (last, terms, attributes) in cases {
        let steps = [vec![norm()], last].concat();
        let fused = fuse(steps, |_| false);
        assert_eq!(kernels(&fused), ["batch_norm"]);
        assert_eq!(*fused[0].attributes, attributes);
        let expected: Vec<Tensor> = terms.iter().map(|n| wide(*n).tensor).collect();
        assert_eq!(numbers(&fused[0]), expected);
        let shapes = fused[0].terms.iter().map(|term| term.shape.clone());
        assert!(shapes.into_iter().all(|shape| *shape == [6, 5] || *shape == [5]));
    }
}

#[test]
fn a_batch_norm_leaves_what_does_not_fit() {
    let t = wide(3).tensor;
    let double: &[u64] = &[2, 6, 5];
    let cases = [
        vec![call("add", [wide(3), wide(3), wide(4)])],
        vec![call("add", [node(9, double), node(3, &[6, 5]), node(4, double)])],
        vec![call("relu", [wide(3), wide(4)]), call("gelu", [wide(3), wide(5)])],
        vec![call("add", [wide(3), wide(9), wide(4)]), call("gelu", [wide(3), wide(5)])],
        vec![call("relu", [wide(8), wide(4)])],
    ];
    for last in cases {
        let steps = [vec![norm()], last].concat();
        assert_eq!(fuse(steps.clone(), |_| false), steps);
    }
    for last in
        [call("relu", [wide(3), wide(4)]), call("add", [wide(3), wide(9), wide(4)])]
    {
        let steps = vec![norm(), last];
        assert_eq!(fuse(steps.clone(), |tensor| tensor == t), steps);
    }
    let relu = call("relu", [wide(3), wide(4)]);
    let add = call("add", [wide(4), wide(9), wide(5)]);
    let fused = fuse(vec![norm(), relu, add], |_| false);
    assert_eq!(kernels(&fused), ["batch_norm", "add"]);
}

/// dt from y and dy, nodes 1 to 3; what a norm makes of dt, nodes 0, 11 to 17.
fn opened() -> [Step; 2] {
    let rows = [11, 12, 13].map(row);
    let array = |number| node(number, &[6, 5]);
    let made = vec![array(3), array(4), row(14), row(15), row(16), row(17)];
    let terms = [vec![array(0)], rows.into(), made].concat();
    let relu = call("relu_backward", [wide(1), wide(2), wide(3)]);
    [relu, Step { terms, ..call("batch_norm_backward", []) }]
}

#[test]
fn the_gradient_of_a_batch_norm_takes_in_that_of_its_activation() {
    let [relu, norm] = opened();
    let expected = [0, 11, 12, 13, 1, 2, 4, 14, 15, 16, 17].map(|n| wide(n).tensor);
    for attributes in [&[][..], &["accumulate"], &["accumulate_sums"]].map(flagged) {
        let constants = Constants::from(attributes.clone());
        let norm = Step { attributes: constants, ..norm.clone() };
        let fused = fuse(vec![relu.clone(), norm], |_| false);
        assert_eq!(kernels(&fused), ["batch_norm_backward"]);
        assert_eq!(numbers(&fused[0]), expected);
        assert_eq!(*fused[0].terms[4].shape, [6, 5]);
        let flags: Attributes =
            [attributes, flagged(&["relu"])].into_iter().flatten().collect();
        assert_eq!(*fused[0].attributes, flags);
    }
}

#[test]
fn a_gradient_that_others_read_is_made_besides() {
    let [relu, norm] = opened();
    let beside = [0, 11, 12, 13, 1, 2, 3, 4, 14, 15, 16, 17].map(|n| wide(n).tensor);
    let other = call("gelu", [wide(3), wide(9)]);
    let kept = fuse(vec![relu.clone(), norm.clone()], |tensor| tensor == wide(3).tensor);
    let read = fuse(vec![relu, norm, other.clone()], |_| false);
    for (fused, rest) in [(kept, &[][..]), (read, &[other][..])] {
        assert_eq!(numbers(&fused[0]), beside);
        assert_eq!(*fused[0].attributes, flagged(&["opened", "relu"]));
        assert!([5, 6].iter().all(|made: &usize| *fused[0].terms[*made].shape == [6, 5]));
        assert_eq!(fused[1..], *rest);
    }
}

#[test]
fn a_gradient_with_other_parts_stays() {
    let [relu, norm] = opened();
    let steps = vec![relu.clone().flag("accumulate"), norm.clone()];
    assert_eq!(fuse(steps.clone(), |_| false), steps);
    let elsewhere = call("relu_backward", [wide(1), wide(2), wide(7)]);
    let steps = vec![elsewhere, norm];
    assert_eq!(fuse(steps.clone(), |_| false), steps);
}

/// The gradient of a node's result.
fn sum(number: usize) -> Term {
    let tensor = Tensor::Gradient(Source::Node(NodeId::new(number)));
    Term { tensor, ..wide(number) }
}

/// A copy of one sum to another, as an operation hands it on.
fn handing_on([from, to]: [usize; 2]) -> Step {
    Step { node: Some(NodeId::new(to)), ..call("copy", [sum(from), sum(to)]) }
}

/// Sum 3 is opened, copied to 6 and that to 7, and a norm takes back one of them.
fn copied(read: usize) -> Vec<((), Step)> {
    let [mut relu, mut norm] = opened();
    relu.terms[2] = sum(3);
    norm.terms[4] = Term { shape: norm.terms[4].shape.clone(), ..sum(read) };
    let steps = [relu, handing_on([3, 6]), handing_on([6, 7]), norm];
    steps.map(|step| ((), step)).into()
}

#[test]
fn copies_do_not_stand_between_two_calls_of_a_rule() {
    for read in [3, 6, 7] {
        let steps = copied(read);
        let [relu, first, second, norm] = &steps[..] else { panic!("{steps:?}") };
        let mut ahead = norm.clone();
        ahead.1.terms[4].tensor = sum(3).tensor;
        let expected = [relu, &ahead, first, second].map(Clone::clone);
        assert_eq!(past_copies(steps.clone()), expected);
        let fused = fuse(steps.into_iter().map(|(_, step)| step).collect(), |_| false);
        assert_eq!(kernels(&fused), ["batch_norm_backward", "copy", "copy"]);
    }
}

#[test]
fn copies_stay_where_they_must_or_may_be() {
    // What the norm makes is copied, or lies where a copy does; and what it reads is none of these.
    for (read, made) in [(3, 3), (3, 7), (8, 4)] {
        let mut steps = copied(read);
        steps[3].1.terms[5].tensor = sum(made).tensor;
        assert_eq!(past_copies(steps.clone()), steps);
    }
    let mut steps = copied(6);
    steps[3].1.strand = Strand::Half(0);
    assert_eq!(past_copies(steps.clone()), steps);
    let mut steps = copied(6);
    steps[3].1.kernel = "layer_norm_backward";
    assert_eq!(past_copies(steps.clone()), steps);
}

/// A node that takes in two others in turn contains the first, and that with the second.
#[test]
fn a_chain_says_what_each_node_adds() {
    let add = call("add", [wide(3), wide(9), wide(5)]);
    let relu = call("relu", [wide(5), wide(4)]);
    let steps = vec![(0, norm()), (1, add.clone()), (2, relu)];
    let made = fuse_nodes(steps, |_| false);
    let [one] = &made[..] else { panic!("{made:?}") };
    let two = fuse(vec![norm(), add], |_| false).remove(0);
    assert_eq!(one.contains, [(0, norm()), (1, two)]);
    assert_eq!(one.node, 2);
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
    plain[0].attributes = Constants::default();
    assert_eq!(kernels(&fuse(plain, |_| false)), ["matmul", "add_rows"]);
    let mut elsewhere = linear();
    elsewhere[1].terms[1] = wide(7);
    assert_eq!(kernels(&fuse(elsewhere, |_| false)), ["matmul", "add_rows"]);
}

/// x, two calls that move it between four rows, and what they make: nodes 0, 1 and 2.
fn moved([first, second]: [&'static str; 2], [x, t, y]: [u64; 3]) -> Vec<Step> {
    let array = |number, columns| node(number, &[3, columns]);
    vec![
        call(first, [array(0, x), array(1, t)]).integer("parts", 4),
        call(second, [array(1, t), array(2, y)]).integer("parts", 4),
    ]
}

#[test]
fn exchanges_that_undo_each_other_are_not_made() {
    let cases = [
        (["reduce_scatter", "all_gather"], [8, 2, 8], "all_reduce", "all_reduce"),
        (["part", "all_gather"], [8, 2, 8], "copy", "accumulate"),
        (["all_reduce", "part"], [8, 8, 2], "reduce_scatter", "reduce_scatter"),
    ];
    for (kernels, columns, both, adding) in cases {
        let steps = moved(kernels, columns);
        let one = fuse(steps.clone(), |_| false).remove(0);
        let parts = match both {
            "copy" => Constants::default(),
            _ => steps[0].attributes.clone(),
        };
        assert_eq!((one.kernel, &one.attributes), (both, &parts));
        assert_eq!(numbers(&one), [0, 2].map(|number| row(number).tensor));
        let kept = fuse(steps.clone(), |tensor| tensor == row(1).tensor);
        assert_eq!(kept, steps);
        let [first, second] = <[Step; 2]>::try_from(steps).unwrap();
        let added =
            fuse(vec![first.clone(), second.clone().flag("accumulate")], |_| false);
        assert_eq!(added[0].kernel, adding);
        let others = vec![first.clone(), second.clone().integer("parts", 2)];
        assert_eq!(fuse(others.clone(), |_| false), others);
        let crossing = vec![first.clone(), second.clone().integer("stride", 4)];
        assert_eq!(fuse(crossing.clone(), |_| false), crossing);
        let mut otherwise = vec![first, second];
        otherwise[1].terms = otherwise[1].terms.iter().cloned().map(Term::flat).collect();
        assert_eq!(fuse(otherwise.clone(), |_| false), otherwise);
    }
}

/// Columns that stay together are a matter of parts: a whole array does not know of them, and
/// arrays in different parts do not go together.
#[test]
fn columns_that_stay_together_do_so_in_what_is_left() {
    let inner = |step: &Step, count| step.clone().integer("inner", count);
    for (kernels, columns, together) in [
        (["reduce_scatter", "all_gather"], [8, 2, 8], [true, true]),
        (["part", "all_gather"], [8, 2, 8], [true, true]),
        (["all_reduce", "part"], [8, 8, 2], [false, true]),
    ] {
        let steps = moved(kernels, columns);
        let joint = steps.iter().zip(together);
        let joint =
            joint.map(|(step, cuts)| if cuts { inner(step, 2) } else { step.clone() });
        let one = fuse(joint.collect(), |_| false).remove(0);
        let expected = (one.kernel == "reduce_scatter").then_some(&Attribute::Integer(2));
        assert_eq!(one.attributes.get("inner"), expected, "{}", one.kernel);
        assert_eq!(numbers(&one), [0, 2].map(|number| row(number).tensor));
        if together[0] {
            let apart = vec![inner(&steps[0], 2), steps[1].clone()];
            assert_eq!(fuse(apart.clone(), |_| false), apart);
        }
    }
}

#[test]
fn only_what_is_listed_is_done() {
    let steps: Vec<((), Step)> = [linear(), vec![call("relu", [wide(3), wide(4)])]]
        .concat()
        .into_iter()
        .map(|step| ((), step))
        .collect();
    let mut listed = Rewrites::default();
    for (rewrite, expected) in [
        (Rewrite::AffineRelu, vec!["matmul", "add_rows", "relu"]),
        (Rewrite::Affine, vec!["affine_relu"]),
    ] {
        // The rectifier joins an affine map alone, not the bias before it.
        listed.insert(rewrite, if rewrite == Rewrite::Affine { 1 } else { 2 });
        let (made, done) = fuse_where(steps.clone(), &Listed(&listed), |_| false);
        let made: Vec<&str> = made.iter().map(|made| made.step.kernel).collect();
        assert_eq!(made, expected);
        assert_eq!(done == listed, expected.len() == 1);
    }
    let mut elsewhere = Rewrites::default();
    elsewhere.insert(Rewrite::Affine, 2);
    assert_eq!(fuse_where(steps, &Listed(&elsewhere), |_| false).1, Rewrites::default());
}
