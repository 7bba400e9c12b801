//! `evaluate`: held-out loss and metrics of a checkpoint or of weights.

use super::{
    FORMAT, Form,
    args::{EvaluateArgs, LearnedArgs},
    compile,
    failure::Failure,
    load, print, print_json,
    run::{self, Note},
    watch::Known,
};
use roundelay::{Assessment, Coverage, EvaluateOptions, Graphs, Learned, Measures};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

#[derive(Serialize)]
struct Document {
    format: u32,
    step: Option<u64>,
    loss: f64,
    metrics: BTreeMap<String, f64>,
    examples: u64,
    held_out: Option<u64>,
    notes: Vec<Note>,
}

pub(super) fn evaluate(args: &EvaluateArgs) -> Result<(), Failure> {
    let form = args.json.then_some(Form::Document);
    let nothing = Known::nothing("nothing was measured", &args.program.file, form)?;
    let learned = learned(&args.learned);
    let (Assessment { step, measures, coverage }, notes) =
        nothing.unless(|| assessed(args, &learned))?;
    if args.json {
        let Measures { loss, metrics } = measures;
        let step = matches!(learned, Learned::Checkpoint(_)).then_some(step);
        let Coverage { examples, of: held_out } = coverage;
        let document =
            Document { format: FORMAT, step, loss, metrics, examples, held_out, notes };
        return print_json(&document, Form::Document);
    }
    let of = match learned {
        Learned::Checkpoint(_) => format!("step {step}"),
        Learned::Weights(file) => file.display().to_string(),
    };
    print(&format!("{of}: {} {}\n", run::held_out(&measures), over(coverage)))
}

/// What was measured, and what was said meanwhile.
fn assessed(
    args: &EvaluateArgs,
    learned: &Learned,
) -> Result<(Assessment, Vec<Note>), Failure> {
    let file = &args.program.file;
    run::needs_gpu(args.device, ("--deadline", args.deadline), file)?;
    let input = load::input(&args.program)?;
    input.warn(&args.program.file);
    let mut options = EvaluateOptions {
        on: run::on(args.device, Graphs::Never),
        data: args.data.clone().into(),
        examples: args.examples,
        ..EvaluateOptions::default()
    };
    if let Some(seconds) = args.deadline {
        options.deadline = Duration::from_secs(seconds);
    }
    let wrong = |error| Failure::run(file, &error);
    let schedule = match input {
        load::Input::Program(loaded) => {
            options.look_ahead(&loaded.program, learned).map_err(wrong)?;
            compile::best(&loaded)?
        }
        load::Input::Schedule(schedule) => *schedule,
    };
    let mut notes = Vec::new();
    let told = |event| {
        let note = Note::of(&event);
        notes.extend(note.inspect(Note::tell));
    };
    let found = roundelay::evaluate(&schedule, learned, &options, told);
    found.map(|assessment| (assessment, notes)).map_err(wrong)
}

/// Over how much of the held-out data.
fn over(Coverage { examples, of }: Coverage) -> String {
    match of {
        None => format!("over {examples} drawn examples"),
        Some(all) if all < examples => format!(
            "over {examples} examples, of which {all} are different: a batch has more than are \
             held out"
        ),
        Some(all) => format!("over {examples} of {all} held-out examples"),
    }
}

fn learned(args: &LearnedArgs) -> Learned {
    match (&args.checkpoint, &args.weights) {
        (Some(folder), _) => Learned::Checkpoint(folder.clone()),
        (None, Some(file)) => Learned::Weights(file.clone()),
        (None, None) => unreachable!("the arguments must name one of the two"),
    }
}
