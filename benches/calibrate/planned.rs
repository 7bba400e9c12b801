//! Training steps through the planner itself: the rows that are a plan of ours, lowered, checked
//! and clocked on the shipped devices and clusters.
//!
//! A row is one when it takes one device, or a worker per device with one micro-batch each, and
//! recomputes nothing. `zero_stage` 3 has a stage per layer, so that every layer gathers its own
//! parameters; the others have four, so that their reductions run beside the backward pass. All
//! constants are those of the shipped files, whatever this run has fitted.

use crate::{
    data::{self, Row},
    fit::{Pair, head, report},
};
use roundelay::{Search, SourceFile};
use std::{error::Error, fs, path::PathBuf};

/// A GPU and the file of the cluster that has it.
const CLUSTERS: [(&str, &str); 3] = [
    ("A100-SXM-40GB", "azure-nd-a100"),
    ("A100-SXM-80GB", "dgx-a100"),
    ("H100-SXM-80GB", "dgx-h100"),
];

/// Plans every row that is a plan, and judges the clock.
pub(crate) fn judge() -> Result<(), Box<dyn Error>> {
    let rows = data::rows("steps.csv")?;
    head("Training steps as planned, lowered and clocked");
    for (gpu, cluster) in CLUSTERS {
        let own = rows.iter().filter(|row| row.text("gpu") == gpu && is_plan(row));
        let (mut pairs, mut refused) = (Vec::new(), Vec::new());
        for row in own {
            match step_time(row, cluster)? {
                Ok(pair) => pairs.push(pair),
                Err(why) => refused.push((row.text("id").to_owned(), why)),
            }
        }
        report(gpu, &pairs);
        for (id, why) in refused {
            let first = why.lines().next().unwrap_or_default();
            println!("| {gpu}: {id} is refused: {first} | | | | |");
        }
    }
    Ok(())
}

fn is_plan(row: &Row) -> bool {
    let alone = ["tp", "pp", "cp"].iter().all(|column| row.whole(column) == 1);
    let known = ["mpt_", "llmc", "nanogpt_bench"];
    let known = known.iter().any(|set| row.set().starts_with(set));
    let sound = !row.text("notes").contains("SUSPECT") && row.text("precision") != "fp8";
    let whole =
        row.whole("global_batch") == row.whole("n_gpus") * row.whole("micro_batch");
    alone && known && sound && whole && row.text("recompute") == "none"
}

/// The clocked step of a row's plan, or why there is none.
fn step_time(row: &Row, cluster: &str) -> Result<Result<Pair, String>, Box<dyn Error>> {
    let source = SourceFile::new("row.rdl".to_owned(), program(row, cluster)?);
    let program = roundelay::parse(&source)?;
    let ranking = match roundelay::plan(&program, &Search::default()) {
        Ok(ranking) => ranking,
        Err(refusal) => return Ok(Err(refusal.to_string())),
    };
    let found = ranking.plans.first().ok_or("a ranking has a first plan")?;
    Ok(Ok(Pair {
        group: format!("{} {}", row.set(), row.whole("n_gpus")),
        measured: row.number_or("iter_time_s", 0.0),
        predicted: found.step_time.0 as f64 / 1e9,
    }))
}

/// The program of a row, on as many devices of the shipped cluster as it takes.
fn program(row: &Row, cluster: &str) -> Result<String, Box<dyn Error>> {
    let [layers, hidden, heads, sequence, vocabulary, devices, batch] =
        ["layers", "hidden", "heads", "seq", "vocab", "n_gpus", "global_batch"]
            .map(|column| row.whole(column));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = path.join(format!("dsl/clusters/{cluster}.rdl"));
    let nodes = format!("{} x node", devices.div_ceil(8));
    let cluster = fs::read_to_string(path)?.replace("4 x node", &nodes);
    let plan = match (devices, row.whole("zero_stage")) {
        (1, _) => "placement accumulate, micro_batches 1, stages 1".to_owned(),
        (_, 3) => format!(
            "placement data, micro_batches {devices}, stages {layers}, states zero3"
        ),
        (_, 2) => {
            format!("placement data, micro_batches {devices}, stages 4, states zero2")
        }
        _ => format!("placement data, micro_batches {devices}, stages 4, states zero1"),
    };
    Ok(format!(
        "{cluster}
        model gpt {{
            input tokens: i32[batch, {sequence}]
            input targets: i32[batch, {sequence}]
            x = embedding(tokens, {vocabulary}, {hidden}) + positions({sequence}, {hidden})
            repeat {layers} as layer {{
                x = x + attention(layer_norm(x), {heads}, causal = true)
                x = x + linear(gelu(linear(layer_norm(x), 4 * {hidden})), {hidden})
            }}
            loss cross_entropy(linear(layer_norm(x), {vocabulary}), targets)
        }}
        train {{
            data synthetic, batch {batch}, dtype bf16, optimizer adamw(lr = 1e-3)
        }}
        plan {{ rule sync, {plan} }}"
    ))
}
