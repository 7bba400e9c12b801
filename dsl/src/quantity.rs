//! Numbers with a unit.

use crate::{Code, Mistake, near, token::UNITS};

/// What a quantity measures, with the unit in which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Bytes.
    Memory,
    /// Bytes per second, one way.
    ByteRate,
    /// Floating-point operations per second.
    FlopRate,
    /// Nanoseconds.
    Time,
    /// Billionths of a US dollar per hour.
    Price,
}

/// A whole number of bytes, bytes per second, operations per second, nanoseconds, or billionths
/// of a US dollar per hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// What it measures.
    pub dimension: Dimension,
    /// How much.
    pub amount: u64,
}

impl Dimension {
    /// How messages name it, with an example.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Dimension::Memory => "a size such as `2 GB`",
            Dimension::ByteRate => "a data rate such as `8 GB/s`",
            Dimension::FlopRate => "an arithmetic rate such as `40 GFLOP/s`",
            Dimension::Time => "a time such as `2 us`",
            Dimension::Price => "a price such as `2.5 USD/h`",
        }
    }

    /// The unit that most programs write.
    pub(crate) fn usual(self) -> &'static str {
        match self {
            Dimension::Memory => "GB",
            Dimension::ByteRate => "GB/s",
            Dimension::FlopRate => "TFLOP/s",
            Dimension::Time => "us",
            Dimension::Price => "USD/h",
        }
    }

    /// One of what is counted.
    pub(crate) fn least(self) -> &'static str {
        match self {
            Dimension::Memory => "one byte",
            Dimension::ByteRate => "one byte a second",
            Dimension::FlopRate => "one operation a second",
            Dimension::Time => "one nanosecond",
            Dimension::Price => "a billionth of a dollar an hour",
        }
    }
}

/// `2.5 us` as a quantity: digits with a unit of the closed list, rounded to whole counts.
pub(crate) fn quantity(digits: &str, unit: &str) -> Result<Quantity, Mistake> {
    let Some((dimension, scale, divisor)) = scale(unit) else {
        return Err(Mistake { code: Code::Unit, ..near::unknown("unit", unit, UNITS) });
    };
    let whole = digits.parse::<u64>().ok();
    // Half a count is rounded up, as `rounded` does it.
    let exact =
        whole.and_then(|whole| whole.checked_mul(scale)?.checked_add(divisor / 2));
    let amount = match (exact, digits.parse::<f64>()) {
        (Some(amount), _) => Some(amount / divisor).filter(|amount| *amount < LARGEST),
        (None, Ok(amount)) => rounded(amount * scale as f64 / divisor as f64),
        (None, Err(_)) => None,
    };
    let amount = amount.ok_or_else(|| {
        Mistake::new(Code::Value, format!("`{digits} {unit}` is too large"))
    })?;
    Ok(Quantity { dimension, amount })
}

/// Every quantity is below this; two of them add up.
pub(crate) const LARGEST: u64 = 1 << 63;

/// A whole amount that a quantity may have.
pub(crate) fn rounded(amount: f64) -> Option<u64> {
    (amount < LARGEST as f64).then_some(amount.round() as u64)
}

/// Dimension, and how many counts one unit is, as a fraction: a bit is an eighth of a byte.
fn scale(unit: &str) -> Option<(Dimension, u64, u64)> {
    if unit == "USD/h" {
        return Some((Dimension::Price, 1_000_000_000, 1));
    }
    let (amount, dimension) = match unit.strip_suffix("/s") {
        Some(amount) if amount.ends_with("FLOP") => (amount, Dimension::FlopRate),
        Some(amount) => (amount, Dimension::ByteRate),
        None => (unit, Dimension::Memory),
    };
    if let (Dimension::Memory, Some(nanos)) = (dimension, nanos(unit)) {
        return Some((Dimension::Time, nanos, 1));
    }
    let prefix = match dimension {
        Dimension::FlopRate => amount.strip_suffix("FLOP")?,
        _ => amount.strip_suffix(['B', 'b'])?,
    };
    let divisor = if amount.ends_with('b') { 8 } else { 1 };
    Some((dimension, prefixed(prefix)?, divisor))
}

fn nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn prefixed(prefix: &str) -> Option<u64> {
    Some(match prefix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_as_they_are_defined() {
        let cases = [
            ("2", "GB", Dimension::Memory, 2_000_000_000),
            ("2", "GiB", Dimension::Memory, 2 << 30),
            ("200", "Gb/s", Dimension::ByteRate, 25_000_000_000),
            ("4.8", "TB/s", Dimension::ByteRate, 4_800_000_000_000),
            ("2.5", "us", Dimension::Time, 2_500),
            ("40", "GFLOP/s", Dimension::FlopRate, 40_000_000_000),
            ("1", "b", Dimension::Memory, 0),
            ("12", "b", Dimension::Memory, 2),
            ("15", "b", Dimension::Memory, 2),
            ("15.0", "b", Dimension::Memory, 2),
            ("2.5", "USD/h", Dimension::Price, 2_500_000_000),
        ];
        for (digits, unit, dimension, amount) in cases {
            let found = quantity(digits, unit);
            assert_eq!(found, Ok(Quantity { dimension, amount }), "{digits} {unit}");
        }
    }

    #[test]
    fn every_unit_of_the_list_is_known_and_nothing_overflows() {
        for unit in UNITS {
            assert!(quantity("1", unit).is_ok(), "{unit}");
            assert!(quantity("1e30", unit).is_err(), "{unit}");
        }
        let largest = ["9223372036854775807", "9223372036854774784.5"];
        assert!(largest.iter().all(|digits| quantity(digits, "B").is_ok()));
        let larger = ["9223372036854775808", "9223372036854775808.5"];
        assert!(larger.iter().all(|digits| quantity(digits, "B").is_err()));
    }
}
