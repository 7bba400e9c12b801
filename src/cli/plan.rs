//! `plan`: the ranked table, why, and the best plan as a file.

use super::{Form, args::PlanArgs, failure::Failure, load, print, print_json};
use roundelay::{Search, parts::planner};

pub(super) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let program = load::program(&args.program)?;
    let options = Search { top: args.top.max(1), ..Search::default() };
    let ranking = roundelay::plan(&program, &options)
        .map_err(|refusal| Failure::no_plan(&args.program.file, &refusal))?;
    if let Some(path) = &args.output {
        load::write(path, &roundelay::write_plan(ranking.best()))?;
    }
    if args.json {
        return print_json(&planner::document(&ranking), Form::Document);
    }
    print(&roundelay::table(&ranking, &program))?;
    if args.explain {
        print(&format!("\n{}", roundelay::explain(&ranking)))?;
    }
    Ok(())
}
