//! Group normalisation: every example on its own, over all positions and the channels of one
//! group.

use crate::{
    Context, Real,
    fast::group_norm as fast,
    kernel::Define,
    operand::Operands,
    plain::group_norm as plain,
    product::with_scratch,
    segments::{Segments, join_rows},
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

/// y = x̂ · gain + bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupNorm {
    pub(crate) extents: Groups,
}

/// The gradients of x, gain and bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupNormBackward {
    pub(crate) extents: Groups,
    pub(crate) store: Store,
    pub(crate) sums: Store,
}

/// x is (examples, positions, columns); a group has `width` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) examples: usize,
    pub(crate) positions: usize,
    pub(crate) columns: usize,
    pub(crate) width: usize,
}

/// Operations per element, for the split over threads.
const COST: usize = 8;

impl Groups {
    pub(crate) fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let groups = call.count("groups")?;
        let [examples, positions, columns] = call.sequence("x", Access::Read)?;
        match columns.is_multiple_of(groups) {
            true => Ok(Self { examples, positions, columns, width: columns / groups }),
            false => {
                Err(format!("{columns} channels are not a multiple of {groups} groups"))
            }
        }
    }
    /// Numbers of statistics.
    pub(crate) fn statistics(self) -> usize {
        self.examples * self.groups()
    }
    pub(crate) fn groups(self) -> usize {
        self.columns / self.width
    }
    /// Elements of an example.
    pub(crate) fn size(self) -> usize {
        self.positions * self.columns
    }
    pub(crate) fn matrix(self) -> (usize, usize) {
        (self.examples * self.positions, self.columns)
    }
    pub(crate) fn work(self, operations: usize) -> u64 {
        product([operations, self.examples, self.positions, self.columns])
    }
}

impl Define for GroupNorm {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let extents = Groups::parse(call)?;
        call.vector("gain", Access::Read, extents.columns)?;
        call.vector("bias", Access::Read, extents.columns)?;
        call.shaped("y", Access::Write, extents.matrix())?;
        call.vector("mean", Access::Write, extents.statistics())?;
        call.vector("rstd", Access::Write, extents.statistics())?;
        Ok(Self { extents })
    }
    fn flops(&self) -> u64 {
        self.extents.work(8)
    }
    fn scratch(&self) -> usize {
        4 * self.extents.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, bias] = operands.reads();
        let [y, mean, rstd] = operands.writes();
        let (size, groups) = (self.extents.size(), self.extents.groups());
        let cut = Cut::new(context.threads, self.extents.examples, COST * size);
        let each = cut.rows;
        let statistics =
            mean.chunks_mut(each * groups).zip(rstd.chunks_mut(each * groups));
        let parts = x.chunks(each * size).zip(y.chunks_mut(each * size)).zip(statistics);
        cut.each(parts, |((x, y), (mean, rstd))| {
            with_scratch(self.scratch(), |scratch, _| {
                let statistics = mean.chunks_mut(groups).zip(rstd.chunks_mut(groups));
                let examples = x.chunks(size).zip(y.chunks_mut(size)).zip(statistics);
                for ((x, y), (mean, rstd)) in examples {
                    fast::example([x, gain, bias], y, mean, rstd, scratch);
                }
            });
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let [x, gain, bias] = operands.reads();
        let [y, mean, rstd] = operands.writes();
        plain::group_norm(self.extents, [x, gain, bias], [y, mean, rstd]);
    }
}

impl Define for GroupNormBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (store, sums) = (call.store()?, call.store_sums()?);
        let extents = Groups::parse(call)?;
        call.vector("gain", Access::Read, extents.columns)?;
        call.vector("mean", Access::Read, extents.statistics())?;
        call.vector("rstd", Access::Read, extents.statistics())?;
        call.shaped("dy", Access::Read, extents.matrix())?;
        call.shaped("dx", store.access(), extents.matrix())?;
        call.vector("dgain", sums.access(), extents.columns)?;
        call.vector("dbias", sums.access(), extents.columns)?;
        Ok(Self { extents, store, sums })
    }
    fn flops(&self) -> u64 {
        self.extents.work(14)
    }
    fn scratch(&self) -> usize {
        self.segments().count * fast::BACKWARD_ROWS * self.extents.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, mean, rstd, dy] = operands.reads();
        let [dx, dgain, dbias] = operands.writes();
        let Groups { columns, .. } = self.extents;
        let (size, groups) = (self.extents.size(), self.extents.groups());
        let segments = self.segments();
        let (size, groups) = (segments.rows * size, segments.rows * groups);
        let row = fast::BACKWARD_ROWS * columns;
        with_scratch(self.scratch(), |scratch, _| {
            let statistics = mean.chunks(groups).zip(rstd.chunks(groups));
            let inputs = x.chunks(size).zip(dy.chunks(size)).zip(statistics);
            let outputs = dx.chunks_mut(size).zip(scratch.chunks_mut(row));
            let parts = inputs.zip(outputs);
            let cut = Cut::singly(context.threads);
            cut.each(parts, |(((x, dy), (mean, rstd)), (dx, scratch))| {
                let inputs = [x, gain, mean, rstd, dy];
                fast::backward(self.extents, inputs, dx, scratch, self.store);
            });
            join_rows(scratch, row);
            self.sums.put_all(dgain, &scratch[..columns]);
            self.sums.put_all(dbias, &scratch[columns..2 * columns]);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<5>();
        let outputs = operands.writes::<3>();
        let stores = [self.store, self.sums];
        plain::group_norm_backward(self.extents, inputs, outputs, stores);
    }
}

impl GroupNormBackward {
    fn segments(&self) -> Segments {
        Segments::new(self.extents.examples, COST * self.extents.size())
    }
}
