//! Plain table look-up and its gradient.

use crate::{Real, embedding::row_of, store::Store};

/// y_i = table\[tokens_i\].
pub(crate) fn embedding<R: Real>(
    tokens: &[i32],
    table: &[R],
    y: &mut [R],
    columns: usize,
) {
    for (token, y) in tokens.iter().zip(y.chunks_mut(columns)) {
        y.copy_from_slice(&table[row_of(*token, table.len() / columns, columns)]);
    }
}

/// dtable\[k\] = Σ dy_i over all i with tokens_i = k, in order of i.
pub(crate) fn embedding_backward<R: Real>(
    tokens: &[i32],
    dy: &[R],
    dtable: &mut [R],
    columns: usize,
    store: Store,
) {
    if store == Store::Write {
        dtable.fill(R::ZERO);
    }
    let rows = dtable.len() / columns;
    for (token, dy) in tokens.iter().zip(dy.chunks(columns)) {
        let target = &mut dtable[row_of(*token, rows, columns)];
        for (target, dy) in target.iter_mut().zip(dy) {
            *target += *dy;
        }
    }
}
