//! Which of the numbers that a program names are not tried.

use super::{
    known_chunks, known_micro_batches, known_replicas, known_shards, known_slices,
    numbers::{FIRST_OF_RANGE, Known, Tried},
    shards_to_try,
    stages::{self, Others},
    tensors, usable_devices,
};
use crate::space::windows::Windows;
use roundelay_dsl::{Numbers, Program};
use roundelay_schedule::States;

/// Of which decisions a program names more numbers than are tried, and which those are.
pub(crate) fn left_out(program: &Program) -> Option<String> {
    let each = asked(program).into_iter();
    let each = each.filter(|(_, known, numbers)| known.leaves_out(numbers));
    let names: Vec<String> = each.map(|(name, ..)| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| {
        format!(
            "not every number in the ranges of {} is tried: of each range its first \
             {FIRST_OF_RANGE} that fit, its powers of two, its last, and what is tried where the \
             decision is left open; numbers listed with `|` are all tried",
            names.join(" and ")
        )
    })
}

/// Every decision with a number that a range may name: what is known of it, and what is asked.
fn asked(program: &Program) -> Vec<(&'static str, Known, Numbers)> {
    let search = &program.search;
    let devices = usable_devices(program);
    let micro_batches = search.micro_batches_to_try();
    let known = known_micro_batches(program, devices);
    let chunks = Tried::new(&search.chunks, &known_chunks(program));
    let others = Others {
        devices,
        micro_batches: &known.tried(&micro_batches),
        chunks: chunks.named(),
    };
    let stages = stages::known(program, others);
    let (asked_stages, parts) =
        (search.stages_to_try(), tensors::parts(program, devices));
    let shards = match search.states.allows(&States::Hsdp) {
        true => shards_to_try(search),
        false => Numbers::Open,
    };
    vec![
        ("micro_batches", known, micro_batches),
        ("stages", stages, asked_stages),
        ("chunks", known_chunks(program), search.chunks.clone()),
        ("slices", known_slices(program), search.slices.clone()),
        ("replicas", known_replicas(program, devices), search.replicas.clone()),
        ("shards", known_shards(&super::domains(program), devices, 1), shards),
        ("tensor.rows", parts.clone(), search.rows.clone()),
        ("tensor.columns", parts, search.columns.clone()),
        ("first_device", Windows::new(program).known(1), search.first_device.clone()),
    ]
}
