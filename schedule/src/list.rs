//! A device's own list of passes, in the order in which it takes them, spelled as PyTorch's
//! pipeline schedules spell it: stage, pass, micro-batch, as in `3B5`.

mod faults;
mod item;
mod of;
mod times;

pub use faults::{ListFault, list_faults, plan_faults};
pub use item::{DeviceList, Item, listed_in};
pub use of::{Unlisted, lists_of};
pub use times::{ItemTime, Stuck, item_times, pass_length};

use crate::{Id, MicroBatch, Pass, Stage};
use std::{fmt, str::FromStr};

/// One pass of one stage on one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listed {
    /// The stage.
    pub stage: Stage,
    /// The pass: F, B, I or W.
    pub pass: Pass,
    /// The micro-batch.
    pub micro_batch: MicroBatch,
}

impl Listed {
    /// A pass by its numbers.
    pub fn new(pass: Pass, stage: u32, micro_batch: u32) -> Self {
        let (stage, micro_batch) =
            (Stage::numbered(stage), MicroBatch::numbered(micro_batch));
        Self { stage, pass, micro_batch }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, pass, micro_batch } = self;
        write!(f, "{}{pass}{}", stage.index(), micro_batch.index())
    }
}

impl FromStr for Listed {
    type Err = String;

    /// Reads a whole cell: what does not match to its end is refused.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected stage, pass (F, B, I or W) and micro-batch such as `0F3`, found `{text}`"
            )
        };
        let letter = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (stage, rest) = text.split_at(letter);
        let mut characters = rest.chars();
        let pass = match characters.next() {
            Some('F') => Pass::Forward,
            Some('B') => Pass::Backward,
            Some('I') => Pass::InputGradient,
            Some('W') => Pass::WeightGradient,
            _ => return Err(wrong()),
        };
        let digits = characters.as_str();
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| wrong());
        if !plain || stage.is_empty() {
            return Err(wrong());
        }
        Ok(Self::new(pass, number(stage)?, number(digits)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_reads_back_and_trailing_text_is_refused() {
        for text in ["0F0", "12B345", "3I7", "2W1"] {
            assert_eq!(text.parse::<Listed>().unwrap().to_string(), text);
        }
        for text in
            ["", "0", "F0", "0F", "0X1", "0F0xyz", "0FOO", "0F-1", "0BATCH3", "0F 1"]
        {
            assert!(text.parse::<Listed>().is_err(), "{text}");
        }
    }
}
