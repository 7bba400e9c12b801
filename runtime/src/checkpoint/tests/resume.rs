//! What a run goes on with, and what it says about it.

use super::{run, schedule, state};
use crate::{Checkpoint, CheckpointError, OptimizerState, Resumed, State, StateError};
use roundelay_schedule::{
    Axis, Belonging, Division, Float, Hop, Id, Job, Method, Placement, Reduction, Rule,
    Schedule, Split, Splits, Stage, Tensor, Timeline, Treatment,
};
use std::path::PathBuf;

fn resume(from: &Schedule, to: &Schedule, step: u64) -> (State, Resumed) {
    let (path, run_before) = (PathBuf::from("file"), run(from));
    let checkpoint =
        Checkpoint { path, provenance: run_before, state: state(from, step).into() };
    let (state, resumed) = checkpoint.resume(to, &run(to)).unwrap();
    (state.held().unwrap(), resumed)
}

#[test]
fn another_placement_with_the_same_rule_goes_on_exactly() {
    let from = schedule(Rule::CyclicV2);
    let mut to = from.clone();
    to.plan.placement = Placement::Pipeline;
    to.fingerprint = "0123456789abcdef-another".into();
    assert_eq!(resume(&from, &to, 3), (state(&from, 3), Resumed::Exactly));
}

/// A run that was written before it was said what its model computes goes on as if it were the same.
#[test]
fn another_model_of_the_same_parameters_is_said() {
    let from = schedule(Rule::CyclicV2);
    let mut to = from.clone();
    to.fingerprint = "00000000000000aa-fedcba9876543210".into();
    let (found, resumed) = resume(&from, &to, 3);
    assert_eq!(found, state(&from, 3));
    let Resumed::WithOtherBits { reason } = resumed else { panic!("{resumed:?}") };
    assert!(reason.starts_with("the model computes something else"), "{reason}");
    to.job.seed += 1;
    let Resumed::FromParameters { reason, .. } = resume(&from, &to, 3).1 else {
        panic!("another seed is another run")
    };
    assert!(
        reason.ends_with("; the model computes something else of the same parameters")
    );
    to.job.seed -= 1;
    let mut before = from.clone();
    before.fingerprint = "0123456789abcdef".into();
    assert_eq!(resume(&before, &to, 3).1, Resumed::Exactly);
}

/// The digest of what a model computes tells what is decayed too.
#[test]
fn other_parameters_without_decay_are_said() {
    let from = schedule(Rule::CyclicV2);
    let mut to = from.clone();
    to.fingerprint = "00000000000000aa-fedcba9876543210".into();
    to.job.parameters[0].treatment = Treatment::Spared;
    let Resumed::WithOtherBits { reason } = resume(&from, &to, 3).1 else {
        panic!("the state is whole")
    };
    assert!(reason.contains("(`no_decay`)"), "{reason}");
    let mut before = run(&from);
    before.entries.remove("spared");
    let checkpoint = Checkpoint {
        path: "file".into(),
        provenance: before,
        state: state(&from, 3).into(),
    };
    let (_, resumed) = checkpoint.resume(&to, &run(&to)).unwrap();
    let Resumed::WithOtherBits { reason } = resumed else { panic!("{resumed:?}") };
    assert!(reason.starts_with("the model computes something else"), "{reason}");
}

/// Digests of data tell nobody anything.
#[test]
fn other_data_is_told_by_how_much_there_is() {
    let schedule = schedule(Rule::CyclicV2);
    let reason = |before: [&str; 2], now: [&str; 2]| {
        let [mut earlier, mut own] = [run(&schedule), run(&schedule)];
        for (run, [digest, size]) in [(&mut earlier, before), (&mut own, now)] {
            run.entries.insert("data".to_owned(), digest.to_owned());
            run.entries.insert("data_size".to_owned(), size.to_owned());
        }
        let (path, state) = (PathBuf::from("file"), state(&schedule, 3).into());
        let checkpoint = Checkpoint { path, provenance: earlier, state };
        match checkpoint.resume(&schedule, &own).unwrap().1 {
            Resumed::FromParameters { reason, .. } => reason,
            other => panic!("other data is another run: {other:?}"),
        }
    };
    let more = reason(["aa", "9 tokens"], ["bb", "18 tokens"]);
    assert_eq!(more, "the data had 9 tokens, and has 18 tokens");
    let same = reason(["aa", "9 tokens"], ["bb", "9 tokens"]);
    assert!(same.ends_with("though it has 9 tokens as before"), "{same}");
    let unknown = reason(["aa", ""], ["bb", "9 tokens"]);
    assert_eq!(unknown, "the data is other data, or is read otherwise");
}

#[test]
fn another_order_of_sums_is_said() {
    let from = schedule(Rule::CyclicV2);
    let mut to = from.clone();
    to.plan.placement = Placement::Shared;
    to.plan.reduction = Reduction::ByDevice;
    let (found, resumed) = resume(&from, &to, 3);
    assert_eq!(found, state(&from, 3));
    assert!(matches!(resumed, Resumed::WithOtherBits { .. }), "{resumed:?}");
}

#[test]
fn other_replicas_go_on_as_their_sums_say() {
    let mut from = schedule(Rule::Sync);
    let as_replicas = |schedule: &mut Schedule, placement, micro_batches, replicas| {
        let plan = &mut schedule.plan;
        (plan.placement, plan.micro_batches) = (placement, micro_batches);
        plan.delays = plan.rule.delays(placement.timeline(), micro_batches, plan.stages);
        schedule.plan = plan.clone().replicated(replicas, 1);
        let name = "replica".to_owned();
        let extent = schedule.plan.members();
        schedule.axes = [Axis { name, extent, stride: 1, splits: Splits::Batch }]
            .into_iter()
            .collect();
    };
    as_replicas(&mut from, Placement::Data, 4, 1);
    let resumed = |placement, micro_batches, replicas| {
        let mut to = from.clone();
        as_replicas(&mut to, placement, micro_batches, replicas);
        resume(&from, &to, 3).1
    };
    assert_eq!(resumed(Placement::Accumulate, 1, 4), Resumed::Exactly);
    assert_eq!(resumed(Placement::Data, 2, 2), Resumed::Exactly);
    let other = resumed(Placement::Accumulate, 2, 2);
    assert!(matches!(other, Resumed::WithOtherBits { .. }), "{other:?}");
    let Resumed::FromParameters { reason, .. } = resumed(Placement::Accumulate, 1, 2)
    else {
        panic!("another number of micro-batches is another run")
    };
    assert!(reason.contains("micro_batches times replicas was 4 and is 2"), "{reason}");
}

/// The same number of micro-batches in all, of which others read older parameters.
#[test]
fn other_delays_are_said() {
    let mut from = schedule(Rule::CyclicV2);
    let of_replicas = |schedule: &mut Schedule, micro_batches, replicas| {
        let plan = &mut schedule.plan;
        (plan.placement, plan.micro_batches) = (Placement::Pipeline, micro_batches);
        let timeline = plan.placement.timeline();
        plan.delays = plan.rule.delays(timeline, micro_batches, plan.stages);
        schedule.plan = plan.clone().replicated(replicas, 1);
    };
    of_replicas(&mut from, 4, 1);
    let mut to = from.clone();
    of_replicas(&mut to, 2, 2);
    let (found, resumed) = resume(&from, &to, 3);
    assert_eq!(found, state(&from, 3));
    let Resumed::WithOtherBits { reason } = resumed else { panic!("{resumed:?}") };
    assert!(reason.contains("at other versions of parameters"), "{reason}");
}

#[test]
fn other_tensor_rows_go_on_with_the_same_whole_state() {
    let from = schedule(Rule::Sync);
    let on_rows = |rows: u32, cuts: Vec<u32>| {
        let mut to = from.clone();
        to.plan.tensor = Tensor { rows, ..Tensor::WHOLE };
        to.plan.cuts = cuts;
        let (name, splits) = ("row".to_owned(), Splits::Tensors);
        to.axes.push(Axis { name, extent: rows, stride: 1, splits });
        for parameter in &mut to.job.parameters {
            let whole = parameter.shape[0];
            parameter.split = Division::One(Split { extent: 0, whole, line: None });
            parameter.shape[0] = whole.div_ceil(u64::from(rows));
        }
        to
    };
    let [two, three] = [2, 3].map(|rows| on_rows(rows, vec![1]));
    for (from, to) in [(&from, &two), (&two, &three), (&three, &from)] {
        let (found, resumed) = resume(from, to, 3);
        assert_eq!(found, state(from, 3));
        assert_eq!(found.fits(&to.job), Ok(()));
        assert!(matches!(resumed, Resumed::WithOtherBits { .. }), "{resumed:?}");
    }
    assert_eq!(resume(&two, &two, 3).1, Resumed::Exactly);
    let other = resume(&two, &on_rows(2, vec![2]), 3).1;
    assert!(matches!(other, Resumed::WithOtherBits { .. }), "{other:?}");
}

#[test]
fn another_cut_changes_bits_where_delays_or_norms_change() {
    let cut_elsewhere = |rule, clip| {
        let mut from = schedule(rule);
        from.job.optimizer.clip = clip;
        let mut to = from.clone();
        to.job.parameters[1].stage = Stage::new(0);
        to.job.elements = [11, 0].into_iter().collect();
        resume(&from, &to, 0).1 == Resumed::Exactly
    };
    assert!(cut_elsewhere(Rule::Sync, 0.0));
    assert!(!cut_elsewhere(Rule::Sync, 1.0));
    assert!(!cut_elsewhere(Rule::CyclicV2, 0.0));
}

#[test]
fn another_run_starts_from_the_parameters_and_says_why() {
    let from = schedule(Rule::CyclicV2);
    type Change = fn(&mut Schedule);
    let changes: [(&str, Change); 5] = [
        ("rule was cyclic_v2 and is sync", |to| to.plan.rule = Rule::Sync),
        ("micro_batches times replicas was 2 and is 4", |to| to.plan.micro_batches = 4),
        ("seed was 7 and is 8", |to| to.job.seed = 8),
        ("batch was 4 and is 8", |to| to.job.batch = 8),
        ("weight_decay was 0 and is 0.5", |to| to.job.optimizer.weight_decay = 0.5),
    ];
    for (expected, change) in changes {
        let mut to = from.clone();
        change(&mut to);
        let (found, resumed) = resume(&from, &to, 3);
        let Resumed::FromParameters { optimizer, reason } = resumed else {
            panic!("{expected}")
        };
        assert_eq!(optimizer, OptimizerState::Kept, "{expected}");
        assert!(reason.contains(expected), "{reason}");
        let mut wanted = state(&from, 3);
        wanted.restart();
        assert_eq!((found.origin, &found), (3, &wanted));
        assert_eq!(found.fits(&to.job), Ok(()));
    }
}

#[test]
fn another_optimizer_starts_from_zero() {
    let from = schedule(Rule::Sync);
    let mut to = from.clone();
    to.job.optimizer.method = Method::Sgd { momentum: 0.9, nesterov: false };
    let kept = |to: &Schedule| match resume(&from, to, 3).1 {
        Resumed::FromParameters { optimizer, .. } => optimizer,
        other => panic!("another optimizer is another run: {other:?}"),
    };
    assert_eq!(kept(&to), OptimizerState::Zero);
    let (found, _) = resume(&from, &to, 3);
    assert_eq!(found.fits(&to.job), Ok(()));
    assert_eq!(found.optimizer_origin, 3);
    assert!(found.tensors.values().all(|t| t.optimizer.concat().iter().all(|b| *b == 0)));
    assert_eq!(
        found.tensors["last.bias"].versions,
        state(&from, 3).tensors["last.bias"].versions
    );
    to.job.optimizer.method = Method::Sgd { momentum: 0.0, nesterov: false };
    assert_eq!(kept(&to), OptimizerState::Absent);
}

#[test]
fn a_rule_that_reads_further_back_says_so() {
    let from = schedule(Rule::CyclicV2);
    let mut to = from.clone();
    to.plan.delays = Rule::CyclicV1.delays(Timeline::FlushFree, 2, 2);
    let (_, resumed) = resume(&from, &to, 3);
    let Resumed::FromParameters { reason, .. } = resumed else { panic!("{resumed:?}") };
    assert!(reason.contains("`last.bias` of 1 update before"), "{reason}");
    let (_, resumed) = resume(&from, &to, 0);
    let kept = matches!(resumed, Resumed::WithOtherBits { .. });
    assert!(kept, "before the first update there is one version: {resumed:?}");
}

#[test]
fn all_mistakes_of_another_model_are_listed() {
    let from = schedule(Rule::Sync);
    let mut to = from.clone();
    let Job { parameters, dtype, .. } = &mut to.job;
    *dtype = Float::F64;
    parameters[0].shape = vec![3, 2];
    parameters[1].name = "last.offset".into();
    let checkpoint = Checkpoint {
        path: "file".into(),
        provenance: run(&from),
        state: state(&from, 3).into(),
    };
    let error = checkpoint.resume(&to, &run(&to)).unwrap_err();
    let text = error.to_string();
    let CheckpointError::Mismatch { mistakes, .. } = error else { panic!("{text}") };
    let shape = StateError::Shape {
        name: "first.weight".into(),
        found: vec![2, 3],
        expected: vec![3, 2],
    };
    let expected = [
        StateError::Element { found: Float::F32, expected: Float::F64 },
        shape,
        StateError::Missing { name: "last.offset".into() },
        StateError::Unknown { name: "last.bias".into() },
    ];
    assert_eq!(mistakes, expected);
    assert!(mistakes.iter().all(|mistake| text.contains(&mistake.to_string())), "{text}");
    assert!(text.contains("holds f32 numbers, the job computes in f64"), "{text}");
}

#[test]
fn a_model_of_another_name_is_the_one_reason_for_all_that_does_not_fit() {
    let from = schedule(Rule::Sync);
    let mut to = from.clone();
    to.job.model = "another".into();
    let refused = |to: &Schedule| {
        let (provenance, state) = (run(&from), state(&from, 3).into());
        let checkpoint = Checkpoint { path: "file".into(), provenance, state };
        checkpoint.resume(to, &run(to)).err().map(|error| error.to_string())
    };
    assert_eq!(refused(&to), None, "what fits goes on under any name");
    to.job.parameters[0].shape = vec![3, 2];
    let told = format!(
        "`file` is of model `{}`, the schedule is of `another`; go on with its own program, or \
         name another folder",
        from.job.model
    );
    assert_eq!(refused(&to), Some(told));
}

/// A local rule trains heads besides what it shares with others.
#[test]
fn a_local_rule_shares_what_is_no_head() {
    let whole = schedule(Rule::Sync);
    let [headed, paired] = [Hop::None, Hop::Alone].map(|hop| {
        let mut headed = schedule(Rule::Local { units: 2, hop });
        let mut head = headed.job.parameters[0].clone();
        (head.name, head.offset) = ("unit0.head.weight".into(), 6);
        (head.belonging, head.treatment) = (Belonging::Head, Treatment::Spared);
        headed.job.parameters.insert(1, head);
        headed.job.elements[Stage::new(0)] = 12;
        headed.fingerprint = "00000000000000aa-fedcba9876543210".into();
        headed
    });
    let both = [&headed, &paired];
    for (from, to) in both.into_iter().flat_map(|own| [(&whole, own), (own, &whole)]) {
        let (found, resumed) = resume(from, to, 3);
        let Resumed::FromParameters { optimizer, reason } = resumed else {
            panic!("another rule is another run")
        };
        assert!(reason.contains("(units = 2)"), "{reason}");
        assert!(!reason.contains("the model"), "nobody changed it: {reason}");
        let mut other = to.clone();
        other.job.parameters[0].treatment = Treatment::Spared;
        let Resumed::FromParameters { reason, .. } = resume(from, &other, 3).1 else {
            panic!("another rule is another run")
        };
        assert!(reason.contains("(`no_decay`)"), "{reason}");
        let has_heads = to.job.parameters.iter().any(|own| own.name.contains(".head."));
        assert_eq!(reason.contains("heads of units begin as they are drawn"), has_heads);
        // Heads have no state to go on with, and all updates are counted together.
        let anew = (OptimizerState::Zero, 3);
        let expected = if has_heads { anew } else { (OptimizerState::Kept, 0) };
        assert_eq!((optimizer, found.optimizer_origin), expected);
        found.fits(&to.job).unwrap();
        let first = &found.tensors["first.weight"].versions[0];
        assert_eq!(first, &state(from, 3).tensors["first.weight"].versions[0]);
    }
    let (_, resumed) = resume(&headed, &headed, 3);
    assert_eq!(resumed, Resumed::Exactly);
    // A model may call a part of its own so.
    let named = |mut own: Schedule| {
        own.job.parameters[0].name = "unit1.head.weight".into();
        own
    };
    let [from, to] = [whole.clone(), headed.clone()].map(named);
    let (found, _) = resume(&from, &to, 3);
    let versions = |state: &State| state.tensors["unit1.head.weight"].versions.clone();
    assert_eq!(versions(&found), versions(&state(&from, 3)));
    // What is missing besides heads is another model, whatever the rules.
    let mut other = whole;
    other.job.parameters[0].name = "other.weight".into();
    let (path, provenance) = (PathBuf::from("file"), run(&other));
    let checkpoint = Checkpoint { path, provenance, state: state(&other, 3).into() };
    let refused = checkpoint.resume(&headed, &run(&headed));
    assert!(matches!(refused, Err(CheckpointError::Mismatch { .. })), "{refused:?}");
}
