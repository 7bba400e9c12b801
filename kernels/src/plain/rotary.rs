//! Plain rotary positions.

use crate::{Real, rotary::Rotary, store::Store};

/// (y_i, y_{i + t/2}) = (x_i cos a − x_{i + t/2} sin a, x_{i + t/2} cos a + x_i sin a) for the first
/// t elements of a head, y = x for the others and for heads that stand still.
pub(crate) fn rotary<R: Real>(rotary: &Rotary, x: &[R], y: &mut [R], store: Store) {
    let half = rotary.turned / 2;
    let heads = x.chunks(rotary.depth).zip(y.chunks_mut(rotary.depth)).enumerate();
    for (index, (x, y)) in heads {
        let position = rotary.first + index / rotary.heads % rotary.sequence;
        let stands = rotary.stands(index % rotary.heads);
        let (half, turned) = if stands { (0, 0) } else { (half, rotary.turned) };
        for i in 0..half {
            let (sine, cosine) = libm::sincos(position as f64 * rotary.speed(i));
            let (sine, cosine) = (R::of(sine), R::of(cosine));
            store.put(&mut y[i], x[i] * cosine - x[i + half] * sine);
            store.put(&mut y[i + half], x[i + half] * cosine + x[i] * sine);
        }
        for (x, y) in x.iter().zip(y).skip(turned) {
            store.put(y, *x);
        }
    }
}
