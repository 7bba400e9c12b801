//! `plan`: the ranked table, why, the front, the best plan as a file, and two plans side by side.

use super::{
    Form,
    args::{PlanArgs, ProgramArgs},
    failure::Failure,
    load, print, print_json,
};
use roundelay::{
    Plan, Program, Ranking, Search,
    parts::planner::{self, Front, Goal},
};
use std::path::Path;

/// How many plans are clocked for the front besides those of the ranking.
const FRONT_CLOCKED_MAX: usize = 1000;

pub(super) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    match (&args.diff[..], &args.file) {
        ([first, second], file) => diff(args, (first, second), file.as_deref()),
        (_, Some(file)) => {
            let set = args.set.clone();
            let program = load::program(&ProgramArgs { file: file.clone(), set })?;
            ranked(args, file, &program)
        }
        (_, None) => unreachable!("the arguments must name a program or two plans"),
    }
}

fn ranked(args: &PlanArgs, file: &Path, program: &Program) -> Result<(), Failure> {
    let options = Search { top: args.top.max(1), ..Search::default() };
    let ranking = roundelay::plan(program, &options)
        .map_err(|refusal| Failure::no_plan(file, &refusal))?;
    if let Some(path) = &args.output {
        load::write(path, &roundelay::write_plan(ranking.best()))?;
    }
    let front = args.pareto.then(|| planner::front(program, &ranking, FRONT_CLOCKED_MAX));
    match args.json {
        true => print_document(&ranking, front.as_ref()),
        false => print_text(args, &ranking, front.as_ref(), program),
    }
}

fn print_document(ranking: &Ranking, front: Option<&Front>) -> Result<(), Failure> {
    let document = planner::document(ranking);
    let document = match front {
        Some(front) => document.with_front(front, &ranking.goal),
        None => document,
    };
    print_json(&document, Form::Document)
}

fn print_text(
    args: &PlanArgs,
    ranking: &Ranking,
    front: Option<&Front>,
    program: &Program,
) -> Result<(), Failure> {
    print(&roundelay::table(ranking, program))?;
    if let Some(front) = front {
        print(&format!("\n{}", planner::front_table(front, &ranking.goal)))?;
    }
    if args.explain {
        print(&format!("\n{}", roundelay::explain(ranking)))?;
    }
    Ok(())
}

/// `--diff a.yaml b.yaml`: with a program also what both cost.
fn diff(
    args: &PlanArgs,
    (one, other): (&Path, &Path),
    file: Option<&Path>,
) -> Result<(), Failure> {
    let Some(file) = file else {
        if !args.set.is_empty() {
            return Err(Failure::usage(one, "`--set` needs a program beside `--diff`"));
        }
        let plans = (parsed(one)?, parsed(other)?);
        return tell_diff(args, (one, other), &planner::diff(&plans.0, &plans.1), None);
    };
    let set = args.set.clone();
    let program = load::program(&ProgramArgs { file: file.to_owned(), set })?;
    let read = |path: &Path| -> Result<Plan, Failure> {
        let mistakes = |wrong| Failure::plan_file(path, &wrong);
        roundelay::read_plan(&load::text(path)?, &program).map_err(mistakes)
    };
    let plans = (read(one)?, read(other)?);
    let cost = |path: &Path, plan: &Plan| {
        let refused = |why: planner::Reason| {
            let message = format!("this plan cannot be costed: {why}");
            Failure::refused("plan", path, message)
        };
        planner::appraise(&program, plan).map_err(refused)
    };
    let (first, second) = (cost(one, &plans.0)?, cost(other, &plans.1)?);
    let costs = Some((&first, &second, &Goal::new(&program)));
    tell_diff(args, (one, other), &planner::diff(&plans.0, &plans.1), costs)
}

fn parsed(path: &Path) -> Result<Plan, Failure> {
    let mistakes = |wrong| Failure::plan_file(path, &wrong);
    planner::parse_plan(&load::text(path)?).map_err(mistakes)
}

fn tell_diff(
    args: &PlanArgs,
    (one, other): (&Path, &Path),
    differences: &[planner::Difference],
    costs: Option<(&planner::Candidate, &planner::Candidate, &Goal)>,
) -> Result<(), Failure> {
    if args.json {
        let document = planner::diff_document(differences.to_vec(), costs);
        return print_json(&document, Form::Document);
    }
    let (one, other) = (one.display().to_string(), other.display().to_string());
    print(&planner::diff_table(differences, (&one, &other), costs))
}
