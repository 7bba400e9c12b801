//! `plan`: the ranked table, why, and the best plan as a file.

use super::{
    Form, args::PlanArgs, failure::Failure, load, print, print_json, watch::Watch,
};
use roundelay::{
    Ranking, Search,
    parts::planner::{self, NoPlan},
};

pub(super) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let program = load::program(&args.program)?;
    let options = Search { top: args.top.max(1), ..Search::default() };
    let ranking = planner::plan_watched(&program, &options, &mut Watch::new());
    let ranking = ranking.map_err(|none| match none {
        NoPlan::Refused(refusal) => Failure::no_plan(&args.program.file, &refusal),
        NoPlan::Interrupted => Failure::interrupted(&none.to_string()),
    })?;
    if let Some(path) = &args.output {
        load::write(path, &roundelay::write_plan(ranking.best()))?;
    }
    if args.json {
        print_json(&planner::document(&ranking), Form::Document)?;
    } else {
        print(&roundelay::table(&ranking, &program))?;
        if args.explain {
            print(&format!("\n{}", roundelay::explain(&ranking)))?;
        }
    }
    match ranking.interrupted {
        true => Err(Failure::interrupted(&stopped(&ranking))),
        false => Ok(()),
    }
}

/// How far a search was that did not come to its end.
fn stopped(ranking: &Ranking) -> String {
    let gap = 100.0 * ranking.gap;
    format!("interrupted: these are the best so far; another may be {gap:.1} % better")
}
