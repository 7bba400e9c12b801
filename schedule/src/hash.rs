//! The hash of texts that files and fingerprints carry.

/// FNV-1a, 64 bits (Fowler, Noll, Vo; RFC 9923), of all that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// With these bytes behind the others.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        };
        Self(bytes.iter().fold(self.0, step))
    }

    /// The hash.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        let hashed = |text: &str| Fnv::default().with(text.as_bytes()).value();
        assert_eq!(hashed(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hashed("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hashed("foobar"), 0x8594_4171_f739_67e8);
        let parts = Fnv::default().with(b"foo").with(b"bar");
        assert_eq!(parts.value(), hashed("foobar"));
    }
}
