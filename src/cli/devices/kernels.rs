//! `devices --check-kernels`: random calls of every kernel on a GPU against the references.

use super::super::{
    FORMAT, Form, args::DevicesArgs, failure::Failure, note, print, print_json,
};
use roundelay::parts::{
    kernels::samples::tolerance,
    runtime::{KernelCheck, KernelRow, KernelTrials, TriedKernel, TriedProducts},
    schedule::Float,
};
use serde::Serialize;
use std::{fmt::Write, path::Path, time::Duration};

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    device: String,
    /// cuBLASLt's version; zero where own functions make all products.
    cublaslt: usize,
    /// cuDNN's; zero where own functions make all convolutions and all attention.
    cudnn: usize,
    seed: u64,
    rows: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    kernel: &'a str,
    dtype: Float,
    calls: u32,
    /// Steps of these that cuBLASLt made.
    products: u64,
    /// And those that cuDNN made.
    convolutions: u64,
    attentions: u64,
    /// None where a number is none, or infinite.
    error: Option<f64>,
    tolerance: f64,
    wrong: Option<&'a str>,
}

pub(super) fn check(args: &DevicesArgs) -> Result<(), Failure> {
    let only = args.only.iter().map(|name| TriedKernel::named(name));
    let only = only.collect::<Result<_, _>>();
    let only = only.map_err(|no| Failure::usage(Path::new(""), &no.to_string()))?;
    let trials = KernelTrials {
        only,
        seed: args.seed,
        calls: args.calls,
        products: if args.own_products { TriedProducts::Own } else { TriedProducts::All },
        deadline: Duration::from_secs(args.deadline),
    };
    let told = |row: &KernelRow| {
        if let Some(wrong) = &row.wrong {
            note(&format!("WRONG in {}: {wrong}", row.dtype));
        }
    };
    let checked =
        roundelay::check_kernels(trials, told).map_err(|error| Failure::gpus(&error))?;
    match args.json {
        true => print_json(&document(&checked), Form::Document)?,
        false => print(&table(&checked))?,
    }
    match checked.is_right() {
        true => Ok(()),
        false => Err(Failure::wrong(
            "some kernels make other numbers than their references, or none; do not train on \
             this GPU, driver or libraries before they make the right ones",
        )),
    }
}

fn document(checked: &KernelCheck) -> Document<'_> {
    let rows = checked.rows.iter().map(|row| Row {
        kernel: row.kernel,
        dtype: row.dtype,
        calls: row.calls,
        products: row.by_libraries.products,
        convolutions: row.by_libraries.convolutions,
        attentions: row.by_libraries.attentions,
        error: row.error.is_finite().then_some(row.error),
        tolerance: tolerance(row.dtype),
        wrong: row.wrong.as_deref(),
    });
    let version = |library: Option<usize>| library.unwrap_or(0);
    Document {
        format: FORMAT,
        device: checked.device.to_string(),
        cublaslt: version(checked.device.products),
        cudnn: version(checked.device.convolutions),
        seed: checked.trials.seed,
        rows: rows.collect(),
    }
}

/// The largest error of every kernel, a column for each element type.
fn table(checked: &KernelCheck) -> String {
    let mut types: Vec<Float> = Vec::new();
    for row in &checked.rows {
        if !types.contains(&row.dtype) {
            types.push(row.dtype);
        }
    }
    let (device, seed) = (&checked.device, checked.trials.seed);
    let mut text = format!("{device}, {}, seed {seed}\n{:<32}", device.libraries(), "");
    for dtype in &types {
        let _ = write!(text, " {:>12}", dtype.to_string());
    }
    text += "  steps by libraries\n";
    let first = checked.rows.iter().filter(|row| Some(&row.dtype) == types.first());
    for KernelRow { kernel, .. } in first {
        let _ = write!(text, "{kernel:<32}");
        for row in checked.rows.iter().filter(|row| row.kernel == *kernel) {
            let mark = if row.wrong.is_some() { " WRONG" } else { "" };
            let _ = write!(text, " {:>12}", format!("{:.1e}{mark}", row.error));
        }
        let own = checked.rows.iter().filter(|row| row.kernel == *kernel);
        let steps = own.map(|row| row.by_libraries.total()).sum::<u64>();
        let _ = writeln!(text, "  {steps}");
    }
    let _ = write!(text, "{:<32}", "allowed");
    for dtype in types {
        let _ = write!(text, " {:>12}", format!("{:.1e}", tolerance(dtype)));
    }
    text + "\n"
}
