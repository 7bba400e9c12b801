//! Register tiles: a block of b against all rows of a.

use super::{Block, Target, View, packing::pack_columns_of_a};
use crate::{Real, line::Lanes, store::Store};

/// All rows of one block, M at a time, then those that are left.
#[inline(always)]
pub(super) fn multiply_rows<R: Real, const M: usize, const L: usize>(
    block: Block,
    count: usize,
    a: View<'_, R>,
    panels: &[R::Line],
    packed: &mut [R],
    out: &mut Target<'_, R>,
) {
    let mut row = 0;
    while row + M <= count {
        multiply_tiles::<R, M, L>(block, row, a, panels, packed, out);
        row += M;
    }
    while row + 4 <= count {
        multiply_tiles::<R, 4, L>(block, row, a, panels, packed, out);
        row += 4;
    }
    while row < count {
        multiply_tiles::<R, 1, L>(block, row, a, panels, packed, out);
        row += 1;
    }
}

/// M rows of one block.
#[inline(always)]
fn multiply_tiles<R: Real, const M: usize, const L: usize>(
    block: Block,
    row: usize,
    a: View<'_, R>,
    panels: &[R::Line],
    packed: &mut [R],
    out: &mut Target<'_, R>,
) {
    let a = a.from(row, 0);
    let a = match a.column {
        1 => a,
        _ => {
            pack_columns_of_a::<R, M>(a, block.depth, packed);
            View { data: packed, row: 1, column: M }
        }
    };
    let width = L * R::Line::COUNT;
    let panels = panels.chunks_exact(block.depth * L);
    for (first, panel) in (0..block.columns).step_by(width).zip(panels) {
        let (panel, _) = panel.as_chunks::<L>();
        let columns = width.min(block.columns - first);
        let start = row * out.row + block.first + first;
        let part = Target { data: &mut out.data[start..], row: out.row };
        tile::<R, M, L>(a, panel, part, columns, block.store);
    }
}

/// The tile of M rows and L lines that stays in registers over the whole depth.
#[inline(always)]
#[allow(unsafe_code, reason = "a bounds check per factor would halve the speed")]
fn tile<R: Real, const M: usize, const L: usize>(
    a: View<'_, R>,
    panel: &[[R::Line; L]],
    out: Target<'_, R>,
    columns: usize,
    store: Store,
) {
    let last = (M - 1) * a.row + panel.len().saturating_sub(1) * a.column;
    assert!(last < a.data.len(), "a has an element for every row and line");
    let part = |i: usize, l: usize| {
        let [begin, end] = [l, l + 1].map(|l| (l * R::Line::COUNT).min(columns));
        i * out.row + begin..i * out.row + end
    };
    let mut sums = [[R::Line::splat(R::ZERO); L]; M];
    if store == Store::Add {
        for (i, sums) in sums.iter_mut().enumerate() {
            for (l, sum) in sums.iter_mut().enumerate() {
                *sum = R::Line::load(&out.data[part(i, l)]);
            }
        }
    }
    for (p, lines) in panel.iter().enumerate() {
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: i < M and p < panel.len(), so this is at most `last`, which is inside.
            let factor = unsafe { *a.data.get_unchecked(i * a.row + p * a.column) };
            for (sum, line) in sums.iter_mut().zip(lines) {
                *sum = sum.fused(factor, line);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        for (l, sum) in sums.iter().enumerate() {
            sum.store(&mut out.data[part(i, l)]);
        }
    }
}
