//! Embeddings and affine maps.

use super::{Derivative, Site};
use crate::stage::call::call;

/// y = table[tokens]; dtable[token] += dy.
pub(super) fn embedding(site: &Site<'_>) -> Derivative {
    let [tokens, table] = site.operands();
    let width = table.shape.last().copied().unwrap_or(1);
    let tokens = tokens.flat();
    let dy = site.gradient().rows_of(width);
    let step = |dtable| call("embedding_backward", [tokens.clone(), dy.clone(), dtable]);
    let y = site.result().rows_of(width);
    Derivative {
        forward: vec![call("embedding", [tokens.clone(), table, y])],
        backward: site.each([(1, &step)]),
    }
}

/// y = x Wᵀ + b; dx = dy W, dW = dyᵀ x, db = Σ rows of dy.
pub(super) fn linear(site: &Site<'_>) -> Derivative {
    let [x, weight] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let product = call("matmul", [x.clone(), weight.clone(), y.clone()]);
    let bias = site.optional(2).map(|bias| call("add_rows", [bias, y]));
    Derivative {
        forward: [product.flag("transpose_b")].into_iter().chain(bias).collect(),
        backward: site.each([
            (1, &|dweight| {
                call("matmul", [dy.clone(), x.clone(), dweight]).flag("transpose_a")
            }),
            (2, &|dbias| call("sum_rows", [dy.clone(), dbias])),
            (0, &|dx| call("matmul", [dy.clone(), weight.clone(), dx.matrix()])),
        ]),
    }
}
