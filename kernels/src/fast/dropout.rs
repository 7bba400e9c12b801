//! Vectorised dropout.

use crate::{dropout::Mask, simd::vectorize, store::Store};

vectorize! {
    /// out_i = x_i · mask_i.
    pub(crate) fn apply<R>(x: &[R], out: &mut [R], mask: &Mask, store: Store) {
        let scale = R::of(mask.scale());
        for ((x, out), i) in x.iter().zip(out).zip(0..) {
            let kept = if mask.keeps(i) { scale } else { R::ZERO };
            store.put(out, *x * kept);
        }
    }
}
