//! Attention forward as a graph of cuDNN.
//!
//! The library finds the kernel that makes all of a graph by its form, so operations stand as its
//! documentation of scaled dot-product attention has them: scores, mask, a softmax in five operations,
//! their logarithms, and the product with the values. Between them nothing is in memory.

use super::{
    cudnn::{
        Done,
        descriptor::{Data, Mode, Operator},
        engine::{Graph, Target},
        graph::{Draft, Layout, Other, REAL, TRUTH, Tensor, data},
    },
    products::WORKSPACE,
};
use roundelay_kernels::cuda::{Attended, Mask, Strides};

/// The oldest version whose engines make such graphs, for heads that share keys too.
pub(super) const OLDEST: usize = 90_000;

/// `CUDNN_POINTWISE_…`.
const SUM: Mode = Mode(0);
const PRODUCT: Mode = Mode(1);
const QUOTIENT: Mode = Mode(6);
const DIFFERENCE: Mode = Mode(9);
const EXPONENTIAL: Mode = Mode(13);
const LOGARITHM: Mode = Mode(15);
const IS_NOT_LESS: Mode = Mode(303);
const SELECTION: Mode = Mode(601);

/// `CUDNN_REDUCE_TENSOR_ADD` and `CUDNN_REDUCE_TENSOR_MAX`.
const TOTAL: Operator = Operator(0);
const MOST: Operator = Operator(3);

/// The axes of rows and columns.
const ROWS: i64 = 2;
const COLUMNS: i64 = 3;

/// A call of attention, of q, k, v, o and the logarithms.
///
/// # Errors
/// When no engine of the library makes it.
pub(super) fn graph(of: &Attended, target: Target<'_>) -> Done<Graph> {
    let mut draft = Draft::default();
    describe(&mut draft, of)?;
    Graph::new(draft, (of.tokens[0].number, WORKSPACE), target)
}

fn describe(draft: &mut Draft, of: &Attended) -> Done {
    let number = data(of.tokens[0].number)?;
    let [batch, rows, heads, key_heads, depth] =
        [of.batch, of.sequence, of.heads, of.key_heads, of.depth]
            .map(|extent| extent as i64);
    let results = Strides { position: of.heads * of.depth, head: of.depth };
    let queries = Layout::of_tokens([batch, heads, rows, depth], of.queries);
    let keys = Layout::of_tokens([batch, key_heads, rows, depth], of.keys);
    let results = Layout::of_tokens([batch, heads, rows, depth], results);
    let q = draft.given(number, queries)?;
    let k = draft.given(number, keys.transposed())?;
    let v = draft.given(number, keys)?;
    let o = draft.given(number, results)?;
    let logarithms = draft.given(REAL, Layout::dense([batch, heads, rows, 1]))?;
    let products = draft.between(REAL, Layout::dense([batch, heads, rows, rows]))?;
    draft.product([q, k, products])?;
    let scale = draft.value(of.scale)?;
    let scores = of_two(draft, PRODUCT, [products, scale])?;
    let scores = match of.mask {
        Mask::None => scores,
        Mask::Causal => masked(draft, scores)?,
    };
    let shares = softmax(draft, [scores, logarithms], number)?;
    draft.product([shares, v, o])
}

/// Of `x` and another, a result that lies as `x` does.
fn of_two(draft: &mut Draft, mode: Mode, [x, other]: [Tensor; 2]) -> Done<Tensor> {
    let y = draft.between(REAL, x.layout)?;
    draft.by_number((mode, REAL), [x, y], &[Other::Second(other)])?;
    Ok(y)
}

fn of_one(draft: &mut Draft, mode: Mode, x: Tensor) -> Done<Tensor> {
    let y = draft.between(REAL, x.layout)?;
    draft.by_number((mode, REAL), [x, y], &[])?;
    Ok(y)
}

/// Scores, and the least number where a row stands before its column.
fn masked(draft: &mut Draft, scores: Tensor) -> Done<Tensor> {
    let [row, column] = [draft.index(ROWS, scores)?, draft.index(COLUMNS, scores)?];
    let seen = draft.between(TRUTH, scores.layout)?;
    draft.by_number((IS_NOT_LESS, TRUTH), [row, seen], &[Other::Second(column)])?;
    let least = draft.value(f32::MIN)?;
    let masked = draft.between(REAL, scores.layout)?;
    let others = [Other::Second(least), Other::Selector(seen)];
    draft.by_number((SELECTION, REAL), [scores, masked], &others)?;
    Ok(masked)
}

/// The softmax of scores, in numbers of a type, and the logarithms of the sums below it.
fn softmax(
    draft: &mut Draft,
    [scores, logarithms]: [Tensor; 2],
    number: Data,
) -> Done<Tensor> {
    let most = draft.reduction(MOST, scores)?;
    let shifted = of_two(draft, DIFFERENCE, [scores, most])?;
    let weights = of_one(draft, EXPONENTIAL, shifted)?;
    let total = draft.reduction(TOTAL, weights)?;
    let logarithm = of_one(draft, LOGARITHM, total)?;
    draft.by_number((SUM, REAL), [most, logarithms], &[Other::Second(logarithm)])?;
    let shares = draft.between(number, scores.layout)?;
    draft.by_number((QUOTIENT, REAL), [weights, shares], &[Other::Second(total)])?;
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::ready::cudnn::engine::described;
    use roundelay_kernels::cuda::{Array, CallPlace, Number};
    use roundelay_schedule::Bytes;

    /// How heads of a shape lie apart, and in one array where that has them equally far from each other.
    fn all_strides([_, _, heads, key_heads, depth]: [usize; 5]) -> Vec<[Strides; 2]> {
        let strides = |row: usize, step: usize| Strides {
            position: row * depth,
            head: step * depth,
        };
        let apart = [strides(heads, 1), strides(key_heads, 1)];
        let packed = (heads == key_heads).then_some([strides(3 * heads, 3); 2]);
        let shared = [strides(heads + 2, 1), strides(heads + 2, heads + 2)];
        let shared = (key_heads == 1).then_some(shared);
        [apart].into_iter().chain(packed).chain(shared).collect()
    }

    fn attended(
        number: Number,
        mask: Mask,
        [batch, sequence, heads, key_heads, depth]: [usize; 5],
        [queries, keys]: [Strides; 2],
    ) -> Attended {
        let array = |number| Array { place: CallPlace::Operand(0, Bytes(0)), number };
        Attended {
            batch,
            sequence,
            heads,
            key_heads,
            depth,
            mask,
            scale: 0.125,
            queries,
            keys,
            tokens: [array(number); 4],
            logarithms: array(Number::F32),
        }
    }

    /// The graph is one that the library's engines know: each of these shapes has one that takes no more
    /// than the workspace.
    #[test]
    fn the_library_has_plans_for_attention() {
        let Some(device) = described::h200() else { return };
        for number in [Number::Bf16, Number::F16] {
            for shape in [
                [32, 1024, 12, 12, 64],
                [2, 2048, 32, 8, 128],
                [64, 197, 12, 12, 64],
                [16, 257, 16, 16, 80],
                [2, 2048, 32, 32, 96],
                [64, 49, 4, 4, 32],
                [1, 20, 2, 1, 64],
            ] {
                for strides in all_strides(shape) {
                    for mask in [Mask::Causal, Mask::None] {
                        let of = attended(number, mask, shape, strides);
                        has_plan(&of, Target::Described(&device));
                    }
                }
            }
        }
    }

    fn has_plan(of: &Attended, target: Target<'_>) {
        let found = graph(of, target);
        let found = found.unwrap_or_else(|why| panic!("of {of:?} it {why}"));
        let plan = found.plan(0, target);
        let plan = plan.unwrap_or_else(|why| panic!("of {of:?} it {why}"));
        assert!(plan.workspace() <= WORKSPACE);
    }
}
