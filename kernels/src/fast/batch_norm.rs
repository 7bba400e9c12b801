//! Vectorised batch normalisation: along rows, all channels at once.

use crate::{
    Real, batch_norm::Channels, norm::EPSILON, segments::add_rows, simd::vectorize,
    store::Store,
};

/// Elements after which sums start anew, so that they stay short.
const BLOCK: usize = 8192;

/// Elements of narrow rows that are made at once: a loop over fewer takes longer to begin than to run.
pub(crate) const WIDE: usize = 256;

/// Elements of the gradient that are masked at once: they stay in the nearest cache.
const OPENED: usize = 8192;

vectorize! {
    /// Mean and Σ (x − mean)² of every channel, in the first two of the four rows of `partial`.
    ///
    /// One pass: a block is summed around the mean of those before it, and joined by the rule
    /// of Chan, Golub and LeVeque (1979). Only the first block is read twice.
    pub(crate) fn moments<R>(x: &[R], partial: &mut [R]) {
        let columns = partial.len() / 4;
        let (mean, rest) = partial.split_at_mut(columns);
        let (squares, rest) = rest.split_at_mut(columns);
        let (sum, square) = rest.split_at_mut(columns);
        let block = (BLOCK / columns).max(4) * columns;
        mean.copy_from_slice(&x[..columns]);
        squares.fill(R::ZERO);
        let first = &x[..block.min(x.len())];
        sum_around(first, mean, sum, square);
        let share = R::ONE / R::of((first.len() / columns) as f64);
        for (mean, sum) in mean.iter_mut().zip(&*sum) {
            *mean += *sum * share;
        }
        let mut before = 0.0;
        for x in x.chunks(block) {
            sum_around(x, mean, sum, square);
            let count = (x.len() / columns) as f64;
            let own = R::of(1.0 / count);
            let weights = weights(before, count);
            let both = mean.iter_mut().zip(&mut *squares);
            for ((mean, squares), (sum, square)) in both.zip(sum.iter().zip(&*square)) {
                let delta = *sum * own;
                let inside = *square - *sum * delta;
                [*mean, *squares] = joined([*mean, *squares], [delta, inside], weights);
            }
            before += count;
        }
    }
}

/// Σ (x − center) and Σ (x − center)² of every channel.
#[inline(always)]
fn sum_around<R: Real>(x: &[R], center: &[R], sum: &mut [R], square: &mut [R]) {
    sum.fill(R::ZERO);
    square.fill(R::ZERO);
    add_rows([x], [center], sum, square, |[x], [center]| {
        let delta = x - center;
        [delta, delta * delta]
    });
}

/// What joins `count` values to the ones before: their share, and the weight of δ².
#[inline(always)]
fn weights<R: Real>(before: f64, count: f64) -> [R; 2] {
    let share = count / (before + count);
    [R::of(share), R::of(before * share)]
}

/// Mean and squares with those of more values, whose mean lies `delta` from the mean.
#[inline(always)]
fn joined<R: Real>(
    [mean, squares]: [R; 2],
    [delta, inside]: [R; 2],
    [share, weight]: [R; 2],
) -> [R; 2] {
    [delta.fused(share, mean), (delta * delta).fused(weight, squares + inside)]
}

/// Mean and variance of all segments, each with its number of rows, in order.
pub(crate) fn join_moments<'a, R: Real>(
    segments: impl Iterator<Item = (usize, &'a [R])>,
    mean: &mut [R],
    variance: &mut [R],
) {
    let rows = join_squares(own_moments(segments, mean.len()), mean, variance);
    let share = R::of(1.0 / rows as f64);
    variance.iter_mut().for_each(|variance| *variance *= share);
}

/// Means and squares of segments, which come first in what each has.
pub(crate) fn own_moments<'a, R: Real>(
    segments: impl Iterator<Item = (usize, &'a [R])>,
    columns: usize,
) -> impl Iterator<Item = (usize, [&'a [R]; 2])> {
    segments.map(move |(rows, own)| (rows, [&own[..columns], &own[columns..2 * columns]]))
}

/// Mean and Σ (x − mean)² of all segments, of the number of rows and the moments of each, in order;
/// and the number of all rows.
pub(crate) fn join_squares<'a, R: Real>(
    segments: impl Iterator<Item = (usize, [&'a [R]; 2])>,
    mean: &mut [R],
    squares: &mut [R],
) -> usize {
    mean.fill(R::ZERO);
    squares.fill(R::ZERO);
    let mut before = 0;
    for (count, own) in segments {
        join_segment(own, weights(before as f64, count as f64), mean, squares);
        before += count;
    }
    before
}

vectorize! {
    /// The same with one segment more.
    fn join_segment<R>(
        own: [&[R]; 2], weights: [R; 2], mean: &mut [R], squares: &mut [R],
    ) {
        let [means, inside] = own;
        let both = mean.iter_mut().zip(squares);
        for ((mean, all), (other, inside)) in both.zip(means.iter().zip(inside)) {
            [*mean, *all] = joined([*mean, *all], [*other - *mean, *inside], weights);
        }
    }
}

/// 1 / √(variance + ε).
pub(crate) fn rstd<R: Real>(variance: R) -> R {
    R::ONE / (variance + R::of(EPSILON)).sqrt()
}

/// factor = gain / √(variance + ε).
pub(crate) fn factors<R: Real>(gain: &[R], variance: &[R], factor: &mut [R]) {
    for ((gain, variance), factor) in gain.iter().zip(variance).zip(factor) {
        *factor = *gain * rstd(*variance);
    }
}

vectorize! {
    /// y = (x − mean) · factor + bias.
    pub(crate) fn normalise<R>(x: &[R], channels: [&[R]; 3], y: &mut [R]) {
        each_row([x], channels, y, Store::Write, |[x], channel| normal(x, channel));
    }
}

vectorize! {
    /// y = max((x − mean) · factor + bias, 0).
    pub(crate) fn normalise_relu<R>(x: &[R], channels: [&[R]; 3], y: &mut [R]) {
        each_row([x], channels, y, Store::Write, |[x], channel| {
            normal(x, channel).rectified()
        });
    }
}

vectorize! {
    /// y = (x − mean) · factor + bias + residual.
    pub(crate) fn normalise_add<R>(
        inputs: [&[R]; 2], channels: [&[R]; 3], y: &mut [R],
    ) {
        each_row(inputs, channels, y, Store::Write, |[x, residual], channel| {
            normal(x, channel) + residual
        });
    }
}

vectorize! {
    /// y = max((x − mean) · factor + bias + residual, 0).
    pub(crate) fn normalise_add_relu<R>(
        inputs: [&[R]; 2], channels: [&[R]; 3], y: &mut [R],
    ) {
        each_row(inputs, channels, y, Store::Write, |[x, residual], channel| {
            (normal(x, channel) + residual).rectified()
        });
    }
}

/// The norm, forward and where backward makes it again, in the same bits.
#[inline(always)]
fn normal<R: Real>(x: R, [mean, factor, bias]: [R; 3]) -> R {
    (x - mean).fused(factor, bias)
}

vectorize! {
    /// Σ dy · (x − mean) and Σ dy of every channel.
    pub(crate) fn sums<R>(inputs: [&[R]; 2], mean: &[R], partial: &mut [R]) {
        partial.fill(R::ZERO);
        let (along, total) = partial.split_at_mut(mean.len());
        add_rows(inputs, [mean], along, total, |[x, dy], [mean]| [dy * (x - mean), dy]);
    }
}

vectorize! {
    /// The same of dy where y > 0.
    pub(crate) fn open_sums<R>(inputs: [&[R]; 3], mean: &[R], partial: &mut [R]) {
        partial.fill(R::ZERO);
        let (along, total) = partial.split_at_mut(mean.len());
        // Rows are summed in groups of four, none of which may go into two blocks.
        let block = open_block(mean.len(), 4);
        if block == 0 {
            return add_rows(inputs, [mean], along, total, |[x, y, dy], [mean]| {
                let dy = masked(y, dy);
                [dy * (x - mean), dy]
            });
        }
        let mut opened = [R::ZERO; OPENED];
        let [x, y, dy] = inputs.map(|input| input.chunks(block));
        for ((x, y), dy) in x.zip(y).zip(dy) {
            let dy = open(y, dy, &mut opened);
            add_rows([x, dy], [mean], along, total, |[x, dy], [mean]| [dy * (x - mean), dy]);
        }
    }
}

vectorize! {
    /// The same of dy where (x − mean) · factor + bias > 0.
    pub(crate) fn open_sums_again<R>(
        inputs: [&[R]; 2], channels: [&[R]; 3], partial: &mut [R],
    ) {
        partial.fill(R::ZERO);
        let [mean, ..] = channels;
        let (along, total) = partial.split_at_mut(mean.len());
        let block = open_block(mean.len(), 4);
        if block == 0 {
            return add_rows(inputs, channels, along, total, |[x, dy], channel| {
                let dy = masked(normal(x, channel), dy);
                [dy * (x - channel[0]), dy]
            });
        }
        let mut opened = [R::ZERO; OPENED];
        let [x, dy] = inputs.map(|input| input.chunks(block));
        for (x, dy) in x.zip(dy) {
            let dy = open_again([x, dy], channels, &mut opened);
            add_rows([x, dy], [mean], along, total, |[x, dy], [mean]| [dy * (x - mean), dy]);
        }
    }
}

vectorize! {
    /// dt = dy where (x − mean) · factor + bias > 0.
    pub(crate) fn rectify_again<R>(
        inputs: [&[R]; 2], channels: [&[R]; 3], dt: &mut [R], store: Store,
    ) {
        each_row(inputs, channels, dt, store, |[x, dy], channel| {
            masked(normal(x, channel), dy)
        });
    }
}

#[inline(always)]
fn masked<R: Real>(y: R, dy: R) -> R {
    if y > R::ZERO { dy } else { R::ZERO }
}

/// Elements of as many whole groups of rows as are masked at once; zero where rows are so wide
/// that not one group is.
#[inline(always)]
fn open_block(columns: usize, group: usize) -> usize {
    OPENED / (columns * group) * (columns * group)
}

/// dy where y > 0, in `opened`. Masks in loops that read several rows, or numbers of channels,
/// take a multiple of the time.
#[inline(always)]
fn open<'a, R: Real>(y: &[R], dy: &[R], opened: &'a mut [R; OPENED]) -> &'a [R] {
    let opened = &mut opened[..y.len()];
    for ((y, dy), opened) in y.iter().zip(dy).zip(&mut *opened) {
        *opened = masked(*y, *dy);
    }
    opened
}

/// dy where (x − mean) · factor + bias > 0, in `opened`.
#[inline(always)]
fn open_again<'a, R: Real>(
    [x, dy]: [&[R]; 2],
    channels: [&[R]; 3],
    opened: &'a mut [R; OPENED],
) -> &'a [R] {
    let opened = &mut opened[..x.len()];
    each_row([x], channels, opened, Store::Write, |[x], channel| normal(x, channel));
    for (opened, dy) in opened.iter_mut().zip(dy) {
        *opened = masked(*opened, *dy);
    }
    opened
}

/// Scale, shift and slope of [`Channels`], one row of `factors` each.
pub(crate) fn channel_factors<R: Real>(
    rows: usize,
    [gain, variance, along, total]: [&[R]; 4],
    factors: &mut [R],
) {
    let columns = gain.len();
    let share = R::of(1.0 / rows as f64);
    let (scale, others) = factors.split_at_mut(columns);
    let (shift, slope) = others.split_at_mut(columns);
    for j in 0..columns {
        let rstd = rstd(variance[j]);
        scale[j] = gain[j] * rstd;
        shift[j] = total[j] * share;
        slope[j] = along[j] * rstd * rstd * share;
    }
}

/// dgain = Σ dy · (x − mean) / √(variance + ε).
pub(crate) fn gain_slopes<R: Real>(
    [along, variance]: [&[R]; 2],
    dgain: &mut [R],
    sums: Store,
) {
    for ((along, variance), dgain) in along.iter().zip(variance).zip(dgain) {
        sums.put(dgain, *along * rstd(*variance));
    }
}

vectorize! {
    /// dx = scale · (dy − shift − (x − mean) · slope).
    pub(crate) fn spread<R>(
        inputs: [&[R]; 2], channels: Channels<'_, R>, dx: &mut [R], store: Store,
    ) {
        spread_rows(inputs, channels, dx, store);
    }
}

vectorize! {
    /// The same of dy where y > 0.
    pub(crate) fn open_spread<R>(
        inputs: [&[R]; 3], channels: Channels<'_, R>, dx: &mut [R], store: Store,
    ) {
        let Channels { mean, scale, shift, slope, .. } = channels;
        let block = open_block(mean.len(), 1);
        let length = block.max(mean.len());
        let mut opened = [R::ZERO; OPENED];
        let [x, y, dy] = inputs.map(|input| input.chunks(length));
        for (((x, y), dy), dx) in x.zip(y).zip(dy).zip(dx.chunks_mut(length)) {
            if block == 0 {
                let channels = [mean, scale, shift, slope];
                add_each([x, y, dy], channels, dx, store, |[x, y, dy], channel| {
                    back(x, masked(y, dy), channel)
                });
            } else {
                spread_rows([x, open(y, dy, &mut opened)], channels, dx, store);
            }
        }
    }
}

vectorize! {
    /// The same of dy where (x − mean) · scale + bias > 0.
    pub(crate) fn open_spread_again<R>(
        inputs: [&[R]; 2], channels: Channels<'_, R>, dx: &mut [R], store: Store,
    ) {
        let Channels { mean, scale, shift, slope, bias } = channels;
        let block = open_block(mean.len(), 1);
        let length = block.max(mean.len());
        let mut opened = [R::ZERO; OPENED];
        let [x, dy] = inputs.map(|input| input.chunks(length));
        for ((x, dy), dx) in x.zip(dy).zip(dx.chunks_mut(length)) {
            if block == 0 {
                let channels = [mean, scale, shift, slope, bias];
                add_each([x, dy], channels, dx, store, |[x, dy], channel| {
                    let [mean, scale, shift, slope, bias] = channel;
                    let dy = masked(normal(x, [mean, scale, bias]), dy);
                    back(x, dy, [mean, scale, shift, slope])
                });
            } else {
                let dy = open_again([x, dy], [mean, scale, bias], &mut opened);
                spread_rows([x, dy], channels, dx, store);
            }
        }
    }
}

#[inline(always)]
fn spread_rows<R: Real>(
    [x, dy]: [&[R]; 2],
    channels: Channels<'_, R>,
    dx: &mut [R],
    store: Store,
) {
    let Channels { mean, scale, shift, slope, .. } = channels;
    each_row([x, dy], [mean, scale, shift, slope], dx, store, |[x, dy], channel| {
        back(x, dy, channel)
    });
}

#[inline(always)]
fn back<R: Real>(x: R, dy: R, [mean, scale, shift, slope]: [R; 4]) -> R {
    scale * (mean - x).fused(slope, dy - shift)
}

/// Elements of the rows that are made as one, of this many in all: those of one row, unless rows are
/// narrow.
#[inline(always)]
pub(crate) fn together(columns: usize, elements: usize) -> usize {
    let several = WIDE / columns * columns;
    if several > columns && elements >= 2 * several { several } else { columns }
}

/// The channels again and again.
#[inline(always)]
pub(crate) fn copy_each<R: Real>(channel: &[R], copies: &mut [R]) {
    let copies = copies.chunks_mut(channel.len());
    copies.for_each(|copy| copy.copy_from_slice(channel));
}

/// All rows, element by element, stored or added. Several narrow rows are made as one, of as many
/// copies of the channels.
#[inline(always)]
pub(crate) fn each_row<R: Real, const K: usize, const P: usize>(
    inputs: [&[R]; K],
    channels: [&[R]; P],
    out: &mut [R],
    store: Store,
    make: impl Fn([R; K], [R; P]) -> R,
) {
    let columns = channels[0].len();
    let length = together(columns, out.len());
    let mut copies = [[R::ZERO; WIDE]; P];
    let channels = if length > columns {
        for (copies, channel) in copies.iter_mut().zip(channels) {
            copy_each(channel, &mut copies[..length]);
        }
        copies.each_ref().map(|copies| &copies[..length])
    } else {
        channels
    };
    for (row, out) in out.chunks_mut(length).enumerate() {
        let own = inputs.map(|input| &input[row * length..]);
        add_each(own, channels, out, store, &make);
    }
}

/// One row, element by element, stored or added.
#[inline(always)]
fn add_each<R: Real, const K: usize, const P: usize>(
    inputs: [&[R]; K],
    channels: [&[R]; P],
    out: &mut [R],
    store: Store,
    make: impl Fn([R; K], [R; P]) -> R,
) {
    let columns = out.len();
    let inputs = inputs.map(|input| &input[..columns]);
    let channels = channels.map(|channel| &channel[..columns]);
    match store {
        Store::Write => {
            for (j, out) in out.iter_mut().enumerate() {
                *out = make(inputs.map(|x| x[j]), channels.map(|x| x[j]));
            }
        }
        Store::Add => {
            for (j, out) in out.iter_mut().enumerate() {
                *out += make(inputs.map(|x| x[j]), channels.map(|x| x[j]));
            }
        }
    }
}
