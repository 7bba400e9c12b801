//! What the backward pass of a stage computes again.

use crate::{Bytes, Thousandths, spelled::held_as_text};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What the backward pass of a stage computes again; it changes no bit. Those that keep more come
/// first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub enum Recompute {
    /// Nothing: forward keeps all that backward reads.
    None,
    /// As `selective`, for the results that take least traffic, until they save a share of what all
    /// save; as `none` for the others.
    SelectiveIn(Share),
    /// What is cheap: forward keeps results of products, convolutions and attention.
    Selective,
    /// As `full` in the first layers, as `selective` behind them.
    FullIn(Share),
    /// Whole layers: forward keeps what goes into each.
    Full,
}

/// A share of the layers of a stage, or of what a way saves there: more than none of it, and less than
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(Thousandths);

impl Recompute {
    /// Those without shares, in the order in which they are tried and listed.
    pub const ALL: &'static [Self] = &[Self::None, Self::Selective, Self::Full];

    /// The same with shares in steps of a quarter.
    pub const STEPS: &'static [Self] = &[
        Self::None,
        Self::SelectiveIn(Share::QUARTER),
        Self::SelectiveIn(Share::HALF),
        Self::SelectiveIn(Share::THREE_QUARTERS),
        Self::Selective,
        Self::FullIn(Share::QUARTER),
        Self::FullIn(Share::HALF),
        Self::FullIn(Share::THREE_QUARTERS),
        Self::Full,
    ];

    /// The ways of that for which a share does not hold, and of that for which it does.
    pub fn ways(self) -> [Self; 2] {
        match self {
            Self::None | Self::Selective | Self::Full => [self; 2],
            Self::SelectiveIn(_) => [Self::None, Self::Selective],
            Self::FullIn(_) => [Self::Selective, Self::Full],
        }
    }

    /// The same for a share alone; `none` has none.
    pub fn of(self, share: Share) -> Option<Self> {
        match self {
            Self::None => None,
            Self::Selective | Self::SelectiveIn(_) => Some(Self::SelectiveIn(share)),
            Self::Full | Self::FullIn(_) => Some(Self::FullIn(share)),
        }
    }

    /// Places among [`Recompute::ALL`], from `none` on; a share counts as the whole way.
    pub fn rank(self) -> u64 {
        match self {
            Self::None => 0,
            Self::SelectiveIn(_) | Self::Selective => 1,
            Self::FullIn(_) | Self::Full => 2,
        }
    }
}

impl Share {
    const QUARTER: Self = Self(Thousandths(250));
    const HALF: Self = Self(Thousandths(500));
    const THREE_QUARTERS: Self = Self(Thousandths(750));

    /// The share that is nearest to a number between 0 and 1, if there is one.
    pub fn nearest(share: f64) -> Option<Self> {
        let share = Thousandths::from_share(share)?;
        (!share.is_none() && share < Thousandths::ALL).then_some(Self(share))
    }

    /// How many that is of some layers: the nearest number, and one at least.
    pub fn of(self, layers: usize) -> usize {
        let thousandths = layers.saturating_mul(self.0.0 as usize);
        (thousandths.saturating_add(500) / 1000).clamp(1.min(layers), layers)
    }

    /// How much that is of some memory, rounded down.
    pub fn of_bytes(self, whole: Bytes) -> Bytes {
        Bytes(self.0.of(whole.0))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.share())
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::SelectiveIn(share) => f.pad(&format!("selective(share = {share})")),
            Self::Selective => f.pad("selective"),
            Self::FullIn(share) => f.pad(&format!("full(share = {share})")),
            Self::Full => f.pad("full"),
        }
    }
}

impl FromStr for Recompute {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let share = |name: &str| {
            let given = packed.strip_prefix(name)?.strip_prefix("(share=")?;
            Share::nearest(given.strip_suffix(')')?.parse().ok()?)
        };
        let whole = Self::ALL.iter().find(|own| own.to_string() == packed).copied();
        whole
            .or_else(|| share("selective").map(Self::SelectiveIn))
            .or_else(|| share("full").map(Self::FullIn))
            .ok_or_else(|| {
                format!(
                    "unknown recompute `{text}`; known are none, selective, full, and \
                     selective(share = s) and full(share = s) with s between 0 and 1"
                )
            })
    }
}

held_as_text!(Recompute);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_written_and_read() {
        let shares = (1..1000).map(|share| Share(Thousandths(share)));
        let parts =
            shares.flat_map(|s| [Recompute::SelectiveIn(s), Recompute::FullIn(s)]);
        for recompute in Recompute::ALL.iter().copied().chain(parts) {
            assert_eq!(recompute.to_string().parse(), Ok(recompute));
        }
        let quarter = Share::nearest(0.25).unwrap();
        assert_eq!(Recompute::FullIn(quarter).to_string(), "full(share = 0.25)");
        for wrong in ["some", "none(share = 0.5)", "full(share = 1)", "full(share = 0)"] {
            assert!(wrong.parse::<Recompute>().unwrap_err().contains("between 0 and 1"));
        }
    }

    #[test]
    fn a_share_is_the_nearest_number_of_layers() {
        let own = |share: f64, layers| Share::nearest(share).unwrap().of(layers);
        assert_eq!([1, 2, 4, 12].map(|layers| own(0.25, layers)), [1, 1, 1, 3]);
        assert_eq!([own(0.417, 12), own(0.999, 4), own(0.5, 0)], [5, 4, 0]);
        for layers in 1..100 {
            for some in 1..layers {
                assert_eq!(own(some as f64 / layers as f64, layers), some);
            }
        }
        assert_eq!([0.0, 0.0004, 0.9996, 1.0, f64::NAN].map(Share::nearest), [None; 5]);
    }

    #[test]
    fn whoever_keeps_more_comes_first() {
        let steps = Recompute::STEPS;
        assert!(steps.is_sorted() && steps.is_sorted_by_key(|way| way.rank()));
        assert!(Recompute::ALL.iter().all(|way| steps.contains(way)));
    }
}
