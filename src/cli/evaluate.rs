//! `evaluate`: held-out loss of a checkpoint.

use super::{
    Form, args::EvaluateArgs, compile::best, failure::Failure, load, print, print_json,
};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Document {
    format: u32,
    step: u64,
    loss: f64,
    metrics: BTreeMap<String, f64>,
}

pub(super) fn evaluate(args: &EvaluateArgs) -> Result<(), Failure> {
    let file = &args.program.file;
    let schedule = if load::is_program(file) {
        let program = load::program(&args.program)?;
        let plan = best(file, &program)?;
        roundelay::compile(&program, &plan)
            .map_err(|error| Failure::compile(file, &error))?
    } else {
        load::schedule(file)?
    };
    let evaluated =
        roundelay::evaluate(&schedule, &args.checkpoint, args.data.as_deref());
    let (step, loss) = evaluated.map_err(|error| Failure::run(file, &error))?;
    if args.json {
        let metrics = BTreeMap::new();
        return print_json(&Document { format: 1, step, loss, metrics }, Form::Document);
    }
    print(&format!("step {step}: held-out loss {loss:.4}\n"))
}
