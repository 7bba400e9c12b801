//! Packing: the order in which a tile reads its factors, laid out in memory.

use super::{Block, View};
use crate::{Real, line::Lanes, simd::vectorize};

/// Packs one block of b, which starts at its view's, into panels: L lines for each row, then
/// the next row.
pub(super) fn pack_block<R: Real, const L: usize>(
    b: View<'_, R>,
    Block { columns, depth, .. }: Block,
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

vectorize! {
    fn pack_rows<R, const L: usize>(
        b: View<'_, R>, columns: usize, panel: &mut [[R::Line; L]],
    ) {
        for (p, lines) in panel.iter_mut().enumerate() {
            let row = &b.data[p * b.row..][..columns];
            for (l, line) in lines.iter_mut().enumerate() {
                let start = (l * R::Line::COUNT).min(columns);
                *line = R::Line::load(&row[start..]);
            }
        }
    }
}

vectorize! {
    fn pack_columns<R, const L: usize>(
        b: View<'_, R>, columns: usize, panel: &mut [[R::Line; L]],
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
}

vectorize! {
    /// Packs `rows` rows of a, which is stored by columns, for tiles of M rows: tile by tile M
    /// elements for each column, then the rows that are left in the same way.
    pub(super) fn pack_columns_of_a<R, const M: usize>(
        a: View<'_, R>, rows: usize, depth: usize, packed: &mut [R],
    ) {
        assert_eq!(a.row, 1, "a is stored by rows or by columns");
        let (tiles, left) = (rows / M, rows % M);
        let (whole, rest) = packed.split_at_mut(tiles * M * depth);
        for p in 0..depth {
            let column = &a.data[p * a.column..][..rows];
            let (column, end) = column.as_chunks::<M>();
            for (tile, elements) in column.iter().enumerate() {
                whole[(tile * depth + p) * M..][..M].copy_from_slice(elements);
            }
            rest[p * left..][..left].copy_from_slice(end);
        }
    }
}
