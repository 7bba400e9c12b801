//! `data`: the examples of a training as files.

use super::{Form, args::DataArgs, compile, failure::Failure, load, print, print_json};
use roundelay::ExamplesError;

pub(super) fn data(args: &DataArgs) -> Result<(), Failure> {
    let file = &args.program.file;
    let schedule = match load::input(&args.program)? {
        load::Input::Program(program) => compile::best(&program)?,
        load::Input::Schedule(schedule) => *schedule,
    };
    let steps = args.steps.unwrap_or(schedule.job.steps);
    let folder = &args.output;
    let written =
        roundelay::write_examples(&schedule, steps, args.data.as_deref(), folder);
    let examples = written.map_err(|error| match error {
        ExamplesError::Data(error) => Failure::run(file, &error.into()),
        ExamplesError::Output(error) => Failure::unwritten(&error),
    })?;
    if args.json {
        return print_json(&examples, Form::Document);
    }
    let names: Vec<&str> = examples.inputs.iter().map(|input| &*input.name).collect();
    print(&format!(
        "{}: {} of {} steps with {} examples each\n",
        folder.display(),
        names.join(", "),
        examples.steps,
        examples.batch
    ))
}
