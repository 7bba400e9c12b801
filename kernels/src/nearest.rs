//! "Did you mean": the known name with the least edit distance.

/// A hint that names the nearest of `known` (`; nearest is …`), or nothing when all are far.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let farthest = (name.chars().count() / 2).max(2);
    known
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= farthest)
        .min()
        .map_or(String::new(), |(_, candidate)| format!("; nearest is `{candidate}`"))
}

/// Least number of insertions, deletions and replacements (Levenshtein 1966).
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut costs: Vec<usize> = (0..=right.len()).collect();
    for (row, from) in left.chars().enumerate() {
        let mut diagonal = costs[0];
        costs[0] = row + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = costs[column + 1];
            costs[column + 1] = replaced.min(diagonal + 1).min(costs[column] + 1);
        }
    }
    costs[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("gelu", "gelu"), 0);
    }

    #[test]
    fn far_names_give_no_hint() {
        assert_eq!(
            nearest("matmull", ["add", "matmul"].into_iter()),
            "; nearest is `matmul`"
        );
        assert_eq!(nearest("convolution", ["add"].into_iter()), "");
    }
}
