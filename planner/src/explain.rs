//! Reasons: what binds a plan's time and memory, and why it is not another one.

use crate::{
    candidate::{Candidate, seconds},
    decisions::{differences, summary},
    ranking::Ranking,
};
use roundelay_schedule::{Bytes, Kind};

/// Reasons for every ranked plan, as lines of text.
pub fn explain(ranking: &Ranking) -> String {
    let mut text = String::new();
    let nexts = ranking.plans.iter().skip(1).map(Some).chain([None]);
    for (rank, (candidate, next)) in (1..).zip(ranking.plans.iter().zip(nexts)) {
        text += &format!("{rank}. {}\n", summary(&candidate.plan));
        let mut reasons = vec![time(candidate), memory(candidate), times(candidate)];
        reasons.extend(next.map(|next| runner_up(candidate, rank + 1, next)));
        for reason in reasons {
            text += &format!("   {reason}\n");
        }
    }
    text + &cuts(ranking)
}

/// What limits the cut points, when parameters with several users do.
fn cuts(ranking: &Ranking) -> String {
    let tied = ranking.space.tied.iter();
    tied.map(|tied| format!("cuts: {tied}\n")).collect()
}

/// Which bound is closest to the clocked time, and what is left.
fn time(candidate: &Candidate) -> String {
    let bound = &candidate.bound;
    let step = candidate.step_time;
    let (what, least) = match bound.work.max(bound.path) {
        _ if bound.traffic > bound.work.max(bound.path) => {
            ("the sums and shards of replicas on the busiest links", bound.traffic)
        }
        work if work == bound.work => ("the passes of the busiest device", work),
        path => ("the longest chain of dependent passes", path),
    };
    let share = 100.0 * seconds(least) / seconds(step);
    let rest = step - least;
    format!(
        "time: {what} take {least} of {step} ({share:.0} %); updates, messages and waiting \
         take {rest}"
    )
}

fn memory(candidate: &Candidate) -> String {
    let mut kinds: Vec<(Bytes, Kind)> =
        candidate.memory.iter().map(|(kind, bytes)| (*bytes, *kind)).collect();
    kinds.sort_by(|one, other| other.cmp(one));
    let parts: Vec<String> =
        kinds.iter().take(3).map(|(bytes, kind)| format!("{kind} {bytes}")).collect();
    format!(
        "memory: the fullest device takes {}; most of it is {}",
        candidate.device_peak,
        parts.join(", ")
    )
}

/// Where the times of its kernel calls come from.
fn times(candidate: &Candidate) -> String {
    format!("times: {}", candidate.origins)
}

fn runner_up(candidate: &Candidate, rank: usize, next: &Candidate) -> String {
    let changes: Vec<String> = differences(&candidate.plan, &next.plan)
        .into_iter()
        .map(|(name, _, other)| format!("{name} {other}"))
        .collect();
    let time = 100.0 * (seconds(next.step_time) / seconds(candidate.step_time) - 1.0);
    let peak = next.device_peak.0 as f64 / (candidate.device_peak.0 as f64).max(1.0);
    format!(
        "rank {rank} has {}: time {time:+.1} %, peak memory {:+.1} %",
        changes.join(", "),
        100.0 * (peak - 1.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, tied::Tied};
    use roundelay_schedule::{Nanos, Order, Placement, Rule};

    #[test]
    fn reasons_name_the_bound_and_the_differing_decisions() {
        let plan = |n| sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, n, 2);
        let candidate = |n, time| sample::candidate(&plan(n), Nanos(time), 0);
        let mut ranking = sample::ranking();
        ranking.plans = vec![candidate(4, 1_000), candidate(8, 1_500)];
        assert!(!explain(&ranking).contains("cuts:"));
        let shared = ["wte", "embedding", "head"].map(str::to_owned);
        ranking.space.tied = Some(Tied { parameters: vec![shared], most: 2, nodes: 9 });
        let text = explain(&ranking);
        assert!(text.contains("cuts: `embedding` to `head` share"), "{text}");
        assert!(text.contains("take 750 ns of 1.00 us (75 %)"), "{text}");
        assert!(text.contains("rank 2 has micro_batches 8: time +50.0 %"), "{text}");
    }
}
