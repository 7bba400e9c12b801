//! Quantities with their unit in the type; integers, so that two costs always compare.

use serde::{Deserialize, Serialize};
use std::{fmt, iter::Sum, ops};

macro_rules! define_units {
    ($($(#[$doc:meta])* $name:ident $show:path;)*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl ops::Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl ops::Mul<u64> for $name {
            type Output = Self;
            fn mul(self, factor: u64) -> Self {
                Self(self.0.saturating_mul(factor))
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), |total, item| total + item)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $show(self.0, f)
            }
        }
    )*};
}

define_units! {
    /// A size in memory or of a message.
    Bytes show_bytes;
    /// A span or a point of time; arithmetic saturates, so "never" stays never.
    Nanos show_nanos;
    /// A number of floating-point operations.
    Flops show_flops;
    /// A rate of data, one way.
    BytesPerSecond show_byte_rate;
    /// A rate of arithmetic.
    FlopsPerSecond show_flop_rate;
}

/// A share of something, in thousandths; a rate may be more than all of another one.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
)]
#[serde(transparent)]
pub struct Thousandths(pub u32);

impl Thousandths {
    /// Nothing of it.
    pub const NONE: Self = Self(0);
    /// The whole.
    pub const ALL: Self = Self(1000);

    /// The nearest thousandths to a number where 1 is the whole; none where it is negative, too
    /// large or not a number.
    pub fn from_share(share: f64) -> Option<Self> {
        let thousandths = (share * f64::from(Self::ALL.0)).round();
        let is_share = (0.0..=f64::from(u32::MAX)).contains(&thousandths);
        is_share.then_some(Self(thousandths as u32))
    }

    /// As a number where 1 is the whole.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }

    /// This share of an amount, rounded down; saturates.
    pub fn of(self, amount: u64) -> u64 {
        let thousandths = u128::from(amount) * u128::from(self.0);
        u64::try_from(thousandths / u128::from(Self::ALL.0)).unwrap_or(u64::MAX)
    }

    /// Which share of `whole` this one is, rounded down; saturates, also where `whole` is nothing.
    pub fn over(self, whole: Self) -> Self {
        let thousandths = u64::from(self.0) * u64::from(Self::ALL.0);
        let quotient = thousandths.checked_div(u64::from(whole.0));
        Self(quotient.and_then(|share| u32::try_from(share).ok()).unwrap_or(u32::MAX))
    }

    /// Whether it is the whole.
    pub fn is_all(&self) -> bool {
        *self == Self::ALL
    }

    /// Whether it is nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl Nanos {
    /// Later than everything that is counted: 584 years.
    pub const NEVER: Self = Self(u64::MAX);
}

impl Bytes {
    /// The time to move this many bytes at `rate`, rounded up; never at rate zero.
    pub fn at(self, rate: BytesPerSecond) -> Nanos {
        time(self.0, rate.0)
    }
    /// The smallest multiple of `alignment` that is not less.
    pub fn align_up(self, alignment: u64) -> Self {
        Self(self.0.div_ceil(alignment) * alignment)
    }
}

impl Flops {
    /// The time for this much arithmetic at `rate`, rounded up; never at rate zero.
    pub fn at(self, rate: FlopsPerSecond) -> Nanos {
        time(self.0, rate.0)
    }
}

fn time(amount: u64, per_second: u64) -> Nanos {
    match (amount, per_second) {
        (0, _) => Nanos(0),
        (_, 0) => Nanos::NEVER,
        _ => {
            let billionths = u128::from(amount) * 1_000_000_000;
            let nanos = billionths.div_ceil(u128::from(per_second));
            u64::try_from(nanos).map_or(Nanos::NEVER, Nanos)
        }
    }
}

fn scaled(value: u64, units: [&str; 5], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut power = 0;
    let mut scale = 1u64;
    while power + 1 < units.len() && value >= too_many(scale) {
        scale *= 1000;
        power += 1;
    }
    let text = match power {
        0 => format!("{value} {}", units[0]),
        _ => format!("{:.2} {}", value as f64 / scale as f64, units[power]),
    };
    f.pad(&text)
}

/// What is shown as 1000 of a unit or more: whole numbers of the smallest, two decimals of others.
fn too_many(scale: u64) -> u64 {
    match scale {
        1 => 1000,
        _ => scale / 1000 * 999_995,
    }
}

/// A number of things, by the name of one of them; several take an s, or es after a hiss.
pub fn counted(number: u64, name: &str) -> String {
    match number {
        1 => format!("1 {name}"),
        _ if name.ends_with("ch") || name.ends_with('s') => format!("{number} {name}es"),
        _ => format!("{number} {name}s"),
    }
}

fn show_bytes(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    scaled(value, ["B", "kB", "MB", "GB", "TB"], f)
}
fn show_nanos(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match Nanos(value) {
        Nanos::NEVER => f.pad("> 584 years"),
        Nanos(value) => scaled(value, ["ns", "us", "ms", "s", "ks"], f),
    }
}
fn show_flops(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    scaled(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], f)
}
fn show_byte_rate(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    scaled(value, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], f)
}
fn show_flop_rate(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    scaled(value, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"], f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_up_and_never_overflow() {
        assert_eq!(Bytes(0).at(BytesPerSecond(0)), Nanos(0));
        assert_eq!(Bytes(1).at(BytesPerSecond(0)), Nanos(u64::MAX));
        assert_eq!(Bytes(1).at(BytesPerSecond(3_000_000_000)), Nanos(1));
        assert_eq!(Bytes(u64::MAX).at(BytesPerSecond(1)), Nanos(u64::MAX));
        assert_eq!(Flops(6).at(FlopsPerSecond(2_000_000_000)), Nanos(3));
    }

    #[test]
    fn thousandths_are_shares() {
        const SHARES: [u32; 7] = [0, 1, 333, 999, 1000, 1400, u32::MAX];
        const AMOUNTS: [u64; 6] = [0, 1, 7, 999, 1_000_003, u64::MAX];
        for share in SHARES.map(Thousandths) {
            assert_eq!(Thousandths::from_share(share.share()), Some(share));
            assert_eq!(share.over(Thousandths::ALL), share);
            assert_eq!(share.of(1000), u64::from(share.0));
        }
        for amount in AMOUNTS {
            let parts = SHARES.map(|share| Thousandths(share).of(amount));
            assert!(parts.is_sorted(), "{parts:?}");
            assert_eq!((parts[0], parts[4]), (0, amount));
        }
        for share in SHARES.map(Thousandths) {
            assert!(AMOUNTS.map(|amount| share.of(amount)).is_sorted(), "{share:?}");
        }
        assert_eq!(Thousandths(1400).of(u64::MAX), u64::MAX);
        assert_eq!(Thousandths(700).over(Thousandths(500)), Thousandths(1400));
        assert_eq!(Thousandths(1).over(Thousandths::NONE), Thousandths(u32::MAX));
        assert_eq!(Thousandths::from_share(0.0004), Some(Thousandths::NONE));
        assert_eq!(Thousandths::from_share(0.0006), Some(Thousandths(1)));
        for wrong in [-0.001, f64::NAN, f64::INFINITY, 5e6] {
            assert_eq!(Thousandths::from_share(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn one_of_many_things_is_no_plural() {
        let counts = [1, 0, 2].map(|number| counted(number, "micro-batch"));
        assert_eq!(counts, ["1 micro-batch", "0 micro-batches", "2 micro-batches"]);
        assert_eq!([counted(3, "pass"), counted(4, "stage")], ["3 passes", "4 stages"]);
    }

    #[test]
    fn quantities_print_with_a_fitting_unit() {
        assert_eq!(Bytes(999).to_string(), "999 B");
        assert_eq!(Bytes(1_500_000).to_string(), "1.50 MB");
        assert_eq!(Bytes(999_994).to_string(), "999.99 kB");
        assert_eq!(Bytes(999_995).to_string(), "1.00 MB");
        assert_eq!(Nanos(999_994_999_999).to_string(), "999.99 s");
        assert_eq!(Nanos(999_995_000_000).to_string(), "1.00 ks");
        assert_eq!(Nanos(2_000).to_string(), "2.00 us");
        assert_eq!(format!("{:>12}", Nanos::NEVER), " > 584 years");
    }
}
