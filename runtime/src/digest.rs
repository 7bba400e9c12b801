//! A 64-bit digest of bytes: tells contents apart, and damage from what was written.

/// Fowler–Noll–Vo with eight bytes at a time. Every step is a bijection of what came before, so a
/// change within one word always changes the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    /// Of nothing.
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Takes bytes in, and that they end here.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let rest = self.words(bytes);
        self.end(rest, bytes.len() as u64);
    }

    /// Takes in the whole words that bytes begin with; what is left may not be more than their last part.
    pub(crate) fn words<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        rest
    }

    /// Takes in what is left of bytes, and that so many of them end here.
    pub(crate) fn end(&mut self, rest: &[u8], length: u64) {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last));
        self.mix(length);
    }

    fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }

    /// The digest.
    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[&[u8]]) -> u64 {
        let mut digest = Digest::new();
        parts.iter().for_each(|part| digest.add(part));
        digest.value()
    }

    #[test]
    fn every_flipped_bit_changes_it() {
        let bytes: Vec<u8> = (0..43).collect();
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(&[&bytes]), digest(&[&other]));
        }
    }

    #[test]
    fn the_bounds_of_parts_count() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[b""]), digest(&[]));
        assert_ne!(digest(&[b"a"]), digest(&[b"a\0"]));
    }
}
