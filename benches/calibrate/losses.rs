//! The rate of memory in losses over classes, by what stood behind the layers on a V100.
//!
//! The head's product, its loss and both gradients, timed apart from the layers. What is reached of
//! the arithmetic is fitted on layers, so the rate of the loss is the one unknown.

use crate::{
    data::{self, Row},
    fit::{Pair, fit, loss, report},
    layers::{FITTED, HELD_OUT, Reached, Sheet, Streams, device},
    work::{Passes, Shape, head, time},
};
use roundelay::parts::schedule::Device;
use std::error::Error;

/// Where the search starts.
const START: f64 = 0.1;

/// A measured head: forward and backward in nanoseconds.
pub(crate) struct Ending {
    model: String,
    calls: Passes,
    time: f64,
}

fn ending(row: &Row) -> Result<Option<Ending>, Box<dyn Error>> {
    if !row.text("model").ends_with("final logits and loss") || row.whole("tp") != 1 {
        return Ok(None);
    }
    let classes =
        row.text("notes").split(['"', ' ', ',']).find_map(|word| word.parse().ok());
    let shape = Shape {
        layers: 0,
        hidden: row.whole("hidden"),
        heads: row.whole("heads"),
        sequence: row.whole("seq"),
        vocabulary: classes.ok_or("a head says its number of classes")?,
        examples: row.whole("micro_batch"),
    };
    let milliseconds = |column: &str| row.number_or(column, 0.0) * 1e6;
    Ok(Some(Ending {
        model: row.text("model").to_owned(),
        calls: head(shape)?,
        time: milliseconds("fwd_ms") + milliseconds("bwd_ms"),
    }))
}

fn pairs(device: &Device, endings: &[&Ending]) -> Vec<Pair> {
    let one = |ending: &&Ending| Pair {
        group: ending.model.clone(),
        measured: ending.time,
        predicted: time(&ending.calls.forward, device)
            + time(&ending.calls.backward, device),
    };
    endings.iter().map(one).collect()
}

/// The share of the memory's rate that losses reach on a device of which all else is known, fitted
/// and judged.
pub(crate) fn fitted(sheet: Sheet, reached: Reached) -> Result<f64, Box<dyn Error>> {
    let mut endings = Vec::new();
    for row in &data::rows("layers.csv")? {
        endings.extend(ending(row)?);
    }
    let of = |names: &[&str]| -> Vec<&Ending> {
        let named = |own: &&Ending| names.iter().any(|name| own.model.contains(name));
        endings.iter().filter(named).collect()
    };
    let with = |losses| device(sheet, reached, Streams { losses, ..Streams::NONE });
    let seen = of(&FITTED);
    let [losses] = fit([START], |[x]: [f64; 1]| loss(&pairs(&with(x), &seen)));
    let losses = losses.min(1.0);
    report("heads of 350M, 1.3B, 6.7B, fitted (Aceso)", &pairs(&with(losses), &seen));
    let held_out = pairs(&with(losses), &of(&HELD_OUT));
    report("heads of 2.6B, 13B, held out (Aceso)", &held_out);
    Ok(losses)
}
