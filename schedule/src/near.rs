//! The known name that is nearest to an unknown one.

/// Characters of a name that is compared: a comparison takes their square.
const LONGEST: usize = 128;

/// The known name with the least edit distance, when that is small against its length.
pub fn nearest<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let length = found.chars().count();
    if length > LONGEST {
        return None;
    }
    let bound = |name: &str| name.chars().count().min(length).div_ceil(3);
    known
        .into_iter()
        .map(|name| (distance(found, name), name))
        .filter(|(distance, name)| *distance <= bound(name))
        .min()
        .map(|(_, name)| name)
}

/// What a message of an unknown name goes on with: `; nearest is …`, or nothing when all are far.
pub fn nearest_hint<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(found, known).map_or(String::new(), |name| format!("; nearest is `{name}`"))
}

/// A hint at the nearest name, if one is near.
pub(crate) fn did_you_mean(found: &str, known: &[&str]) -> Option<String> {
    nearest(found, known.iter().copied()).map(|name| format!("did you mean `{name}`?"))
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
    fn what_is_far_is_not_near() {
        let known = ["batch", "steps", "seed"];
        assert_eq!(nearest("stepz", known), Some("steps"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(nearest_hint("stepz", known), "; nearest is `steps`");
        assert_eq!(nearest_hint("banana", known), "");
    }
}
