//! Plain matrix product.

use crate::{Real, matmul::Matmul, store::Store};

/// out_ij = Σ_l a_il · b_lj.
pub(crate) fn matmul<R: Real>(
    shape: &Matmul,
    a: &[R],
    b: &[R],
    out: &mut [R],
    store: Store,
) {
    let (rows, columns) = (shape.a_strides(), shape.b_strides());
    for (i, row) in out.chunks_mut(shape.n).enumerate() {
        for (j, out) in row.iter_mut().enumerate() {
            let left = |l: usize| a[i * rows.row + l * rows.column];
            let right = |l: usize| b[l * columns.row + j * columns.column];
            store.put(out, (0..shape.k).map(|l| left(l) * right(l)).sum());
        }
    }
}
