//! `compile`: from a program to a schedule file.

use super::{
    args::{CompileArgs, ProgramArgs},
    check::tell_facts,
    failure::Failure,
    load, note,
};
use roundelay::{
    Checked, CompileError, Plan, Program, Search,
    parts::{
        dsl,
        planner::{self, PlanMistakes},
    },
};
use std::path::Path;

pub(super) fn compile(args: &CompileArgs) -> Result<(), Failure> {
    let file = &args.program.file;
    let mut program = load::program(&args.program)?;
    load::try_write(&args.output)?;
    let folder = args.output.parent().unwrap_or(Path::new(""));
    if let Some(root) = program.train.data.root_mut() {
        *root = load::relative(root, folder);
    }
    let schedule = match &args.plan {
        Some(path) => {
            refuse_decisions(&args.program)?;
            planned(path, file, &program)?
        }
        None => best(file, &program)?,
    };
    load::write(&args.output, &roundelay::write(&schedule))?;
    tell_facts(&schedule, args.json)
}

/// A plan file has every decision made, so `--set` may change anything but those beside it.
fn refuse_decisions(args: &ProgramArgs) -> Result<(), Failure> {
    let decides =
        |line: &&String| dsl::Search::default().set_from(line, &dsl::Disk).is_ok();
    let Some(line) = args.set.iter().find(decides) else { return Ok(()) };
    let message = format!(
        "`--set \"{line}\"` is for a search, and the plan of `--plan` has every decision made: leave \
         one of them away, or edit the plan"
    );
    Err(Failure::usage(&args.file, &message))
}

/// The schedule of the plan in a file.
fn planned(path: &Path, file: &Path, program: &Program) -> Result<Checked, Failure> {
    let text = load::text(path)?;
    let wrong = |mistakes| Failure::plan_file(path, &mistakes);
    let plan = roundelay::read_plan(&text, program).map_err(wrong)?;
    let schedule = roundelay::compile(program, &plan).map_err(|error| {
        match (&error, planner::stranger(&text, program)) {
            (CompileError::Lower(_), Some(other)) => wrong(PlanMistakes(vec![other])),
            _ => Failure::compile(file, &error),
        }
    })?;
    tell_doubt(path, &text, program);
    Ok(schedule)
}

/// Warns of a plan that was made for another program and is taken all the same.
pub(super) fn tell_doubt(path: &Path, text: &str, program: &Program) {
    if let Some(planner::PlanMistake { line, message }) = planner::doubt(text, program) {
        note(&format!("warning: {message}\n --> {}:{line}", path.display()));
    }
}

/// The schedule of the plan that `plan` ranks first.
pub(super) fn best(file: &Path, program: &Program) -> Result<Checked, Failure> {
    let ranking = roundelay::plan(program, &Search { top: 1, ..Search::default() });
    let ranking = ranking.map_err(|refusal| Failure::no_plan(file, &refusal))?;
    lowered(file, program, ranking.best())
}

/// The schedule of a plan.
pub(super) fn lowered(
    file: &Path,
    program: &Program,
    plan: &Plan,
) -> Result<Checked, Failure> {
    roundelay::compile(program, plan).map_err(|error| Failure::compile(file, &error))
}
