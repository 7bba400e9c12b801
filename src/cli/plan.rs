//! `plan`: the ranked table, why, the front, the best plan as a file, and two plans side by side.

use super::{
    Form,
    args::{PlanArgs, ProgramArgs},
    compile,
    failure::Failure,
    json_text,
    load::{self, Loaded},
    note, print, print_json,
    problem::{Code, Problem},
    watch::{Known, Watch},
};
use roundelay::{
    OutputFile, Plan, Program, Ranking, SearchOptions,
    parts::planner::{self, Document, Explanation, Front, Goal, Reason},
};
use serde::Serialize;
use std::path::Path;

/// How many plans are clocked for the front besides those of the ranking.
const FRONT_CLOCKED_MAX: usize = 1000;

pub(super) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    match (&args.diff[..], &args.file) {
        ([first, second], file) => diff(args, (first, second), file.as_deref()),
        ([], Some(file)) => {
            let set = args.set.clone();
            let loaded = load::program(&ProgramArgs { file: file.clone(), set })?;
            let output = args.output.as_ref();
            let output = output.map(|path| loaded.output(path, None));
            ranked(args, &loaded, output.transpose()?.as_ref())
        }
        _ => unreachable!("the arguments must name a program or two plans"),
    }
}

fn ranked(
    args: &PlanArgs,
    loaded: &Loaded,
    output: Option<&OutputFile>,
) -> Result<(), Failure> {
    let program = &loaded.program;
    let compare = planner::Compare::Approaches;
    let options =
        SearchOptions { top: args.top.get(), compare, ..SearchOptions::default() };
    let form = args.json.then_some(Form::Document);
    let mut watch = Watch::new(Known::nothing(NO_PLAN, &loaded.file, form)?)?;
    let ranking = planner::plan_watched(program, &options, &mut watch)
        .map_err(|none| Failure::unplanned(loaded, &none))?;
    if let Some(output) = output {
        load::write(output, &roundelay::write_plan(ranking.best(), program))?;
    }
    let mut found = Found { program, options, ranking, watch };
    match args.json {
        true => print_document(args, &mut found)?,
        false => print_text(args, &mut found)?,
    }
    match (found.ranking.interrupted, found.watch.is_over()) {
        (true, _) => Err(Failure::interrupted(&stopped(&found.ranking))),
        (false, true) => Err(Failure::interrupted(PART_OF_FRONT)),
        (false, false) => Ok(()),
    }
}

/// A ranking, and what more is found out about it from.
struct Found<'a> {
    program: &'a Program,
    options: SearchOptions,
    ranking: Ranking,
    watch: Watch,
}

impl Found<'_> {
    /// What will not come of what is asked for. Who ends the search wants what there is, and no other
    /// one.
    fn missing(&self, args: &PlanArgs) -> Option<&'static str> {
        let lacks_front = args.pareto && self.ranking.interrupted;
        let lacks_explanation = args.explain && self.watch.is_over();
        match (lacks_front, lacks_explanation) {
            (false, false) => None,
            (true, false) => Some(NO_FRONT),
            (false, true) => Some(NO_EXPLANATION),
            (true, true) => Some(NEITHER),
        }
    }

    fn front(
        &mut self,
        args: &PlanArgs,
        known: impl FnOnce(&str) -> Result<String, Failure>,
    ) -> Result<Option<Front>, Failure> {
        if !args.pareto || self.ranking.interrupted {
            return Ok(None);
        }
        let missing = if args.explain { NEITHER } else { NO_FRONT };
        let known = Known { text: known(missing)?, missing };
        let (program, ranking) = (self.program, &self.ranking);
        let front = |watch: &mut Watch| {
            planner::front_watched(program, ranking, FRONT_CLOCKED_MAX, watch)
        };
        Ok(Some(self.watch.follow(known, front)))
    }

    fn explanation(
        &mut self,
        args: &PlanArgs,
        known: impl FnOnce(&str) -> Result<String, Failure>,
    ) -> Result<Option<Explanation>, Failure> {
        if !args.explain || self.watch.is_over() {
            return Ok(None);
        }
        let known = Known { text: known(NO_EXPLANATION)?, missing: NO_EXPLANATION };
        let explain = |_: &mut Watch| {
            roundelay::explain(self.program, &self.options, &self.ranking)
        };
        Ok(Some(self.watch.follow(known, explain)))
    }
}

const NO_PLAN: &str = "no plan was printed";
const NO_FRONT: &str = "the front was not found";
const NO_EXPLANATION: &str = "the explanation was not made";
const PART_OF_FRONT: &str =
    "interrupted: the front is of the plans that were clocked so far";
const NEITHER: &str = "neither front nor explanation was made";

/// The document goes out whole; what interrupts it sends what there is.
fn print_document(args: &PlanArgs, found: &mut Found<'_>) -> Result<(), Failure> {
    let mut notes = planner::remarks(&found.ranking, found.program);
    let noted = |document: &Document, missing: &str| {
        let notes = notes.iter().cloned().chain([missing.to_owned()]).collect();
        json_text(&document.clone().with_notes(notes), Form::Document)
            .map_err(|error| Failure::output(&error))
    };
    let mut document = planner::document(&found.ranking, found.program);
    if let Some(front) = found.front(args, |missing| noted(&document, missing))? {
        document = document.with_front(&front, &found.ranking.goal);
    }
    if let Some(why) = found.explanation(args, |missing| noted(&document, missing))? {
        document = document.with_explanation(&why);
    }
    notes.extend(found.missing(args).map(str::to_owned));
    print_json(&document.with_notes(notes), Form::Document)
}

/// Everything goes out as soon as it is known.
fn print_text(args: &PlanArgs, found: &mut Found<'_>) -> Result<(), Failure> {
    let nothing_more = |_: &str| Ok(String::new());
    print(&roundelay::table(&found.ranking, found.program))?;
    if let Some(front) = found.front(args, nothing_more)? {
        let front = planner::front_table(&front, &found.ranking.goal);
        print(&format!("\n{front}"))?;
    }
    if let Some(explanation) = found.explanation(args, nothing_more)? {
        print(&format!("\n{explanation}"))?;
    }
    if let Some(missing) = found.missing(args) {
        note(missing);
    }
    Ok(())
}

/// How far a search was that did not come to its end.
fn stopped(ranking: &Ranking) -> String {
    if ranking.is_optimal() {
        return "interrupted: the first plan is proven best; the plans below it, of weaker \
                exactness and of other approaches are only the best found so far"
            .to_owned();
    }
    let gap = planner::improvement(ranking.gap());
    format!("interrupted: these are the best so far; another may be {gap} better")
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
        let found = planner::diff(&plans.0, &plans.1);
        return tell_diff(args, (one, other), &found, None, Vec::new());
    };
    compile::refuse_decisions(file, &args.set, "the plans of `--diff` have")?;
    let set = args.set.clone();
    let program = load::program(&ProgramArgs { file: file.to_owned(), set })?.program;
    let mut warnings = Vec::new();
    let mut read = |path: &Path| -> Result<Plan, Failure> {
        let mistakes = |wrong| Failure::plan_file(path, &wrong);
        let text = load::plan_text(path)?;
        let plan = roundelay::read_plan(&text, &program).map_err(mistakes)?;
        warnings.extend(compile::tell_doubt(path, &text, &program));
        Ok(plan)
    };
    let plans = (read(one)?, read(other)?);
    let cost = |path: &Path, plan: &Plan| {
        let refused = |why| match why {
            Reason::Unproven(unproven) => Failure::unproven(path, &unproven),
            why => {
                let message = format!("`{}` cannot be costed: {why}", path.display());
                Failure::refused(Code::Plan, path, message)
            }
        };
        planner::appraise(&program, plan).map_err(refused)
    };
    let (first, second) = (cost(one, &plans.0)?, cost(other, &plans.1)?);
    let costs = Some((&first, &second, &Goal::new(&program)));
    let found = planner::diff(&plans.0, &plans.1);
    tell_diff(args, (one, other), &found, costs, warnings)
}

fn parsed(path: &Path) -> Result<Plan, Failure> {
    let mistakes = |wrong| Failure::plan_file(path, &wrong);
    planner::parse_plan(&load::plan_text(path)?).map_err(mistakes)
}

/// Two plans side by side, and what was warned of meanwhile.
#[derive(Serialize)]
struct DiffWithWarnings {
    #[serde(flatten)]
    diff: planner::DiffDocument,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Problem>,
}

fn tell_diff(
    args: &PlanArgs,
    (one, other): (&Path, &Path),
    differences: &[planner::Difference],
    costs: Option<(&planner::Candidate, &planner::Candidate, &Goal)>,
    warnings: Vec<Problem>,
) -> Result<(), Failure> {
    if args.json {
        let diff = planner::diff_document(differences.to_vec(), costs);
        return print_json(&DiffWithWarnings { diff, warnings }, Form::Document);
    }
    let (one, other) = (one.display().to_string(), other.display().to_string());
    print(&planner::diff_table(differences, (&one, &other), costs))
}
