//! Common divisors and multiples: after how many turns several rings stand as before.

/// The greatest common divisor; with zero it is the other number.
pub fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// The least common multiple of numbers that are not both zero; saturates.
pub fn lcm(one: u64, other: u64) -> u64 {
    (one / gcd(one, other)).saturating_mul(other)
}
