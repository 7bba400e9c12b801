//! Two plans side by side: which decisions differ, and with a program what both cost.

use crate::{
    answer::{
        aligned::{Side, line, widths},
        decisions::differences,
    },
    search::{
        candidate::{Candidate, seconds},
        objective::{FemtoDollars, Goal},
    },
};
use roundelay_schedule::{Id, Kind, Plan, Tie};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The document of `plan --diff --json`: format 1, described in `docs/diff.schema.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffDocument {
    /// Version of the document.
    pub format: u32,
    /// The decisions that differ.
    pub decisions: Vec<Difference>,
    /// What both plans cost, where a program was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<CostSides>,
}

/// A decision that two plans take differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub decision: &'static str,
    /// Its value in the first plan.
    pub first: String,
    /// Its value in the second plan.
    pub second: String,
}

/// The costs of both plans.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSides {
    /// Of the first plan.
    pub first: CostRow,
    /// Of the second plan.
    pub second: CostRow,
}

/// What a plan costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow {
    /// Devices in use.
    pub devices: usize,
    /// Time of one training step in the steady state.
    pub step_time_s: f64,
    /// Examples per second in the steady state.
    pub samples_per_s: f64,
    /// Idle share of the devices' time.
    pub bubble: f64,
    /// Arena of the fullest device.
    pub device_peak_bytes: u64,
    /// Bytes by kind on that device.
    pub memory: BTreeMap<Kind, u64>,
    /// Bytes that a device sends in one training step, on average.
    pub comm_bytes_per_device: u64,
    /// Largest number of sequential communication slots between two compute slots.
    pub comm_rounds: u32,
    /// Largest number of updates that some parameters lag behind.
    pub staleness: u32,
    /// What a training step costs, in US dollars, where the devices in use have prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_step_usd: Option<f64>,
    /// Time until the result, where the program says how its model learns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_result_s: Option<f64>,
}

/// The decisions that two plans take differently. What follows from others is named only where
/// it was changed by hand: devices, the tree of sums, lists; and, where nothing else differs, what
/// follows from all decisions together.
pub fn diff(first: &Plan, second: &Plan) -> Vec<Difference> {
    let mut found: Vec<Difference> = differences(first, second)
        .into_iter()
        .map(|(decision, first, second)| Difference { decision, first, second })
        .collect();
    // The first one says which they are, unless somebody put them in another order.
    let in_turn = [first, second].iter().all(|plan| {
        let mut pairs = plan.devices.windows(2);
        pairs.all(|pair| pair[0].index() + 1 == pair[1].index())
    });
    if (first.devices.len() == second.devices.len() && !in_turn) || found.is_empty() {
        let devices = |plan: &Plan| {
            let names = plan.devices.iter().map(ToString::to_string);
            names.collect::<Vec<_>>().join(" ")
        };
        found.extend(other("devices", devices(first), devices(second)));
    }
    let sums = |plan: &Plan| plan.reduction.to_string();
    found.extend(other("reduction", sums(first), sums(second)));
    if first.lists != second.lists {
        let lists = |plan: &Plan| match plan.lists.len() {
            0 => "none".to_owned(),
            many => format!("{many} lists of passes"),
        };
        let (first, second) = (lists(first), lists(second));
        found.push(Difference { decision: "lists", first, second });
    }
    if found.is_empty() {
        let pairs = following(first).into_iter().zip(following(second));
        found.extend(pairs.filter_map(|((decision, first), (_, second))| {
            let [one, two] = [(&first, &second), (&second, &first)]
                .map(|(own, other)| some(own.difference(other)));
            other(decision, one, two)
        }));
    }
    found
}

/// A part of what follows, by where it is: items come in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    place: [u32; 2],
    text: String,
}

impl Item {
    /// Of an operation.
    fn at(site: u32, text: String) -> Self {
        Self { place: [site, 0], text }
    }
}

/// What follows from all decisions together, item by item. A new field of plans breaks this: it is
/// told here, in [`diff`], or as a decision.
fn following(plan: &Plan) -> [(&'static str, BTreeSet<Item>); 5] {
    let Plan {
        rule: _,
        placement: _,
        order: _,
        replicas: _,
        shards: _,
        tensor: _,
        stages: _,
        chunks: _,
        slices: _,
        cuts: _,
        ties,
        boundaries,
        micro_batches: _,
        states: _,
        recompute: _,
        reduction: _,
        delays,
        devices: _,
        lists: _,
        rewrites,
        maps,
    } = plan;
    let rewrites = rewrites.iter().flat_map(|(rewrite, sites)| {
        sites.iter().map(move |site| Item::at(site, format!("{rewrite} at o{site}")))
    });
    let maps = maps.iter().map(|(site, way)| Item::at(site, format!("{way} at o{site}")));
    let ties = (0..).zip(ties).map(|(number, Tie(users))| Item {
        place: [number, 0],
        text: format!("of stages {users:?}"),
    });
    let boundaries =
        boundaries.iter().map(|&site| Item::at(site, format!("before o{site}")));
    let delays = delays.iter().map(|(micro_batch, stage, delay)| Item {
        place: [micro_batch.index(), stage.index()]
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX)),
        text: format!("{delay} for {stage} {micro_batch}"),
    });
    [
        ("ties", ties.collect()),
        ("boundaries", boundaries.collect()),
        ("delays", delays.collect()),
        ("rewrites", rewrites.collect()),
        ("maps", maps.collect()),
    ]
}

/// The first few of some items.
fn some<'a>(items: impl Iterator<Item = &'a Item>) -> String {
    const SHOWN: usize = 4;
    let items: Vec<&str> = items.map(|item| &*item.text).collect();
    match items.len() {
        0 => "-".to_owned(),
        count if count > SHOWN => {
            format!("{}, and {} more", items[..SHOWN].join(", "), count - SHOWN)
        }
        _ => items.join(", "),
    }
}

fn other(decision: &'static str, first: String, second: String) -> Option<Difference> {
    (first != second).then_some(Difference { decision, first, second })
}

/// The differences as a table, under the names of both plans, and what both cost; every line
/// ends with a newline.
pub fn diff_table(
    differences: &[Difference],
    (one, other): (&str, &str),
    costs: Option<(&Candidate, &Candidate, &Goal)>,
) -> String {
    if differences.is_empty() {
        return "the plans are the same\n".to_owned();
    }
    let mut rows = vec![["decision".to_owned(), one.to_owned(), other.to_owned()]];
    rows.extend(differences.iter().map(|Difference { decision, first, second }| {
        [(*decision).to_owned(), first.clone(), second.clone()]
    }));
    let mut text = aligned(&rows, Side::Left);
    if let Some((first, second, goal)) = costs {
        let mut rows = vec![["cost".to_owned(), one.to_owned(), other.to_owned()]];
        rows.extend(cost_lines(first, second, goal));
        text += &format!("\n{}", aligned(&rows, Side::Right));
    }
    text
}

/// Name of each cost, and what both plans take.
fn cost_lines(first: &Candidate, second: &Candidate, goal: &Goal) -> Vec<[String; 3]> {
    let mut lines = Vec::new();
    let mut line = |name: &str, shown: &dyn Fn(&Candidate) -> String| {
        lines.push([name.to_owned(), shown(first), shown(second)]);
    };
    line("step time", &|plan| plan.step_time.to_string());
    line("samples/s", &|plan| format!("{:.1}", plan.samples_per_s()));
    line("devices", &|plan| plan.plan.devices.len().to_string());
    line("bubble", &|plan| format!("{:.1} %", 100.0 * plan.bubble));
    line("peak memory", &|plan| plan.device_peak.to_string());
    for &kind in Kind::ALL {
        let bytes =
            |plan: &Candidate| plan.memory.get(&kind).copied().unwrap_or_default();
        if bytes(first).0 + bytes(second).0 > 0 {
            line(&format!("  {kind}"), &|plan| bytes(plan).to_string());
        }
    }
    line("sent per device", &|plan| plan.comm_bytes_per_device.to_string());
    line("rounds of messages", &|plan| plan.comm_rounds.to_string());
    line("staleness", &|plan| plan.staleness().to_string());
    let cost = |plan: &Candidate| goal.cost(&plan.plan, plan.step_time);
    if cost(first).or(cost(second)).is_some() {
        let unknown = || "no price".to_owned();
        line("cost/step", &|plan| cost(plan).map_or_else(unknown, |c| c.to_string()));
    }
    let result = |plan: &Candidate| goal.time_to_result(&plan.plan, plan.step_time);
    if result(first).is_some() {
        line("time to result", &|plan| {
            result(plan).map(|time| time.to_string()).unwrap_or_default()
        });
    }
    lines
}

/// A name and what is said of both plans, under each other; `side` is where what is said ends.
fn aligned(rows: &[[String; 3]], side: Side) -> String {
    let widths = widths(rows.iter());
    rows.iter().map(|row| line(row, &[Side::Left, side, side], &widths)).collect()
}

/// The document of two plans.
pub fn diff_document(
    differences: Vec<Difference>,
    costs: Option<(&Candidate, &Candidate, &Goal)>,
) -> DiffDocument {
    let sides = |(first, second, goal): (&Candidate, &Candidate, &Goal)| CostSides {
        first: cost_row(first, goal),
        second: cost_row(second, goal),
    };
    DiffDocument { format: 1, decisions: differences, costs: costs.map(sides) }
}

fn cost_row(candidate: &Candidate, goal: &Goal) -> CostRow {
    let (plan, time) = (&candidate.plan, candidate.step_time);
    CostRow {
        devices: plan.devices.len(),
        step_time_s: seconds(time),
        samples_per_s: candidate.samples_per_s(),
        bubble: candidate.bubble,
        device_peak_bytes: candidate.device_peak.0,
        memory: candidate.memory.iter().map(|(kind, bytes)| (*kind, bytes.0)).collect(),
        comm_bytes_per_device: candidate.comm_bytes_per_device.0,
        comm_rounds: candidate.comm_rounds,
        staleness: candidate.staleness(),
        cost_per_step_usd: goal.cost(plan, time).map(FemtoDollars::dollars),
        time_to_result_s: goal.time_to_result(plan, time).map(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, appraise, plan, sample};
    use roundelay_schedule::{
        Bytes, MapWay, Order, Placement, Recompute, Rewrite, Rule, Timeline,
    };

    fn names(differences: &[Difference]) -> Vec<&str> {
        differences.iter().map(|difference| difference.decision).collect()
    }

    #[test]
    fn exactly_the_differing_decisions_are_named() {
        let one = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 4, 2);
        assert!(diff(&one, &one).is_empty());
        assert_eq!(diff_table(&[], ("a", "b"), None), "the plans are the same\n");
        let more = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 8, 2);
        let found = diff(&one, &more);
        assert_eq!(names(&found), ["micro_batches"]);
        let expected = "\
decision       a.yaml  b.yaml
micro_batches  4       8
";
        assert_eq!(diff_table(&found, ("a.yaml", "b.yaml"), None), expected);
        let mut moved = sample::plan_on(1);
        moved.devices = vec![Id::new(1)];
        assert_eq!(names(&diff(&sample::plan_on(1), &moved)), ["first_device"]);
        let ring = sample::plan(Rule::CyclicV2, Placement::Shared, Order::Cyclic, 2, 2);
        let all = names(&diff(&one, &ring)).join(" ");
        assert_eq!(all, "rule placement order micro_batches reduction");
    }

    /// No plan that differs anywhere is told to be the same.
    #[test]
    fn what_was_changed_by_hand_is_named() {
        let plan = || sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 4, 2);
        let told = |change: &dyn Fn(&mut Plan)| {
            let mut changed = plan();
            change(&mut changed);
            let found = diff(&plan(), &changed);
            assert_eq!(diff(&changed, &plan()).len(), found.len());
            found
        };
        let rewrites = told(&|plan| {
            (8..14).for_each(|site| plan.rewrites.insert(Rewrite::AffineAdd, site));
        });
        assert_eq!(names(&rewrites), ["rewrites"]);
        let more = "affine_add at o8, affine_add at o9, affine_add at o10, \
                    affine_add at o11, and 2 more";
        assert_eq!([&*rewrites[0].first, &*rewrites[0].second], ["-", more]);
        let maps = told(&|plan| plan.maps.send(3, Some(MapWay::WholeToAll)));
        assert_eq!(maps[0].second, "whole_to_all at o3");
        let boundaries = told(&|plan| plan.boundaries.push(2));
        assert_eq!(boundaries[0].second, "before o2");
        let late = Rule::CyclicV2.delays(Timeline::Workers, 4, 2);
        let delays = told(&|plan| plan.delays = late.clone());
        assert_eq!(names(&delays), ["delays"]);
        let [fresh, late] = [&delays[0].first, &delays[0].second];
        assert!(fresh.starts_with("0 for s0 i0, 0 for s1 i0"), "{fresh}");
        assert!(late.starts_with("1 for s0 i0, 1 for s1 i0"), "{late}");
        let halves = [Recompute::Full, Recompute::None].to_vec();
        let again = told(&|plan| plan.recompute = halves.clone());
        assert_eq!(names(&again), ["recompute"]);
    }

    #[test]
    fn both_plans_cost_what_the_ranking_says() {
        let program = sample::program(4, 8);
        let ranking = plan(&program, &Options::default()).expect("plans fit");
        for candidate in &ranking.plans {
            let alone = appraise(&program, &candidate.plan).expect("it fits");
            assert_eq!(Candidate { number: candidate.number, ..alone }, *candidate);
        }
        let [first, .., last] = &ranking.plans[..] else { panic!("there are some") };
        let found = diff(&first.plan, &last.plan);
        let costs = Some((first, last, &ranking.goal));
        let text = diff_table(&found, ("a", "b"), costs);
        for word in ["step time", "  parameter", "sent per device", "bubble"] {
            assert!(text.contains(word), "{text}");
        }
        assert!(text.contains(&last.step_time.to_string()), "{text}");
    }

    #[test]
    fn a_plan_that_does_not_fit_is_refused_with_where() {
        let mut program = sample::program(4, 8);
        let ranking = plan(&program, &Options::default()).expect("plans fit");
        let less = ranking.plans[0].device_peak - Bytes(1);
        program.search.memory = Some(less);
        let refused = appraise(&program, ranking.best()).expect_err("it is too large");
        assert!(refused.to_string().contains("are missing"), "{refused}");
        let mut wrong = ranking.best().clone();
        wrong.micro_batches = 0;
        let refused = appraise(&program, &wrong).expect_err("there is no micro-batch");
        assert!(refused.to_string().contains("micro_batches"), "{refused}");
    }
}
