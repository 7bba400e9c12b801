//! Register tiles: a block of b against all rows of a.

use super::{
    Block, Finish, Finished, MOST_LINES, STRIP, Target, View, packing::pack_columns_of_a,
};
use crate::{
    Real,
    line::Lanes,
    registers::{Registers, fetch},
    simd::{Level, level},
    store::Store,
};
use std::{array, ops::Range};

/// All rows of one block, a strip of tiles after another.
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

/// One strip, panel by panel: a panel stays in the nearest cache while the rows pass by.
fn multiply_strip<R: Real, const M: usize, const L: usize>(
    block: Block,
    rows: &Range<usize>,
    strip: Strip<'_, R>,
    panels: &[R::Line],
    out: &mut Target<'_, R>,
) {
    let (width, length) = (L * R::Line::COUNT, block.depth * L);
    let mut rest = panels;
    for first in (0..block.columns).step_by(width) {
        let (panel, behind) = rest.split_at(length);
        let (panel, _) = panel.as_chunks::<L>();
        let columns = block.first + first..block.first + block.columns.min(first + width);
        let next = &behind[..length.min(behind.len())];
        let part = Part { rows, strip, panel, next, columns, store: block.store };
        let row = part.multiply::<M>(0, out);
        let row = part.multiply::<4>(row, out);
        let row = part.multiply::<2>(row, out);
        part.multiply::<1>(row, out);
        rest = behind;
    }
}

/// What is made of one strip and one panel.
struct Part<'p, R: Real, const L: usize> {
    rows: &'p Range<usize>,
    strip: Strip<'p, R>,
    panel: &'p [[R::Line; L]],
    /// The panel behind it, if there is one.
    next: &'p [R::Line],
    columns: Range<usize>,
    store: Store,
}

impl<R: Real, const L: usize> Part<'_, R, L> {
    /// M rows at a time, from `row` on; then the first row that is left.
    fn multiply<const M: usize>(&self, mut row: usize, out: &mut Target<'_, R>) -> usize {
        let share = self.panel.len() * L / STRIP;
        while row + M <= self.rows.len() {
            multiply_tile::<R, M, L>(Tile {
                a: self.strip.tile(row),
                panel: self.panel,
                next: self.next.get(row / M * share..).unwrap_or_default(),
                out: out.from(self.rows.start + row, self.columns.start),
                columns: self.columns.len(),
                store: self.store,
            });
            row += M;
        }
        row
    }
}

/// A tile of M rows and L lines: what is multiplied, and where the sums stand.
struct Tile<'t, R: Real, const L: usize> {
    a: View<'t, R>,
    panel: &'t [[R::Line; L]],
    /// What is fetched meanwhile, as far as the tile's time lasts.
    next: &'t [R::Line],
    out: Target<'t, R>,
    columns: usize,
    store: Store,
}

#[allow(unsafe_code, reason = "instruction sets are checked before use")]
fn multiply_tile<R: Real, const M: usize, const L: usize>(tile: Tile<'_, R, L>) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    fn avx512<R: Real, const M: usize, const L: usize>(tile: Tile<'_, R, L>) {
        // SAFETY: this function has the instructions of these registers.
        unsafe { sweep::<R, R::Wide, M, L>(tile) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn avx2<R: Real, const M: usize, const L: usize>(tile: Tile<'_, R, L>) {
        // SAFETY: this function has the instructions of these registers.
        unsafe { sweep::<R, R::Half, M, L>(tile) }
    }

    // SAFETY: `level` has seen the features; a line as it stands needs none.
    unsafe {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::<R, M, L>(tile),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::<R, M, L>(tile),
            Level::Portable => sweep::<R, R::Line, M, L>(tile),
        }
    }
}

/// A tile whose sums stay in registers over the whole depth.
///
/// # Safety
///
/// The processor has the instruction set of the registers V.
#[inline(always)]
#[allow(unsafe_code, reason = "a bounds check per factor would halve the speed")]
unsafe fn sweep<R: Real, V: Registers<R>, const M: usize, const L: usize>(
    Tile { a, panel, next, out, columns, store }: Tile<'_, R, L>,
) {
    let last = (M - 1) * a.row + panel.len().saturating_sub(1) * a.column;
    assert!(last < a.data.len(), "a has an element for every row and line");
    assert!(a.row == 1 || a.column == 1, "a is stored by rows or by columns");
    let part = |i: usize, l: usize| {
        let [begin, end] = [l, l + 1].map(|l| (l * R::Line::COUNT).min(columns));
        i * out.row + begin..i * out.row + end
    };
    // SAFETY: the caller's word for the registers; i < M and p < panel.len(), so a factor stands
    // at most at `last`.
    unsafe {
        let mut sums = [[V::from_line(&R::Line::splat(R::ZERO)); L]; M];
        if store == Store::Add {
            for (i, sums) in sums.iter_mut().enumerate() {
                for (l, sum) in sums.iter_mut().enumerate() {
                    *sum = V::from_line(&R::Line::load(&out.data[part(i, l)]));
                }
            }
        }
        // With one stride known, few addresses are computed beside the products.
        match a.row {
            1 => add_products(&mut sums, a.data, [1, a.column], panel, next),
            row => add_products(&mut sums, a.data, [row, 1], panel, next),
        }
        for (i, sums) in sums.iter().enumerate() {
            for (l, sum) in sums.iter().enumerate() {
                sum.into_line().store(&mut out.data[part(i, l)]);
            }
        }
    }
}

/// Lines of a panel for each line of the next one that is fetched: as the tiles of a strip pass by,
/// all of it comes near.
const LINES_PER_FETCH: usize = STRIP / MOST_LINES;

/// Adds to sums what factors, whose rows and columns lie so far apart, make of a panel.
///
/// # Safety
///
/// The processor has the instruction set of the registers V, and there is a factor for every row
/// of sums and line of the panel.
#[inline(always)]
#[allow(unsafe_code, reason = "a bounds check per factor would halve the speed")]
unsafe fn add_products<R: Real, V: Registers<R>, const M: usize, const L: usize>(
    sums: &mut [[V; L]; M],
    factors: &[R],
    [row, column]: [usize; 2],
    panel: &[[R::Line; L]],
    next: &[R::Line],
) {
    let rows: [_; M] = array::from_fn(|i| factors.as_ptr().wrapping_add(i * row));
    let mut add = |p: usize, lines: &[R::Line; L]| {
        for (first, sums) in rows.iter().zip(sums.iter_mut()) {
            // SAFETY: the caller's word, for the instructions and for the factor.
            unsafe {
                let factor = *first.add(p * column);
                for (sum, line) in sums.iter_mut().zip(lines) {
                    *sum = sum.plus_product(factor, line);
                }
            }
        }
    };
    let (groups, rest) = panel.as_chunks::<LINES_PER_FETCH>();
    let mut next = next.iter();
    for (group, first) in groups.iter().zip((0..).step_by(LINES_PER_FETCH)) {
        next.next().into_iter().for_each(fetch::<R>);
        for (lines, p) in group.iter().zip(first..) {
            add(p, lines);
        }
    }
    for (lines, p) in rest.iter().zip(panel.len() - rest.len()..) {
        add(p, lines);
    }
}
