//! The same hunt on stand-ins for GPUs: what is drawn there trains as on the CPU, in the predicted
//! memory, and neither graphs nor the order in which streams go on change a bit.

use crate::{
    bench::{Bench, Run, arenas},
    judge::Verdict,
    program::Program,
    support::ended,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// How near a run must come to the CPU's.
enum Near {
    /// All losses and parameters, relatively: sums run in another order.
    All { most: f64, read: fn(&[u8]) -> Vec<f64> },
    /// The first loss: from then on rounding to 16 bits carries the two apart.
    First { most: f64 },
}

impl Near {
    fn of(dtype: &str) -> Self {
        match dtype {
            "f64" => {
                Near::All { most: 1e-6, read: |bytes| numbers(bytes, f64::from_le_bytes) }
            }
            "f32" => Near::All {
                most: 2e-2,
                read: |bytes| numbers(bytes, |number| f32::from_le_bytes(number).into()),
            },
            _ => Near::First { most: 5e-2 },
        }
    }
}

/// What lies behind the head of a file of weights.
fn numbers<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f64) -> Vec<f64> {
    let (length, rest) = bytes.split_first_chunk().expect("it begins with a length");
    let data = &rest[u64::from_le_bytes(*length) as usize..];
    data.as_chunks().0.iter().map(|bytes| number(*bytes)).collect()
}

/// # Errors
/// What does not hold.
///
/// # Panics
/// Where a run fails.
pub(crate) fn judge(program: &Program) -> Result<Verdict, String> {
    let bench = Bench::with_cudnn("hunt");
    let dtype = program.training.dtype;
    let plan = program.planning.text();
    let Some(schedule) = compiled(&bench, &program.with(dtype, &plan))? else {
        return Ok(Verdict::Refused);
    };
    let own = steady(&bench, &schedule)?;
    match Near::of(dtype) {
        Near::All { most, read } => {
            let other = bench.run("--device cpu", &schedule, &[]);
            same_traffic(&own, &other)?;
            near("losses", &own.losses, &other.losses, most)?;
            near("held-out losses", &held_out(&own), &held_out(&other), most)?;
            near("parameters", &read(&own.bytes), &read(&other.bytes), 10.0 * most)?;
        }
        Near::First { most } => {
            let text = fs::read_to_string(&schedule).expect("it was written");
            let proven = roundelay::read(&text).map_err(|wrong| wrong.to_string())?;
            let alone = Program::alone(proven.plan.all_micro_batches());
            let alone = compiled(&bench, &program.with("f32", &alone))?;
            let alone = alone.ok_or("refused on one device")?;
            let other = bench.run("--device cpu", &alone, &[]);
            near("first losses", &own.losses[..1], &other.losses[..1], most)?;
        }
    }
    Ok(Verdict::Trained)
}

fn held_out(run: &Run) -> Vec<f64> {
    run.looks.iter().map(|look| look["loss"].as_f64().unwrap_or(f64::NAN)).collect()
}

/// The schedule of a program; none where no plan fits.
pub(crate) fn compiled(bench: &Bench, text: &str) -> Result<Option<PathBuf>, String> {
    let program = bench.scratch.file("random.rdl", text);
    let schedule = bench.scratch.path("random.schedule");
    let ended = ended(bench.command("compile -o").arg(&schedule).arg(&program));
    match ended.code {
        0 => Ok(Some(schedule)),
        1 => Ok(None),
        code => Err(format!("compiling ended with {code}: {}", ended.err)),
    }
}

/// The run with graphs of periods, if all others are the same.
fn steady(bench: &Bench, schedule: &Path) -> Result<Run, String> {
    let run = |graphs: &str, order: &str| {
        let words = format!("--device cuda --graphs {graphs}");
        bench.run(&words, schedule, &[("STANDIN_CUDA_ORDER", order)])
    };
    let own = run("periods", "late");
    let [predicted, measured] = ["predicted", "measured"].map(|what| &own.end[what]);
    if arenas(measured) != arenas(predicted) {
        return Err(format!("arenas {measured}, predicted {predicted}"));
    }
    for (graphs, order) in [("never", "late"), ("launches", "3"), ("periods", "7")] {
        let other = run(graphs, order);
        if !other.is(&own) {
            let (own, other) = (&own.losses, &other.losses);
            return Err(format!(
                "graphs {graphs}, order {order}: {other:?}, else {own:?}"
            ));
        }
    }
    Ok(own)
}

fn same_traffic(own: &Run, other: &Run) -> Result<(), String> {
    for count in ["transfers", "bytes"] {
        let [own, other] = [own, other].map(|run| &run.end["measured"][count]);
        if own != other {
            return Err(format!("{count}: {own}, on the CPU {other}"));
        }
    }
    Ok(())
}

/// No number is further from its other than this share of it, or of the largest number.
fn near(what: &str, own: &[f64], others: &[f64], most: f64) -> Result<(), String> {
    let largest =
        others.iter().fold(1e-3, |largest: f64, other| largest.max(other.abs()));
    let near = |own: f64, other: f64| {
        (own - other).abs() <= most * largest
            || own.is_nan() && other.is_nan()
            || own == other
    };
    let far = own.iter().zip(others).position(|(own, other)| !near(*own, *other));
    match far {
        None if own.len() == others.len() => Ok(()),
        None => Err(format!("{} {what}, on the CPU {}", own.len(), others.len())),
        Some(at) => {
            Err(format!("{what}, number {at}: {}, on the CPU {}", own[at], others[at]))
        }
    }
}
