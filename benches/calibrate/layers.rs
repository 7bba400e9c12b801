//! Devices by the times of single layers: V100.
//!
//! The measured layers are Megatron's with all scores in memory and with dropout; the two
//! dropouts of a layer's results are not priced. Rows that spread a layer over several devices are
//! left out.

use crate::{
    data::{self, Row},
    fit::{Pair, fit_from, head, loss, report},
    losses,
    record::Record,
    work::{Head, Made, Scores, Shape, Work, time},
};
use roundelay::parts::schedule::{
    Bytes, BytesPerSecond, Device, FlopsPerSecond, Id, Nanos, PoolId, Products,
    Thousandths,
};
use std::error::Error;

/// What the data sheet says of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sheet {
    /// 16-bit FLOP/s of products.
    pub(crate) peak: f64,
    /// Bytes per second.
    pub(crate) memory: f64,
}

/// What is reached: shares of both rates, the ramp of a product and the time to issue a call in
/// nanoseconds, the share of attention and that of unaligned products.
pub(crate) type Reached = [f64; 6];

/// Shares of the memory's rate in calls that stream through long arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams {
    /// Of parameters and their states.
    pub(crate) updates: f64,
    /// Of logits.
    pub(crate) losses: f64,
}

impl Streams {
    /// For rows in which neither has a part.
    pub(crate) const NONE: Self = Self { updates: 1.0, losses: 1.0 };
}

/// Models whose layers and heads are fitted on, and those that are held out.
pub(crate) const FITTED: [&str; 3] = ["350M", "1_3B", "6_7B"];
pub(crate) const HELD_OUT: [&str; 2] = ["2_6B", "13B"];

/// Where the search starts.
pub(crate) const STARTS: [Reached; 4] = [
    [0.7, 0.8, 3e3, 20e3, 0.6, 0.4],
    [0.7, 0.8, 3e3, 50e3, 0.6, 0.2],
    [0.7, 0.6, 3e3, 50e3, 0.4, 0.4],
    [0.8, 0.5, 3e3, 50e3, 0.4, 0.3],
];

/// The device that a sheet and what is reached of it describe.
pub(crate) fn device(sheet: Sheet, reached: Reached, streams: Streams) -> Device {
    let [compute, memory, ramp, issue, attention, unaligned] = reached;
    let of_memory =
        |share: f64| Thousandths::from_share(share / memory.min(1.0)).unwrap_or_default();
    let nanos = |value: f64| Nanos(value.max(0.0) as u64);
    let [attention, unaligned] = [attention, unaligned]
        .map(|share| Thousandths((share * 1000.0).clamp(1.0, 1000.0) as u32));
    Device {
        name: "gpu".to_owned(),
        pool: PoolId::new(0),
        memory: Bytes(1),
        compute: FlopsPerSecond((sheet.peak * compute.min(1.0)) as u64),
        bandwidth: BytesPerSecond((sheet.memory * memory.min(1.0)) as u64),
        updates: of_memory(streams.updates),
        losses: of_memory(streams.losses),
        threads: 1,
        overhead: Nanos(0),
        issue: nanos(issue),
        products: Products { ramp: nanos(ramp), attention, unaligned },
        reserved: Bytes(0),
        overlap: Thousandths::NONE,
    }
}

/// Keeps what a device reaches.
pub(crate) fn keep(name: &str, reached: Reached, streams: Streams, record: &mut Record) {
    let [compute, memory, ramp, issue, attention, unaligned] = reached;
    record.share(&format!("{name}.compute.reach"), compute.min(1.0));
    record.share(&format!("{name}.bandwidth.reach"), memory.min(1.0));
    record.time(&format!("{name}.ramp"), ramp);
    record.time(&format!("{name}.issue"), issue);
    record.share(&format!("{name}.attention"), attention.min(1.0));
    record.share(&format!("{name}.unaligned"), unaligned.min(1.0));
    record.share(&format!("{name}.bandwidth.update"), streams.updates);
    record.share(&format!("{name}.bandwidth.loss"), streams.losses);
}

/// One measured stage: forward and backward in nanoseconds.
struct Stage {
    model: String,
    layers: f64,
    work: Work,
    times: [f64; 2],
}

fn stage(row: &Row) -> Result<Option<Stage>, Box<dyn Error>> {
    let layer = row.whole("layers_in_stage") > 0 && row.text("model").contains("layer");
    let embeds =
        row.text("model").contains("embedding") || row.text("model").contains("logits");
    if !layer || embeds || row.whole("tp") != 1 {
        return Ok(None);
    }
    let shape = Shape {
        layers: row.whole("layers_in_stage"),
        hidden: row.whole("hidden"),
        heads: row.whole("heads"),
        sequence: row.whole("seq"),
        vocabulary: 1024,
        examples: row.whole("micro_batch"),
    };
    let milliseconds = |column: &str| row.number_or(column, 0.0) * 1e6;
    let backward = milliseconds("bwd_ms") + milliseconds("bwd_weight_ms");
    Ok(Some(Stage {
        model: row.text("model").to_owned(),
        layers: shape.layers as f64,
        work: Work::of(shape, (Scores::Memory, Head::Own), Made::Fused)?,
        times: [milliseconds("fwd_ms"), backward],
    }))
}

fn pairs(device: &Device, stages: &[&Stage]) -> Vec<Pair> {
    let one = |stage: &&Stage| {
        let passes = [&stage.work.layer.forward, &stage.work.layer.backward];
        let names = ["forward", "backward"];
        let parts = [0, 1].map(|k: usize| Pair {
            group: format!("{} {}", stage.model, names[k]),
            measured: stage.times[k],
            predicted: time(passes[k], device) * stage.layers,
        });
        parts.into_iter()
    };
    stages.iter().flat_map(one).collect()
}

/// Fits and judges V100 on layers, and judges A100-80 on stages later. Returns the share of the
/// memory's rate that losses reach.
pub(crate) fn calibrate(record: &mut Record) -> Result<f64, Box<dyn Error>> {
    let sheet = Sheet { peak: 125e12, memory: 900e9 };
    let stages = stages("V100")?;
    let of = |names: &[&str]| -> Vec<&Stage> {
        let named = |stage: &&Stage| names.iter().any(|name| stage.model.contains(name));
        stages.iter().filter(named).collect()
    };
    let [seen, held_out] = [&FITTED[..], &HELD_OUT].map(of);
    let with = |reached| device(sheet, reached, Streams::NONE);
    let reached = fit_from(&STARTS, |x| loss(&pairs(&with(x), &seen)));
    head("Layers on a V100");
    report("350M, 1.3B, 6.7B, fitted (Aceso)", &pairs(&with(reached), &seen));
    report("2.6B, 13B, held out (Aceso)", &pairs(&with(reached), &held_out));
    let losses = losses::fitted(sheet, reached)?;
    keep("v100", reached, Streams { losses, ..Streams::NONE }, record);
    ["attention", "unaligned", "bandwidth.update"]
        .iter()
        .for_each(|none| record.forget(&format!("v100.{none}")));
    Ok(losses)
}

/// Judges a device by the stages of arXiv 2401.10241.
pub(crate) fn judge_stages(device: &Device) -> Result<(), Box<dyn Error>> {
    let stages = stages("A100")?;
    let stages: Vec<&Stage> = stages.iter().collect();
    report("stages of arXiv 2401.10241, held out", &pairs(device, &stages));
    Ok(())
}

fn stages(gpu: &str) -> Result<Vec<Stage>, Box<dyn Error>> {
    let mut all = Vec::new();
    for row in
        data::rows("layers.csv")?.iter().filter(|row| row.text("gpu").contains(gpu))
    {
        all.extend(stage(row)?);
    }
    Ok(all)
}
