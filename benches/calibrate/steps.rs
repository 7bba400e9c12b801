//! Devices by the times of whole training steps: one device, data parallelism, or pipelines.
//!
//! A step is m micro-batches of forward and backward passes, and an update. With `zero_stage` 3
//! every layer gathers its parameters before each pass and scatters its gradient after it, beside
//! the computation of a layer: the longer of both counts. Otherwise gradients are reduced once,
//! beside the last backward pass: what lasts longer, and one layer's share, count. Full
//! recomputation makes every forward pass of the layers twice. Pipelines are vTrain's, under 1F1B:
//! they tell what stands behind the layers from the layers.
//!
//! Only the A100-80 has rows of small models, which show what a call costs; what it reaches of its
//! memory's rate, its ramp and its time to issue a call hold for the others too.

use crate::{
    collectives::{span, target},
    data::{self, Row},
    fit::{Pair, fit, fit_from, head, loss, report},
    layers::{self, Reached, STARTS, Sheet, Streams, judge_stages, keep},
    record::Record,
    updates,
    work::{Head, Made, Scores, Shape, Work, time},
};
use roundelay::parts::{
    dsl::{NoFiles, parse},
    planner::roofline,
    schedule::{Bytes, Collective, Device, Flops, Footprint, Nanos, Target, Unit},
};
use std::error::Error;

/// A measured step in nanoseconds, and what it does.
pub(crate) struct Step {
    pub(crate) set: String,
    pub(crate) shape: Shape,
    work: Work,
    made: Made,
    pub(crate) devices: u64,
    /// Devices of a pipeline; one where there is none.
    pub(crate) pipeline: u64,
    pub(crate) micro_batches: f64,
    forwards: f64,
    shards: Shards,
    pub(crate) time: f64,
    /// Model FLOPs, recomputation included, of one device.
    flops: f64,
}

/// How states are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shards {
    /// Parameters, gradients and states.
    All,
    /// States at most; gradients are reduced beside the last backward pass.
    States,
    /// None; gradients are reduced when all of them are there.
    None,
}

fn step(row: &Row) -> Result<Option<Step>, Box<dyn Error>> {
    let [layers, hidden, sequence] = ["layers", "hidden", "seq"].map(|c| row.whole(c));
    let pipeline = row.whole("pp");
    let megatron = row.set() == "vtrain_single";
    let alone = ["tp", "cp"].iter().all(|column| row.whole(column) == 1)
        && (megatron || pipeline == 1);
    let time = row.number_or("iter_time_s", 0.0) * 1e9;
    let wanted = ["mpt_", "llmc", "nanogpt_", "vtrain_single"];
    let known = wanted.iter().any(|set| row.set().starts_with(set));
    let sound = !row.text("notes").contains("SUSPECT") && row.text("precision") != "fp8";
    if !alone || !known || !sound || time == 0.0 {
        return Ok(None);
    }
    let (devices, examples) = (row.whole("n_gpus"), row.whole("micro_batch"));
    let (vocabulary, heads) = (row.whole("vocab"), row.whole("heads"));
    let shape = Shape { layers, hidden, heads, sequence, vocabulary, examples };
    let scores = if megatron { Scores::Memory } else { Scores::Chip };
    let head = if pipeline > 1 { Head::Own } else { Head::Tied };
    let batch = row.number_or("global_batch", 0.0);
    let recomputes = row.recomputes();
    let forwards = if recomputes { 2.0 } else { 1.0 };
    let parameters =
        12.0 * (layers * hidden * hidden) as f64 + (hidden * vocabulary) as f64;
    let pairs = (2 * layers * hidden * sequence) as f64;
    let flops = (2.0 * parameters + 2.0 * pairs) * (2.0 + forwards);
    let made = Made::of(row.set());
    Ok(Some(Step {
        set: row.set().to_owned(),
        shape,
        work: Work::of(shape, (scores, head), made)?,
        made,
        devices,
        pipeline,
        micro_batches: batch / (devices / pipeline * examples) as f64,
        forwards,
        shards: match row.whole("zero_stage") {
            3 => Shards::All,
            _ if megatron => Shards::None,
            _ => Shards::States,
        },
        time,
        flops: flops * batch * sequence as f64 / devices as f64,
    }))
}

impl Step {
    /// The model, as rows of one are ranked.
    pub(crate) fn model(&self) -> (u64, u64) {
        (self.shape.layers, self.shape.hidden)
    }

    /// Nanoseconds on a device over the links of a target.
    fn predicted(&self, device: &Device, target: &Target) -> f64 {
        let device = &self.made.on(device);
        let layers = self.shape.layers as f64;
        let forward = time(&self.work.layer.forward, device);
        let backward = time(&self.work.layer.backward, device);
        let backward = backward + (self.forwards - 1.0) * forward;
        let around = time(&self.work.around.forward, device)
            + time(&self.work.around.backward, device);
        let (weights, rest) = self.parameters();
        let compute = layers * (forward + backward) + around;
        let pipeline = self.pipeline as f64;
        let added = (self.micro_batches - 1.0) * self.added(device) / pipeline;
        let comm = |kind, members: u64, bytes: f64| {
            target.collective_time(&span(members), kind, Bytes(bytes as u64)).0 as f64
        };
        match (self.shards, self.devices) {
            (Shards::All, 2..) => {
                let all = self.devices;
                let gather = comm(Collective::AllGather, all, 2.0 * weights);
                let scatter = comm(Collective::ReduceScatter, all, 2.0 * weights);
                let each = forward.max(gather) + backward.max(gather + scatter);
                let outer = comm(Collective::AllGather, all, 2.0 * rest);
                let micro_batch = layers * each + around.max(2.0 * outer) + gather;
                self.micro_batches * micro_batch + added + self.update(device, all as f64)
            }
            (Shards::All | Shards::States | Shards::None, _) => {
                // 1F1B: the last device has its share of the layers, and what stands behind them.
                let last = layers / pipeline * (forward + backward) + around;
                let passes = (self.micro_batches - 1.0) * last + compute + added;
                passes + self.exposed(layers * backward, comm) + self.update(device, 1.0)
            }
        }
    }

    /// What of the reduction of gradients stands behind the passes.
    fn exposed(&self, backward: f64, comm: impl Fn(Collective, u64, f64) -> f64) -> f64 {
        let layers = self.shape.layers as f64;
        let whole = 2.0 * self.held();
        let replicas = self.devices / self.pipeline;
        if replicas == 1 {
            return 0.0;
        }
        let reduce = comm(Collective::AllReduce, replicas, whole);
        match self.shards {
            Shards::All | Shards::States => (reduce - backward).max(reduce / layers),
            Shards::None => reduce,
        }
    }

    /// What calls take that add gradients of vectors to those of the micro-batches before: both
    /// parameters of every norm, and the positions.
    fn added(&self, device: &Device) -> f64 {
        let calls = 2 * (2 * self.shape.layers + 1) + 1;
        (calls * device.issue.0) as f64
    }

    /// Parameters of one layer, and those around the layers of a device: one table for both ends,
    /// or that of the end of a pipeline.
    fn parameters(&self) -> (f64, f64) {
        let Shape { hidden, vocabulary, sequence, .. } = self.shape;
        let layer = 12 * hidden * hidden + 13 * hidden;
        (layer as f64, (hidden * (vocabulary + sequence)) as f64)
    }

    /// Parameters of a device at the end of a pipeline, or of every device where there is none.
    fn held(&self) -> f64 {
        let (weights, rest) = self.parameters();
        self.shape.layers as f64 / self.pipeline as f64 * weights + rest
    }

    /// Nanoseconds that every step takes besides its passes, where gradients are reduced in the end.
    pub(crate) fn besides(&self, device: &Device, target: &Target) -> f64 {
        let comm = |kind, members: u64, bytes: f64| {
            target.collective_time(&span(members), kind, Bytes(bytes as u64)).0 as f64
        };
        self.exposed(0.0, comm) + self.update(device, 1.0)
    }

    /// AdamW reads the gradient, updates the parameter, and three states of 4 bytes.
    fn update(&self, device: &Device, shards: f64) -> f64 {
        let bytes = (2.0 + 4.0 + 3.0 * 8.0) * self.held() / shards;
        let unit = Unit::Update;
        let all = Footprint { flops: Flops(0), bytes: Bytes(bytes as u64), unit };
        roofline(all, device).0 as f64
    }
}

fn pairs(device: &Device, target: &Target, steps: &[&Step]) -> Vec<Pair> {
    let one = |step: &&Step| Pair {
        group: format!("{} {:?} {}", step.set, step.model(), step.devices),
        measured: step.time,
        predicted: step.predicted(device, target),
    };
    steps.iter().map(one).collect()
}

/// What one rate of arithmetic, fitted on the same rows, predicts.
fn null_model(seen: &[&Step], judged: &[&Step]) -> Vec<Pair> {
    let per_flop = |step: &&Step| (step.time / step.flops).ln();
    let mut rates: Vec<f64> = seen.iter().map(per_flop).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or_default().exp();
    let one = |step: &&Step| Pair {
        group: format!("{} {:?} {}", step.set, step.model(), step.devices),
        measured: step.time,
        predicted: step.flops * median,
    };
    judged.iter().map(one).collect()
}

/// The links of an embedded cluster.
fn links(cluster: &str) -> Result<Target, Box<dyn Error>> {
    let text = format!(
        "import \"roundelay:clusters/{cluster}.rdl\"
         model m {{ input x: real[batch, 1], loss mse(linear(x, 1), x) }}"
    );
    let source = roundelay::SourceFile::new("links.rdl".to_owned(), text);
    let (program, _) = parse(&source, &NoFiles)?;
    let [inner, outer] = [0, 1].map(|k| {
        let mut links = program.target.links.values();
        links.nth(k).cloned()
    });
    let missing = || format!("{cluster} has two levels of links");
    Ok(target(inner.ok_or_else(missing)?, outer.ok_or_else(missing)?))
}

/// Layers and widths of vTrain's shapes that are fitted on.
const FITTED_SHAPES: [(u64, u64); 2] = [(12, 1024), (24, 2048)];

/// What the error of vTrain's rows counts against that of MosaicML's. They pull at what is reached of
/// the memory's rate. Declared like the split, so no fit may choose it by its figures; docs/accuracy.md
/// says what 1 and 2 would give.
const VTRAIN_WEIGHT: f64 = 1.5;

/// Whether a row of vTrain has one of the shapes that are fitted on.
pub(crate) fn of_fitted_shape(row: &Row) -> bool {
    FITTED_SHAPES.contains(&(row.whole("layers"), row.whole("hidden")))
}

/// One device: where its rows come from.
pub(crate) struct Subject {
    name: &'static str,
    set: &'static str,
    gpu: &'static str,
    cluster: &'static str,
    pub(crate) sheet: Sheet,
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "a100_80",
        set: "mpt_a100_80gb",
        gpu: "A100-SXM-80GB",
        cluster: "dgx-a100",
        sheet: Sheet { peak: 312e12, memory: 2039e9 },
    },
    Subject {
        name: "a100_40",
        set: "mpt_a100_40gb",
        gpu: "A100-SXM-40GB",
        cluster: "azure-nd-a100",
        sheet: Sheet { peak: 312e12, memory: 1555e9 },
    },
    Subject {
        name: "h100",
        set: "mpt_h100",
        gpu: "H100-SXM-80GB",
        cluster: "dgx-h100",
        sheet: Sheet { peak: 989e12, memory: 3350e9 },
    },
];

/// Fits and judges all devices of which steps were measured. Losses reach this share of the
/// memory's rate.
pub(crate) fn calibrate(losses: f64, record: &mut Record) -> Result<(), Box<dyn Error>> {
    let rows = data::rows("steps.csv")?;
    let mut known: Option<(Reached, Streams)> = None;
    for subject in SUBJECTS {
        let mut steps = Vec::new();
        for row in rows.iter().filter(|row| row.text("gpu") == subject.gpu) {
            steps.extend(step(row)?);
        }
        known = Some(one(&subject, &steps, (losses, known), record)?);
    }
    Ok(())
}

fn one(
    subject: &Subject,
    steps: &[Step],
    (losses, known): (f64, Option<(Reached, Streams)>),
    record: &mut Record,
) -> Result<(Reached, Streams), Box<dyn Error>> {
    let of =
        |set: &'static str| steps.iter().filter(move |step| step.set.starts_with(set));
    let mut models: Vec<(u64, u64)> = of(subject.set).map(Step::model).collect();
    models.sort_unstable();
    models.dedup();
    let even = |step: &&Step| {
        models.iter().position(|model| *model == step.model()).is_some_and(|k| k % 2 == 0)
    };
    let (seen, held_out): (Vec<&Step>, Vec<&Step>) = of(subject.set).partition(even);
    let (launched, others): (Vec<&Step>, Vec<&Step>) =
        of("vtrain").partition(|step| FITTED_SHAPES.contains(&step.model()));
    let target = links(subject.cluster)?;
    let streams = match known {
        None => Streams { updates: updates::fitted(subject, &target, &launched), losses },
        Some((_, streams)) => streams,
    };
    let score = |reached: Reached| {
        let device = layers::device(subject.sheet, reached, streams);
        let [mpt, vtrain] =
            [&seen, &launched].map(|rows| loss(&pairs(&device, &target, rows)));
        mpt + VTRAIN_WEIGHT * vtrain
    };
    // Large models alone do not show what a call or a byte costs.
    let reached = match known {
        None => fit_from(&STARTS, score),
        Some(([compute, memory, ramp, issue, attention, unaligned], _)) => {
            let with = |[c, a]: [f64; 2]| [c, memory, ramp, issue, a, unaligned];
            with(fit([compute, attention], |x| score(with(x))))
        }
    };
    head(&format!("Training steps on {}", subject.gpu));
    let device = layers::device(subject.sheet, reached, streams);
    let table = |name: &str, rows: &[&Step], basis: &[&Step]| {
        if !rows.is_empty() {
            report(name, &pairs(&device, &target, rows));
            report(&format!("{name}: null model"), &null_model(basis, rows));
        }
    };
    table("MosaicML, fitted", &seen, &seen);
    table("MosaicML, held-out models", &held_out, &seen);
    table("vTrain, fitted shapes", &launched, &launched);
    table("vTrain, held-out shapes", &others, &launched);
    let rest = |step: &&Step| ["llmc", "nanogpt"].iter().any(|s| step.set.starts_with(s));
    let rest: Vec<&Step> = steps.iter().filter(rest).collect();
    table("llm.c and nanoGPT, held out", &rest, &seen);
    let prepared = Device { issue: Nanos(0), ..device.clone() };
    report(
        "llm.c and nanoGPT, no time to issue calls",
        &pairs(&prepared, &target, &rest),
    );
    if subject.name == "a100_80" {
        judge_stages(&device)?;
        updates::judge(&device, &target, &[launched, others].concat());
    }
    keep(subject.name, reached, streams, record);
    Ok((reached, streams))
}
