//! The table of derivatives: for every operation its forward calls and the calls that add to the
//! gradients of its operands. What must be kept for backward is what the latter read.
//!
//! In comments y is the result, dy the gradient of the loss with respect to it.

use super::{
    call::{Step, Tensor, Term, call},
    graph::Graph,
};
use roundelay_dsl::{NodeId, Operation, Source};
use roundelay_schedule::Attribute;

/// The calls of one node in both passes.
#[derive(Debug)]
pub(crate) struct Derivative {
    /// Makes the result and auxiliaries.
    pub(crate) forward: Vec<Step>,
    /// Makes one contribution for every operand that has a gradient. The last call may hand
    /// its own gradient over, so none but the last may be a `copy` that others read after.
    pub(crate) backward: Vec<Step>,
}

/// The least and the largest number of operands.
pub(crate) fn arity(operation: Operation) -> (usize, usize) {
    match operation {
        Operation::Relu
        | Operation::Gelu
        | Operation::Softmax
        | Operation::Dropout { .. }
        | Operation::Scale { .. }
        | Operation::Reshape => (1, 1),
        Operation::Embedding
        | Operation::Add
        | Operation::Multiply
        | Operation::CrossEntropy
        | Operation::MeanSquaredError => (2, 2),
        Operation::Linear => (2, 3),
        Operation::Attention { .. } | Operation::LayerNorm => (3, 3),
    }
}

/// The calls of one node.
pub(crate) fn derivative(graph: &Graph<'_>, node: NodeId) -> Derivative {
    let site = Site { graph, node };
    match graph.model.nodes[node].operation {
        Operation::Embedding => embedding(&site),
        Operation::Linear => linear(&site),
        Operation::Attention { heads, causal } => attention(&site, heads, causal),
        Operation::LayerNorm => layer_norm(&site),
        Operation::Relu => relu(&site),
        Operation::Gelu => gelu(&site),
        Operation::Softmax => softmax(&site),
        Operation::Dropout { rate } => dropout(&site, rate),
        Operation::Add => add(&site),
        Operation::Multiply => multiply(&site),
        Operation::Scale { factor } => scale(&site, factor),
        Operation::Reshape => Derivative { forward: vec![], backward: vec![] },
        Operation::CrossEntropy => cross_entropy(&site),
        Operation::MeanSquaredError => mean_squared_error(&site),
    }
}

/// A node with the names of everything that its calls touch.
struct Site<'a> {
    graph: &'a Graph<'a>,
    node: NodeId,
}

impl Site<'_> {
    fn source(&self, operand: usize) -> Option<Source> {
        self.graph.model.nodes[self.node].operands.get(operand).copied()
    }
    /// An operand, in the shape in which the operation sees it.
    fn optional(&self, operand: usize) -> Option<Term> {
        let source = self.source(operand)?;
        Some(Term {
            tensor: Tensor::Source(self.graph.root(source)),
            element: self.graph.element(source),
            shape: self.graph.shape(source),
        })
    }
    /// Like [`Self::optional`], for operands that every node of the kind has.
    fn operand(&self, operand: usize) -> Term {
        self.optional(operand).expect("the graph has checked the number of operands")
    }
    fn operands<const N: usize>(&self) -> [Term; N] {
        std::array::from_fn(|operand| self.operand(operand))
    }
    fn shape(&self) -> Vec<u64> {
        self.graph.shape(Source::Node(self.node))
    }
    /// y.
    fn result(&self) -> Term {
        Term::real(Tensor::Source(Source::Node(self.node)), &self.shape())
    }
    /// dy.
    fn gradient(&self) -> Term {
        Term::real(Tensor::Gradient(Source::Node(self.node)), &self.shape())
    }
    /// A contribution to the gradient of an operand, if it has one.
    fn contribution(&self, operand: usize) -> Option<Term> {
        let source = self.graph.root(self.source(operand)?);
        let term = self.optional(operand)?;
        let tensor = Tensor::Contribution(source);
        self.graph.has_gradient(source).then_some(Term { tensor, ..term })
    }
    /// A contribution, or scratch of the same shape for a kernel that makes it in any case.
    fn contribution_or_scratch(&self, operand: usize, number: u32) -> Term {
        let unused = || self.scratch(number, &self.operand(operand).shape);
        self.contribution(operand).unwrap_or_else(unused)
    }
    fn wanted(&self, operand: usize) -> bool {
        self.contribution(operand).is_some()
    }
    fn auxiliary(&self, number: u32, shape: &[u64]) -> Term {
        Term::real(Tensor::Auxiliary(self.node, number), shape)
    }
    fn scratch(&self, number: u32, shape: &[u64]) -> Term {
        Term::real(Tensor::Scratch(self.node, number), shape)
    }
    /// One call for each operand that has a gradient.
    fn each<const N: usize>(
        &self,
        calls: [(usize, &dyn Fn(Term) -> Step); N],
    ) -> Vec<Step> {
        let one = |(operand, call): (usize, &dyn Fn(Term) -> Step)| {
            self.contribution(operand).map(call)
        };
        calls.into_iter().filter_map(one).collect()
    }
    /// A unary operation whose backward kernel reads one tensor besides dy.
    fn unary(&self, forward: Step, backward: &'static str, read: Term) -> Derivative {
        let step = |dx| call(backward, [read.clone(), self.gradient(), dx]);
        Derivative { forward: vec![forward], backward: self.each([(0, &step)]) }
    }
}

/// y = table[tokens]; dtable[token] += dy.
fn embedding(site: &Site<'_>) -> Derivative {
    let [tokens, table] = site.operands();
    let width = table.shape.last().copied().unwrap_or(1);
    let tokens = tokens.flat();
    let dy = site.gradient().rows_of(width);
    let step = |dtable| call("embedding_backward", [tokens.clone(), dy.clone(), dtable]);
    let y = site.result().rows_of(width);
    Derivative {
        forward: vec![call("embedding", [tokens.clone(), table, y])],
        backward: site.each([(1, &step)]),
    }
}

/// y = x Wᵀ + b; dx = dy W, dW = dyᵀ x, db = Σ rows of dy.
fn linear(site: &Site<'_>) -> Derivative {
    let [x, weight] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let product = call("matmul", [x.clone(), weight.clone(), y.clone()]);
    let bias = site.optional(2).map(|bias| call("add_rows", [bias, y]));
    Derivative {
        forward: [product.flag("transpose_b")].into_iter().chain(bias).collect(),
        backward: site.each([
            (0, &|dx| call("matmul", [dy.clone(), weight.clone(), dx.matrix()])),
            (1, &|dweight| {
                call("matmul", [dy.clone(), x.clone(), dweight]).flag("transpose_a")
            }),
            (2, &|dbias| call("sum_rows", [dy.clone(), dbias])),
        ]),
    }
}

/// y = softmax(q kᵀ / √(n / heads)) v; backward recomputes the weights from the log-sum-exp.
fn attention(site: &Site<'_>, heads: u64, causal: bool) -> Derivative {
    let [query, key, value] = site.operands();
    let extent =
        |from_last| query.shape.iter().rev().nth(from_last).copied().unwrap_or(1);
    let (width, length) = (extent(0), extent(1));
    let examples = query.elements() / width.saturating_mul(length).max(1);
    let lse = site.auxiliary(0, &[examples, heads, length]);
    let attributed = |step: Step| {
        let heads = i64::try_from(heads).unwrap_or(i64::MAX);
        step.integer("heads", heads).with("causal", Attribute::Flag(causal))
    };
    let inputs = [query.clone(), key, value, site.result(), lse];
    let mut forward = call("attention", inputs.clone());
    forward.terms.push(site.scratch(0, &[length, length]));
    let mut backward = call("attention_backward", inputs);
    let results =
        (0..3).map(|operand| site.contribution_or_scratch(operand as usize, operand));
    backward.terms.push(site.gradient());
    backward.terms.extend(results);
    backward.terms.push(site.scratch(3, &[2, length, length]));
    let any = (0..3).any(|operand| site.wanted(operand));
    Derivative {
        forward: vec![attributed(forward)],
        backward: any.then(|| attributed(backward)).into_iter().collect(),
    }
}

/// y = (x − mean) / σ · gain + bias over the last extent.
fn layer_norm(site: &Site<'_>) -> Derivative {
    let [x, gain, bias] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let rows = x.shape[0];
    let [mean, rstd] = [0, 1].map(|number| site.auxiliary(number, &[rows]));
    let [gain, bias] = [gain, bias].map(Term::flat);
    let statistics = [mean.clone(), rstd.clone()];
    let mut backward = site.each([(0, &|dx| {
        let [mean, rstd] = statistics.clone();
        let terms = [x.clone(), gain.clone(), mean, rstd, dy.clone(), dx.matrix()];
        call("layer_norm_backward", terms)
    })]);
    if site.wanted(1) || site.wanted(2) {
        let dgain = site.contribution_or_scratch(1, 0).flat();
        let dbias = site.contribution_or_scratch(2, 1).flat();
        let [mean, rstd] = statistics.clone();
        let terms = [x.clone(), mean, rstd, dy.clone(), dgain, dbias];
        backward.push(call("layer_norm_parameters", terms));
    }
    Derivative {
        forward: vec![call("layer_norm", [x, gain, bias, y, mean, rstd])],
        backward,
    }
}

/// y = max(x, 0); dx = dy where y > 0.
fn relu(site: &Site<'_>) -> Derivative {
    let forward = call("relu", [site.operand(0), site.result()]);
    site.unary(forward, "relu_backward", site.result())
}

/// y = x Φ(x); dx = dy (Φ(x) + x φ(x)).
fn gelu(site: &Site<'_>) -> Derivative {
    let forward = call("gelu", [site.operand(0), site.result()]);
    site.unary(forward, "gelu_backward", site.operand(0))
}

/// y = softmax(x) over the last extent; dx = y (dy − Σ y dy).
fn softmax(site: &Site<'_>) -> Derivative {
    let (x, y, dy) =
        (site.operand(0).matrix(), site.result().matrix(), site.gradient().matrix());
    let step = |dx: Term| call("softmax_backward", [y.clone(), dy.clone(), dx.matrix()]);
    Derivative {
        forward: vec![call("softmax", [x, y.clone()])],
        backward: site.each([(0, &step)]),
    }
}

/// y = mask x / (1 − rate). The mask follows from the node's number in the whole model, so it
/// does not depend on cuts.
fn dropout(site: &Site<'_>, rate: f64) -> Derivative {
    let number =
        i64::try_from(roundelay_schedule::Id::index(site.node)).unwrap_or(i64::MAX);
    let masked = |step: Step| step.real("rate", rate).integer("operator", number);
    let step = |dx| masked(call("dropout_backward", [site.gradient(), dx]));
    Derivative {
        forward: vec![masked(call("dropout", [site.operand(0), site.result()]))],
        backward: site.each([(0, &step)]),
    }
}

/// y = a + b, b repeated; da = dy, db = dy summed over the repetitions. The copy for a comes
/// last, where it may become a handing over.
fn add(site: &Site<'_>) -> Derivative {
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
fn multiply(site: &Site<'_>) -> Derivative {
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
fn scale(site: &Site<'_>, factor: f64) -> Derivative {
    let scaled = |from, to| call("scale", [from, to]).real("factor", factor);
    Derivative {
        forward: vec![scaled(site.operand(0), site.result())],
        backward: site.each([(0, &|dx| scaled(site.gradient(), dx))]),
    }
}

/// y = mean of −log softmax(logits)[target].
fn cross_entropy(site: &Site<'_>) -> Derivative {
    let [logits, targets] = site.operands();
    let lse = site.auxiliary(0, &[targets.elements()]);
    let inputs = [logits, targets.flat(), lse];
    let mut forward = call("cross_entropy", inputs.clone());
    forward.terms.push(site.result().flat());
    let backward = || call("cross_entropy_backward", inputs.clone());
    Derivative { forward: vec![forward], backward: weighted(site, 0, backward()) }
}

/// y = mean of (a − b)²; da = 2 (a − b) / n, db = −da.
fn mean_squared_error(site: &Site<'_>) -> Derivative {
    let [a, b] = site.operands();
    let loss = site.result().flat();
    let towards = |operand, sign| {
        let step = call("mse_backward", [a.clone(), b.clone()]);
        weighted(site, operand, step.integer("sign", sign))
    };
    let backward = [towards(0, 1), towards(1, -1)].concat();
    Derivative { forward: vec![call("mse", [a, b, loss])], backward }
}

/// The gradient of a term of the loss, times its constant weight in the loss. `step` lacks
/// only its last operand, the contribution.
fn weighted(site: &Site<'_>, operand: usize, mut step: Step) -> Vec<Step> {
    let Some(contribution) = site.contribution(operand) else { return vec![] };
    match site.graph.weight(site.node) {
        Some(1.0) => {
            step.terms.push(contribution);
            vec![step]
        }
        weight => {
            let plain = site.scratch(0, &contribution.shape);
            step.terms.push(plain.clone());
            let scaled = call("scale", [plain, contribution]);
            vec![step, scaled.real("factor", weight.unwrap_or(0.0))]
        }
    }
}
