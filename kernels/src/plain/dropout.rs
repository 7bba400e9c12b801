//! Plain dropout: forward and backward are one multiplication by the mask.

use crate::{Real, dropout::Mask, store::Store};

/// out_i = x_i · mask_i.
pub(crate) fn apply<R: Real>(x: &[R], out: &mut [R], mask: &Mask, store: Store) {
    for (i, (x, out)) in x.iter().zip(out).enumerate() {
        let kept = mask.keeps(i as u64);
        store.put(out, if kept { *x * R::of(mask.scale()) } else { R::ZERO });
    }
}
