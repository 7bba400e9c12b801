//! Mistakes in a list.

use std::fmt::{Display, Write};

/// Each on a line of its own, below what it belongs to.
pub(crate) fn listed(mistakes: &[impl Display]) -> String {
    mistakes.iter().fold(String::new(), |mut list, mistake| {
        write!(list, "\n  {mistake}").expect("a string takes all text");
        list
    })
}
