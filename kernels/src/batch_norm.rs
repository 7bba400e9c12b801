//! Batch normalisation: statistics of every channel over all rows of a micro-batch.

use crate::{
    Context, Mode, Real,
    activation::each_slope_of,
    fast::{activation as fast_activation, batch_norm as fast},
    kernel::Define,
    operand::{Current, Operands},
    plain::{activation as plain_activation, batch_norm as plain},
    product::with_scratch,
    segments::{Pieces, join_rows},
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

/// y = x̂ · gain + bias, and what the attributes put after it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BatchNorm {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) tail: Tail,
}

/// The gradients of x, gain and bias, and the statistics that running ones are averages of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BatchNormBackward {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) counted: Counted,
    pub(crate) store: Store,
    pub(crate) sums: Store,
}

/// Which elements of dy count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All.
    All,
    /// Those of max(·, 0) of the norm where it is open: where y > 0.
    Open,
    /// The same, and dy with zeros for all others is made for whoever reads it besides.
    Opened,
    /// The same where nothing is added to the norm, so that y > 0 where the norm of x is, which is made
    /// again.
    OpenAgain,
}

/// What follows in the same kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    None,
    /// max(·, 0).
    Relu,
    /// · + residual.
    Add,
    /// max(· + residual, 0).
    AddRelu,
}

/// Operations per element, for the split over threads.
const COST: usize = 8;

/// Makes dt of y and dy.
type Opening<R> = fn(&[R], &[R], &mut [R], Store);

/// The operand that says which elements of dy count.
pub(crate) const SAID: usize = 4;

/// How rows are cut for sums over all of them.
fn pieces(rows: usize, columns: usize) -> Pieces {
    Pieces::new([1, rows, columns], COST)
}

impl Tail {
    pub(crate) fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        match (call.flag("relu")?, call.flag("residual")?) {
            (false, false) => Ok(Tail::None),
            (true, false) => Ok(Tail::Relu),
            (false, true) => Ok(Tail::Add),
            (true, true) => Ok(Tail::AddRelu),
        }
    }
    /// Whether a residual is an operand.
    pub(crate) fn adds(self) -> bool {
        match self {
            Tail::None | Tail::Relu => false,
            Tail::Add | Tail::AddRelu => true,
        }
    }
    /// Whether the result is cut at zero.
    pub(crate) fn cuts(self) -> bool {
        match self {
            Tail::None | Tail::Add => false,
            Tail::Relu | Tail::AddRelu => true,
        }
    }
    /// Operations per element.
    pub(crate) fn flops(self) -> usize {
        match self {
            Tail::None => 0,
            Tail::Relu | Tail::Add => 1,
            Tail::AddRelu => 2,
        }
    }
    /// y = (x − mean) · factor + bias of all rows, and what follows.
    pub(crate) fn normalise<R: Real>(
        self,
        context: &Context,
        [x, residual]: [&[R]; 2],
        channels @ [mean, ..]: [&[R]; 3],
        y: &mut [R],
    ) {
        let columns = mean.len();
        let cut = Cut::new(context.threads, y.len() / columns, COST * columns);
        let rows = cut.rows;
        let share = rows * columns;
        let parts = x.chunks(share).zip(residual.chunks(share));
        cut.each(parts.zip(y.chunks_mut(share)), |((x, residual), y)| match self {
            Tail::None => fast::normalise(x, channels, y),
            Tail::Relu => fast::normalise_relu(x, channels, y),
            Tail::Add => fast::normalise_add([x, residual], channels, y),
            Tail::AddRelu => fast::normalise_add_relu([x, residual], channels, y),
        });
    }
    /// What follows the plain norms in y.
    pub(crate) fn follow<R: Real>(self, residual: &[R], y: &mut [R]) {
        for (y, residual) in y.iter_mut().zip(residual) {
            *y = match self {
                Tail::None => *y,
                Tail::Relu => y.rectified(),
                Tail::Add => *y + *residual,
                Tail::AddRelu => (*y + *residual).rectified(),
            };
        }
    }
}

impl Counted {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let flags = [call.flag("relu")?, call.flag("again")?, call.flag("opened")?];
        match flags {
            [false, false, false] => Ok(Counted::All),
            [true, false, false] => Ok(Counted::Open),
            [true, false, true] => Ok(Counted::Opened),
            [true, true, false] => Ok(Counted::OpenAgain),
            [false, true, _] => Err("attribute `again` needs `relu`".to_owned()),
            [false, false, true] => Err("attribute `opened` needs `relu`".to_owned()),
            [true, true, true] => {
                Err("attributes `again` and `opened` exclude each other".to_owned())
            }
        }
    }
    /// Whether an operand says it: y, or the bias of the norm.
    pub(crate) fn is_said(self) -> bool {
        match self {
            Counted::All => false,
            Counted::Open | Counted::Opened | Counted::OpenAgain => true,
        }
    }
    /// Whether dy is made anew.
    pub(crate) fn opens(self) -> bool {
        match self {
            Counted::All | Counted::Open | Counted::OpenAgain => false,
            Counted::Opened => true,
        }
    }
}

/// What is added at the end; x, which is as long, where nothing is.
pub(crate) fn residual_or<'a, R: Real>(
    x: &'a [R],
    tail: Tail,
    operands: &mut Operands<'a, R>,
) -> &'a [R] {
    if tail.adds() { operands.read() } else { x }
}

pub(crate) fn columns_of_many_rows(
    call: &mut Signature<'_>,
) -> Result<(usize, usize), String> {
    let (rows, columns) = call.matrix("x", Access::Read)?;
    match rows {
        0 | 1 => {
            Err("has one value per channel, but a variance needs two at least: take \
                      more examples per micro-batch"
                .to_owned())
        }
        _ => Ok((rows, columns)),
    }
}

impl Define for BatchNorm {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let tail = Tail::parse(call)?;
        let (rows, columns) = columns_of_many_rows(call)?;
        for name in ["gain", "bias", "running_mean", "running_variance"] {
            call.vector(name, Access::Read, columns)?;
        }
        if tail.adds() {
            call.shaped("residual", Access::Read, (rows, columns))?;
        }
        call.shaped("y", Access::Write, (rows, columns))?;
        call.vector("mean", Access::Write, columns)?;
        call.vector("variance", Access::Write, columns)?;
        Ok(Self { rows, columns, tail })
    }
    fn flops(&self) -> u64 {
        product([8 + self.tail.flops(), self.rows, self.columns])
    }
    fn scratch(&self) -> usize {
        (4 * pieces(self.rows, self.columns).count() + 1) * self.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, bias, running_mean, running_variance] = operands.reads::<5>();
        let residual = residual_or(x, self.tail, &mut operands);
        let [y, mean, variance] = operands.writes();
        with_scratch(self.scratch(), |scratch, _| {
            let (factor, partial) = scratch.split_at_mut(self.columns);
            match context.mode {
                Mode::Training => self.moments(context, x, partial, [mean, variance]),
                Mode::Evaluation => {
                    mean.copy_from_slice(running_mean);
                    variance.copy_from_slice(running_variance);
                }
            }
            fast::factors(gain, variance, factor);
            self.tail.normalise(context, [x, residual], [mean, factor, bias], y);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, bias, running_mean, running_variance] = operands.reads::<5>();
        let residual = residual_or(x, self.tail, &mut operands);
        let [y, mean, variance] = operands.writes();
        match context.mode {
            Mode::Training => plain::moments(x, mean, variance),
            Mode::Evaluation => {
                mean.copy_from_slice(running_mean);
                variance.copy_from_slice(running_variance);
            }
        }
        plain::normalise(x, [gain, bias, mean, variance], y);
        self.tail.follow(residual, y);
    }
}

impl BatchNorm {
    /// Mean and variance of every channel, joined from segments; four numbers of every
    /// channel for each segment in `partial`.
    fn moments<R: Real>(
        &self,
        context: &Context,
        x: &[R],
        partial: &mut [R],
        [mean, variance]: [&mut [R]; 2],
    ) {
        let width = 4 * self.columns;
        let pieces = pieces(self.rows, self.columns);
        let own = |_, [x]: [&[R]; 1], partial: &mut [R]| fast::moments(x, partial);
        pieces.each(context.threads, [x], (partial, width), own, |_, partial| {
            let segments = pieces.lengths().zip(partial.chunks(width));
            fast::join_moments(segments, mean, variance);
        });
    }
}

impl Define for BatchNormBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let counted = Counted::parse(call)?;
        let (store, sums) = (call.store()?, call.store_sums()?);
        let (rows, columns) = columns_of_many_rows(call)?;
        for name in ["gain", "mean", "variance"] {
            call.vector(name, Access::Read, columns)?;
        }
        match counted {
            Counted::All => {}
            Counted::Open | Counted::Opened => {
                call.shaped("y", Access::Read, (rows, columns))?;
            }
            Counted::OpenAgain => call.vector("bias", Access::Read, columns)?,
        }
        call.shaped("dy", Access::Read, (rows, columns))?;
        if counted.opens() {
            call.shaped("dt", Access::Write, (rows, columns))?;
        }
        call.shaped("dx", store.access(), (rows, columns))?;
        for name in ["dgain", "dbias", "dmean", "dvariance"] {
            call.vector(name, sums.access(), columns)?;
        }
        Ok(Self { rows, columns, counted, store, sums })
    }
    /// Whether an element counts is one operation, whoever says it: of the norm, x − mean is at hand.
    fn flops(&self) -> u64 {
        let opens = usize::from(self.counted.is_said());
        product([11 + opens, self.rows, self.columns])
    }
    fn scratch(&self) -> usize {
        (2 * pieces(self.rows, self.columns).count() + 3) * self.columns
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        let mut pairs = self.store.replaces([0, self.made()]);
        pairs.extend(self.counted.opens().then_some([SAID, self.made() - 1]));
        pairs
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let x = operands.current(self.made());
        let [gain, mean, variance] = operands.reads();
        let open = (context.threads, fast_activation::relu_backward as Opening<R>);
        let (said, dy) = self.said_and_gradient(&mut operands, open);
        let (y, bias) = self.result_and_bias(said, [dy, mean]);
        let [dx, dgain, dbias, dmean, dvariance] = operands.writes();
        self.average([mean, variance], [dmean, dvariance]);
        with_scratch(self.scratch(), |scratch, _| {
            let (channels, partial) = scratch.split_at_mut(3 * self.columns);
            let (factor, _) = channels.split_at_mut(self.columns);
            fast::factors(gain, variance, factor);
            self.sums(context, [x.all(dx), y, dy], [mean, factor, bias], partial);
            let (first, _) = partial.split_at_mut(2 * self.columns);
            let (along, total) = first.split_at(self.columns);
            let sums = [gain, variance, along, total];
            fast::channel_factors(self.rows, sums, channels);
            fast::gain_slopes([along, variance], dgain, self.sums);
            self.sums.put_all(dbias, total);
            let channels = Channels::new([mean, bias], channels);
            self.spread(context, (x, [y, dy]), channels, dx);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let x = operands.current(self.made());
        let norm @ [gain, mean, variance] = operands.reads::<3>();
        let open = (1, plain_activation::relu_backward as Opening<R>);
        let (said, dy) = self.said_and_gradient(&mut operands, open);
        let [dx, dgain, dbias, dmean, dvariance] = operands.writes();
        self.average([mean, variance], [dmean, dvariance]);
        let open = |i: usize, x: R| match self.counted {
            Counted::All | Counted::Opened => true,
            Counted::Open => said[i] > R::ZERO,
            Counted::OpenAgain => {
                let channel = [gain, said, mean, variance].map(|own| own[i % own.len()]);
                plain::normal(x, channel) > R::ZERO
            }
        };
        let dy_at = |i: usize, x: R| if open(i, x) { dy[i] } else { R::ZERO };
        let stores = [self.store, self.sums];
        plain::backward((x, norm), dy_at, [dx, dgain, dbias], stores);
    }
}

/// What the gradient of x needs of every channel:
/// dx = scale · (dy − shift − (x − mean) · slope).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels<'a, R> {
    pub(crate) mean: &'a [R],
    pub(crate) scale: &'a [R],
    pub(crate) shift: &'a [R],
    pub(crate) slope: &'a [R],
    /// The norm is (x − mean) · scale + bias, where it is made again.
    pub(crate) bias: &'a [R],
}

impl<'a, R> Channels<'a, R> {
    fn new([mean, bias]: [&'a [R]; 2], factors: &'a [R]) -> Self {
        let (scale, others) = factors.split_at(mean.len());
        let (shift, slope) = others.split_at(mean.len());
        Self { mean, scale, shift, slope, bias }
    }

    /// Those of a part of a row, or of all where there are whole rows.
    fn part(self, first: usize, length: usize) -> Self {
        let end = self.mean.len().min(first + length);
        let own = |channels: &'a [R]| &channels[first..end];
        let Self { mean, scale, shift, slope, bias } = self;
        let [mean, scale, shift, slope, bias] =
            [mean, scale, shift, slope, bias].map(own);
        Self { mean, scale, shift, slope, bias }
    }
}

impl BatchNormBackward {
    /// The operand dx.
    pub(crate) fn made(&self) -> usize {
        SAID + 1 + usize::from(self.counted.is_said()) + usize::from(self.counted.opens())
    }

    /// The variance of what the rows are samples of, in terms of the rows' own.
    pub(crate) fn unbiased(&self) -> f64 {
        self.rows as f64 / (self.rows as f64 - 1.0)
    }

    /// What a micro-batch adds to the averages of its statistics: the mean, and the variance of what its
    /// rows are samples of.
    fn average<R: Real>(
        &self,
        [mean, variance]: [&[R]; 2],
        [dmean, dvariance]: [&mut [R]; 2],
    ) {
        self.sums.put_all(dmean, mean);
        let unbiased = R::of(self.unbiased());
        for (dvariance, variance) in dvariance.iter_mut().zip(variance) {
            self.sums.put(dvariance, *variance * unbiased);
        }
    }

    /// What says which elements count, and dy; twice a gradient of which all count where there is one.
    fn said_and_gradient<'a, R: Real>(
        &self,
        operands: &mut Operands<'a, R>,
        (threads, open): (usize, Opening<R>),
    ) -> (&'a [R], &'a [R]) {
        match self.counted {
            Counted::All => {
                let dy = operands.read();
                (dy, dy)
            }
            Counted::Open | Counted::OpenAgain => (operands.read(), operands.read()),
            Counted::Opened => {
                let y = operands.current(self.made() - 1);
                let (dy, dt) = (operands.read(), operands.write());
                let cut = Cut::of_elements(threads, dt.len(), 1);
                each_slope_of((y, dy, &mut *dt), cut, |y, dy, dt| {
                    open(y, dy, dt, Store::Write);
                });
                (dt, dt)
            }
        }
    }

    /// y and the bias, of which one is what says it; the others' lengths are right, and nobody looks
    /// at them.
    fn result_and_bias<'a, R: Real>(
        &self,
        said: &'a [R],
        [dy, mean]: [&'a [R]; 2],
    ) -> (&'a [R], &'a [R]) {
        match self.counted {
            Counted::All | Counted::Open | Counted::Opened => (said, mean),
            Counted::OpenAgain => (dy, said),
        }
    }

    /// Σ dy · (x − mean) and Σ dy of every channel, in the first two rows of `partial`.
    fn sums<R: Real>(
        &self,
        context: &Context,
        [x, y, dy]: [&[R]; 3],
        channels @ [mean, ..]: [&[R]; 3],
        partial: &mut [R],
    ) {
        let width = 2 * self.columns;
        let (pieces, partial) = (pieces(self.rows, self.columns), (partial, width));
        let threads = context.threads;
        let join = |_, partial: &mut [R]| join_rows(partial, width);
        match self.counted {
            Counted::All | Counted::Opened => {
                let sums = |_, inputs: [&[R]; 2], partial: &mut [R]| {
                    fast::sums(inputs, mean, partial);
                };
                pieces.each(threads, [x, dy], partial, sums, join);
            }
            Counted::Open => {
                let sums = |_, inputs: [&[R]; 3], partial: &mut [R]| {
                    fast::open_sums(inputs, mean, partial);
                };
                pieces.each(threads, [x, y, dy], partial, sums, join);
            }
            Counted::OpenAgain => {
                let sums = |_, inputs: [&[R]; 2], partial: &mut [R]| {
                    fast::open_sums_again(inputs, channels, partial);
                };
                pieces.each(threads, [x, dy], partial, sums, join);
            }
        }
    }

    /// dx.
    fn spread<R: Real>(
        &self,
        context: &Context,
        (x, slopes): (Current<'_, R>, [&[R]; 2]),
        channels: Channels<'_, R>,
        dx: &mut [R],
    ) {
        let (store, columns) = (self.store, self.columns);
        let cut = Cut::new(context.threads, self.rows, COST * columns);
        let rows = cut.rows;
        let share = rows * columns;
        cut.each(dx.chunks_mut(share).enumerate(), |(part, dx)| {
            let range = part * share..part * share + dx.len();
            let slopes = slopes.map(|slopes| &slopes[range.clone()]);
            x.part(range).replace_rows(dx, columns, |first, x, dx| {
                let [y, dy] = slopes.map(|slopes| &slopes[first..first + dx.len()]);
                let channels = channels.part(first % columns, dx.len());
                match self.counted {
                    Counted::All | Counted::Opened => {
                        fast::spread([x, dy], channels, dx, store);
                    }
                    Counted::Open => fast::open_spread([x, y, dy], channels, dx, store),
                    Counted::OpenAgain => {
                        fast::open_spread_again([x, dy], channels, dx, store);
                    }
                }
            });
        });
    }
}
