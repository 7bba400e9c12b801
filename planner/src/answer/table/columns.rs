//! The columns of the table of plans.

use super::long;
use crate::{
    answer::{
        aligned::Side::{self, Left, Right},
        decisions::recompute,
    },
    search::{
        candidate::Candidate,
        objective::{Goal, dollars},
    },
};
use Cell::{Cost, Cuts, Decision, Rank};
use roundelay_schedule::{Contraction, Images, Plan, Sequence, States, Tensor};

/// A column of the table.
pub(super) struct Column {
    pub title: &'static str,
    pub side: Side,
    pub shown: Shown,
    pub cell: Cell,
}

/// When a column stands there.
pub(super) enum Shown {
    Always,
    /// Where a plan says something else than one of these.
    Unless(&'static [&'static str]),
}

/// What a column says of a plan.
pub(super) enum Cell {
    Rank,
    /// Something that the plan decides.
    Decision(fn(&Plan) -> String),
    /// Something that it costs.
    Cost(fn(&Candidate, &Goal) -> String),
    /// Where stages begin: it is said of plans whose decisions are all the same.
    Cuts,
}

/// All columns, from left to right.
pub(super) const COLUMNS: [Column; 26] = [
    always("rank", Right, Rank),
    always("rule", Left, Decision(|plan| plan.rule.to_string())),
    unless(
        &["exact", "reordered"],
        "exactness",
        Left,
        Decision(|plan| plan.exactness().to_string()),
    ),
    always("placement", Left, Decision(|plan| plan.placement.to_string())),
    always("order", Left, Decision(|plan| plan.order.to_string())),
    always("N", Right, Decision(|plan| plan.micro_batches.to_string())),
    always("S", Right, Decision(|plan| plan.stages.to_string())),
    unless(&["1"], "v", Right, Decision(|plan| plan.chunks.to_string())),
    unless(&["1"], "slices", Right, Decision(|plan| plan.slices.to_string())),
    unless(&["1"], "R", Right, Decision(|plan| plan.replicas.to_string())),
    unless(&["1"], "rows", Right, Decision(tensor)),
    always("states", Left, Decision(states)),
    unless(&["none"], "recompute", Left, Decision(|plan| recompute(&plan.recompute))),
    always("devices", Right, Decision(|plan| plan.devices.len().to_string())),
    unless(&["0"], "from", Right, Decision(|plan| plan.first_device().to_string())),
    always("step time", Right, Cost(|own, _| own.step_time.to_string())),
    always("samples/s", Right, Cost(|own, _| format!("{:.1}", own.samples_per_s()))),
    always("peak memory", Right, Cost(|own, _| own.device_peak.to_string())),
    always("staleness", Right, Cost(|own, _| own.staleness().to_string())),
    always("stale", Right, Cost(|own, _| percent(own.stale_share()))),
    always("bubble", Right, Cost(|own, _| percent(own.bubble))),
    unless(&[""], "cost/step", Right, Cost(cost)),
    unless(&[""], "cost/1M samples", Right, Cost(cost_of_a_million)),
    unless(&[""], "steps to result", Right, Cost(steps_to_result)),
    unless(&[""], "time to result", Right, Cost(time_to_result)),
    unless(&[""], "cuts", Left, Cuts),
];

const fn always(title: &'static str, side: Side, cell: Cell) -> Column {
    Column { title, side, shown: Shown::Always, cell }
}

const fn unless(
    usual: &'static [&'static str],
    title: &'static str,
    side: Side,
    cell: Cell,
) -> Column {
    Column { title, side, shown: Shown::Unless(usual), cell }
}

/// What a plan decides, as the table says it, without cuts.
pub(super) fn decided(plan: &Plan) -> Vec<String> {
    let decided = |column: &Column| match column.cell {
        Decision(of) => Some(of(plan)),
        Rank | Cost(_) | Cuts => None,
    };
    COLUMNS.iter().filter_map(decided).collect()
}

/// Devices that split tensors, and whether they split the sequence too, or pixels; rows, or rows x columns,
/// and in how many parts they take examples, where these take turns.
fn tensor(plan: &Plan) -> String {
    let Tensor { rows, columns, sequence, images, contraction, overdecompose } =
        plan.tensor;
    let grid = match (columns, contraction) {
        (1, _) => rows.to_string(),
        (_, Contraction::Alternate | Contraction::Each) => format!("{rows}x{columns}"),
        (_, Contraction::Gather) => format!("{rows}x{columns}/gather"),
    };
    let sequence = if sequence == Sequence::Split { "/seq" } else { "" };
    let images = if images == Images::Split { "/px" } else { "" };
    match overdecompose {
        1 => format!("{grid}{sequence}{images}"),
        halves => format!("{grid}{sequence}{images}/{halves}"),
    }
}

/// Who holds the states; under `hsdp` also how many split them.
fn states(plan: &Plan) -> String {
    match plan.states {
        States::Hsdp => format!("{}/{}", plan.states, plan.shards),
        States::Replicated
        | States::Zero1
        | States::Zero2
        | States::Zero3
        | States::Handoff => plan.states.to_string(),
    }
}

fn cost(own: &Candidate, goal: &Goal) -> String {
    let cost = goal.cost(&own.plan, own.step_time);
    cost.map(|cost| cost.to_string()).unwrap_or_default()
}

fn cost_of_a_million(own: &Candidate, goal: &Goal) -> String {
    goal.cost_of_a_million(&own.plan, own.step_time).map(dollars).unwrap_or_default()
}

fn steps_to_result(own: &Candidate, goal: &Goal) -> String {
    goal.steps_to_result(&own.plan).map(|steps| steps.to_string()).unwrap_or_default()
}

fn time_to_result(own: &Candidate, goal: &Goal) -> String {
    let time = goal.time_to_result(&own.plan, own.step_time);
    time.map(|time| long(time.0)).unwrap_or_default()
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 100.0).round())
}
