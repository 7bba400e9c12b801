//! Vectorised sums of what several devices bring.

use crate::{simd::vectorize, store::Store};
use std::ops::Range;

/// Elements of which one array after another is added: they stay in the nearest cache.
const BLOCK: usize = 512;

vectorize! {
    /// out = Σ of one range of all arrays, each element from the first to the last.
    pub(crate) fn sum<R>(
        brought: &[&[R]], range: Range<usize>, out: &mut [R], store: Store,
    ) {
        let Some((first, others)) = brought.split_first() else {
            return store.clear(out);
        };
        let mut block = [R::ZERO; BLOCK];
        for (start, out) in range.step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
            let own = start..start + out.len();
            let block = &mut block[..out.len()];
            block.copy_from_slice(&first[own.clone()]);
            for more in others {
                let both = block.iter_mut().zip(&more[own.clone()]);
                both.for_each(|(sum, more)| *sum += *more);
            }
            out.iter_mut().zip(&*block).for_each(|(out, sum)| store.put(out, *sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bits as one element after another, in one block and in several.
    #[test]
    fn every_element_is_summed_from_the_first_to_the_last() {
        for (length, parts) in [(5, 3), (BLOCK, 2), (3 * BLOCK + 7, 5), (BLOCK + 1, 1)] {
            let number =
                |part: usize, i: usize| (1.0 + i as f32).sqrt() / (1 + part) as f32;
            let one = |part| (0..length + 4).map(|i| number(part, i)).collect();
            let arrays: Vec<Vec<f32>> = (0..parts).map(one).collect();
            let brought: Vec<&[f32]> = arrays.iter().map(Vec::as_slice).collect();
            for (store, before) in [(Store::Write, f32::NAN), (Store::Add, 0.3)] {
                let mut out = vec![before; length];
                sum(&brought, 3..3 + length, &mut out, store);
                for (i, out) in out.iter().enumerate() {
                    let all = (1..parts)
                        .fold(number(0, 3 + i), |sum, part| sum + number(part, 3 + i));
                    let mut expected = before;
                    store.put(&mut expected, all);
                    assert_eq!(out.to_bits(), expected.to_bits());
                }
            }
        }
    }
}
