//! Training steps through the planner itself: the rows that are a plan of ours, lowered, checked
//! and clocked on the shipped devices and clusters.
//!
//! A row is one when it is an FSDP run (states split among all devices, a stage per layer, so that
//! every layer gathers its own parameters) or a run of Megatron: tensor rows, then pipelines under
//! 1F1B, then replicas. All constants are those of the shipped files, whatever this run has fitted.

use crate::{
    data::{self, Row},
    fit::{Pair, head, regret, regret_head, report},
    order::{self, Cell, Judged, profiled},
    steps::of_fitted_shape,
    work::{Head, Made, Scores, Shape, model},
};
use roundelay::{Program, SearchOptions, SourceFile, parts::planner::appraise};
use std::{error::Error, fs, path::PathBuf};

/// A GPU and the file of the cluster that has it.
const CLUSTERS: [(&str, &str); 3] = [
    ("A100-SXM-40GB", "azure-nd-a100"),
    ("A100-SXM-80GB", "dgx-a100"),
    ("H100-SXM-80GB", "dgx-h100"),
];

/// Plans every row that is a plan, and judges the clock; prints `each` row where that is wanted.
pub(crate) fn judge(each: bool) -> Result<(), Box<dyn Error>> {
    let rows = data::rows("steps.csv")?;
    head("Training steps as planned, lowered and clocked");
    let (mut fitted_shapes, mut held_out) = (Vec::new(), Vec::new());
    for (gpu, cluster) in CLUSTERS {
        for kind in Kind::ALL {
            let own = rows.iter().filter(|row| row.text("gpu") == gpu);
            let own = own.filter(|row| Kind::of(row) == Some(kind));
            let fitted = |row: &&Row| kind != Kind::Data && of_fitted_shape(row);
            let (seen, rest): (Vec<&Row>, Vec<&Row>) = own.partition(fitted);
            let name = format!("{gpu}, {}", kind.name());
            let other = judge_rows((&name, each), rest, cluster)?;
            let name = format!("{name}, shapes of the fit");
            let seen = judge_rows((&name, each), seen, cluster)?;
            if kind != Kind::Data {
                if !other.is_empty() {
                    let name = format!("{}, with a profile", kind.name());
                    report(&name, &profiled(&other, &seen));
                }
                held_out.extend(other);
                fitted_shapes.extend(seen);
            }
        }
    }
    judge_choices(&held_out, &fitted_shapes);
    let megatron = |row: &&Row| row.set() == "vtrain_single";
    order::straightness(&rows.iter().filter(megatron).collect::<Vec<&Row>>());
    Ok(())
}

/// Judges the order and the choice among all plans of a model and batch on this many devices.
fn judge_choices(held_out: &[Judged], fitted_shapes: &[Judged]) {
    let pairs = |judged: &[Judged]| -> Vec<Pair> {
        judged.iter().map(|one| one.pair.clone()).collect()
    };
    let (others, own) = (pairs(held_out), pairs(fitted_shapes));
    let all = [others.clone(), own].concat();
    let profiled = profiled(held_out, fitted_shapes);
    report("vTrain, all plans of a model and batch on so many devices", &others);
    report("the same, with a profile", &profiled);
    report("vTrain, the same with the shapes of the fit", &all);
    let sets = [
        ("vTrain, held-out shapes", &others),
        ("vTrain, held-out shapes, with a profile", &profiled),
        ("vTrain, all shapes", &all),
    ];
    regret_head();
    sets.iter().for_each(|(name, pairs)| regret(name, pairs));
    order::head();
    sets.iter().for_each(|(name, pairs)| order::count(name, pairs));
}

fn judge_rows(
    (name, each): (&str, bool),
    rows: Vec<&Row>,
    cluster: &str,
) -> Result<Vec<Judged>, Box<dyn Error>> {
    let (mut judged, mut refused) = (Vec::new(), Vec::new());
    for row in rows {
        match step_time(row, cluster)? {
            Ok(pair) => {
                if each {
                    let Pair { measured, predicted, .. } = pair;
                    println!(
                        "{} {measured:.6} s, predicted {predicted:.6} s",
                        row.text("id")
                    );
                }
                judged.push(Judged { cell: Cell::of(row), pair });
            }
            Err(why) => refused.push((row.text("id").to_owned(), why)),
        }
    }
    if !judged.is_empty() {
        let pairs: Vec<Pair> = judged.iter().map(|one| one.pair.clone()).collect();
        report(name, &pairs);
    }
    for (id, why) in refused {
        let first = why.lines().next().unwrap_or_default();
        println!("| {name}: {id} is refused: {first} | | | | |");
    }
    Ok(judged)
}

/// What a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Split or whole states on every device, one pass of the whole model at a time.
    Data,
    /// Megatron without tensor rows or pipelines.
    Replicas,
    /// Megatron with tensor rows.
    Tensor,
    /// Megatron with pipelines.
    Pipeline,
    /// Megatron with both.
    Both,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::Data, Self::Replicas, Self::Tensor, Self::Pipeline, Self::Both];

    fn name(self) -> &'static str {
        match self {
            Kind::Data => "FSDP and ZeRO",
            Kind::Replicas => "vTrain, replicas",
            Kind::Tensor => "vTrain, tensor rows",
            Kind::Pipeline => "vTrain, pipelines",
            Kind::Both => "vTrain, rows and pipelines",
        }
    }

    fn of(row: &Row) -> Option<Self> {
        let [tensor, pipeline] = ["tp", "pp"].map(|column| row.whole(column) > 1);
        let fsdp = ["mpt_", "llmc", "nanogpt_bench"];
        let fsdp = fsdp.iter().any(|set| row.set().starts_with(set));
        let sound =
            !row.text("notes").contains("SUSPECT") && row.text("precision") != "fp8";
        match (row.set() == "vtrain_single", tensor, pipeline) {
            _ if !sound || row.whole("cp") > 1 => None,
            (true, false, false) => Some(Kind::Replicas),
            (true, true, false) => Some(Kind::Tensor),
            (true, false, true) => Some(Kind::Pipeline),
            (true, true, true) => Some(Kind::Both),
            (false, false, false) => fsdp.then_some(Kind::Data),
            (false, ..) => None,
        }
    }
}

/// The clocked step of a row's plan, or why there is none.
fn step_time(row: &Row, cluster: &str) -> Result<Result<Pair, String>, Box<dyn Error>> {
    let source = SourceFile::new("row.rdl".to_owned(), program(row, cluster)?);
    let mut program = roundelay::parse(&source)?;
    program.search.cuts = cuts(row, &program);
    let devices = program.target.devices.values();
    program.target.devices = devices.map(|own| Made::of(row.set()).on(own)).collect();
    let ranking = match roundelay::plan(&program, &SearchOptions::default()) {
        Ok(ranking) => ranking,
        Err(refusal) => return Ok(Err(refusal.to_string())),
    };
    let found = ranking.plans.first().ok_or("a ranking has a first plan")?;
    let mut plan = found.plan.clone();
    plan.rewrites = Made::of(row.set()).among(&plan.rewrites);
    let step_time = match plan.rewrites == found.plan.rewrites {
        true => found.step_time,
        false => match appraise(&program, &plan) {
            Ok(appraised) => appraised.step_time,
            Err(reason) => return Ok(Err(reason.to_string())),
        },
    };
    Ok(Ok(Pair {
        group: group(row),
        measured: row.number_or("iter_time_s", 0.0),
        predicted: step_time.0 as f64 / 1e9,
    }))
}

/// Rows that a planner would compare: one model on one number of devices.
fn group(row: &Row) -> String {
    let [layers, hidden, batch, devices] =
        ["layers", "hidden", "global_batch", "n_gpus"].map(|column| row.whole(column));
    match row.set() == "vtrain_single" {
        true => format!("{layers} {hidden} {batch} {devices}"),
        false => format!("{} {devices}", row.set()),
    }
}

/// Megatron's pipelines have as many layers on every device, and FSDP gathers layer by layer.
fn cuts(row: &Row, program: &Program) -> Option<Vec<u32>> {
    let layers = row.whole("layers");
    let stages = match (row.whole("pp"), row.whole("zero_stage")) {
        (1, 3) => layers,
        (pipeline, _) => pipeline,
    };
    if stages == 1 || !layers.is_multiple_of(stages) {
        return None;
    }
    let first = |layer: u64| {
        let begins = format!("layer.{layer}.");
        let mut nodes = program.model.nodes.values();
        let place = nodes.position(|node| node.name.starts_with(&begins));
        place.and_then(|place| u32::try_from(place).ok())
    };
    (1..stages).map(|stage| first(stage * layers / stages)).collect()
}

/// The decisions of a run.
fn plan(row: &Row) -> String {
    let [devices, batch, examples, layers, rows, stages] =
        ["n_gpus", "global_batch", "micro_batch", "layers", "tp", "pp"]
            .map(|column| row.whole(column));
    let replicas = devices / (rows * stages);
    let n = batch / (replicas * examples).max(1);
    let recompute = if row.recomputes() { "full" } else { "none" };
    let counts = format!(
        "micro_batches {n}, replicas {replicas}, recompute {recompute}, sequence whole, \
         tensor {{ rows {rows}, columns 1 }}"
    );
    match (stages, devices, row.whole("zero_stage")) {
        (1, 1, _) => format!("placement accumulate, stages 1, {counts}"),
        (1, _, 3) => {
            format!("placement accumulate, stages {layers}, states zero3, {counts}")
        }
        (1, _, 2) => format!("placement accumulate, stages 4, states zero2, {counts}"),
        (1, ..) if row.set() != "vtrain_single" => {
            format!("placement accumulate, stages 4, states zero1, {counts}")
        }
        (1, ..) => {
            format!("placement accumulate, stages 1, states replicated, {counts}")
        }
        _ => format!(
            "placement pipeline, stages {stages}, chunks 1, order 1f1b, states replicated, \
             {counts}"
        ),
    }
}

/// A shipped file as it stands in the sources, with what it imports in its place, so that constants
/// that were just written are judged without another build.
fn shipped(path: &str) -> Result<String, Box<dyn Error>> {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("dsl");
    let text = fs::read_to_string(sources.join(path))?;
    let mut whole = String::new();
    for line in text.lines() {
        let imported = line.strip_prefix("import \"roundelay:");
        match imported.and_then(|rest| rest.strip_suffix('"')) {
            Some(path) => whole += &shipped(path)?,
            None => whole = whole + line + "\n",
        }
    }
    Ok(whole)
}

/// The program of a row, on as many devices of the shipped cluster as it takes.
fn program(row: &Row, cluster: &str) -> Result<String, Box<dyn Error>> {
    let [layers, hidden, heads, sequence, vocabulary, examples, devices, batch] = [
        "layers",
        "hidden",
        "heads",
        "seq",
        "vocab",
        "micro_batch",
        "n_gpus",
        "global_batch",
    ]
    .map(|column| row.whole(column));
    let megatron = row.set() == "vtrain_single";
    // There every part has as many classes, and those that are left over are left out.
    let parts = if megatron { row.whole("tp") } else { 1 };
    let vocabulary = vocabulary / parts * parts;
    let shape = Shape { layers, hidden, heads, sequence, vocabulary, examples };
    let scores = if megatron { Scores::Memory } else { Scores::Chip };
    // A table is tied where one device has the whole model.
    let head = match (megatron, row.whole("pp"), devices) {
        (true, 1, _) | (false, 1, 1) => Head::Tied,
        (true | false, ..) => Head::Own,
    };
    let model = model(shape, scores, head);
    let nodes = format!("{} x node", devices.div_ceil(8));
    let cluster = shipped(&format!("clusters/{cluster}.rdl"))?;
    let cluster = cluster.replace("4 x node", &nodes);
    let plan = plan(row);
    Ok(format!(
        "{cluster}
        {model}
        train {{
            data synthetic, batch {batch}, dtype bf16, optimizer adamw(lr = 1e-3)
        }}
        plan {{ rule sync, {plan} }}"
    ))
}
