//! Softmax and the norms of rows.

use super::{
    Argument, Number,
    columns::{Columns, Partial},
    draft::{Draft, NOWHERE, Shape, adding, count, extent},
    form::{Form, Role},
    source::NORM,
};
use crate::{
    norm::{LayerNorm, LayerNormBackward, Softmax, SoftmaxBackward},
    part_norm::Around,
    rms_norm::{RmsNorm, RmsNormBackward},
    store::Store,
};
use Role::{Either, Narrow, Wide};
use roundelay_schedule::Bytes;

impl Form for Softmax {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, y] = draft.operands(0);
        let arguments = vec![x, y, count(self.rows), count(self.columns)];
        draft.narrow((NORM, "softmax"), Shape::rows(self.rows, self.columns), arguments);
        Ok(())
    }
}

impl Form for SoftmaxBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [y, dy, dx] = draft.operands(0);
        let (rows, columns) = (count(self.rows), count(self.columns));
        let arguments = vec![y, dy, dx, rows, columns, adding(self.store)];
        let shape = Shape::rows(self.rows, self.columns);
        draft.pair((NORM, "softmax_backward"), shape, arguments);
        Ok(())
    }
}

impl Form for LayerNorm {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Narrow, Wide, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands = draft.operands(0);
        let shape = (self.rows, self.columns);
        normalise(draft, operands, shape, self.epsilon);
        Ok(())
    }
}

impl Form for RmsNorm {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, y, rstd] = draft.operands(0);
        let operands = [x, gain, NOWHERE, y, NOWHERE, rstd];
        normalise(draft, operands, (self.rows, self.columns), self.epsilon);
        Ok(())
    }
}

/// x, gain, bias, y, mean, rstd.
fn normalise(
    draft: &mut Draft,
    operands: [Argument; 6],
    (rows, columns): (usize, usize),
    epsilon: f64,
) {
    let extents = [count(rows), count(columns), Argument::Double(epsilon)];
    let arguments = operands.into_iter().chain(extents).collect();
    draft.narrow((NORM, "normalise"), Shape::rows(rows, columns), arguments);
}

impl Form for LayerNormBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Wide, Narrow, Narrow, Either, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, mean, rstd, dy, dx, dgain, dbias] = draft.operands(0);
        let Self { rows, columns, store, sums } = *self;
        let rows = Rows { rows, columns, store, around: Around::Mean };
        let partial = rows.slopes(draft, [x, gain, mean, rstd, dy, dx]);
        partial.join_both(draft, [dgain, dbias], sums);
        Ok(())
    }
}

impl Form for RmsNormBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, rstd, dy, dx, dgain] = draft.operands(0);
        let Self { rows, columns, store, sums } = *self;
        let rows = Rows { rows, columns, store, around: Around::Zero };
        let partial = rows.slopes(draft, [x, gain, NOWHERE, rstd, dy, dx]);
        partial.join(draft, dgain, sums);
        Ok(())
    }
}

/// Rows that a norm takes back, what it is around, and what becomes of what dx held.
struct Rows {
    rows: usize,
    columns: usize,
    store: Store,
    around: Around,
}

/// Most blocks of a norm that sums on the way: as many as are at work at a time on a large device,
/// since each leaves sums of all columns behind.
const BLOCKS: usize = 264;
/// Threads of a warp, and warps of a block.
const LANES: usize = 32;
const WARPS: usize = 8;

impl Rows {
    /// dx of x, gain, mean, rstd, dy, dx, and the slopes of every column over segments of
    /// rows. All is read once where the columns of a row find place in the registers of a block.
    fn slopes(self, draft: &mut Draft, operands: [Argument; 6]) -> Partial {
        let each = draft.at_once() * packs(draft.types.narrow);
        let warps = self.columns.div_ceil(LANES * each).next_power_of_two();
        match warps {
            ..=WARPS => self.once(draft, operands, [LANES * warps, WARPS / warps]),
            _ => self.twice(draft, operands),
        }
    }

    /// By one function, in which this many threads have a row, and a block so many rows at a time.
    fn once(
        self,
        draft: &mut Draft,
        operands: [Argument; 6],
        [across, down]: [usize; 2],
    ) -> Partial {
        let per_segment = self.rows.div_ceil(BLOCKS).next_multiple_of(down);
        let segments = self.rows.div_ceil(per_segment);
        let partial = Partial::terms(draft, segments, self.columns, self.around.terms());
        let grid = [extent(segments), 1, 1];
        let block = [extent(across), extent(down), 1];
        let extents = [self.rows, self.columns, per_segment].map(count);
        let [x, gain, mean, rstd, dy, dx] = operands;
        let (name, before) = match self.around {
            Around::Mean => ("normalise_slopes", vec![x, gain, mean]),
            Around::Zero => ("normalise_slopes_around_zero", vec![x, gain]),
        };
        let arguments = before.into_iter().chain([rstd, dy, dx, partial.sums()]);
        let arguments = arguments.chain(extents).chain([adding(self.store)]).collect();
        let shape = Shape { grid, block, shared: Bytes(0) };
        draft.narrow((NORM, name), shape, arguments);
        partial
    }

    /// By two functions, each of which reads everything.
    fn twice(self, draft: &mut Draft, operands: [Argument; 6]) -> Partial {
        let [x, _, mean, rstd, dy, _] = operands;
        let columns = Columns { rows: self.rows, columns: self.columns };
        let partial = match self.around {
            Around::Mean => columns.norm_slopes(draft, [x, mean, rstd, dy]),
            Around::Zero => columns.norm_slopes_around_zero(draft, [x, rstd, dy]),
        };
        let extents = [count(self.rows), count(self.columns), adding(self.store)];
        let arguments = operands.into_iter().chain(extents).collect();
        let shape = Shape::rows(self.rows, self.columns);
        draft.narrow((NORM, "normalise_backward"), shape, arguments);
        partial
    }
}

/// Times 16 bytes of a row that a thread has registers for, as `PACKS` of `norm.cu`.
fn packs(number: Number) -> usize {
    match number {
        Number::Bf16 | Number::F16 => 3,
        Number::F32 | Number::F64 => 6,
    }
}
