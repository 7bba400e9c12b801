//! Text in columns.

/// Where the cells of a column end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Words.
    Left,
    /// Numbers and quantities.
    Right,
}

/// The width of every column of some rows.
pub(crate) fn widths<'a, const COLUMNS: usize>(
    rows: impl Iterator<Item = &'a [String; COLUMNS]>,
) -> [usize; COLUMNS] {
    rows.fold([0; COLUMNS], |widest, row| {
        std::array::from_fn(|column| widest[column].max(row[column].chars().count()))
    })
}

/// A row, with a newline; a column without width is left out.
pub(crate) fn line<const COLUMNS: usize>(
    row: &[String; COLUMNS],
    sides: &[Side; COLUMNS],
    widths: &[usize; COLUMNS],
) -> String {
    let columns = row.iter().zip(sides).zip(widths);
    let shown = columns.filter(|(_, width)| **width > 0);
    let cells = shown.map(|((cell, side), width)| match side {
        Side::Left => format!("{cell:<width$}"),
        Side::Right => format!("{cell:>width$}"),
    });
    format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
}
