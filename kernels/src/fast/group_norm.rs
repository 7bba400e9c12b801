//! Vectorised group normalisation: sums of every channel along the rows of an example, then
//! over the channels of a group.

use crate::{
    Real, fast::batch_norm as channels, group_norm::Groups, norm::EPSILON,
    segments::add_rows, simd::vectorize, store::Store,
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
        [*mean, *rstd] = joined(positions, centers, squares);
        centers.fill(*mean);
        for (factor, gain) in factors.iter_mut().zip(gain) {
            *factor = *rstd * *gain;
        }
    }
    let factors = &factors[..columns];
    channels::normalise(x, [&*centers, factors, bias], y);
}

/// Mean and 1/√(variance + ε) of channels with their own means and Σ (x − mean)².
fn joined<R: Real>(positions: R, centers: &[R], squares: &[R]) -> [R; 2] {
    let width = R::of(centers.len() as f64);
    let mean = centers.iter().copied().sum::<R>() / width;
    let apart = centers.iter().map(|center| (*center - mean) * (*center - mean));
    let within = squares.iter().copied().sum::<R>();
    let variance = (within + positions * apart.sum::<R>()) / (positions * width);
    [mean, R::ONE / (variance + R::of(EPSILON)).sqrt()]
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
        for (center, mean) in own[..columns].chunks_mut(width).zip(mean) {
            center.fill(*mean);
        }
        sums(x, dy, own);
        factors(width, positions, [gain, rstd], own, parameters);
        spread([x, dy], own, dx, store);
    }
}

vectorize! {
    /// Σ dy · (x − mean) and Σ dy of every channel, in the second and third row of `own`; the
    /// first has the means.
    fn sums<R>(x: &[R], dy: &[R], own: &mut [R]) {
        let columns = own.len() / 5;
        let (mean, rest) = own.split_at_mut(columns);
        let (along, rest) = rest.split_at_mut(columns);
        let total = &mut rest[..columns];
        along.fill(R::ZERO);
        total.fill(R::ZERO);
        add_rows([x, dy], [&*mean], along, total, |[x, dy], [mean]| [dy * (x - mean), dy]);
    }
}

/// Adds an example to the parameters' gradients; makes scale, shift and slope of its channels
/// in rows two to four of `own`.
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
        let sum = |row: usize, own: &[R]| -> R {
            group.clone().map(|j| own[row + j] * gain[j]).sum()
        };
        let average = *rstd * share * sum(total, own);
        let bend = *rstd * *rstd * *rstd * share * sum(along, own);
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
    /// dx = dy · scale − shift − (x − mean) · slope.
    fn spread<R>(inputs: [&[R]; 2], own: &[R], dx: &mut [R], store: Store) {
        let [x, dy] = inputs;
        let columns = own.len() / 5;
        let row = |row: usize| &own[row * columns..][..columns];
        let channels = [row(0), row(1), row(3), row(4)];
        let rows = x.chunks(columns).zip(dy.chunks(columns));
        for ((x, dy), dx) in rows.zip(dx.chunks_mut(columns)) {
            crate::fast::batch_norm::add_each(
                [x, dy], channels, dx, store, |[x, dy], [mean, scale, shift, slope]| {
                    (mean - x).fused(slope, dy.fused(scale, -shift))
                },
            );
        }
    }
}
