//! Counter-based random numbers: pure functions of a seed, stream labels and an index.
//!
//! The one home of chance: dropout masks, initialisers, the order of data. A number does not
//! depend on what was drawn before, so it is the same on every device, in every order.

use std::f64::consts::TAU;

/// An endless sequence of independent numbers, each found by its index alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    keys: [u64; 2],
}

impl Stream {
    /// The sequence of one seed and one list of labels; other lists give unrelated sequences.
    pub fn new(seed: u64, labels: &[u64]) -> Self {
        let start = [mix(seed), mix(seed ^ GOLDEN)];
        let fold = |key: u64| {
            let folded = labels.iter().fold(key, |key, label| {
                mix(key.rotate_left(23) ^ mix(label.wrapping_add(GOLDEN)))
            });
            mix(folded ^ labels.len() as u64)
        };
        Self { keys: start.map(fold) }
    }

    /// 64 random bits: two rounds of SplitMix64's finalizer (Steele, Lea, Flood 2014), with a
    /// key before each.
    #[inline(always)]
    pub fn bits(&self, index: u64) -> u64 {
        let [first, second] = self.keys;
        mix(mix(index.wrapping_mul(GOLDEN) ^ first).wrapping_add(second))
    }

    /// Uniform in [0, 1): a multiple of 2^−53.
    #[inline(always)]
    pub fn uniform(&self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A whole number below `bound`, which is not zero; the bias is below bound · 2^−64.
    pub fn below(&self, index: u64, bound: u64) -> u64 {
        ((u128::from(self.bits(index)) * u128::from(bound)) >> 64) as u64
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&self, index: u64) -> f64 {
        let radius = 1.0 - self.uniform(index.wrapping_mul(2));
        let angle = self.uniform(index.wrapping_mul(2).wrapping_add(1));
        libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(TAU * angle)
    }
}

/// 2^64 divided by the golden ratio, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64, a bijection.
#[inline(always)]
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u64 = 100_000;

    #[test]
    fn uniform_has_the_moments_of_uniform() {
        let stream = Stream::new(7, &[1, 2]);
        let mean = (0..COUNT).map(|i| stream.uniform(i)).sum::<f64>() / COUNT as f64;
        let square =
            (0..COUNT).map(|i| stream.uniform(i).powi(2)).sum::<f64>() / COUNT as f64;
        assert!((mean - 0.5).abs() < 4e-3, "{mean}");
        assert!((square - 1.0 / 3.0).abs() < 4e-3, "{square}");
        assert!((0..COUNT).all(|i| (0.0..1.0).contains(&stream.uniform(i))));
    }

    #[test]
    fn normal_has_the_moments_of_normal() {
        let stream = Stream::new(7, &[3]);
        let moment = |power: i32| {
            (0..COUNT).map(|i| stream.normal(i).powi(power)).sum::<f64>() / COUNT as f64
        };
        let moments = [moment(1), moment(2) - 1.0, moment(3), moment(4) - 3.0];
        assert!(moments.iter().all(|error| error.abs() < 0.08), "{moments:?}");
    }

    #[test]
    fn streams_of_other_labels_are_unrelated() {
        let streams = [
            Stream::new(0, &[]),
            Stream::new(1, &[]),
            Stream::new(0, &[0]),
            Stream::new(0, &[0, 0]),
            Stream::new(0, &[1, 2]),
            Stream::new(0, &[2, 1]),
        ];
        for (place, left) in streams.iter().enumerate() {
            for right in &streams[..place] {
                let equal_bits: u32 =
                    (0..1000).map(|i| (left.bits(i) ^ right.bits(i)).count_zeros()).sum();
                assert!((31_000..33_000).contains(&equal_bits), "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn below_stays_below_and_meets_every_value() {
        let stream = Stream::new(5, &[]);
        let mut counts = [0u32; 7];
        (0..7000).for_each(|i| counts[stream.below(i, 7) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
