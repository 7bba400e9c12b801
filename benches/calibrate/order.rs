//! How far an order by laws can go on vTrain's rows: which pairs are too close to be ordered, what
//! a table of measured layers would reach, and how straight measured times are.

use crate::{
    data::Row,
    fit::{Pair, by_group},
};
use std::collections::BTreeMap;

/// Measured times that are closer than this are no order.
const NOISE: f64 = 0.01;

/// A planned row with what tells its layers from those of others.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) cell: Cell,
    pub(crate) pair: Pair,
}

/// Width, tensor rows and examples of a micro-batch: all that a layer knows of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell([u64; 3]);

impl Cell {
    pub(crate) fn of(row: &Row) -> Self {
        Self(["hidden", "tp", "micro_batch"].map(|column| row.whole(column)))
    }
}

/// The rows with every prediction scaled by what rows of its cell in other shapes took against
/// theirs, in the geometric mean: what a profile of each layer adds to the laws.
pub(crate) fn profiled(judged: &[Judged], others: &[Judged]) -> Vec<Pair> {
    let mut logarithms: BTreeMap<Cell, Vec<f64>> = BTreeMap::new();
    for Judged { cell, pair } in others {
        let logarithm = (pair.measured / pair.predicted).ln();
        logarithms.entry(*cell).or_default().push(logarithm);
    }
    let scaled = |one: &Judged| {
        let cell = logarithms.get(&one.cell)?;
        let scale = (cell.iter().sum::<f64>() / cell.len() as f64).exp();
        Some(Pair { predicted: one.pair.predicted * scale, ..one.pair.clone() })
    };
    judged.iter().filter_map(scaled).collect()
}

/// The head of tables of [`count`].
pub(crate) fn head() {
    println!("\n| order | groups | pairs | closer than 1 % | of the others in order |");
    println!("| --- | ---: | ---: | ---: | ---: |");
}

/// Counts pairs of rows of one group: all, those that are too close, and those of the others that
/// are predicted in their order.
pub(crate) fn count(name: &str, pairs: &[Pair]) {
    let groups = by_group(pairs, 2);
    let both = groups.values().flat_map(|group| {
        let rest =
            move |k: usize| group[k + 1..].iter().map(move |other| (group[k], *other));
        (0..group.len()).flat_map(rest)
    });
    let (mut all, mut close, mut right) = (0_u32, 0_u32, 0_u32);
    for (one, other) in both {
        let gap = (one.measured / other.measured).ln();
        all += 1;
        close += u32::from(gap.abs() < NOISE);
        let agrees = gap * (one.predicted / other.predicted).ln() > 0.0;
        right += u32::from(gap.abs() >= NOISE && agrees);
    }
    let share = 100.0 * f64::from(right) / f64::from((all - close).max(1));
    println!("| {name} | {} | {all} | {close} | {share:.1} % |", groups.len());
}

/// How far steps that differ in the number of micro-batches alone are from a straight line, where
/// there are three or more.
pub(crate) fn straightness(rows: &[&Row]) {
    let mut lines: BTreeMap<[u64; 6], Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        let columns = ["layers", "hidden", "tp", "pp", "micro_batch", "n_gpus"];
        let point =
            (row.number_or("global_batch", 0.0), row.number_or("iter_time_s", 0.0));
        lines.entry(columns.map(|column| row.whole(column))).or_default().push(point);
    }
    lines.retain(|_, line| line.len() >= 3);
    let most = lines.values().map(|line| bend(line)).fold(0.0, f64::max);
    println!(
        "\n{} lines of three steps or more, each within {:.4} % of a straight one",
        lines.len(),
        100.0 * most
    );
}

/// The greatest relative distance from the line through the first and the last point.
fn bend(line: &[(f64, f64)]) -> f64 {
    let mut line = line.to_vec();
    line.sort_by(|one, other| one.0.total_cmp(&other.0));
    let [(x, y), .., (last, end)] = line[..] else { return 0.0 };
    let slope = (end - y) / (last - x);
    let far = |(at, time): &(f64, f64)| ((y + slope * (at - x)) / time - 1.0).abs();
    line.iter().map(far).fold(0.0, f64::max)
}
