//! Which line of a program rules every plan out, as far as that is known: the bound that plans break,
//! then what was changed alone to make one fit, then what the reason speaks of.

use crate::{answer::repair::Repair, search::ranking::Ranking, space::reason::Reason};
use roundelay_dsl::Program;

/// The keys of the lines that may be to blame, likeliest first; whoever knows the lines points at the
/// first of them that is there.
pub(crate) fn blamed(
    program: &Program,
    ranking: &Ranking,
    (reason, repairs): (Option<&Reason>, &[Repair]),
) -> Vec<String> {
    let mut keys: Vec<&str> = Vec::new();
    if !ranking.weaker.is_empty() {
        keys.extend(["exactness", "rule"]);
    }
    if let Some(Reason::Memory(short)) = reason
        && short.kept_back(program).is_some()
    {
        keys.push("memory");
    }
    let (alone, together): (Vec<&Repair>, Vec<&Repair>) =
        repairs.iter().partition(|repair| repair.lines.len() == 1);
    let changed = alone.into_iter().chain(together).map(|repair| &*repair.lines[0]);
    let mut keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    keys.extend(changed.map(key));
    keys.extend(reason.into_iter().flat_map(spoken_of).map(|key| (*key).to_owned()));
    keys
}

/// What a line is about: the first word, behind it the one in braces where the first has no value.
fn key(line: &str) -> String {
    let words: Vec<&str> =
        line.split([' ', '=', '<']).filter(|w| !w.is_empty()).collect();
    match words[..] {
        [outer, "{", inner, ..] => format!("{outer}.{inner}"),
        [first, ..] => first.to_owned(),
        [] => String::new(),
    }
}

/// The decisions that a reason speaks of.
fn spoken_of(reason: &Reason) -> &'static [&'static str] {
    match reason {
        Reason::TooFewDevices { .. } => {
            &["devices", "stages", "replicas", "tensor.rows", "tensor.columns"]
        }
        Reason::BehindTheLast { .. } => &["first_device"],
        Reason::DevicesNotAllowed { .. } => &["devices"],
        Reason::DelayTooShort { .. }
        | Reason::OneWorker
        | Reason::ManyMicroBatches { .. } => &["micro_batches"],
        Reason::ManyLanes { .. } => &["micro_batches", "placement"],
        Reason::Indivisible { .. } => &["micro_batches", "replicas"],
        Reason::TooLong { .. } | Reason::NotAsMany { .. } => &["micro_batches", "stages"],
        Reason::OneReplica => &["replicas", "states"],
        Reason::MirroredReplicas => &["replicas", "order"],
        Reason::Misfit(_) => &["order", "chunks", "slices"],
        Reason::OddHalves { .. } => &["tensor.overdecompose"],
        Reason::OtherDepth { .. } => &["tensor.depth"],
        Reason::WrongCuts(_) => &["cuts"],
        Reason::WrongLists(_) => &["order"],
        Reason::Uncuttable(_) => &["stages", "cuts"],
        Reason::NoStage { .. } => &["stage"],
        Reason::Clash(_) => &["placement", "order", "states"],
        Reason::Plan(_)
        | Reason::Equal(_)
        | Reason::Memory(_)
        | Reason::Endless(_)
        | Reason::Refused(_)
        | Reason::Unproven(_) => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, plan, sample};

    #[test]
    fn lines_are_about_their_keys() {
        for (line, about) in [
            ("stages 4", "stages"),
            ("memory <= 85 MB", "memory"),
            ("tensor { rows 2 }", "tensor.rows"),
            ("stage 0 .. 1 { recompute full }", "stage"),
            ("train.batch = 24", "train.batch"),
        ] {
            assert_eq!(key(line), about);
        }
    }

    /// They are refused by their number alone, and never lowered.
    #[test]
    fn more_micro_batches_than_a_schedule_has_are_refused() {
        for (lines, most) in [
            (&["micro_batches 32768", "placement accumulate"][..], "16384"),
            (&["micro_batches 2048", "placement concurrent"], "1024"),
        ] {
            let mut program = sample::program(2, 1 << 16);
            program.set_all(lines).expect("these are decisions");
            let refusal = plan(&program, &Options::default()).expect_err("it is refused");
            let text = refusal.to_string();
            assert!(text.contains(&format!("at most {most} are planned")), "{text}");
        }
    }

    #[test]
    fn the_line_that_nothing_else_makes_up_for_is_blamed() {
        for (lines, first) in [
            (&["stages 99"][..], "stages"),
            (&["memory <= 1 kB"], "memory"),
            (&["micro_batches 3"], "micro_batches"),
            (&["rule cyclic_v2"], "exactness"),
        ] {
            let mut program = sample::program(4, 8);
            program.set_all(lines).expect("these are decisions");
            let refusal = plan(&program, &Options::default()).expect_err("nothing fits");
            assert_eq!(refusal.blamed.first().map(String::as_str), Some(first));
        }
    }
}
