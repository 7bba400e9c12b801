//! Matrix products: packed panels and register tiles.
//!
//! The crate `gemm` 0.19 allocates in every call (packing buffers and a list of flags), and
//! sums in blocks that follow the size of the caches. Here every element of a product is one
//! chain of fused multiply-adds in order of k, started from what it is added to. So the bits
//! do not depend on the tile, the instruction set, the number of threads, or how rows are
//! split; and the packing buffers of a thread are allocated once and only grow.
//!
//! The loops follow Goto and van de Geijn 2008, but a is read in place where it is stored by
//! rows: out is cut into blocks of columns and depth whose part of b fits in the second cache
//! level once it is packed into panels of one tile's width.

use crate::{
    Real,
    line::Lanes,
    simd::{Level, level, vectorize},
    store::Store,
};

/// A matrix to read: element (i, j) stands at i · `row` + j · `column`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a, R> {
    pub(crate) data: &'a [R],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// A matrix to write: element (i, j) stands at i · `row` + j.
pub(crate) struct Target<'a, R> {
    pub(crate) data: &'a mut [R],
    pub(crate) row: usize,
}

/// Extents of one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
}

/// Depth of one block.
const DEPTH: usize = 256;
/// Lines per row of one block of b: with `DEPTH`, 256 KiB.
const LINES: usize = 16;
/// Rows of the largest tile.
const MOST_ROWS: usize = 8;

impl<'a, R> View<'a, R> {
    /// The part that starts at (row, column).
    #[inline(always)]
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        let start = row * self.row + column * self.column;
        Self { data: &self.data[start..], ..self }
    }
    /// Rows as columns.
    pub(crate) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }
}

/// Memory of one thread that only grows.
pub struct Buffers<R: Real> {
    panels: Vec<R::Line>,
    rows: Vec<R>,
    /// For grids of scores, when threads share a launch.
    pub(crate) scratch: Vec<R>,
}

impl<R: Real> Buffers<R> {
    pub(crate) const fn new() -> Self {
        Self { panels: Vec::new(), rows: Vec::new(), scratch: Vec::new() }
    }
    /// Grows to what a product needs, and to `scratch` elements of scratch memory.
    pub(crate) fn reserve(&mut self, scratch: usize) {
        let scratch = scratch.max(self.scratch.len());
        self.scratch.resize(scratch, R::ZERO);
        self.panels.resize(DEPTH * LINES, R::Line::splat(R::ZERO));
        self.rows.resize(DEPTH * MOST_ROWS, R::ZERO);
    }
}

/// out = a · b, or out += a · b.
pub(crate) fn multiply<R: Real>(
    extents: Extents,
    a: View<'_, R>,
    b: View<'_, R>,
    out: &mut Target<'_, R>,
    store: Store,
    buffers: &mut Buffers<R>,
) {
    buffers.reserve(0);
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => multiply_blocks::<R, 8, 2>(extents, a, b, out, store, buffers),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => multiply_blocks::<R, 6, 1>(extents, a, b, out, store, buffers),
        Level::Portable => {
            multiply_blocks::<R, 4, 1>(extents, a, b, out, store, buffers);
        }
    }
}

vectorize! {
    fn multiply_blocks<R, const M: usize, const L: usize>(
        extents: Extents,
        a: View<'_, R>,
        b: View<'_, R>,
        out: &mut Target<'_, R>,
        store: Store,
        buffers: &mut Buffers<R>,
    ) {
        let width = LINES * R::Line::COUNT;
        for first in (0..extents.columns).step_by(width) {
            let columns = width.min(extents.columns - first);
            for top in (0..extents.depth).step_by(DEPTH) {
                let depth = DEPTH.min(extents.depth - top);
                let store = if top == 0 { store } else { Store::Add };
                let panels = &mut buffers.panels;
                pack::<R, L>(b.from(top, first), depth, columns, panels);
                let block = Block { columns, depth, first, store };
                let rows = &mut buffers.rows;
                let a = a.from(0, top);
                multiply_rows::<R, M, L>(block, extents.rows, a, panels, rows, out);
            }
        }
    }
}

/// One block of columns and depth.
#[derive(Clone, Copy)]
struct Block {
    columns: usize,
    depth: usize,
    first: usize,
    store: Store,
}

/// Packs `depth` rows of b into panels: L lines for each row, then the next row.
#[inline(always)]
fn pack<R: Real, const L: usize>(
    b: View<'_, R>,
    depth: usize,
    columns: usize,
    panels: &mut [R::Line],
) {
    let width = L * R::Line::COUNT;
    let panels = panels.chunks_exact_mut(depth * L);
    for (first, panel) in (0..columns).step_by(width).zip(panels) {
        let (panel, _) = panel.as_chunks_mut::<L>();
        let columns = width.min(columns - first);
        match b.column {
            1 => pack_rows(b.from(0, first), columns, panel),
            _ => pack_columns(b.from(0, first), columns, panel),
        }
    }
}

#[inline(always)]
fn pack_rows<R: Real, const L: usize>(
    b: View<'_, R>,
    columns: usize,
    panel: &mut [[R::Line; L]],
) {
    for (p, lines) in panel.iter_mut().enumerate() {
        let row = &b.data[p * b.row..][..columns];
        for (l, line) in lines.iter_mut().enumerate() {
            let start = (l * R::Line::COUNT).min(columns);
            *line = R::Line::load(&row[start..]);
        }
    }
}

#[inline(always)]
fn pack_columns<R: Real, const L: usize>(
    b: View<'_, R>,
    columns: usize,
    panel: &mut [[R::Line; L]],
) {
    let depth = panel.len();
    panel.fill([R::Line::splat(R::ZERO); L]);
    for j in 0..columns {
        let (l, lane) = (j / R::Line::COUNT, j % R::Line::COUNT);
        let column = &b.data[j * b.column..];
        for p in 0..depth {
            panel[p][l].set(lane, column[p * b.row]);
        }
    }
}

/// All rows of one block, M at a time, then those that are left.
#[inline(always)]
fn multiply_rows<R: Real, const M: usize, const L: usize>(
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

/// Packs M rows of a, which is stored by columns: M elements for each column.
#[inline(always)]
fn pack_columns_of_a<R: Real, const M: usize>(
    a: View<'_, R>,
    depth: usize,
    packed: &mut [R],
) {
    assert_eq!(a.row, 1, "a is stored by rows or by columns");
    let (packed, _) = packed.as_chunks_mut::<M>();
    for (p, packed) in packed[..depth].iter_mut().enumerate() {
        packed.copy_from_slice(&a.data[p * a.column..][..M]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn product<const M: usize, const L: usize>(
        extents: Extents,
        a: View<'_, f32>,
        b: View<'_, f32>,
    ) -> Vec<u32> {
        let mut buffers = Buffers::new();
        buffers.reserve(0);
        let mut out = vec![0.5; extents.rows * extents.columns];
        let target = &mut Target { data: &mut out, row: extents.columns };
        multiply_blocks::<f32, M, L>(extents, a, b, target, Store::Add, &mut buffers);
        out.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn the_tile_does_not_change_a_bit() {
        let stream = Stream::new(3, &[]);
        let fill = |length: usize| -> Vec<f32> {
            (0..length as u64).map(|index| stream.normal(index) as f32).collect()
        };
        for (rows, columns, depth) in [(1, 1, 1), (13, 17, 300), (9, 300, 31)] {
            let extents = Extents { rows, columns, depth };
            let (a, b) = (fill(rows * depth), fill(depth * columns));
            let by_rows = View { data: a.as_slice(), row: depth, column: 1 };
            let by_columns = View { data: a.as_slice(), row: 1, column: rows };
            let b = View { data: b.as_slice(), row: columns, column: 1 };
            for a in [by_rows, by_columns] {
                let expected = product::<1, 1>(extents, a, b);
                assert_eq!(expected, product::<4, 1>(extents, a, b));
                assert_eq!(expected, product::<6, 1>(extents, a, b));
                assert_eq!(expected, product::<8, 2>(extents, a, b));
            }
        }
    }

    #[test]
    fn an_element_is_one_chain() {
        let (a, b) = ([1e8f32, 1.0, -1e8, 3.0], [1.0f32, 1.0, 1.0, 0.5]);
        let extents = Extents { rows: 1, columns: 1, depth: 4 };
        let a_view = View { data: &a, row: 4, column: 1 };
        let found =
            product::<6, 1>(extents, a_view, View { data: &b, row: 1, column: 1 });
        let chain = a.iter().zip(&b).fold(0.5f32, |sum, (a, b)| a.mul_add(*b, sum));
        assert_eq!(found, [chain.to_bits()]);
    }
}
