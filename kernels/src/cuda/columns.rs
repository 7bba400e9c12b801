//! Sums over rows: partial sums of segments of rows, then the sums of those.

use super::{
    Argument, CallPlace, Source,
    draft::{Draft, MOST_BLOCKS, Shape, adding, count, extent},
    form::{Form, Role},
    source::COLUMNS,
};
use crate::{
    elementwise::{MultiplySumRows, SumRows},
    norm::LayerNormParameters,
    part_norm::Around,
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
    sums: CallPlace,
    pub(crate) segments: usize,
    columns: usize,
    terms: usize,
}

/// Blocks that keep any device busy: twice three on each of 132 multiprocessors, where functions with the
/// registers for 16 bytes of several rows have room for three at a time.
const ENOUGH_BLOCKS: usize = 792;
/// Rows that a thread should have.
const FEWEST_ROWS: usize = 4;
/// Most blocks of a grid along y.
const MOST_ALONG_Y: usize = MOST_BLOCKS[1] as usize;
/// Threads of a block.
pub(crate) const THREADS: usize = 256;

impl Columns {
    /// Threads of a block along columns, 16 bytes each, and along rows.
    fn block(self, draft: &Draft) -> [usize; 2] {
        let across = self.columns.div_ceil(draft.at_once()).next_power_of_two().min(32);
        [across, THREADS / across]
    }
    /// Blocks along the columns.
    fn blocks(self, draft: &Draft) -> usize {
        let [across, _] = self.block(draft);
        self.columns.div_ceil(across * draft.at_once())
    }
    /// Rows that a block sums.
    pub(crate) fn per_segment(self, draft: &Draft) -> usize {
        self.per_segment_of_each(draft, 1)
    }
    /// Segments of rows.
    fn segments(self, draft: &Draft) -> usize {
        self.rows.div_ceil(self.per_segment(draft))
    }
    /// The same where this many images have as many rows each, and no block those of two.
    pub(crate) fn per_segment_of_each(self, draft: &Draft, images: usize) -> usize {
        let blocks = self.blocks(draft).saturating_mul(images);
        let segments = (ENOUGH_BLOCKS / blocks).clamp(1, MOST_ALONG_Y);
        let [_, down] = self.block(draft);
        self.rows.div_ceil(segments).max(FEWEST_ROWS * down)
    }
    /// Rows, columns, and the rows of a segment.
    pub(crate) fn extents(self, draft: &Draft) -> [Argument; 3] {
        [self.rows, self.columns, self.per_segment(draft)].map(count)
    }
    /// Blocks of columns along x, blocks that share the rows along y.
    fn shape(self, draft: &Draft, shares: usize) -> Shape {
        let [across, down] = self.block(draft).map(extent);
        let grid = [extent(self.blocks(draft)), extent(shares), 1];
        Shape { grid, block: [across, down, 1], shared: Bytes(0) }
    }
    /// The threads of a function that takes every row, each thread the same columns in all of
    /// its rows.
    pub(crate) fn each_row(self, draft: &Draft) -> Shape {
        self.shape(draft, self.segments(draft))
    }
    /// Blocks along x that have this many pieces of rows, and blocks of columns along y.
    pub(crate) fn each_piece(self, draft: &Draft, pieces: usize) -> Shape {
        let Shape { grid: [blocks, ..], block, shared } = self.shape(draft, 1);
        Shape { grid: [extent(pieces), blocks, 1], block, shared }
    }
    /// The threads of a function that sums the rows of each of this many images.
    pub(crate) fn each_image(self, draft: &Draft, images: usize) -> Shape {
        self.shape(draft, images.min(MOST_ALONG_Y))
    }
    /// Sums `terms` terms of every column over each segment, by a function that takes `inputs`,
    /// the partial sums, rows, columns, and the rows of a segment, and `last`.
    pub(crate) fn sum(
        self,
        draft: &mut Draft,
        function: (Source, &str),
        [inputs, last]: [&[Argument]; 2],
        terms: usize,
    ) -> Partial {
        let segments = self.segments(draft);
        let partial = Partial::terms(draft, segments, self.columns, terms);
        let shape = self.shape(draft, segments);
        let extents = self.extents(draft);
        let inputs = inputs.iter().copied().chain([partial.sums()]);
        let arguments = inputs.chain(extents).chain(last.iter().copied()).collect();
        draft.narrow(function, shape, arguments);
        partial
    }
    /// dy · x̂ and dy of every column over each segment, of x, means, rstds and dy of a norm.
    pub(crate) fn norm_slopes(
        self,
        draft: &mut Draft,
        operands: [Argument; 4],
    ) -> Partial {
        let terms = Around::Mean.terms();
        self.sum(draft, (COLUMNS, "slopes_of_segments"), [&operands, &[]], terms)
    }
    /// dy · x̂ of every column over each segment, of x, rstds and dy of a norm around zero.
    pub(crate) fn norm_slopes_around_zero(
        self,
        draft: &mut Draft,
        operands: [Argument; 3],
    ) -> Partial {
        let function = (COLUMNS, "slopes_around_zero_of_segments");
        self.sum(draft, function, [&operands, &[]], Around::Zero.terms())
    }
}

/// Threads that join `segments` segments of columns: more of them along y the more there are.
pub(crate) fn joining(columns: usize, segments: usize) -> Shape {
    joining_by(32, columns, segments)
}

/// The same by `most` threads along y at most, a power of two up to those of a block.
pub(crate) fn joining_by(most: usize, columns: usize, segments: usize) -> Shape {
    let down = (segments / 4).next_power_of_two().min(most);
    let across = THREADS / down;
    let grid = [extent(columns.div_ceil(across)), 1, 1];
    Shape { grid, block: [extent(across), extent(down), 1], shared: Bytes(0) }
}

impl Partial {
    /// Their address.
    pub(crate) fn sums(&self) -> Argument {
        Argument::Address(self.sums)
    }
    /// Memory for sums of several terms over `segments` segments, of `columns` columns each.
    pub(crate) fn terms(
        draft: &mut Draft,
        segments: usize,
        columns: usize,
        terms: usize,
    ) -> Self {
        let size = draft.types.narrow.wide().size();
        let numbers = terms.saturating_mul(segments).saturating_mul(columns);
        let sums = draft.scratch(numbers.saturating_mul(size));
        Self { sums, segments, columns, terms }
    }
    /// out = Σ over all segments, of one term.
    pub(crate) fn join(self, draft: &mut Draft, out: Argument, store: Store) {
        self.join_terms(draft, "join_segments", [out], store);
    }
    /// The same of two terms.
    pub(crate) fn join_both(self, draft: &mut Draft, out: [Argument; 2], store: Store) {
        self.join_terms(draft, "join_both", out, store);
    }
    fn join_terms<const TERMS: usize>(
        self,
        draft: &mut Draft,
        name: &str,
        out: [Argument; TERMS],
        store: Store,
    ) {
        let Self { columns, segments, terms, .. } = self;
        assert_eq!(terms, TERMS, "every term is joined");
        let mut arguments = vec![self.sums()];
        arguments.extend(out);
        arguments.extend([count(columns), count(segments), adding(store)]);
        let (wide, either) = (draft.types.narrow.wide(), draft.types.either);
        let symbol = format!("{name}_{}_{}", wide.name(), either.name());
        draft.launch(COLUMNS, symbol, joining(columns, segments), arguments);
    }
}

/// A place this many bytes further on.
pub(crate) fn further(place: CallPlace, bytes: usize) -> CallPlace {
    let bytes = Bytes(bytes as u64);
    match place {
        CallPlace::Operand(index, offset) => CallPlace::Operand(index, offset + bytes),
        CallPlace::Scratch(offset) => CallPlace::Scratch(offset + bytes),
    }
}

impl SumRows {
    /// Sums the rows of `x`.
    pub(crate) fn written(&self, draft: &mut Draft, [x, out]: [Argument; 2]) {
        let columns = Columns { rows: self.count / self.columns, columns: self.columns };
        let partial = columns.sum(draft, (COLUMNS, "sum_of_segments"), [&[x], &[]], 1);
        partial.join(draft, out, self.store);
    }
}

impl Form for SumRows {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands = draft.operands(0);
        self.written(draft, operands);
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
        let partial =
            columns.sum(draft, (COLUMNS, "product_of_segments"), [&[a, b], &[]], 1);
        partial.join(draft, out, self.store);
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
        let partial = columns.norm_slopes(draft, [x, mean, rstd, dy]);
        partial.join_both(draft, [dgain, dbias], self.store);
        Ok(())
    }
}
