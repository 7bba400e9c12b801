//! Multi-head self-attention (arXiv 1706.03762), made of four affine maps and the core; with
//! rotary positions (arXiv 2104.09864), perhaps stretched (arXiv 2306.15595, 2407.21783), key heads
//! that several heads share (arXiv 2305.13245), a sliding window (arXiv 2004.05150), norms of queries
//! and keys (arXiv 2302.05442) and capped scores (arXiv 2408.00118). The core is one operation that
//! never has all scores (arXiv 2205.14135), or, where scores are stored, the four that make, weigh
//! and use them. Queries, keys and values may be packed: one map makes all three, which lie as those
//! of GPT-NeoX (arXiv 2204.06745) do.

mod turning;

use super::{
    Operator,
    linear::{Affine, Bias, Drawn},
    normal::{epsilon, root_mean_square},
    rows::sequence,
};
use crate::{
    Cap, Code, Extent, Heads, Mistake, Operation, Projections, Scale, Sight, Still,
    TensorValue, Turning, Window,
    graph::Graph,
    limit,
    signature::{Arguments, Fallback, optional, required},
};
use turning::{Rotary, rotary};

/// x (b, s, n) → (b, s, n); affine maps `query`, `key`, `value` and `output`.
pub(super) const ATTENTION: Operator = Operator {
    name: "attention",
    summary: "x (batch, s, n) → (batch, s, n), softmax(q kᵀ / √(n / heads)) v per head; \
              `key_heads`: number of heads of keys and values (grouped-query attention); `window`: \
              how many positions each one sees; `rotary`: base of rotary position embeddings, `true` \
              for 10000; `turned`: how many leading elements of a head these rotate, all unless given; \
              `rotary_factor`: all angles are divided by it; with `rotary_original`, `rotary_low` and \
              `rotary_high` only those of pairs that turn less than `rotary_low` times within \
              `rotary_original` positions, and in part those that turn up to `rotary_high` times; \
              `head_width`: instead of n / heads; `head_norm`: ε of an RMS norm of every head's query \
              and key; `scale`: instead of 1 / √head_width; `cap`: scores become \
              cap · tanh(score / cap); \
              `stored_scores`: the matrix of scores (batch, heads, s, s) is kept in memory, and \
              `dropout` (rate) applies to its softmax; `output_bias`: instead of `bias` in the output \
              projection; `deviation`: weights are drawn from normal(deviation), biases are zero; \
              `output_deviation`: instead of `deviation` in the output projection; \
              `packed`: one affine map `query_key_value` instead of `query`, `key` and `value`, \
              which makes for every key head the queries of its heads, its key and its value",
    formals: &[
        required("x"),
        required("heads"),
        optional("causal", Fallback::Truth(false)),
        optional("key_heads", Fallback::Absent),
        optional("window", Fallback::Absent),
        optional("rotary", Fallback::Absent),
        optional("bias", Fallback::Truth(true)),
        optional("head_width", Fallback::Absent),
        optional("turned", Fallback::Absent),
        optional("head_norm", Fallback::Absent),
        optional("scale", Fallback::Absent),
        optional("cap", Fallback::Absent),
        optional("stored_scores", Fallback::Truth(false)),
        optional("dropout", Fallback::Absent),
        optional("output_bias", Fallback::Absent),
        optional("deviation", Fallback::Absent),
        optional("output_deviation", Fallback::Absent),
        optional("rotary_factor", Fallback::Absent),
        optional("rotary_original", Fallback::Absent),
        optional("rotary_low", Fallback::Absent),
        optional("rotary_high", Fallback::Absent),
        optional("packed", Fallback::Truth(false)),
    ],
    build,
};

/// Whether queries and keys of every head are normalised.
#[derive(Clone, Copy, Debug)]
enum HeadNorm {
    /// They are not.
    Without,
    /// By their root mean square, with this ε.
    RootMeanSquare(f64),
}

/// What becomes of an affine map's result before it is a query or a key.
#[derive(Clone, Copy, Debug)]
struct Prepared {
    /// Elements of a head.
    depth: u64,
    rotary: Rotary,
    norm: HeadNorm,
}

/// What becomes of the scores of queries and keys.
#[derive(Clone, Copy, Debug)]
enum Scores {
    /// They are never all there.
    Passing(Cap),
    /// They are, and so is their softmax, of which a share may be dropped.
    Stored { dropout: Option<f64> },
}

/// What weighs values by queries and keys.
#[derive(Clone, Copy, Debug)]
struct Core {
    heads: Heads,
    sight: Sight,
    scale: Scale,
    scores: Scores,
}

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let heads = heads(arguments)?;
    let core = Core {
        heads,
        sight: sight(arguments)?,
        scale: scale(arguments)?,
        scores: scores(arguments)?,
    };
    let (bias, drawn) = (Bias::of(arguments)?, Drawn::of(arguments)?);
    let (width, depth) = widths(&x, arguments, heads.all)?;
    let rotary = rotary(arguments, depth)?;
    let prepared = Prepared { depth, rotary, norm: head_norm(arguments)? };
    let affine = |graph: &mut Graph, count| {
        Affine { width: count * depth, bias, drawn }.build(graph, &x)
    };
    let core = match projections(arguments)? {
        Projections::Apart => {
            let query = graph.within("query", |graph| {
                let query = affine(graph, heads.all)?;
                prepared.build(graph, query, heads.all)
            })?;
            let key = graph.within("key", |graph| {
                let key = affine(graph, heads.keys)?;
                prepared.build(graph, key, heads.keys)
            })?;
            let value = graph.within("value", |graph| affine(graph, heads.keys))?;
            core.build(graph, [&query, &key, &value])?
        }
        Projections::Packed => {
            let all = heads.all + 2 * heads.keys;
            let packed = graph.within("query_key_value", |graph| {
                let packed = affine(graph, all)?;
                let still = Still::LastOf(all / heads.keys);
                prepared.turned(graph, packed, all, still)
            })?;
            core.packed(graph, &packed, depth)?
        }
    };
    let bias =
        arguments.optional("output_bias", Arguments::truth)?.map_or(bias, Bias::from);
    let drawn = Drawn::given(arguments, "output_deviation")?.unwrap_or(drawn);
    let output = Affine { width, bias, drawn };
    graph.within("output", |graph| output.build(graph, &core))
}

impl Core {
    /// The operation that never has all scores.
    fn whole(self, projections: Projections, cap: Cap) -> Operation {
        let Self { heads, sight, scale, scores: _ } = self;
        Operation::Attention { heads, projections, sight, scale, cap }
    }

    /// Queries, keys and values in one tensor (b, s, (heads + 2 key heads) · depth) to
    /// (b, s, heads · depth).
    fn packed(
        self,
        graph: &mut Graph,
        packed: &TensorValue,
        depth: u64,
    ) -> Result<TensorValue, Mistake> {
        let Scores::Passing(cap) = self.scores else {
            let message = "stored scores are made of queries and keys that lie apart";
            let hint = "leave `packed` or `stored_scores` out";
            let mistake = Mistake::new(Code::Value, message).hint(hint);
            return Err(mistake.argument("packed"));
        };
        let mut shape = packed.shape.clone();
        if let Some(width) = shape.last_mut() {
            *width = Extent::fixed(self.heads.all * depth);
        }
        graph.node("", self.whole(Projections::Packed, cap), &[packed], shape)
    }

    /// Query (b, s, n), key and value to (b, s, n).
    fn build(
        self,
        graph: &mut Graph,
        [query, key, value]: [&TensorValue; 3],
    ) -> Result<TensorValue, Mistake> {
        let Self { heads, sight, scale, scores } = self;
        let shape = query.shape.clone();
        let dropout = match scores {
            Scores::Passing(cap) => {
                let whole = self.whole(Projections::Apart, cap);
                return graph.node("", whole, &[query, key, value], shape);
            }
            Scores::Stored { dropout } => dropout,
        };
        let (length, _) = sequence(query)?;
        let grid = [heads.all, length, length].map(Extent::fixed);
        let grid = [&shape[..1], &grid].concat();
        let product = Operation::Scores { heads, sight, scale };
        let scores = graph.node("scores", product, &[query, key], grid.clone())?;
        let mut weights =
            graph.node("softmax", Operation::Softmax, &[&scores], grid.clone())?;
        if let Some(rate) = dropout {
            let dropout = Operation::Dropout { rate };
            weights = graph.node("dropout", dropout, &[&weights], grid)?;
        }
        graph.node("", Operation::Mix { heads }, &[&weights, value], shape)
    }
}

impl Prepared {
    /// A query or a key (b, s, heads · depth): normalised, then turned.
    fn build(
        self,
        graph: &mut Graph,
        y: TensorValue,
        heads: u64,
    ) -> Result<TensorValue, Mistake> {
        let y = match self.norm {
            HeadNorm::Without => y,
            HeadNorm::RootMeanSquare(epsilon) => self.normalised(graph, &y, epsilon)?,
        };
        self.turned(graph, y, heads, Still::None)
    }

    /// So many heads, turned but for those that stand still.
    fn turned(
        self,
        graph: &mut Graph,
        y: TensorValue,
        heads: u64,
        still: Still,
    ) -> Result<TensorValue, Mistake> {
        let Rotary::Turned { base, elements: turned, stretch } = self.rotary else {
            return Ok(y);
        };
        let turning = Turning { heads, base, turned, still, stretch };
        graph.node("rotary", Operation::Rotary(turning), &[&y], y.shape.clone())
    }

    /// Every head over its own root mean square; all heads share one gain.
    fn normalised(
        self,
        graph: &mut Graph,
        y: &TensorValue,
        epsilon: f64,
    ) -> Result<TensorValue, Mistake> {
        let (length, width) = sequence(y)?;
        let heads = [length, width / self.depth, self.depth].map(Extent::fixed);
        let heads = [&y.shape[..1], &heads].concat();
        graph.within("norm", |graph| {
            let split = graph.node("heads", Operation::Reshape, &[y], heads)?;
            let normal = root_mean_square(graph, &split, epsilon)?;
            graph.node("joined", Operation::Reshape, &[&normal], y.shape.clone())
        })
    }
}

/// As many heads of keys and values as of queries unless the program says otherwise.
fn heads(arguments: &Arguments) -> Result<Heads, Mistake> {
    let all = arguments.size("heads")?;
    let keys = arguments.optional("key_heads", Arguments::size)?.unwrap_or(all);
    if all.is_multiple_of(keys) {
        return Ok(Heads { all, keys });
    }
    let message = format!("{keys} key heads do not divide {all} heads");
    let hint = "every key head serves the same number of heads";
    Err(Mistake::new(Code::Value, message).hint(hint).argument("key_heads"))
}

fn sight(arguments: &Arguments) -> Result<Sight, Mistake> {
    let causal = arguments.truth("causal")?;
    Ok(Sight { causal, window: window(arguments)? })
}

fn window(arguments: &Arguments) -> Result<Window, Mistake> {
    let nearest = arguments.optional("window", Arguments::size).map_err(|mistake| {
        mistake.hint("it counts the positions that one sees, its own among them")
    })?;
    Ok(nearest.map_or(Window::Open, Window::Nearest))
}

/// Whether `packed` is there; queries and keys that are normed are made apart.
fn projections(arguments: &Arguments) -> Result<Projections, Mistake> {
    if !arguments.truth("packed")? {
        return Ok(Projections::Apart);
    }
    match arguments.given("head_norm") {
        None => Ok(Projections::Packed),
        Some(_) => {
            let message = "`head_norm` is of queries and keys that lie apart";
            let hint = "leave `packed` or `head_norm` out";
            Err(Mistake::new(Code::Value, message).hint(hint).argument("packed"))
        }
    }
}

fn head_norm(arguments: &Arguments) -> Result<HeadNorm, Mistake> {
    let epsilon = arguments.optional("head_norm", epsilon)?;
    Ok(epsilon.map_or(HeadNorm::Without, HeadNorm::RootMeanSquare))
}

fn scale(arguments: &Arguments) -> Result<Scale, Mistake> {
    let factor = arguments.optional("scale", Arguments::above_zero)?;
    Ok(factor.map_or(Scale::Depth, Scale::Factor))
}

fn cap(arguments: &Arguments) -> Result<Cap, Mistake> {
    let most = arguments.optional("cap", Arguments::above_zero)?;
    Ok(most.map_or(Cap::Open, Cap::At))
}

/// Scores are stored where the program says so; only then they may be dropped, and not capped.
fn scores(arguments: &Arguments) -> Result<Scores, Mistake> {
    let (cap, given) = (cap(arguments)?, arguments.given("dropout").is_some());
    match (arguments.truth("stored_scores")?, given, cap) {
        (false, false, cap) => Ok(Scores::Passing(cap)),
        (false, true, _) => {
            let message = "scores that are not stored cannot be dropped";
            let hint = "add `stored_scores = true`, or leave `dropout` out";
            Err(Mistake::new(Code::Missing, message).hint(hint).argument("dropout"))
        }
        (true, _, Cap::At(_)) => {
            let message = "stored scores cannot be capped";
            let hint = "leave `stored_scores` or `cap` out";
            Err(Mistake::new(Code::Value, message).hint(hint).argument("cap"))
        }
        (true, _, Cap::Open) => {
            let dropout = arguments.optional("dropout", Arguments::share)?;
            Ok(Scores::Stored { dropout })
        }
    }
}

/// The width n of (batch, s, n), and that of a head.
fn widths(
    x: &TensorValue,
    arguments: &Arguments,
    heads: u64,
) -> Result<(u64, u64), Mistake> {
    let (sequence, width) = sequence(x)?;
    let depth = match arguments.optional("head_width", Arguments::size)? {
        Some(depth) => depth,
        None if width.is_multiple_of(heads) => width / heads,
        None => {
            let message = format!("{heads} heads do not divide the width {width}");
            let hint = "the width must be a multiple of the number of heads";
            return Err(Mistake::new(Code::Shape, message).hint(hint).argument("heads"));
        }
    };
    let inner = heads.checked_mul(depth).filter(|inner| *inner <= limit::ELEMENTS);
    let scores = sequence.checked_mul(sequence);
    match scores.zip(inner).and_then(|(scores, inner)| scores.checked_mul(inner)) {
        Some(work) if work <= limit::WORK && sequence <= 1 << 20 => Ok((width, depth)),
        _ => Err(Mistake::new(Code::Limit, "the sequence is too long").argument("x")),
    }
}
