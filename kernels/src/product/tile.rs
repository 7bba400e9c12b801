//! Register tiles: a block of b against all rows of a.

use super::{Block, Finish, Finished, STRIP, Target, View, packing::pack_columns_of_a};
use crate::{Real, line::Lanes, store::Store};
use std::ops::Range;

/// All rows of one block, a strip of tiles after another.
#[inline(always)]
pub(super) fn multiply_rows<R: Real, const M: usize, const L: usize>(
    block: Block,
    count: usize,
    a: View<'_, R>,
    panels: &[R::Line],
    packed: &mut [R],
    out: &mut Target<'_, R>,
    mut finish: Option<&mut Finish<'_, R>>,
) {
    for first in (0..count).step_by(STRIP * M) {
        let rows = first..count.min(first + STRIP * M);
        let a = a.from(first, 0);
        let strip = match a.column {
            1 => Strip { a, depth: block.depth, packed: Packed::Nowhere },
            _ => {
                pack_columns_of_a::<R, M>(a, rows.len(), block.depth, packed);
                let a = View { data: &*packed, row: 1, column: M };
                let whole = rows.len() / M * M;
                let left = rows.len() - whole;
                Strip { a, depth: block.depth, packed: Packed::Tiles { whole, left } }
            }
        };
        multiply_strip::<R, M, L>(block, &rows, strip, panels, out);
        if let Some(finish) = &mut finish {
            let columns = block.first..block.first + block.columns;
            finish(Finished { rows, columns }, out);
        }
    }
}

/// Rows of a that are multiplied one tile after another.
#[derive(Clone, Copy)]
struct Strip<'a, R> {
    a: View<'a, R>,
    depth: usize,
    packed: Packed,
}

/// How the tiles of a strip lie.
#[derive(Clone, Copy)]
enum Packed {
    /// They are read where a stands.
    Nowhere,
    /// As [`pack_columns_of_a`] says: `whole` rows in tiles, then `left` rows.
    Tiles { whole: usize, left: usize },
}

impl<'a, R: Real> Strip<'a, R> {
    /// The factors of the tile that starts at a row of the strip.
    #[inline(always)]
    fn tile(&self, row: usize) -> View<'a, R> {
        match self.packed {
            Packed::Nowhere => self.a.from(row, 0),
            Packed::Tiles { whole, .. } if row < whole => {
                View { data: &self.a.data[row * self.depth..], ..self.a }
            }
            Packed::Tiles { whole, left } => View {
                data: &self.a.data[whole * self.depth + row - whole..],
                row: 1,
                column: left,
            },
        }
    }
}

/// One strip: M rows at a time, then those that are left.
#[inline(always)]
fn multiply_strip<R: Real, const M: usize, const L: usize>(
    block: Block,
    rows: &Range<usize>,
    strip: Strip<'_, R>,
    panels: &[R::Line],
    out: &mut Target<'_, R>,
) {
    let mut row = 0;
    while row + M <= rows.len() {
        multiply_tiles::<R, M, L>(block, rows.start + row, strip.tile(row), panels, out);
        row += M;
    }
    while row + 4 <= rows.len() {
        multiply_tiles::<R, 4, L>(block, rows.start + row, strip.tile(row), panels, out);
        row += 4;
    }
    while row + 2 <= rows.len() {
        multiply_tiles::<R, 2, L>(block, rows.start + row, strip.tile(row), panels, out);
        row += 2;
    }
    if row < rows.len() {
        multiply_tiles::<R, 1, L>(block, rows.start + row, strip.tile(row), panels, out);
    }
}

/// M rows of one block.
#[inline(always)]
fn multiply_tiles<R: Real, const M: usize, const L: usize>(
    block: Block,
    row: usize,
    a: View<'_, R>,
    panels: &[R::Line],
    out: &mut Target<'_, R>,
) {
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
