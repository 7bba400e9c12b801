//! `data`: the examples of a training as files.

use super::{
    Form, args::DataArgs, compile, failure::Failure, load, print, print_json,
    watch::Known,
};
use roundelay::{DataFrom, Examples, parts::schedule::counted};

pub(super) fn data(args: &DataArgs) -> Result<(), Failure> {
    let form = args.json.then_some(Form::Document);
    let nothing =
        Known::nothing("not all examples were written", &args.program.file, form)?;
    let examples = nothing.unless(|| written(args))?;
    if args.json {
        return print_json(&examples, Form::Document);
    }
    let names: Vec<&str> = examples.inputs.iter().map(|input| &*input.name).collect();
    print(&format!(
        "{}: {} of {} with {} each\n",
        args.output.display(),
        names.join(", "),
        counted(examples.steps, "step"),
        counted(examples.batch, "example")
    ))
}

fn written(args: &DataArgs) -> Result<Examples, Failure> {
    let file = &args.program.file;
    let input = load::input(&args.program)?;
    input.warn(&args.program.file);
    let mut data = DataFrom::from(args.data.clone());
    let schedule = match input {
        load::Input::Program(loaded) => {
            let ahead = data.look_ahead(&loaded.program);
            ahead.map_err(|error| Failure::run(file, &error))?;
            compile::best(&loaded)?
        }
        load::Input::Schedule(schedule) => *schedule,
    };
    let steps = args.steps.unwrap_or(schedule.job.steps);
    let written = roundelay::write_examples(&schedule, steps, &data, &args.output);
    written.map_err(|error| Failure::examples(file, error))
}
