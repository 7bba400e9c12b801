//! `compile`: from a program to a schedule file.

use super::{
    Form,
    args::CompileArgs,
    broken,
    check::tell_facts,
    failure::Failure,
    load::{self, Loaded},
    note,
    problem::Problem,
    watch::{Known, Progress},
};
use roundelay::{
    Checked, CompileError, Plan, Program, Ranking, SearchOptions,
    parts::{
        dsl,
        planner::{self, PlanMistakes},
    },
};
use std::path::Path;

pub(super) fn compile(args: &CompileArgs) -> Result<(), Failure> {
    let form = args.json.then_some(Form::Document);
    let nothing = Known::nothing("no schedule was made", &args.program.file, form)?;
    let (schedule, warnings) = nothing.unless(|| written(args))?;
    tell_facts(&schedule, warnings, args.json)
}

/// The schedule as it is written, and what is told of its plan.
fn written(args: &CompileArgs) -> Result<(Checked, Vec<Problem>), Failure> {
    let mut loaded = load::program(&args.program)?;
    loaded.read.extend(args.plan.clone());
    let output = loaded.output(&args.output, None)?;
    let (schedule, warnings) = match &args.plan {
        Some(path) => {
            refuse_decisions(
                &args.program.file,
                &args.program.set,
                "the plan of `--plan` has",
            )?;
            planned(path, &loaded)?
        }
        None => (best(&loaded)?, Vec::new()),
    };
    load::write_schedule(&output, &schedule)?;
    Ok((schedule, warnings))
}

/// Plan files have every decision made, so `--set` may change anything but those beside them; what exactness
/// a plan may have, and how much memory, is none. `made` says which plans have.
pub(super) fn refuse_decisions(
    file: &Path,
    set: &[String],
    made: &str,
) -> Result<(), Failure> {
    let decides = |line: &&String| {
        let mut search = dsl::Search::default();
        let is_read = search.set_from(line, &dsl::Disk).is_ok();
        let allows = search.exactness.take().is_some() | search.memory.take().is_some();
        is_read && !(allows && search == dsl::Search::default())
    };
    let Some(line) = set.iter().find(decides) else { return Ok(()) };
    let message = format!(
        "`--set \"{line}\"` is for a search, and {made} every decision made: leave it away, or edit \
         the plan"
    );
    Err(Failure::usage(file, &message))
}

/// The schedule of the plan in a file, and what is told of it.
fn planned(path: &Path, loaded: &Loaded) -> Result<(Checked, Vec<Problem>), Failure> {
    let text = load::plan_text(path)?;
    let program = &loaded.program;
    let wrong = |mistakes| Failure::plan_file(path, &mistakes);
    let plan = roundelay::read_plan(&text, program).map_err(wrong)?;
    let warnings = broken::lines(&plan, loaded);
    warnings.iter().for_each(|warning| note(&warning.to_string()));
    let mut told: Vec<Problem> = warnings.iter().map(Problem::from).collect();
    match roundelay::compile(program, &plan) {
        Ok(schedule) => {
            told.extend(tell_doubt(path, &text, program));
            Ok((schedule, told))
        }
        Err(error) => {
            let mistake = match &error {
                CompileError::Lower(error) => planner::unlowered(&text, program, error),
                CompileError::Exactness(_)
                | CompileError::Check(_)
                | CompileError::Unproven(_)
                | CompileError::Memory(_)
                | CompileError::Price(_) => None,
            };
            let failure = match mistake {
                Some(mistake) => wrong(PlanMistakes(vec![mistake])),
                None => Failure::compile(loaded, &error),
            };
            Err(failure.beside(told))
        }
    }
}

/// Warns of a plan that was made for another program and is taken all the same.
pub(super) fn tell_doubt(path: &Path, text: &str, program: &Program) -> Option<Problem> {
    let doubt = Problem::doubt(path, planner::doubt(text, program)?);
    note(&doubt.to_string());
    Some(doubt)
}

/// The schedule of the plan that `plan` ranks first.
pub(super) fn best(loaded: &Loaded) -> Result<Checked, Failure> {
    let options = SearchOptions { top: 1, ..SearchOptions::default() };
    lowered(loaded, ranking(loaded, &options)?.best())
}

/// What a search finds that tells how far it is.
pub(super) fn ranking(
    loaded: &Loaded,
    options: &SearchOptions,
) -> Result<Ranking, Failure> {
    planner::plan_watched(&loaded.program, options, &mut Progress::new())
        .map_err(|none| Failure::unplanned(loaded, &none))
}

/// The schedule of a plan.
pub(super) fn lowered(loaded: &Loaded, plan: &Plan) -> Result<Checked, Failure> {
    roundelay::compile(&loaded.program, plan)
        .map_err(|error| Failure::compile(loaded, &error))
}
