//! Vectorised normalisation of images whose pixels are divided, by the loops of batch and group norm:
//! sums of every channel along rows, then over the channels of a group.

use crate::{
    Real,
    fast::{
        batch_norm::{self as channels, WIDE, copy_each, own_moments, rstd, together},
        group_norm::{self as groups, at_channels, weighed},
    },
    store::Store,
};

/// What an example is normalised with: gain of each channel, mean and variance of each group.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a, R> {
    pub(crate) gain: &'a [R],
    pub(crate) mean: &'a [R],
    pub(crate) variance: &'a [R],
}

/// Mean and Σ (x − mean)² of every channel of a segment, in the first two of the four rows of
/// `partial`; of narrow rows several as if they were one, and then the channels of all of these.
pub(crate) fn moments<R: Real>(x: &[R], partial: &mut [R]) {
    let columns = partial.len() / 4;
    let length = together(columns, x.len());
    if length == columns {
        return channels::moments(x, partial);
    }
    let (whole, rest) = x.split_at(x.len() / length * length);
    let mut wide = [R::ZERO; 8 * WIDE];
    let (wide, last) = wide.split_at_mut(4 * length);
    channels::moments(whole, wide);
    let (means, squares) = wide[..2 * length].split_at(length);
    let copies = means.chunks(columns).zip(squares.chunks(columns));
    let copies = copies.map(|(mean, squares)| (whole.len() / length, [mean, squares]));
    let last = (!rest.is_empty()).then(|| {
        channels::moments(rest, &mut last[..4 * columns]);
        (rest.len() / columns, [&last[..columns], &last[columns..2 * columns]])
    });
    let (mean, others) = partial.split_at_mut(columns);
    channels::join_squares(copies.chain(last), mean, &mut others[..columns]);
}

/// Means of groups and Σ (x − mean)², from the moments of the channels of segments, each with its
/// number of rows. `joined` has two rows of channels.
pub(crate) fn join_moments<'a, R: Real>(
    segments: impl Iterator<Item = (usize, &'a [R])>,
    joined: &mut [R],
    [mean, squares]: [&mut [R]; 2],
) {
    let columns = joined.len() / 2;
    let width = columns / mean.len();
    let (centers, inside) = joined.split_at_mut(columns);
    let segments = own_moments(segments, columns);
    let positions = channels::join_squares(segments, centers, inside);
    let positions = R::of(positions as f64);
    let all = centers.chunks(width).zip(inside.chunks(width));
    for ((centers, inside), (mean, squares)) in all.zip(mean.iter_mut().zip(squares)) {
        [*mean, *squares] = groups::joined(positions, centers, inside);
    }
}

/// y = (x − mean) · rstd · gain + bias for rows of one example. `table` has three rows of channels.
pub(crate) fn normalise<R: Real>(
    x: &[R],
    Norm { gain, mean, variance }: Norm<'_, R>,
    bias: &[R],
    y: &mut [R],
    table: &mut [R],
) {
    let (centers, others) = table.split_at_mut(gain.len());
    let (factors, variances) = others.split_at_mut(gain.len());
    at_channels(mean, centers);
    at_channels(variance, variances);
    channels::factors(gain, variances, factors);
    channels::normalise(x, [&*centers, &*factors, bias], y);
}

/// Σ dy · (x − mean) and Σ dy of every channel of a segment, in the first two of the three rows of
/// `partial`; of narrow rows as for moments.
pub(crate) fn sums<R: Real>(inputs: [&[R]; 2], mean: &[R], partial: &mut [R]) {
    let columns = partial.len() / 3;
    let length = together(columns, inputs[0].len());
    let (sums, centers) = partial.split_at_mut(2 * columns);
    at_channels(mean, centers);
    if length == columns {
        return channels::sums(inputs, centers, sums);
    }
    let whole = inputs[0].len() / length * length;
    channels::sums(inputs.map(|input| &input[whole..]), centers, sums);
    let mut wide = [R::ZERO; 3 * WIDE];
    let (copies, wide) = wide[..3 * length].split_at_mut(length);
    copy_each(centers, copies);
    channels::sums(inputs.map(|input| &input[..whole]), copies, wide);
    for (sums, wide) in sums.chunks_mut(columns).zip(wide.chunks(length)) {
        for copy in wide.chunks(columns) {
            sums.iter_mut().zip(copy).for_each(|(sum, copy)| *sum += *copy);
        }
    }
}

/// Σ g · x̂ and Σ g of the groups of an example, g = dy · gain, from the sums of its channels.
pub(crate) fn join_slopes<R: Real>(
    sums: [&[R]; 2],
    Norm { gain, variance, .. }: Norm<'_, R>,
    [along, total]: [&mut [R]; 2],
) {
    let width = gain.len() / variance.len();
    for (group, variance) in variance.iter().enumerate() {
        let own = group * width..(group + 1) * width;
        let [sum, all] = sums.map(|sums| weighed(&gain[own.clone()], &sums[own.clone()]));
        (along[group], total[group]) = (rstd(*variance) * sum, all);
    }
}

/// dgain += Σ dy · x̂ and dbias += Σ dy of an example, from the sums of its channels.
pub(crate) fn add_parameters<R: Real>(
    [along, total]: [&[R]; 2],
    variance: &[R],
    [dgain, dbias]: [&mut [R]; 2],
) {
    let width = along.len() / variance.len();
    let groups = dgain.chunks_mut(width).zip(along.chunks(width));
    for ((dgain, along), variance) in groups.zip(variance) {
        let rstd = rstd(*variance);
        for (dgain, along) in dgain.iter_mut().zip(along) {
            *dgain += *along * rstd;
        }
    }
    dbias.iter_mut().zip(total).for_each(|(dbias, total)| *dbias += *total);
}

/// dx = rstd · (g − Σ g / all − x̂ · Σ (g · x̂) / all) for rows of one example, the sums over the `all`
/// elements of all parts. `table` has four rows of channels.
pub(crate) fn backward<R: Real>(
    inputs: [&[R]; 2],
    Norm { gain, mean, variance }: Norm<'_, R>,
    [along, total]: [&[R]; 2],
    table: &mut [R],
    (dx, all, store): (&mut [R], usize, Store),
) {
    let columns = gain.len();
    let width = columns / mean.len();
    let share = R::of(1.0 / all as f64);
    let (centers, others) = table.split_at_mut(columns);
    let (scales, others) = others.split_at_mut(columns);
    let (shifts, slopes) = others.split_at_mut(columns);
    for (group, variance) in variance.iter().enumerate() {
        let own = group * width..(group + 1) * width;
        let rstd = rstd(*variance);
        centers[own.clone()].fill(mean[group]);
        shifts[own.clone()].fill(rstd * share * total[group]);
        slopes[own.clone()].fill(rstd * rstd * share * along[group]);
        for (scale, gain) in scales[own.clone()].iter_mut().zip(&gain[own]) {
            *scale = *gain * rstd;
        }
    }
    let channels = [centers, scales, shifts, slopes].map(|own| &*own);
    groups::spread(inputs, channels, dx, store);
}
