//! Vectorised rotary positions: the angles of some pairs of a row serve all its heads.

use crate::{
    Real, angle::cosine_and_sine, rotary::Rotary, simd::vectorize, store::Store,
};
use std::f64::consts::TAU;

/// Pairs whose angles are kept at a time.
const PAIRS: usize = 32;

/// Rows of x from `first` on.
pub(crate) fn rotary<R: Real>(
    rotary: &Rotary,
    first: usize,
    x: &[R],
    y: &mut [R],
    store: Store,
) {
    let half = rotary.turned / 2;
    for start in (0..half).step_by(PAIRS) {
        let count = PAIRS.min(half - start);
        let mut speeds = [0.0; PAIRS];
        for (i, speed) in speeds[..count].iter_mut().enumerate() {
            *speed = rotary.speed(start + i) / TAU;
        }
        turn(rotary, (first, start), &speeds[..count], (x, y), store);
    }
}

vectorize! {
    /// The pairs from `place.1` on, in rows from `place.0` on.
    fn turn<R>(
        rotary: &Rotary, place: (usize, usize), speeds: &[f64], data: (&[R], &mut [R]),
        store: Store,
    ) {
        let (((first, start), (x, y)), half) = ((place, data), rotary.turned / 2);
        let width = rotary.width();
        for (row, (x, y)) in x.chunks(width).zip(y.chunks_mut(width)).enumerate() {
            let position = (rotary.first + (first + row) % rotary.sequence) as f64;
            let (mut cosines, mut sines) = ([R::ZERO; PAIRS], [R::ZERO; PAIRS]);
            for ((cosine, sine), speed) in cosines.iter_mut().zip(&mut sines).zip(speeds) {
                let (c, s) = cosine_and_sine(position * *speed);
                (*cosine, *sine) = (R::of(c), R::of(s));
            }
            let heads = x.chunks(rotary.depth).zip(y.chunks_mut(rotary.depth));
            for (head, (x, y)) in heads.enumerate() {
                if rotary.stands(head) {
                    if start == 0 {
                        x.iter().zip(y).for_each(|(x, y)| store.put(y, *x));
                    }
                    continue;
                }
                let ((x, still_x), (y, still_y)) =
                    (x.split_at(rotary.turned), y.split_at_mut(rotary.turned));
                if start == 0 {
                    still_x.iter().zip(still_y).for_each(|(x, y)| store.put(y, *x));
                }
                let ((x, later_x), (y, later_y)) = (x.split_at(half), y.split_at_mut(half));
                let [x, later_x] = [x, later_x].map(|x| &x[start..]);
                let [y, later_y] = [y, later_y].map(|y| &mut y[start..]);
                let angles = cosines.iter().zip(&sines).take(speeds.len());
                let from = x.iter().zip(later_x);
                let to = y.iter_mut().zip(later_y);
                for (((cosine, sine), (x, later_x)), (y, later_y)) in angles.zip(from).zip(to) {
                    store.put(y, *x * *cosine - *later_x * *sine);
                    store.put(later_y, *later_x * *cosine + *x * *sine);
                }
            }
        }
    }
}
