//! `evaluate`: held-out loss and metrics of a checkpoint.

use super::{
    FORMAT, Form, args::EvaluateArgs, compile, failure::Failure, load, print, print_json,
    run,
};
use roundelay::Measures;
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
    let schedule = match load::input(&args.program)? {
        load::Input::Program(program) => compile::best(file, &program)?,
        load::Input::Schedule(schedule) => *schedule,
    };
    let evaluated =
        roundelay::evaluate(&schedule, &args.checkpoint, args.data.as_deref());
    let (step, measures) = evaluated.map_err(|error| Failure::run(file, &error))?;
    if args.json {
        let Measures { loss, metrics } = measures;
        let document = Document { format: FORMAT, step, loss, metrics };
        return print_json(&document, Form::Document);
    }
    print(&run::held_out(step, &measures))
}
