//! Common divisors and multiples: after how many turns several rings stand as before. Sums of
//! multiples: where what repeats along several axes stands.

/// The greatest common divisor; with zero it is the other number.
pub fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// The least common multiple of numbers that are not both zero; saturates.
pub fn lcm(one: u64, other: u64) -> u64 {
    (one / gcd(one, other)).saturating_mul(other)
}

/// All sums of 0 to extent − 1 times each stride, of (extent, stride); the last one changes fastest.
pub fn strided(axes: impl IntoIterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut all = vec![0];
    for (extent, stride) in axes {
        let along =
            |head: u32| (0..extent).map(move |coordinate| head + stride * coordinate);
        all = all.into_iter().flat_map(along).collect();
    }
    all
}
