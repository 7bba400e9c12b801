//! `check`: verify a schedule file, print its facts, seal a hand edit.

mod lists;

use super::{
    FORMAT, Form, args::CheckArgs, failure::Failure, load, print, print_json,
    problem::Problem,
};
use roundelay::{Checked, parts::schedule};
use serde::{Serialize, Serializer};
use std::{collections::BTreeMap, fmt::Write, path::Path};

pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    if args
        .file
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
    {
        return lists::check(args);
    }
    let checked = match args.seal {
        true => seal(&args.file)?,
        false => load::schedule(&args.file)?,
    };
    let warnings = load::warned(&args.file, &checked).into_iter().collect();
    tell_facts(&checked, warnings, args.json)
}

/// Writes the new hash only when the edited schedule still holds.
fn seal(path: &Path) -> Result<Checked, Failure> {
    let sealed = schedule::seal(&load::text(path)?)
        .map_err(|errors| Failure::schedule_file(path, &errors))?;
    let checked = load::checked(path, &sealed)?;
    load::replace(path, &sealed)?;
    Ok(checked)
}

#[derive(Serialize)]
struct Document {
    format: u32,
    fingerprint: String,
    actions: usize,
    devices: Named<Memory>,
    pools: Named<u64>,
    link_bytes: Named<u64>,
    messages: u64,
    comm_rounds: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Problem>,
}

/// What stands under names, in the order of the target.
struct Named<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
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
    let devices = facts.device_arena.keys();
    let pools = facts.pool_arena.iter();
    let labels = target.pool_labels();
    let pools = pools.map(|(id, bytes)| (labels[*id].clone(), bytes.0));
    let links = facts.link_bytes.iter();
    let links = links.map(|(id, bytes)| (target.links[*id].name.clone(), bytes.0));
    Document {
        format: FORMAT,
        fingerprint: schedule.fingerprint.clone(),
        actions: schedule.actions.len(),
        devices: Named(devices.map(|id| (name(id), memory(id))).collect()),
        pools: Named(pools.collect()),
        link_bytes: Named(links.collect()),
        messages: facts.messages,
        comm_rounds: facts.comm_rounds,
        warnings,
    }
}

fn table(document: &Document) -> String {
    let bytes = |count: u64| schedule::Bytes(count).to_string();
    let mut text = format!(
        "checked: {} a period, {} a step, at most {} between passes\n",
        schedule::counted(document.actions as u64, "action"),
        schedule::counted(document.messages, "message"),
        schedule::counted(document.comm_rounds.into(), "communication round")
    );
    for (name, memory) in &document.devices.0 {
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
    for (name, count) in &document.link_bytes.0 {
        let _ = writeln!(text, "{name}: {} a step", bytes(*count));
    }
    text
}
