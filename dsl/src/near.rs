//! The known name that is nearest to an unknown one.

use crate::{Code, Mistake};

/// Known names that are compared.
const MOST: usize = 500;

/// A hint that names the nearest of the known names, or all of them when none is near.
pub(crate) fn hint<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let known: Vec<&str> = known.into_iter().take(MOST).collect();
    match nearest(found, &known) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if known.is_empty() || known.len() > 24 => None,
        None => Some(format!("known are {}", known.join(", "))),
    }
}

/// A name that nothing defines, with a hint.
pub(crate) fn unknown<'a>(
    what: &str,
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Mistake {
    let mistake = Mistake::new(Code::UnknownName, format!("unknown {what} `{found}`"));
    mistake.near(found, known)
}

impl Mistake {
    /// With a hint that names what is nearest to what was found.
    pub(crate) fn near<'a>(
        self,
        found: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        hint(found, known).into_iter().fold(self, Mistake::hint)
    }
}

/// The known name with the least edit distance, when that is small against its length.
pub(crate) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    if found.chars().count() > 64 {
        return None;
    }
    let bound = |name: &str| name.chars().count().min(found.chars().count()).div_ceil(3);
    known
        .iter()
        .map(|name| (distance(found, name), *name))
        .filter(|(distance, name)| *distance <= bound(name))
        .min()
        .map(|(_, name)| name)
}

/// Least number of insertions, deletions, replacements and swaps of neighbours (optimal
/// string alignment) that make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let [one, other]: [Vec<char>; 2] = [one, other].map(|word| word.chars().collect());
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = last[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            let crossed = i > 1 && j > 1 && one[i - 1] == other[j - 2];
            if crossed && one[i - 2] == other[j - 1] {
                let swapped: &Vec<usize> = &before;
                best = best.min(swapped[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let cases =
            [("steps", "stpes", 1), ("", "abc", 3), ("seed", "sed", 1), ("a", "b", 1)];
        for (one, other, edits) in cases {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{other} {one}");
        }
    }

    #[test]
    fn a_near_name_is_hinted_and_a_far_one_is_not() {
        let known = ["batch", "steps", "seed"];
        assert_eq!(hint("stepz", known).as_deref(), Some("did you mean `steps`?"));
        assert_eq!(
            hint("banana", known).as_deref(),
            Some("known are batch, steps, seed")
        );
    }
}
