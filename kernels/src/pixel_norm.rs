//! Batch and group normalisation of images whose pixels several devices divide equally: statistics
//! of own pixels before they meet (`pixel_norm_moments`, `pixel_norm_slopes`), and what is made of
//! those of all pixels.
//!
//! x is (examples, positions, columns), with statistics for each example and group of columns. A
//! batch norm has one example of all pixels, and a group for each channel. Means and squares around
//! them meet at once, and are joined without a difference of large sums (Chan, Golub, LeVeque 1979).

use crate::{
    Context, Mode, Real,
    fast::{
        batch_norm as channels,
        pixel_norm::{self as fast, Norm},
    },
    group_norm::Groups,
    kernel::Define,
    operand::Operands,
    plain::pixel_norm as plain,
    product::with_scratch,
    segments::{Pieces, join_rows},
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

/// moments_0 = the means of the own pixels, moments_1 = Σ (x − mean)².
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormMoments {
    pub(crate) extents: Groups,
}

/// The mean and the variance of all pixels, from the moments of each part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormStatistics {
    pub(crate) parts: usize,
    pub(crate) statistics: usize,
    /// Elements of one statistic that each part has.
    pub(crate) count: usize,
    pub(crate) outside: Outside,
}

/// What is taken outside of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// The statistics of the images themselves.
    Own,
    /// Running ones, which are operands.
    Running,
}

/// y = (x − mean) · rstd · gain + bias for the own pixels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNorm {
    pub(crate) extents: Groups,
}

/// slopes_0 = Σ g · x̂ and slopes_1 = Σ g over the own pixels, g = dy · gain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormSlopes {
    pub(crate) extents: Groups,
}

/// The gradient of the own pixels of x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormBackward {
    pub(crate) extents: Groups,
    /// Elements of one statistic that all parts have together.
    pub(crate) count: usize,
    pub(crate) store: Store,
}

/// The own shares of the gradients of gain and bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormParameters {
    pub(crate) extents: Groups,
    pub(crate) store: Store,
}

/// Operations per element, for the split over threads.
const COST: usize = 8;

impl Groups {
    fn pieces(self) -> Pieces {
        Pieces::new([self.examples, self.positions, self.columns], COST)
    }

    /// The statistics of one example.
    fn of<R>(self, example: usize, statistics: &[R]) -> &[R] {
        &statistics[example * self.groups()..][..self.groups()]
    }

    fn of_mut<R>(self, example: usize, statistics: &mut [R]) -> &mut [R] {
        &mut statistics[example * self.groups()..][..self.groups()]
    }

    fn norm<'a, R>(self, example: usize, norm: Norm<'a, R>) -> Norm<'a, R> {
        let Norm { gain, mean, variance } = norm;
        let [mean, variance] = [mean, variance].map(|own| self.of(example, own));
        Norm { gain, mean, variance }
    }

    /// Makes `out` of the same rows of `arrays`, for neighbouring rows of one example at a time, with
    /// this many numbers of scratch memory.
    fn each_row<R: Real, const K: usize>(
        self,
        threads: usize,
        (arrays, out): ([&[R]; K], &mut [R]),
        scratch: usize,
        work: impl Fn(usize, [&[R]; K], &mut [R], &mut [R]) + Sync,
    ) {
        let (rows, columns) = self.matrix();
        let cut = Cut::new(threads, rows, COST * columns);
        let share = cut.rows * columns;
        cut.each(out.chunks_mut(share).enumerate(), |(part, mut rest)| {
            with_scratch(scratch, |scratch, _| {
                let mut first = part * share;
                while !rest.is_empty() {
                    let example = first / self.size();
                    let length = rest.len().min((example + 1) * self.size() - first);
                    let (own, others) = rest.split_at_mut(length);
                    let arrays = arrays.map(|array| &array[first..first + length]);
                    work(example, arrays, own, scratch);
                    (rest, first) = (others, first + length);
                }
            });
        });
    }

    /// Σ dy · (x − mean) and Σ dy of every channel, one example after another.
    fn each_sums<R: Real>(
        self,
        threads: usize,
        [x, mean, dy]: [&[R]; 3],
        mut join: impl FnMut(usize, [&[R]; 2]),
    ) {
        let (pieces, width) = (self.pieces(), 3 * self.columns);
        with_scratch(self.sums(), |sums, _| {
            let work = |example: usize, inputs: [&[R]; 2], sums: &mut [R]| {
                fast::sums(inputs, self.of(example, mean), sums);
            };
            pieces.each(threads, [x, dy], (sums, width), work, |example, sums| {
                join_rows(sums, width);
                let (along, others) = sums.split_at(self.columns);
                join(example, [along, &others[..self.columns]]);
            });
        });
    }

    /// Scratch memory of these sums.
    fn sums(self) -> usize {
        3 * self.pieces().count() * self.columns
    }
}

/// The operands `names`, each a number for every statistic.
fn statistics(
    call: &mut Signature<'_>,
    names: &[&'static str],
    (access, length): (Access, usize),
) -> Result<(), String> {
    names.iter().try_for_each(|name| call.vector(name, access, length))
}

impl Define for PixelNormMoments {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let extents = Groups::parse(call)?;
        call.vector("moments", Access::Write, 2 * extents.statistics())?;
        Ok(Self { extents })
    }
    fn flops(&self) -> u64 {
        self.extents.work(4)
    }
    fn scratch(&self) -> usize {
        (4 * self.extents.pieces().count() + 2) * self.extents.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, moments) = (operands.read(), operands.write());
        let (extents, pieces) = (self.extents, self.extents.pieces());
        let (mean, squares) = moments.split_at_mut(extents.statistics());
        let width = 4 * extents.columns;
        with_scratch(self.scratch(), |scratch, _| {
            let (joined, partial) = scratch.split_at_mut(2 * extents.columns);
            let work = |_: usize, [x]: [&[R]; 1], partial: &mut [R]| {
                fast::moments(x, partial);
            };
            pieces.each(context.threads, [x], (partial, width), work, |example, own| {
                let segments = pieces.lengths().zip(own.chunks(width));
                let out = [&mut *mean, &mut *squares];
                let out = out.map(|statistics| extents.of_mut(example, statistics));
                fast::join_moments(segments, joined, out);
            });
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::moments(self.extents, operands.read(), operands.write());
    }
}

impl Define for PixelNormStatistics {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (count, running) = (call.count("count")?, call.flag("running")?);
        let (parts, both) = call.matrix("moments", Access::Read)?;
        if !both.is_multiple_of(2) {
            return Err(format!("{both} moments are not means and squares"));
        }
        if count.checked_mul(parts).is_none() {
            return Err(format!("attribute `count` is too large for {parts} parts"));
        }
        let outside = if running { Outside::Running } else { Outside::Own };
        let own = (Access::Read, both / 2);
        match outside {
            Outside::Own => {}
            Outside::Running => {
                statistics(call, &["running_mean", "running_variance"], own)?;
            }
        }
        statistics(call, &["mean", "variance"], (Access::Write, both / 2))?;
        Ok(Self { parts, statistics: both / 2, count, outside })
    }
    fn flops(&self) -> u64 {
        product([8, self.parts, self.statistics])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        self.make(operands, context, |moments, mean, variance| {
            let parts = moments.chunks(2 * self.statistics);
            channels::join_moments(parts.map(|own| (self.count, own)), mean, variance);
        });
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        self.make(operands, context, |moments, mean, variance| {
            plain::join(moments, self.count, mean, variance);
        });
    }
}

impl PixelNormStatistics {
    /// Running statistics, or those that are joined.
    fn make<R: Real>(
        &self,
        mut operands: Operands<'_, R>,
        context: &Context,
        join: impl FnOnce(&[R], &mut [R], &mut [R]),
    ) {
        let moments = operands.read();
        let running = match self.outside {
            Outside::Own => None,
            Outside::Running => Some([operands.read(), operands.read()]),
        };
        let [mean, variance] = [operands.write(), operands.write()];
        match (context.mode, running) {
            (Mode::Evaluation, Some(running)) => {
                mean.copy_from_slice(running[0]);
                variance.copy_from_slice(running[1]);
            }
            (Mode::Training, Some(_)) | (_, None) => join(moments, mean, variance),
        }
    }
}

impl Define for PixelNorm {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let extents = Groups::parse(call)?;
        statistics(call, &["gain", "bias"], (Access::Read, extents.columns))?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("y", Access::Write, extents.matrix())?;
        Ok(Self { extents })
    }
    fn flops(&self) -> u64 {
        self.extents.work(4)
    }
    fn scratch(&self) -> usize {
        3 * self.extents.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, bias, mean, variance] = operands.reads();
        let (norm, y) = (Norm { gain, mean, variance }, operands.write());
        let scratch = self.scratch();
        let work = |example: usize, [x]: [&[R]; 1], y: &mut [R], table: &mut [R]| {
            fast::normalise(x, self.extents.norm(example, norm), bias, y, table);
        };
        self.extents.each_row(context.threads, ([x], y), scratch, work);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = operands.reads::<5>();
        plain::normalise(self.extents, given, operands.write());
    }
}

impl Define for PixelNormSlopes {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let extents = Groups::parse(call)?;
        call.vector("gain", Access::Read, extents.columns)?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("dy", Access::Read, extents.matrix())?;
        call.vector("slopes", Access::Write, 2 * extents.statistics())?;
        Ok(Self { extents })
    }
    fn flops(&self) -> u64 {
        self.extents.work(6)
    }
    fn scratch(&self) -> usize {
        self.extents.sums()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, mean, variance, dy] = operands.reads();
        let (extents, norm) = (self.extents, Norm { gain, mean, variance });
        let (along, total) = operands.write().split_at_mut(extents.statistics());
        extents.each_sums(context.threads, [x, mean, dy], |example, sums| {
            let out = [&mut *along, &mut *total];
            let out = out.map(|slopes| extents.of_mut(example, slopes));
            fast::join_slopes(sums, extents.norm(example, norm), out);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = operands.reads::<5>();
        plain::slopes(self.extents, given, operands.write());
    }
}

impl Define for PixelNormBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (store, count) = (call.store()?, call.count("count")?);
        let extents = Groups::parse(call)?;
        call.vector("gain", Access::Read, extents.columns)?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("dy", Access::Read, extents.matrix())?;
        call.vector("slopes", Access::Read, 2 * extents.statistics())?;
        call.shaped("dx", store.access(), extents.matrix())?;
        Ok(Self { extents, count, store })
    }
    fn flops(&self) -> u64 {
        self.extents.work(7)
    }
    fn scratch(&self) -> usize {
        4 * self.extents.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, mean, variance, dy, slopes] = operands.reads();
        let (extents, norm) = (self.extents, Norm { gain, mean, variance });
        let (along, total) = slopes.split_at(extents.statistics());
        let arrays = ([x, dy], operands.write());
        let work = |example: usize, inputs: [&[R]; 2], dx: &mut [R], table: &mut [R]| {
            let slopes = [along, total].map(|slopes| extents.of(example, slopes));
            let made = (dx, self.count, self.store);
            fast::backward(inputs, extents.norm(example, norm), slopes, table, made);
        };
        extents.each_row(context.threads, arrays, self.scratch(), work);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = operands.reads::<6>();
        let made = (operands.write(), self.count, self.store);
        plain::backward(self.extents, given, made);
    }
}

impl Define for PixelNormParameters {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let extents = Groups::parse(call)?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("dy", Access::Read, extents.matrix())?;
        statistics(call, &["dgain", "dbias"], (store.access(), extents.columns))?;
        Ok(Self { extents, store })
    }
    fn flops(&self) -> u64 {
        self.extents.work(5)
    }
    fn scratch(&self) -> usize {
        self.extents.sums()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, mean, variance, dy] = operands.reads();
        let (dgain, dbias) = (operands.write(), operands.write());
        self.store.clear(dgain);
        self.store.clear(dbias);
        let extents = self.extents;
        extents.each_sums(context.threads, [x, mean, dy], |example, sums| {
            let variance = extents.of(example, variance);
            fast::add_parameters(sums, variance, [&mut *dgain, &mut *dbias]);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = operands.reads::<4>();
        let made = [operands.write(), operands.write()];
        plain::parameters(self.extents, given, made, self.store);
    }
}
