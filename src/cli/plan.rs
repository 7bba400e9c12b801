//! `plan`: the ranked table, why, the front, the best plan as a file, and two plans side by side.

use super::{
    Form,
    args::{PlanArgs, ProgramArgs},
    failure::Failure,
    load, print, print_json,
    watch::Watch,
};
use roundelay::{
    Plan, Program, Ranking, Search,
    parts::planner::{self, Explanation, Front, Goal, NoPlan},
};
use std::path::Path;

/// How many plans are clocked for the front besides those of the ranking.
const FRONT_CLOCKED_MAX: usize = 1000;

pub(super) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    match (&args.diff[..], &args.file) {
        ([first, second], file) => diff(args, (first, second), file.as_deref()),
        ([], Some(file)) => {
            let set = args.set.clone();
            let program = load::program(&ProgramArgs { file: file.clone(), set })?;
            ranked(args, file, &program)
        }
        _ => unreachable!("the arguments must name a program or two plans"),
    }
}

fn ranked(args: &PlanArgs, file: &Path, program: &Program) -> Result<(), Failure> {
    let compare = planner::Compare::Approaches;
    let options = Search { top: args.top.get(), compare, ..Search::default() };
    let ranking = planner::plan_watched(program, &options, &mut Watch::new());
    let ranking = ranking.map_err(|none| match none {
        NoPlan::Refused(refusal) => Failure::no_plan(file, &refusal),
        NoPlan::Interrupted => Failure::interrupted(&none.to_string()),
    })?;
    if let Some(path) = &args.output {
        load::write(path, &roundelay::write_plan(ranking.best(), program))?;
    }
    // Who ends the search wants what there is, and no other one.
    let more = !ranking.interrupted;
    let front = || planner::front(program, &ranking, FRONT_CLOCKED_MAX);
    let explanation = || roundelay::explain(program, &options, &ranking);
    let extras = Extras {
        front: (args.pareto && more).then(front),
        explanation: (args.explain && more).then(explanation),
    };
    match args.json {
        true => print_document(&ranking, &extras, program)?,
        false => print_text(&ranking, &extras, program)?,
    }
    match ranking.interrupted {
        true => Err(Failure::interrupted(&stopped(&ranking))),
        false => Ok(()),
    }
}

/// What is asked for besides the ranking.
struct Extras {
    front: Option<Front>,
    explanation: Option<Explanation>,
}

fn print_document(
    ranking: &Ranking,
    extras: &Extras,
    program: &Program,
) -> Result<(), Failure> {
    let notes = planner::remarks(ranking, program);
    let mut document = planner::document(ranking).with_notes(notes);
    if let Some(front) = &extras.front {
        document = document.with_front(front, &ranking.goal);
    }
    if let Some(explanation) = &extras.explanation {
        document = document.with_explanation(explanation);
    }
    print_json(&document, Form::Document)
}

fn print_text(
    ranking: &Ranking,
    extras: &Extras,
    program: &Program,
) -> Result<(), Failure> {
    print(&roundelay::table(ranking, program))?;
    if let Some(front) = &extras.front {
        print(&format!("\n{}", planner::front_table(front, &ranking.goal)))?;
    }
    if let Some(explanation) = &extras.explanation {
        print(&format!("\n{explanation}"))?;
    }
    Ok(())
}

/// How far a search was that did not come to its end.
fn stopped(ranking: &Ranking) -> String {
    let gap = 100.0 * ranking.gap;
    format!("interrupted: these are the best so far; another may be {gap:.1} % better")
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
            let message = format!("`{}` cannot be costed: {why}", path.display());
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
