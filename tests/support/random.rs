//! Numbers that look random and follow from a seed; the tests of several crates
//! share them.

/// xorshift64* (Vigna 2016).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.bits();
        random
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`; zero when there is nothing below.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 33) as usize % bound.max(1)
    }

    /// Uniform in [−1, 1).
    pub(crate) fn real(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// One of a list; none of an empty one.
    pub(crate) fn pick<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        list.get(self.below(list.len())).cloned()
    }
}
