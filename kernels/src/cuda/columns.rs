//! Sums over rows: partial sums of segments of rows, then the sums of those.

use super::{
    Argument, Place, Source,
    draft::{Draft, NOWHERE, Shape, adding, count, extent},
    form::{Form, Role},
    source::COLUMNS,
};
use crate::{
    elementwise::{MultiplySumRows, SumRows},
    norm::LayerNormParameters,
    store::Store,
};
use roundelay_schedule::Bytes;

/// Rows (m, n) that are summed over m; how they are cut follows from the shape alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Sums of the segments, in scratch memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial {
    sums: Place,
    pub(crate) segments: usize,
    columns: Columns,
    terms: usize,
}

/// Blocks that keep any device busy.
const ENOUGH_BLOCKS: usize = 1056;
/// Segments of fewer rows are not worth a block.
const FEWEST_ROWS: usize = 32;
/// Most blocks of a grid along y.
const MOST_ALONG_Y: usize = 65535;

impl Columns {
    fn per_segment(self, blocks: usize) -> usize {
        let segments = (ENOUGH_BLOCKS / blocks).clamp(1, MOST_ALONG_Y);
        self.rows.div_ceil(segments).max(FEWEST_ROWS)
    }
    /// Sums `terms` terms of every column over each segment, by a function that takes `inputs`,
    /// the partial sums, rows, columns, and the rows of a segment.
    pub(crate) fn sum(
        self,
        draft: &mut Draft,
        function: (Source, &str),
        inputs: &[Argument],
        terms: usize,
    ) -> Partial {
        let blocks = self.columns.div_ceil(32 * draft.at_once());
        let per_segment = self.per_segment(blocks);
        let segments = self.rows.div_ceil(per_segment);
        let size = draft.types.narrow.wide().size();
        let numbers = terms.saturating_mul(segments).saturating_mul(self.columns);
        let sums = draft.scratch(numbers.saturating_mul(size));
        let grid = [extent(blocks), extent(segments), 1];
        let shape = Shape { grid, block: [32, 8, 1], shared: Bytes(0) };
        let extents = [count(self.rows), count(self.columns), count(per_segment)];
        let arguments = inputs
            .iter()
            .copied()
            .chain([Argument::Address(sums)])
            .chain(extents)
            .collect();
        draft.narrow(function, shape, arguments);
        Partial { sums, columns: self, segments, terms }
    }
}

impl Partial {
    /// Their address.
    pub(crate) fn sums(&self) -> Argument {
        Argument::Address(self.sums)
    }
    /// Sums of one term over `segments` segments, of `columns` columns each.
    pub(crate) fn new(sums: Place, segments: usize, columns: usize) -> Self {
        Self { sums, segments, columns: Columns { rows: segments, columns }, terms: 1 }
    }
    /// out = Σ over all segments of one term.
    pub(crate) fn join(
        self,
        draft: &mut Draft,
        term: usize,
        out: Argument,
        store: Store,
    ) {
        let Self { sums, columns: Columns { columns, .. }, segments, terms } = self;
        let size = draft.types.narrow.wide().size();
        let arguments = vec![
            Argument::Address(further(sums, term * columns * size)),
            out,
            count(columns),
            count(segments),
            count(terms * columns),
            adding(store),
        ];
        let (wide, either) = (draft.types.narrow.wide(), draft.types.either);
        let symbol = format!("join_segments_{}_{}", wide.name(), either.name());
        draft.launch(COLUMNS, symbol, Shape::each(columns, 1), arguments);
    }
    /// The sums of all terms, one after another, in scratch memory.
    pub(crate) fn join_all(self, draft: &mut Draft) -> Argument {
        let length = self.terms * self.columns.columns;
        let out = draft.wide_scratch(length);
        let (each, all) = (count(length), count(self.segments));
        let arguments = vec![self.sums(), out, each, all, each, adding(Store::Write)];
        let wide = draft.types.narrow.wide().name();
        let symbol = format!("join_segments_{wide}_{wide}");
        draft.launch(COLUMNS, symbol, Shape::each(length, 1), arguments);
        out
    }
}

/// A place so many bytes further on.
pub(crate) fn further(place: Place, bytes: usize) -> Place {
    let bytes = Bytes(bytes as u64);
    match place {
        Place::Operand(index, offset) => Place::Operand(index, offset + bytes),
        Place::Scratch(offset) => Place::Scratch(offset + bytes),
    }
}

impl Form for SumRows {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, out] = draft.operands(0);
        let columns = Columns { rows: self.count / self.columns, columns: self.columns };
        let partial = columns.sum(draft, (COLUMNS, "sum_of_segments"), &[x], 1);
        partial.join(draft, 0, out, self.store);
        Ok(())
    }
}

impl Form for MultiplySumRows {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [a, b, out] = draft.operands(0);
        let columns = Columns { rows: self.count / self.columns, columns: self.columns };
        let partial = columns.sum(draft, (COLUMNS, "product_of_segments"), &[a, b], 1);
        partial.join(draft, 0, out, self.store);
        Ok(())
    }
}

impl Form for LayerNormParameters {
    fn roles(&self) -> Vec<Role> {
        use Role::{Either, Narrow, Wide};
        vec![Narrow, Wide, Wide, Narrow, Either, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, mean, rstd, dy, dgain, dbias] = draft.operands(0);
        let columns = Columns { rows: self.rows, columns: self.columns };
        let inputs = [x, mean, rstd, dy];
        let partial = columns.sum(draft, (COLUMNS, "slopes_of_segments"), &inputs, 2);
        partial.join(draft, 0, dgain, self.store);
        partial.join(draft, 1, dbias, self.store);
        Ok(())
    }
}

/// dgain of a norm without means.
pub(crate) fn gain_slopes(
    draft: &mut Draft,
    columns: Columns,
    [x, rstd, dy, dgain]: [Argument; 4],
    store: Store,
) {
    let inputs = [x, NOWHERE, rstd, dy];
    let partial = columns.sum(draft, (COLUMNS, "slopes_of_segments"), &inputs, 2);
    partial.join(draft, 0, dgain, store);
}
