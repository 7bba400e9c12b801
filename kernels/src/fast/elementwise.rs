//! Vectorised sums and products. A sum over rows is a chain per column, in order of rows.

use crate::{simd::vectorize, store::Store};

vectorize! {
    /// out = a + b, where b repeats.
    pub(crate) fn add<R>(a: &[R], b: &[R], out: &mut [R]) {
        for (a, out) in a.chunks(b.len()).zip(out.chunks_mut(b.len())) {
            for ((a, b), out) in a.iter().zip(b).zip(out) {
                *out = *a + *b;
            }
        }
    }
}

vectorize! {
    /// x += bias in every row.
    pub(crate) fn add_rows<R>(bias: &[R], x: &mut [R]) {
        for x in x.chunks_mut(bias.len()) {
            for (x, bias) in x.iter_mut().zip(bias) {
                *x += *bias;
            }
        }
    }
}

vectorize! {
    /// out += x.
    pub(crate) fn accumulate<R>(x: &[R], out: &mut [R]) {
        for (x, out) in x.iter().zip(out) {
            *out += *x;
        }
    }
}

/// Rows that are added in one pass over the sums.
const TOGETHER: usize = 4;

vectorize! {
    /// out_j = Σ_i x_ij for the columns from `first` on.
    pub(crate) fn sum_rows<R>(
        x: &[R], columns: usize, first: usize, out: &mut [R], store: Store,
    ) {
        store.clear(out);
        let mut groups = x.chunks_exact(columns * TOGETHER);
        for group in &mut groups {
            let row = |row: usize| &group[row * columns + first..][..out.len()];
            let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
            let rows = a.iter().zip(b).zip(c.iter().zip(d));
            for (((a, b), (c, d)), out) in rows.zip(&mut *out) {
                *out = *out + *a + *b + *c + *d;
            }
        }
        for row in groups.remainder().chunks(columns) {
            for (x, out) in row[first..].iter().zip(&mut *out) {
                *out += *x;
            }
        }
    }
}

vectorize! {
    /// out = a · b, where b repeats.
    pub(crate) fn multiply<R>(a: &[R], b: &[R], out: &mut [R], store: Store) {
        for (a, out) in a.chunks(b.len()).zip(out.chunks_mut(b.len())) {
            for ((a, b), out) in a.iter().zip(b).zip(out) {
                store.put(out, *a * *b);
            }
        }
    }
}

vectorize! {
    /// out_j = Σ_i a_ij · b_ij.
    pub(crate) fn multiply_sum_rows<R>(a: &[R], b: &[R], out: &mut [R], store: Store) {
        store.clear(out);
        for (a, b) in a.chunks(out.len()).zip(b.chunks(out.len())) {
            for ((a, b), out) in a.iter().zip(b).zip(&mut *out) {
                *out = a.fused(*b, *out);
            }
        }
    }
}

vectorize! {
    /// out = factor · x.
    pub(crate) fn scale<R>(x: &[R], out: &mut [R], factor: R, store: Store) {
        for (x, out) in x.iter().zip(out) {
            store.put(out, factor * *x);
        }
    }
}
