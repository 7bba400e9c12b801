//! `profile`: measures the plans of a program and writes a table.

use super::{
    Form, args::ProfileArgs, failure::Failure, load, note, print, print_json, run,
    watch::Known,
};
use roundelay::{
    Graphs, Measuring, Profile, ProfileEvent, ProfileOptions,
    parts::{dsl::Tables, planner, runtime::Settling, schedule::counted},
};
use std::time::Duration;

pub(super) fn profile(args: &ProfileArgs) -> Result<(), Failure> {
    let form = args.json.then_some(Form::Document);
    let nothing = Known::nothing("no table was written", &args.program.file, form)?;
    let found = nothing.unless(|| measured(args))?;
    if args.json {
        return print_json(&found, Form::Document);
    }
    print(&format!(
        "{} calls measured on {}; launch {}, wake {}, copies {} + bytes / {} (residual {:.1} %)\n",
        found.rows,
        found.processor,
        found.launch,
        found.wake,
        found.copies.latency,
        found.copies.bandwidth,
        100.0 * found.copies.residual,
    ))
}

/// The table as it is written.
fn measured(args: &ProfileArgs) -> Result<Profile, Failure> {
    let loaded = load::program_with(&args.program, Tables::Leave)?;
    let output = loaded.output(&args.output, args.data.as_deref())?;
    let usual = ProfileOptions::default();
    let patience = Duration::from_secs(args.patience);
    let options = ProfileOptions {
        top: args.top.get(),
        settling: Settling { patience, ..usual.settling },
        data: args.data.clone(),
        on: run::on(args.device, Graphs::Periods),
    };
    let found = roundelay::profile(&loaded.program, &options, tell)
        .map_err(|error| Failure::profile(&loaded, &error))?;
    load::write(&output, &roundelay::write_profile(&found))?;
    Ok(found)
}

fn tell(told: ProfileEvent) {
    let said = match told {
        ProfileEvent::Note(text) => format!("note: {text}"),
        ProfileEvent::Plan(measured) => settled(&measured),
    };
    note(&said);
}

fn settled(measured: &Measuring) -> String {
    let Measuring { candidate, busy, step_time, steps, settled } = measured;
    let verdict = if *settled { "settled" } else { "given up" };
    let plan = planner::summary(&candidate.plan);
    format!(
        "{plan}: {step_time} a step, {busy} busy, {verdict} after {}",
        counted(*steps, "step")
    )
}
