//! Vectorised group normalisation: sums of every channel along the rows of an example, then
//! over the channels of a group.

use crate::{
    Real,
    fast::batch_norm::{self as channels, each_row},
    group_norm::Groups,
    simd::vectorize,
    store::Store,
};

/// Scratch rows of one segment in the backward pass: the two parameter sums come first.
pub(crate) const BACKWARD_ROWS: usize = 7;

/// One example: y = (x − mean) · rstd · gain + bias. `scratch` has four rows of channels.
pub(crate) fn example<R: Real>(
    [x, gain, bias]: [&[R]; 3],
    y: &mut [R],
    mean: &mut [R],
    rstd: &mut [R],
    scratch: &mut [R],
) {
    let columns = gain.len();
    let width = columns / mean.len();
    channels::moments(x, scratch);
    let (centers, rest) = scratch.split_at_mut(columns);
    let (squares, factors) = rest.split_at_mut(columns);
    let positions = R::of((x.len() / columns) as f64);
    let groups = centers.chunks_mut(width).zip(squares.chunks(width));
    let groups = groups.zip(factors.chunks_mut(width)).zip(gain.chunks(width));
    let statistics = mean.iter_mut().zip(rstd);
    for ((((centers, squares), factors), gain), (mean, rstd)) in groups.zip(statistics) {
        let [center, squares] = joined(positions, centers, squares);
        let variance = squares / (positions * R::of(width as f64));
        (*mean, *rstd) = (center, channels::rstd(variance));
        centers.fill(*mean);
        for (factor, gain) in factors.iter_mut().zip(gain) {
            *factor = *rstd * *gain;
        }
    }
    let factors = &factors[..columns];
    channels::normalise(x, [&*centers, factors, bias], y);
}

/// Mean and Σ (x − mean)² of channels with their own means and squares.
pub(crate) fn joined<R: Real>(positions: R, centers: &[R], squares: &[R]) -> [R; 2] {
    let width = R::of(centers.len() as f64);
    let mean = centers.iter().copied().sum::<R>() / width;
    let apart = centers.iter().map(|center| (*center - mean) * (*center - mean));
    let within = squares.iter().copied().sum::<R>();
    [mean, within + positions * apart.sum::<R>()]
}

/// The number of a group at each of its channels.
pub(crate) fn at_channels<R: Real>(groups: &[R], channels: &mut [R]) {
    let width = channels.len() / groups.len();
    for (channels, group) in channels.chunks_mut(width).zip(groups) {
        channels.fill(*group);
    }
}

/// Σ gain · sum over the channels of a group.
pub(crate) fn weighed<R: Real>(gain: &[R], sums: &[R]) -> R {
    gain.iter().zip(sums).map(|(gain, sum)| *sum * *gain).sum()
}

/// The examples of one segment: dx, and dgain and dbias in the first rows of `scratch`.
pub(crate) fn backward<R: Real>(
    extents: Groups,
    [x, gain, mean, rstd, dy]: [&[R]; 5],
    dx: &mut [R],
    scratch: &mut [R],
    store: Store,
) {
    let Groups { positions, columns, width, .. } = extents;
    let (parameters, own) = scratch.split_at_mut(2 * columns);
    parameters.fill(R::ZERO);
    let size = positions * columns;
    let groups = columns / width;
    let statistics = mean.chunks(groups).zip(rstd.chunks(groups));
    let inputs = x.chunks(size).zip(dy.chunks(size)).zip(statistics);
    for (((x, dy), (mean, rstd)), dx) in inputs.zip(dx.chunks_mut(size)) {
        let (center, others) = own.split_at_mut(columns);
        at_channels(mean, center);
        channels::sums([x, dy], center, &mut others[..2 * columns]);
        factors(width, positions, [gain, rstd], own, parameters);
        let row = |row: usize| &own[row * columns..][..columns];
        spread([x, dy], [row(0), row(1), row(3), row(4)], dx, store);
    }
}

/// Adds an example to the parameters' gradients; of the means and sums of its channels, in rows
/// zero to two of `own`, makes scale, shift and slope, in rows one, three and four.
fn factors<R: Real>(
    width: usize,
    positions: usize,
    [gain, rstd]: [&[R]; 2],
    own: &mut [R],
    parameters: &mut [R],
) {
    let columns = gain.len();
    let share = R::of(1.0 / (positions * width) as f64);
    let (dgain, dbias) = parameters.split_at_mut(columns);
    let [along, total, shift, slope] = [1, 2, 3, 4].map(|row| row * columns);
    for (group, rstd) in rstd.iter().enumerate() {
        let group = group * width..(group + 1) * width;
        let sum = |row: usize| weighed(&gain[group.clone()], &own[row..][group.clone()]);
        let average = *rstd * share * sum(total);
        let bend = *rstd * *rstd * *rstd * share * sum(along);
        for j in group.clone() {
            dgain[j] += own[along + j] * *rstd;
            dbias[j] += own[total + j];
            own[along + j] = gain[j] * *rstd;
            own[shift + j] = average;
            own[slope + j] = bend;
        }
    }
}

vectorize! {
    /// dx = dy · scale − shift − (x − mean) · slope, of `channels` in this order: mean, scale,
    /// shift, slope.
    pub(crate) fn spread<R>(
        inputs: [&[R]; 2], channels: [&[R]; 4], dx: &mut [R], store: Store,
    ) {
        each_row(inputs, channels, dx, store, |[x, dy], [mean, scale, shift, slope]| {
            (mean - x).fused(slope, dy.fused(scale, -shift))
        });
    }
}
