//! Attention, whole and with stored scores, and positions that turn.

use super::{extents, hold, hold_operation};
use crate::support::{build::Build, random::STRETCHES};
use roundelay_dsl::{Cap, Model, Operation, Projections, Scale, Still, Window};

/// Attention without a window.
fn attention(
    [heads, key_heads]: [u64; 2],
    projections: Projections,
    causal: bool,
    (scale, cap): (Scale, Cap),
) -> Operation {
    let window = Window::Open;
    Operation::Attention { heads, key_heads, projections, causal, window, scale, cap }
}

/// The same of scores as they are, with as many heads of keys as of queries.
pub(super) fn open_attention(heads: u64, causal: bool) -> Operation {
    attention([heads; 2], Projections::Apart, causal, (Scale::Depth, Cap::Open))
}

#[test]
pub(super) fn attention_with_and_without_mask() {
    for (heads, causal) in [(1, false), (2, false), (2, true), (4, true)] {
        let shape: &[u64] = &[2, 3, 4];
        hold_operation(open_attention(heads, causal), &[shape; 3], shape);
    }
}

#[test]
pub(super) fn attention_with_shared_key_heads_and_windows() {
    for (heads, key_heads, causal, window) in [
        (4, 2, false, Window::Open),
        (4, 1, true, Window::Nearest(2)),
        (2, 1, false, Window::Nearest(1)),
        (2, 2, false, Window::Nearest(2)),
    ] {
        let shape: &[u64] = &[2, 4, 4];
        let keys: &[u64] = &[2, 4, 4 / heads * key_heads];
        let operation = Operation::Attention {
            heads,
            key_heads,
            projections: Projections::Apart,
            causal,
            window,
            scale: Scale::Depth,
            cap: Cap::Open,
        };
        hold_operation(operation, &[shape, keys, keys], shape);
    }
}

#[test]
pub(super) fn attention_with_scaled_and_capped_scores() {
    for (scale, cap) in [
        (Scale::Factor(0.7), Cap::Open),
        (Scale::Depth, Cap::At(0.5)),
        (Scale::Factor(2.0), Cap::At(3.0)),
    ] {
        let (counts, projections, causal) = ([4, 2], Projections::Apart, true);
        let (shape, keys): (&[u64], &[u64]) = (&[2, 3, 8], &[2, 3, 4]);
        let operation = attention(counts, projections, causal, (scale, cap));
        hold_operation(operation, &[shape, keys, keys], shape);
    }
}

#[test]
pub(super) fn attention_of_one_tensor() {
    for (heads, key_heads, causal, cap) in [
        (1, 1, false, Cap::Open),
        (4, 4, true, Cap::Open),
        (4, 2, true, Cap::At(0.5)),
        (6, 1, false, Cap::Open),
    ] {
        let (counts, projections) = ([heads, key_heads], Projections::Packed);
        let scale = Scale::Depth;
        let operation = attention(counts, projections, causal, (scale, cap));
        let packed: &[u64] = &[2, 3, 2 * (heads + 2 * key_heads)];
        hold_operation(operation, &[packed], &[2, 3, 2 * heads]);
    }
}

/// Queries, keys and values of attention whose scores are stored.
fn stored_attention(scores: Operation, keys: &[u64]) -> Model {
    let Operation::Scores { heads, key_heads, .. } = scores else {
        unreachable!("scores make the weights")
    };
    let (shape, grid): (&[u64], &[u64]) = (&[2, 4, 8], &[2, heads, 4, 4]);
    let mut build = Build::default();
    let [q, k, v] = [shape, keys, keys].map(|shape| build.parameter(shape));
    let y = build.node(scores, &[q, k], &extents(grid));
    let y = build.node(Operation::Softmax, &[y], &extents(grid));
    let mix = Operation::Mix { heads, key_heads };
    let y = build.node(mix, &[y, v], &extents(shape));
    build.mean_squared_error(y, &extents(shape))
}

#[test]
pub(super) fn stored_scores_with_and_without_mask() {
    for (heads, key_heads, causal, window, scale) in [
        (4, 2, true, Window::Open, Scale::Depth),
        (4, 1, true, Window::Nearest(2), Scale::Factor(0.7)),
        (2, 2, false, Window::Nearest(1), Scale::Depth),
    ] {
        let scores = Operation::Scores { heads, key_heads, causal, window, scale };
        let model = stored_attention(scores, &[2, 4, 8 / heads * key_heads]);
        hold(&format!("stored {scores:?}"), &model);
    }
}

#[test]
pub(super) fn products_of_stored_scores() {
    for (heads, key_heads) in [(1, 1), (4, 2), (4, 1)] {
        let (x, grid): (&[u64], &[u64]) = (&[2, 3, 8], &[2, heads, 3, 3]);
        let keys: &[u64] = &[2, 3, 8 / heads * key_heads];
        let (causal, window, scale) = (false, Window::Open, Scale::Factor(0.6));
        let scores = Operation::Scores { heads, key_heads, causal, window, scale };
        hold_operation(scores, &[x, keys], grid);
        hold_operation(Operation::Mix { heads, key_heads }, &[grid, keys], x);
    }
}

#[test]
pub(super) fn rotary_positions() {
    for (heads, base, turned) in [(1, 10_000.0, 8), (2, 7.0, 4), (2, 7.0, 2)] {
        for stretch in STRETCHES {
            for still in [Still::None, Still::LastOf(2)] {
                let heads = heads * 2;
                let operation = Operation::Rotary { heads, base, turned, still, stretch };
                hold_operation(operation, &[&[2, 3, 16]], &[2, 3, 16]);
            }
        }
    }
}
