//! `check`: verify a schedule file, print its facts, seal a hand edit.

mod lists;

use super::{
    FORMAT, Form, args::CheckArgs, failure::Failure, load, print, print_json,
    problem::Problem,
};
use roundelay::{
    Checked,
    parts::{
        kernels::Kernels,
        planner::overlap,
        schedule::{self, Lines},
    },
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write};

pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    if args
        .file
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
    {
        return lists::check(args);
    }
    if args.seal {
        seal(args)?;
    }
    tell_facts(&load::schedule(&args.file)?, Vec::new(), args.json)
}

/// Writes the new hash only when the edited schedule still holds.
fn seal(args: &CheckArgs) -> Result<(), Failure> {
    let path = &args.file;
    let text = load::text(path)?;
    let refused = |errors| Failure::schedule_file(path, &errors);
    let sealed = schedule::seal(&text).map_err(refused)?;
    let read = schedule::read(&sealed).map_err(refused)?;
    let lines = Lines::of(&sealed);
    schedule::check(read, &Kernels)
        .map_err(|wrong| Failure::violations(path, &wrong, &lines))?;
    load::replace(path, &sealed)
}

#[derive(Serialize)]
struct Document {
    format: u32,
    fingerprint: String,
    actions: usize,
    devices: BTreeMap<String, Memory>,
    pools: BTreeMap<String, u64>,
    link_bytes: BTreeMap<String, u64>,
    messages: u64,
    comm_rounds: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Problem>,
}

#[derive(Serialize)]
struct Memory {
    arena_bytes: u64,
    live_peak_bytes: u64,
    memory: BTreeMap<String, u64>,
}

/// Prints what the checker learned; warnings that were told go into the document too.
pub(super) fn tell_facts(
    schedule: &Checked,
    warnings: Vec<Problem>,
    json: bool,
) -> Result<(), Failure> {
    let document = facts(schedule, warnings);
    if json {
        return print_json(&document, Form::Document);
    }
    print(&table(&document))
}

fn facts(schedule: &Checked, warnings: Vec<Problem>) -> Document {
    let facts = schedule.facts();
    let target = &schedule.target;
    let memory = |device| Memory {
        arena_bytes: facts.device_arena.get(device).map_or(0, |bytes| bytes.0),
        live_peak_bytes: facts.device_live_peak.get(device).map_or(0, |bytes| bytes.0),
        memory: facts
            .kinds
            .iter()
            .filter(|((owner, _), _)| owner == device)
            .map(|((_, kind), bytes)| (kind.to_string(), bytes.0))
            .collect(),
    };
    let name = |device: &schedule::DeviceId| target.devices[*device].name.clone();
    Document {
        format: FORMAT,
        fingerprint: schedule.fingerprint.clone(),
        actions: schedule.actions.len(),
        devices: facts.device_arena.keys().map(|d| (name(d), memory(d))).collect(),
        pools: facts
            .pool_arena
            .iter()
            .map(|(p, b)| (target.pools[*p].name.clone(), b.0))
            .collect(),
        link_bytes: facts
            .link_bytes
            .iter()
            .map(|(link, bytes)| (target.links[*link].name.clone(), bytes.0))
            .collect(),
        messages: facts.messages,
        comm_rounds: facts.comm_rounds,
        warnings,
    }
}

fn table(document: &Document) -> String {
    let bytes = |count: u64| schedule::Bytes(count).to_string();
    let mut text = format!(
        "checked: {} actions a period, {} messages and {} communication rounds a step\n",
        document.actions, document.messages, document.comm_rounds
    );
    for (name, memory) in &document.devices {
        let kinds = memory.memory.iter().filter(|(_, count)| **count > 0);
        let kinds: Vec<String> =
            kinds.map(|(kind, count)| format!("{kind} {}", bytes(*count))).collect();
        let _ = writeln!(
            text,
            "{name}: arena {}, live peak {} ({})",
            bytes(memory.arena_bytes),
            bytes(memory.live_peak_bytes),
            kinds.join(", ")
        );
    }
    let overlap = |memory: &Memory| {
        let kinds = memory.memory.values().copied().map(schedule::Bytes);
        overlap(kinds, schedule::Bytes(memory.arena_bytes))
    };
    if let Some(overlap) = document.devices.values().find_map(overlap) {
        let _ = writeln!(text, "{overlap}");
    }
    for (name, count) in &document.link_bytes {
        let _ = writeln!(text, "{name}: {} a step", bytes(*count));
    }
    text
}
