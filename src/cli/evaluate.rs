//! `evaluate`: held-out loss and metrics of a checkpoint or of weights.

use super::{
    FORMAT, Form,
    args::{EvaluateArgs, LearnedArgs},
    compile,
    failure::Failure,
    load, note, print, print_json, run,
};
use roundelay::{Graphs, Learned, Measures, RunEvent};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Document {
    format: u32,
    step: Option<u64>,
    loss: f64,
    metrics: BTreeMap<String, f64>,
}

pub(super) fn evaluate(args: &EvaluateArgs) -> Result<(), Failure> {
    let file = &args.program.file;
    let schedule = match load::input(&args.program)? {
        load::Input::Program(program) => compile::best(&program)?,
        load::Input::Schedule(schedule) => *schedule,
    };
    let learned = learned(&args.learned);
    let told = |event| {
        if let RunEvent::Note(text) = event {
            note(&format!("note: {text}"));
        }
    };
    let data = args.data.as_deref();
    let on = run::on(args.device, Graphs::Never);
    let evaluated = roundelay::evaluate(&schedule, &learned, on, data, told);
    let (step, measures) = evaluated.map_err(|error| Failure::run(file, &error))?;
    if args.json {
        let Measures { loss, metrics } = measures;
        let step = matches!(learned, Learned::Checkpoint(_)).then_some(step);
        let document = Document { format: FORMAT, step, loss, metrics };
        return print_json(&document, Form::Document);
    }
    let of = match learned {
        Learned::Checkpoint(_) => format!("step {step}"),
        Learned::Weights(file) => file.display().to_string(),
    };
    print(&format!("{of}: {}\n", run::held_out(&measures)))
}

fn learned(args: &LearnedArgs) -> Learned {
    match (&args.checkpoint, &args.weights) {
        (Some(folder), _) => Learned::Checkpoint(folder.clone()),
        (None, Some(file)) => Learned::Weights(file.clone()),
        (None, None) => unreachable!("the arguments must name one of the two"),
    }
}
