//! The end of a run: prediction beside measurement, and what devices took.

use super::tell::{Event, print_line};
use crate::cli::{failure::Failure, print};
use roundelay::{
    Checked, Outcome,
    parts::{
        runtime::{Makers, Measured, OnGpus},
        schedule::{self, Kind},
    },
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write};

/// What the last JSON line says.
#[derive(Serialize)]
pub(super) struct End {
    steps: u64,
    predicted: Figures,
    measured: Option<Figures>,
    beside_bytes: u64,
    kernels: u64,
    gpus: Option<Gpus>,
}

/// What is known of GPUs.
#[derive(Serialize)]
struct Gpus {
    graphs: u64,
    launch_graphs: u64,
    ungraphed: Option<String>,
    unrecorded: Option<String>,
    untried: Option<String>,
    handed_bytes: u64,
    connection_bytes: u64,
    page_bytes: u64,
    products: Products,
    convolutions: Convolutions,
    attention: Attention,
}

/// Matrix products of all routines, by who makes them.
#[derive(Serialize)]
struct Products {
    cublaslt: u64,
    #[serde(flatten)]
    own: Own,
}

/// Convolutions of all routines that are no products, by who makes them.
#[derive(Serialize)]
struct Convolutions {
    cudnn: u64,
    #[serde(flatten)]
    own: Own,
}

/// What functions of ours make, and why.
#[derive(Serialize)]
struct Own {
    own: u64,
    why_own: Option<String>,
    wrong: Option<String>,
}

/// Calls of attention on tensor cores, by who makes them.
#[derive(Serialize)]
struct Attention {
    cudnn: u64,
    sm90: u64,
    usual: u64,
    why_usual: Option<String>,
    why_own: Option<String>,
    wrong: Option<String>,
}

/// Of one training step, and of the memory that it takes.
#[derive(Serialize)]
struct Figures {
    pools: BTreeMap<String, Pool>,
    step_time_s: f64,
    transfers: u64,
    bytes: u64,
}

#[derive(Default, Serialize)]
struct Pool {
    arena_bytes: u64,
    activation_peak_bytes: u64,
}

impl From<&OnGpus> for Gpus {
    fn from(gpus: &OnGpus) -> Self {
        Self {
            graphs: gpus.graphs,
            launch_graphs: gpus.launch_graphs,
            ungraphed: gpus.ungraphed.clone(),
            unrecorded: gpus.unrecorded.clone(),
            untried: gpus.untried.clone(),
            handed_bytes: gpus.handed.0,
            connection_bytes: gpus.connections.0,
            page_bytes: gpus.page.0,
            products: Products {
                cublaslt: gpus.products.library,
                own: Own::from(&gpus.products),
            },
            convolutions: Convolutions {
                cudnn: gpus.convolutions.library,
                own: Own::from(&gpus.convolutions),
            },
            attention: Attention {
                cudnn: gpus.attention.library,
                sm90: gpus.attention.sm90,
                usual: gpus.attention.usual,
                why_usual: gpus.attention.why_usual.clone(),
                why_own: gpus.attention.why_own.clone(),
                wrong: gpus.attention.wrong.clone(),
            },
        }
    }
}

impl From<&Makers> for Own {
    fn from(Makers { library: _, own, why_own, wrong }: &Makers) -> Self {
        Self { own: *own, why_own: why_own.clone(), wrong: wrong.clone() }
    }
}

/// Tells how a run ended.
pub(super) fn tell(
    schedule: &Checked,
    outcome: &Outcome,
    json: bool,
) -> Result<(), Failure> {
    let report = &outcome.report;
    let steps = report.end.saturating_sub(report.first);
    let (predicted, measured) = (predicted(schedule), measured(schedule, outcome));
    if json {
        return print_line(Event::End(Box::new(End {
            steps,
            predicted,
            measured,
            beside_bytes: report.measured.beside.0,
            kernels: report.measured.kernels,
            gpus: report.measured.gpus.as_ref().map(Gpus::from),
        })));
    }
    let last = report.losses.last();
    let last = last.map_or(String::new(), |loss| format!(", last loss {loss:.4}"));
    let steps = schedule::counted(steps, "step");
    print(&format!("{steps}{last}\n{}", table(&predicted, measured.as_ref())))?;
    tell_beside(&report.measured)
}

/// Prediction and measurement, one under the other.
fn table(predicted: &Figures, measured: Option<&Figures>) -> String {
    let mut table = format!(
        "{:<10} {:>12} {:>12} {:>14} {:>10} {:>12}\n",
        "", "step time", "arenas", "activations", "messages", "bytes",
    );
    let rows = [("predicted", Some(predicted)), ("measured", measured)];
    for (name, f) in rows.into_iter().filter_map(|(name, f)| Some((name, f?))) {
        let arena: u64 = f.pools.values().map(|pool| pool.arena_bytes).sum();
        let activations: u64 = f.pools.values().map(|p| p.activation_peak_bytes).sum();
        let _ = writeln!(
            table,
            "{name:<10} {:>12} {:>12} {:>14} {:>10} {:>12}",
            schedule::Nanos((f.step_time_s * 1e9) as u64),
            schedule::Bytes(arena),
            schedule::Bytes(activations),
            f.transfers,
            schedule::Bytes(f.bytes),
        );
    }
    table
}

/// What devices take besides arenas.
fn tell_beside(measured: &Measured) -> Result<(), Failure> {
    match measured.beside {
        schedule::Bytes(0) => {}
        beside => {
            print(&format!("besides arenas, kernels and products took {beside}\n"))?;
        }
    }
    match measured.gpus.as_ref().map(|gpus| gpus.connections) {
        None | Some(schedule::Bytes(0)) => Ok(()),
        Some(taken) => print(&format!("NCCL took {taken} to connect ranks\n")),
    }
}

/// What the schedule says.
fn predicted(schedule: &Checked) -> Figures {
    let facts = schedule.facts();
    let mut pools = BTreeMap::new();
    for (device, arena) in &facts.device_arena {
        let kind = facts.kinds.get(&(*device, Kind::Activation));
        for coordinate in schedule.coordinates() {
            let own = pool_of(schedule, schedule.device_at(*device, &coordinate));
            let pool: &mut Pool = pools.entry(own).or_default();
            pool.arena_bytes += arena.0;
            pool.activation_peak_bytes += kind.map_or(0, |bytes| bytes.0);
        }
    }
    Figures {
        pools: labelled(schedule, pools),
        step_time_s: roundelay::simulate_steady(schedule).step_time().0 as f64 / 1e9,
        transfers: facts.messages,
        bytes: facts.link_bytes.values().map(|bytes| bytes.0).sum(),
    }
}

/// What was counted; nothing where no step was done.
fn measured(schedule: &Checked, outcome: &Outcome) -> Option<Figures> {
    let Measured { steps, arenas, link_bytes, messages, .. } = &outcome.report.measured;
    let bytes = link_bytes.values().map(|bytes| bytes.0).sum::<u64>();
    let (transfers, bytes) = (messages.checked_div(*steps)?, bytes.checked_div(*steps)?);
    let mut pools = BTreeMap::new();
    for (device, arena) in arenas {
        let pool: &mut Pool = pools.entry(pool_of(schedule, *device)).or_default();
        pool.arena_bytes += arena.0;
        let touched = outcome.touched.get(&(*device, Kind::Activation));
        pool.activation_peak_bytes += touched.map_or(0, |touched| touched.span.0);
    }
    let step_time_s = outcome.report.replayed.as_secs_f64() / *steps as f64;
    let pools = labelled(schedule, pools);
    Some(Figures { pools, step_time_s, transfers, bytes })
}

fn pool_of(schedule: &Checked, device: schedule::DeviceId) -> schedule::PoolId {
    schedule.target.devices[device].pool
}

/// What pools take, by their labels.
fn labelled(
    schedule: &Checked,
    pools: BTreeMap<schedule::PoolId, Pool>,
) -> BTreeMap<String, Pool> {
    let labels = schedule.target.pool_labels();
    pools.into_iter().map(|(id, pool)| (labels[id].clone(), pool)).collect()
}
