//! Plain sums, products and copies.

use crate::{Real, store::Store};

/// out = a + b, where b repeats.
pub(crate) fn add<R: Real>(a: &[R], b: &[R], out: &mut [R]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = a[i] + b[i % b.len()];
    }
}

/// x += bias in every row.
pub(crate) fn add_rows<R: Real>(bias: &[R], x: &mut [R]) {
    for (i, x) in x.iter_mut().enumerate() {
        *x += bias[i % bias.len()];
    }
}

/// out += x.
pub(crate) fn accumulate<R: Real>(x: &[R], out: &mut [R]) {
    for (x, out) in x.iter().zip(out) {
        *out += *x;
    }
}

/// out = x.
pub(crate) fn copy<R: Real>(x: &[R], out: &mut [R]) {
    out.copy_from_slice(x);
}

/// out = 0.
pub(crate) fn zero<R: Real>(out: &mut [R]) {
    out.fill(R::ZERO);
}

/// out_j = Σ_i x_ij.
pub(crate) fn sum_rows<R: Real>(x: &[R], out: &mut [R], store: Store) {
    let columns = out.len();
    for (j, out) in out.iter_mut().enumerate() {
        store.put(out, x.chunks(columns).map(|row| row[j]).sum());
    }
}

/// out = a · b, where b repeats.
pub(crate) fn multiply<R: Real>(a: &[R], b: &[R], out: &mut [R], store: Store) {
    for (i, out) in out.iter_mut().enumerate() {
        store.put(out, a[i] * b[i % b.len()]);
    }
}

/// out_j = Σ_i a_ij · b_ij.
pub(crate) fn multiply_sum_rows<R: Real>(a: &[R], b: &[R], out: &mut [R], store: Store) {
    let columns = out.len();
    for (j, out) in out.iter_mut().enumerate() {
        let rows = a.chunks(columns).zip(b.chunks(columns));
        store.put(out, rows.map(|(a, b)| a[j] * b[j]).sum());
    }
}

/// out = factor · x.
pub(crate) fn scale<R: Real>(x: &[R], out: &mut [R], factor: R, store: Store) {
    for (x, out) in x.iter().zip(out) {
        store.put(out, factor * *x);
    }
}
