//! An item of a device's list: one pass, or a pair of a forward and a backward pass that
//! the device does at once, spelled as PyTorch spells it: `(0F3;7B1)OVERLAP_F_B`.

use super::Listed;
use crate::{Pass, spelled::held_as_text};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What ends the spelling of a pair.
const PAIR: &str = "OVERLAP_F_B";

/// What a device does before it goes on in its list.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub enum Item {
    /// One pass.
    One(Listed),
    /// A forward pass, and beside it a backward pass.
    Pair([Listed; 2]),
    /// A forward pass, and beside it both halves of a backward pass, I and then W.
    Halves([Listed; 3]),
}

/// What a device does, in order.
pub type DeviceList = Vec<Item>;

impl Item {
    /// A pass by its numbers.
    pub fn new(pass: Pass, stage: u32, micro_batch: u32) -> Self {
        Item::One(Listed::new(pass, stage, micro_batch))
    }

    /// Its passes; the forward pass of a pair stands first.
    pub fn passes(&self) -> &[Listed] {
        match self {
            Item::One(listed) => std::slice::from_ref(listed),
            Item::Pair(passes) => passes,
            Item::Halves(passes) => passes,
        }
    }

    /// The pass itself, or the forward pass of a pair.
    pub fn first(&self) -> Listed {
        match self {
            Item::One(first) | Item::Pair([first, ..]) | Item::Halves([first, ..]) => {
                *first
            }
        }
    }

    /// Whether it is a pair.
    pub fn is_pair(&self) -> bool {
        !matches!(self, Item::One(_))
    }

    /// Of its passes in any order.
    ///
    /// # Errors
    /// When they are neither one pass nor a forward pass and a backward pass.
    pub fn of(mut passes: Vec<Listed>) -> Result<Self, String> {
        let order = |listed: &Listed| match listed.pass {
            Pass::Forward => 0,
            Pass::Backward | Pass::InputGradient => 1,
            Pass::WeightGradient | Pass::Combine | Pass::Norm | Pass::Update => 2,
        };
        passes.sort_by_key(order);
        let whole =
            |first: Pass, second| (first, second) == (Pass::Forward, Pass::Backward);
        match passes[..] {
            [one] => Ok(Item::One(one)),
            [first, second] if whole(first.pass, second.pass) => {
                Ok(Item::Pair([first, second]))
            }
            [first, second, third]
                if first.pass == Pass::Forward
                    && second.pass == Pass::InputGradient
                    && third == (Listed { pass: Pass::WeightGradient, ..second }) =>
            {
                Ok(Item::Halves([first, second, third]))
            }
            _ => {
                Err("a pair is a forward pass and a backward pass, whole or both halves \
                      of it, such as `(0F3;7B1)OVERLAP_F_B` or `(0F3;7I1;7W1)OVERLAP_F_B`"
                    .to_owned())
            }
        }
    }
}

impl From<Listed> for Item {
    fn from(listed: Listed) -> Self {
        Item::One(listed)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Item::One(listed) = self {
            return listed.fmt(f);
        }
        let passes: Vec<String> = self.passes().iter().map(Listed::to_string).collect();
        write!(f, "({}){PAIR}", passes.join(";"))
    }
}

impl FromStr for Item {
    type Err = String;

    /// Reads a whole cell: what does not match to its end is refused.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(pair) = text.strip_suffix(PAIR) else {
            return text.parse().map(Item::One);
        };
        let inner = pair.strip_prefix('(').and_then(|pair| pair.strip_suffix(')'));
        let passes = inner.unwrap_or_default().split(';').map(str::parse);
        let passes: Vec<Listed> = match inner {
            Some(_) => passes.collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        match Item::of(passes)? {
            Item::One(_) => Err(format!("`{text}` is a pair of one pass")),
            pair => Ok(pair),
        }
    }
}

held_as_text!(Item);

/// The passes of a list, in order; the forward pass of a pair stands first.
pub fn listed_in(list: &[Item]) -> impl Iterator<Item = Listed> {
    list.iter().flat_map(|item| item.passes().iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_reads_back_with_its_forward_pass_first() {
        for (text, spelled) in [
            ("3F1", "3F1"),
            ("(0F3;7B1)OVERLAP_F_B", "(0F3;7B1)OVERLAP_F_B"),
            ("(7B1;0F3)OVERLAP_F_B", "(0F3;7B1)OVERLAP_F_B"),
            ("(7W1;0F3;7I1)OVERLAP_F_B", "(0F3;7I1;7W1)OVERLAP_F_B"),
        ] {
            assert_eq!(text.parse::<Item>().unwrap().to_string(), spelled);
        }
        for text in [
            "()OVERLAP_F_B",
            "OVERLAP_F_B",
            "(0F3)OVERLAP_F_B",
            "(0F3;0F4)OVERLAP_F_B",
            "(0F3;7I1)OVERLAP_F_B",
            "(0F3;7I1;6W1)OVERLAP_F_B",
            "(0F3;7I1;7W2)OVERLAP_F_B",
            "(0F3;7B1;7B2)OVERLAP_F_B",
            "(0F3;7B1)OVERLAP_F_Bx",
            "(0F3,7B1)OVERLAP_F_B",
        ] {
            assert!(text.parse::<Item>().is_err(), "{text}");
        }
    }
}
