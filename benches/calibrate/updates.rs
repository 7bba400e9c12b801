//! The rate of memory in updates, by what steps take besides their micro-batches.
//!
//! Steps of one model on as many devices, with micro-batches of one size, differ in the number of
//! micro-batches alone. What the line through two of them leaves for none is what every step takes
//! once: gradients are reduced among replicas, and parameters are updated. Links are fitted
//! elsewhere, so the rate of updates is the one unknown.

use crate::{
    fit::{Pair, by_group, fit, loss},
    layers::{Streams, device},
    steps::{Step, Subject},
};
use roundelay::parts::schedule::{Device, Target};
use std::collections::BTreeMap;

/// Where the search starts.
const START: f64 = 0.7;

/// Steps that differ in the number of micro-batches, fewest first.
type Line<'a> = Vec<&'a Step>;

/// Lines of the steps that have replicas and no pipeline.
fn lines<'a>(steps: &[&'a Step]) -> Vec<Line<'a>> {
    let mut lines: BTreeMap<_, Line<'a>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.pipeline == 1 && step.devices > 1) {
        let key = (step.model(), step.devices, step.shape.examples);
        lines.entry(key).or_default().push(step);
    }
    for line in lines.values_mut() {
        line.sort_by(|one, other| one.micro_batches.total_cmp(&other.micro_batches));
    }
    lines.into_values().collect()
}

/// What the line through the first and the last step leaves for no micro-batch.
fn besides(line: &Line<'_>, device: &Device, target: &Target) -> Option<Pair> {
    let (first, last) = (line.first()?, line.last()?);
    let more = last.micro_batches - first.micro_batches;
    let each = (more > 0.0).then(|| (last.time - first.time) / more)?;
    Some(Pair {
        group: format!("layers and width {:?}, {} devices", first.model(), first.devices),
        measured: first.time - first.micro_batches * each,
        predicted: first.besides(device, target),
    })
}

fn pairs(device: &Device, target: &Target, steps: &[&Step]) -> Vec<Pair> {
    lines(steps).iter().filter_map(|line| besides(line, device, target)).collect()
}

/// The share of the memory's rate that updates reach on a device, fitted on these steps.
pub(crate) fn fitted(subject: &Subject, target: &Target, seen: &[&Step]) -> f64 {
    let score = |[updates]: [f64; 1]| {
        let streams = Streams { updates, ..Streams::NONE };
        loss(&pairs(&device(subject.sheet, [1.0; 6], streams), target, seen))
    };
    let [updates] = fit([START], score);
    updates.min(1.0)
}

/// Prints what steps take besides their micro-batches, in milliseconds: the mean over sizes of
/// micro-batches, measured and predicted.
pub(crate) fn judge(device: &Device, target: &Target, steps: &[&Step]) {
    let pairs = pairs(device, target, steps);
    println!("\n| besides the micro-batches | measured | predicted |");
    println!("| --- | ---: | ---: |");
    for (group, pairs) in by_group(&pairs, 1) {
        let mean = |time: fn(&Pair) -> f64| {
            pairs.iter().map(|pair| time(pair)).sum::<f64>() / pairs.len() as f64 / 1e6
        };
        let (measured, predicted) =
            (mean(|pair| pair.measured), mean(|pair| pair.predicted));
        println!("| {group} | {measured:.1} ms | {predicted:.1} ms |");
    }
}
