//! Fitting few positive constants, and how good predictions are.

use std::collections::BTreeMap;

/// One measured time with its prediction, in the same unit.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// Rows of a group are ranked against each other.
    pub(crate) group: String,
    pub(crate) measured: f64,
    pub(crate) predicted: f64,
}

/// Factors of the search, from coarse to fine.
const FACTORS: [f64; 7] = [2.0, 1.5, 1.2, 1.1, 1.05, 1.02, 1.01];

/// Constants near `start` with the least loss: one after another is multiplied or divided while
/// that helps. Deterministic.
pub(crate) fn fit<const N: usize>(
    start: [f64; N],
    loss: impl Fn([f64; N]) -> f64,
) -> [f64; N] {
    let (mut best, mut least) = (start, loss(start));
    for factor in FACTORS {
        let mut better = true;
        while better {
            better = false;
            for place in 0..N {
                for step in [factor, 1.0 / factor] {
                    let mut next = best;
                    next[place] *= step;
                    let found = loss(next);
                    if found < least - 1e-9 {
                        (best, least, better) = (next, found, true);
                    }
                }
            }
        }
    }
    best.map(rounded)
}

/// The best that [`fit`] finds near several starts.
pub(crate) fn fit_from<const N: usize>(
    starts: &[[f64; N]],
    loss: impl Fn([f64; N]) -> f64,
) -> [f64; N] {
    let found = starts.iter().map(|start| fit(*start, &loss));
    let best = found.min_by(|one, other| loss(*one).total_cmp(&loss(*other)));
    best.expect("there is a start")
}

/// Three digits.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// Mean absolute logarithm of predicted / measured.
pub(crate) fn loss(pairs: &[Pair]) -> f64 {
    let each = pairs.iter().map(|pair| (pair.predicted / pair.measured).ln().abs());
    each.sum::<f64>() / pairs.len().max(1) as f64
}

/// Relative errors of some pairs, as a row of a table.
pub(crate) fn report(name: &str, pairs: &[Pair]) {
    let errors: Vec<f64> =
        pairs.iter().map(|pair| pair.predicted / pair.measured - 1.0).collect();
    let count = errors.len().max(1) as f64;
    let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / count;
    let bias = errors.iter().sum::<f64>() / count;
    let rank = rank_correlation(pairs);
    let (mean, bias) = (100.0 * mean, 100.0 * bias);
    let rank = rank.map_or("-".to_owned(), |rank| format!("{rank:.2}"));
    println!("| {name} | {} | {mean:.1} % | {bias:+.1} % | {rank} |", errors.len());
}

/// What a planner would lose that takes the best prediction of each group: measured times against
/// the best measured ones, on average and at most; of groups whose rows do the same work.
pub(crate) fn regret(name: &str, pairs: &[Pair]) {
    let groups = by_group(pairs, 2);
    let lost = |group: &Vec<&Pair>| {
        let chosen =
            group.iter().min_by(|one, other| one.predicted.total_cmp(&other.predicted));
        let best = group.iter().map(|pair| pair.measured).fold(f64::INFINITY, f64::min);
        chosen.map_or(0.0, |chosen| chosen.measured / best - 1.0)
    };
    let lost: Vec<f64> = groups.values().map(lost).collect();
    let mean = 100.0 * lost.iter().sum::<f64>() / lost.len().max(1) as f64;
    let most = 100.0 * lost.iter().fold(0.0, |most: f64, lost| most.max(*lost));
    let right = lost.iter().filter(|lost| **lost < 1e-9).count();
    println!("| {name} | {} | {right} | {mean:.1} % | {most:.1} % |", lost.len());
}

/// The head of tables of [`regret`].
pub(crate) fn regret_head() {
    println!("\n| choices | groups | best one chosen | mean regret | greatest regret |");
    println!("| --- | ---: | ---: | ---: | ---: |");
}

/// The groups of at least this many rows.
pub(crate) fn by_group(pairs: &[Pair], least: usize) -> BTreeMap<&str, Vec<&Pair>> {
    let mut groups: BTreeMap<&str, Vec<&Pair>> = BTreeMap::new();
    for pair in pairs {
        groups.entry(&pair.group).or_default().push(pair);
    }
    groups.retain(|_, group| group.len() >= least);
    groups
}

/// The head of tables of [`report`].
pub(crate) fn head(title: &str) {
    println!("\n## {title}\n");
    println!("| rows | number | mean absolute error | bias | rank correlation |");
    println!("| --- | ---: | ---: | ---: | ---: |");
}

/// Spearman's coefficient inside groups of at least three, mean over groups by their rows.
fn rank_correlation(pairs: &[Pair]) -> Option<f64> {
    let groups = by_group(pairs, 3);
    let rows: usize = groups.values().map(Vec::len).sum();
    let one = |group: &Vec<&Pair>| {
        let measured = ranks(group.iter().map(|pair| pair.measured).collect());
        let predicted = ranks(group.iter().map(|pair| pair.predicted).collect());
        correlation(&measured, &predicted) * group.len() as f64
    };
    (rows > 0).then(|| groups.values().map(one).sum::<f64>() / rows as f64)
}

/// Places in ascending order; equal values share the mean of theirs.
fn ranks(values: Vec<f64>) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as f64;
        let equal = values.iter().filter(|other| *other == value).count() as f64;
        below + (equal - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Pearson's coefficient; one where nothing varies.
fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let count = one.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (first, second) = (mean(one), mean(other));
    let both = |a: &[f64], x: f64, b: &[f64], y: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - x) * (b - y)).sum()
    };
    let spread = both(one, first, one, first) * both(other, second, other, second);
    if spread == 0.0 { 1.0 } else { both(one, first, other, second) / spread.sqrt() }
}
