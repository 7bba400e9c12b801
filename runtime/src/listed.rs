//! Mistakes in a list.

use roundelay_schedule::printable;
use std::fmt::{Display, Write};

/// Most mistakes that are told one by one.
const TOLD: usize = 50;

/// Each on a line of its own, below what it belongs to; of very many the first ones. Names in them come
/// from files of others.
pub(crate) fn listed(mistakes: &[impl Display]) -> String {
    let told = mistakes.iter().take(TOLD).map(ToString::to_string);
    let mut list =
        told.fold(String::new(), |list, mistake| list + "\n  " + &printable(&mistake));
    if let more @ 1.. = mistakes.len().saturating_sub(TOLD) {
        write!(list, "\n  and {more} more").expect("a string takes all text");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_the_first_ones_are_told() {
        assert_eq!(listed(&["a", "b\u{1b}[31m\nc"]), "\n  a\n  b\\u{1b}[31m\\nc");
        assert_eq!(listed(&["a"; TOLD]).lines().count(), 1 + TOLD);
        let many = listed(&["a"; 20_000]);
        assert_eq!(many.lines().count(), 2 + TOLD);
        assert!(many.ends_with("\n  and 19950 more"), "{many}");
    }
}
