//! Attention, whole and with stored scores, and positions that turn.

use super::{extents, hold, hold_operation};
use crate::support::{build::Build, random::STRETCHES};
use roundelay_dsl::{
    Cap, Heads, Model, Operation, Projections, Scale, Sight, Still, Turning, Window,
};

/// Attention without a window.
fn attention(
    heads: Heads,
    projections: Projections,
    causal: bool,
    (scale, cap): (Scale, Cap),
) -> Operation {
    let sight = Sight { causal, window: Window::Open };
    Operation::Attention { heads, projections, sight, scale, cap }
}

/// The same of scores as they are, with as many heads of keys as of queries.
pub(super) fn open_attention(heads: u64, causal: bool) -> Operation {
    let heads = Heads { all: heads, keys: heads };
    attention(heads, Projections::Apart, causal, (Scale::Depth, Cap::Open))
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
    for (all, keys, causal, window) in [
        (4, 2, false, Window::Open),
        (4, 1, true, Window::Nearest(2)),
        (2, 1, false, Window::Nearest(1)),
        (2, 2, false, Window::Nearest(2)),
    ] {
        let shape: &[u64] = &[2, 4, 4];
        let key_shape: &[u64] = &[2, 4, 4 / all * keys];
        let operation = Operation::Attention {
            heads: Heads { all, keys },
            projections: Projections::Apart,
            sight: Sight { causal, window },
            scale: Scale::Depth,
            cap: Cap::Open,
        };
        hold_operation(operation, &[shape, key_shape, key_shape], shape);
    }
}

#[test]
pub(super) fn attention_with_scaled_and_capped_scores() {
    for (scale, cap) in [
        (Scale::Factor(0.7), Cap::Open),
        (Scale::Depth, Cap::At(0.5)),
        (Scale::Factor(2.0), Cap::At(3.0)),
    ] {
        let (heads, causal) = (Heads { all: 4, keys: 2 }, true);
        let (shape, keys): (&[u64], &[u64]) = (&[2, 3, 8], &[2, 3, 4]);
        let operation = attention(heads, Projections::Apart, causal, (scale, cap));
        hold_operation(operation, &[shape, keys, keys], shape);
    }
}

#[test]
pub(super) fn attention_of_one_tensor() {
    for (all, keys, causal, cap) in [
        (1, 1, false, Cap::Open),
        (4, 4, true, Cap::Open),
        (4, 2, true, Cap::At(0.5)),
        (6, 1, false, Cap::Open),
    ] {
        let heads = Heads { all, keys };
        let scores = (Scale::Depth, cap);
        let operation = attention(heads, Projections::Packed, causal, scores);
        let packed: &[u64] = &[2, 3, 2 * (all + 2 * keys)];
        hold_operation(operation, &[packed], &[2, 3, 2 * all]);
    }
}

/// Queries, keys and values of attention whose scores are stored.
fn stored_attention(scores: Operation, keys: &[u64]) -> Model {
    let Operation::Scores { heads, .. } = scores else {
        unreachable!("scores make the weights")
    };
    let (shape, grid): (&[u64], &[u64]) = (&[2, 4, 8], &[2, heads.all, 4, 4]);
    let mut build = Build::default();
    let [q, k, v] = [shape, keys, keys].map(|shape| build.parameter(shape));
    let y = build.node(scores, &[q, k], &extents(grid));
    let y = build.node(Operation::Softmax, &[y], &extents(grid));
    let y = build.node(Operation::Mix { heads }, &[y, v], &extents(shape));
    build.mean_squared_error(y, &extents(shape))
}

#[test]
pub(super) fn stored_scores_with_and_without_mask() {
    for (all, keys, causal, window, scale) in [
        (4, 2, true, Window::Open, Scale::Depth),
        (4, 1, true, Window::Nearest(2), Scale::Factor(0.7)),
        (2, 2, false, Window::Nearest(1), Scale::Depth),
    ] {
        let (heads, sight) = (Heads { all, keys }, Sight { causal, window });
        let scores = Operation::Scores { heads, sight, scale };
        let model = stored_attention(scores, &[2, 4, 8 / all * keys]);
        hold(&format!("stored {scores:?}"), &model);
    }
}

#[test]
pub(super) fn products_of_stored_scores() {
    for (all, keys) in [(1, 1), (4, 2), (4, 1)] {
        let heads = Heads { all, keys };
        let (x, grid): (&[u64], &[u64]) = (&[2, 3, 8], &[2, all, 3, 3]);
        let key_shape: &[u64] = &[2, 3, 8 / all * keys];
        let sight = Sight { causal: false, window: Window::Open };
        let scores = Operation::Scores { heads, sight, scale: Scale::Factor(0.6) };
        hold_operation(scores, &[x, key_shape], grid);
        hold_operation(Operation::Mix { heads }, &[grid, key_shape], x);
    }
}

#[test]
pub(super) fn rotary_positions() {
    for (heads, base, turned) in [(1, 10_000.0, 8), (2, 7.0, 4), (2, 7.0, 2)] {
        for stretch in STRETCHES {
            for still in [Still::None, Still::LastOf(2)] {
                let heads = heads * 2;
                let turning = Turning { heads, base, turned, still, stretch };
                hold_operation(Operation::Rotary(turning), &[&[2, 3, 16]], &[2, 3, 16]);
            }
        }
    }
}
