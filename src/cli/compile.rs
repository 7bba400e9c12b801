//! `compile`: from a program to a schedule file.

use super::{args::CompileArgs, check::tell_facts, failure::Failure, load};
use roundelay::{Plan, Program, Search, parts::schedule::Data};
use std::path::Path;

pub(super) fn compile(args: &CompileArgs) -> Result<(), Failure> {
    let file = &args.program.file;
    let mut program = load::program(&args.program)?;
    let plan = match &args.plan {
        Some(path) => read_plan(path, &program)?,
        None => best(file, &program)?,
    };
    let folder = args.output.parent().unwrap_or(Path::new(""));
    if let Data::Text { root, .. } | Data::Tokens { root, .. } = &mut program.train.data {
        *root = load::relative(root, folder);
    }
    let schedule = roundelay::compile(&program, &plan)
        .map_err(|error| Failure::compile(file, &error))?;
    load::write(&args.output, &roundelay::write(&schedule))?;
    tell_facts(&schedule, args.json)
}

fn read_plan(path: &Path, program: &Program) -> Result<Plan, Failure> {
    let text = load::text(path)?;
    roundelay::read_plan(&text, program).map_err(|wrong| Failure::plan_file(path, &wrong))
}

/// The plan that `plan` ranks first.
pub(super) fn best(file: &Path, program: &Program) -> Result<Plan, Failure> {
    let ranking = roundelay::plan(program, &Search { top: 1, ..Search::default() });
    let ranking = ranking.map_err(|refusal| Failure::no_plan(file, &refusal))?;
    Ok(ranking.best().clone())
}
