//! Plain copies of rows; memory is all that they take, so there is no faster form.

use crate::{Real, rows::Window, store::Store};

/// out = the window of every sequence of x.
pub(crate) fn slice<R: Real>(window: &Window, x: &[R], out: &mut [R], store: Store) {
    for (x, out) in x.chunks(window.whole).zip(out.chunks_mut(window.length)) {
        for (x, out) in x[window.start..].iter().zip(out) {
            store.put(out, *x);
        }
    }
}

/// out = the window of every sequence of x.
pub(crate) fn slice_integers(window: &Window, x: &[i32], out: &mut [i32]) {
    for (x, out) in x.chunks(window.whole).zip(out.chunks_mut(window.length)) {
        out.copy_from_slice(&x[window.start..][..window.length]);
    }
}

/// dx = dy in the window of every sequence, zero elsewhere.
pub(crate) fn slice_backward<R: Real>(
    window: &Window,
    dy: &[R],
    dx: &mut [R],
    store: Store,
) {
    store.clear(dx);
    for (dy, dx) in dy.chunks(window.length).zip(dx.chunks_mut(window.whole)) {
        for (dy, dx) in dy.iter().zip(&mut dx[window.start..]) {
            *dx += *dy;
        }
    }
}

/// y = the row, then x, in every sequence.
pub(crate) fn prepend<R: Real>(length: usize, x: &[R], row: &[R], y: &mut [R]) {
    for (x, y) in x.chunks(length).zip(y.chunks_mut(length + row.len())) {
        let (first, rest) = y.split_at_mut(row.len());
        first.copy_from_slice(row);
        rest.copy_from_slice(x);
    }
}
