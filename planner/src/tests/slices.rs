//! Slices in a search: tried where a program names them, and never faster or smaller than bounded.

use super::{all, brute_force::within_bounds, refusal};
use crate::{Candidate, Options, appraise, plan, sample};
use roundelay_dsl::{Choice, Numbers, Operation, Program};
use roundelay_schedule::{Bytes, Exactness, Order, Placement, Recompute};

/// Six layers on four devices with room.
fn program() -> Program {
    let mut program = sample::program(4, 4);
    program.model = sample::gpt(6, 32, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    program.search.placement = Choice::OneOf(vec![Placement::Pipeline]);
    program.search.stages = Numbers::Ranges(vec![(2, 4)]);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 2)]);
    program
}

fn slices(candidates: &[Candidate]) -> Vec<u32> {
    let mut slices: Vec<u32> = candidates.iter().map(|c| c.plan.slices).collect();
    slices.sort_unstable();
    slices.dedup();
    slices
}

#[test]
fn slices_are_tried_where_a_program_names_them() {
    let mut program = program();
    assert_eq!(slices(&all(&program).plans), [1]);
    let orders = vec![Order::SlicesOneForwardOneBackward];
    program.search.order = Choice::OneOf(orders);
    assert_eq!(slices(&all(&program).plans), [2, 4, 8, 16]);
    program.search.order = Choice::Open;
    program.search.slices = Numbers::Ranges(vec![(1, 1), (8, 8)]);
    assert_eq!(slices(&all(&program).plans), [1, 8]);
    program.search.exactness = Some(Exactness::Exact);
    assert_eq!(slices(&all(&program).plans), [1]);
    program.search.exactness = None;
    program.search.slices = Numbers::Ranges(vec![(5, 5)]);
    program.search.replicas = Numbers::Ranges(vec![(1, 1)]);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("5 slices do not divide its sequence of 32"), "{refused}");
}

/// Some plans would take more devices than there are, but those on fewer cannot be cut in slices
/// either.
#[test]
fn slices_that_do_not_fit_the_model_are_told_before_devices() {
    let mut program = program();
    program.search.placement = Choice::Open;
    program.search.stages = Numbers::Open;
    program.search.slices = Numbers::Ranges(vec![(5, 5)]);
    let refused = refusal(&program);
    let why = "5 slices do not divide its sequence of 32";
    assert!(refused.binding.starts_with("the model: ") && refused.binding.contains(why));
    assert_eq!(refused.blamed.first().map(String::as_str), Some("slices"));
    let target = sample::program(1, 4).target;
    let alone = refusal(&Program { target, ..program.clone() });
    assert!(alone.binding.contains(why), "{alone}");
    program.search.slices = Numbers::Ranges(vec![(2, 2)]);
    for (_, node) in program.model.nodes.iter_mut() {
        if let Operation::Attention { sight, .. } = &mut node.operation {
            sight.causal = false;
        }
    }
    let refused = refusal(&program);
    assert!(refused.binding.contains("causal"), "{refused}");
    // Here more devices are what is missing.
    program.search.slices = Numbers::Open;
    program.search.replicas = Numbers::Ranges(vec![(8, 8)]);
    program.train.batch = 8;
    let refused = refusal(&program);
    assert!(refused.binding.contains("it needs 8 devices, the cluster has 4"));
}

/// Keys and values of slices are joined, and `none` joins them again where `selective` keeps what
/// was joined, so less of it may be slower.
#[test]
fn no_named_recomputation_beats_the_first_plan_of_a_sliced_program() {
    let mut program = program();
    program.search.slices = Numbers::Ranges(vec![(4, 4)]);
    let first = |program: &Program| {
        let found = plan(program, &Options::default()).expect("there is room");
        assert_eq!(found.gap(), 0.0);
        found.plans.into_iter().next().expect("a plan was found")
    };
    let open = first(&program);
    let named = Recompute::ALL.iter().map(|recompute| {
        program.search.recompute = Choice::OneOf(vec![*recompute]);
        (first(&program).step_time, *recompute)
    });
    let named: Vec<_> = named.collect();
    let (least, fastest) = *named.iter().min().expect("there are ways");
    assert!(open.step_time <= least, "{} {named:?}", open.step_time);
    assert_ne!(fastest, Recompute::None, "the least of it is the fastest here too");
}

/// Each replica adds up the gradients of its slices before replicas meet.
#[test]
fn replicas_of_one_micro_batch_flow_in_slices() {
    let mut program = program();
    program.search.order = Choice::OneOf(vec![Order::SlicesOneForwardOneBackward]);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.replicas = Numbers::Ranges(vec![(2, 2)]);
    let found = plan(&program, &Options::default()).expect("this is a plan");
    assert_eq!(found.best().exactness(), Exactness::Reordered);
}

/// A micro-batch of several slices is in several stages at a time, so orders of slices are none that
/// is the same with one micro-batch.
#[test]
fn one_micro_batch_in_slices_overlaps() {
    let mut program = program();
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.slices = Numbers::Ranges(vec![(1, 1), (4, 4)]);
    let orders = vec![Order::Gpipe, Order::SlicesOneForwardOneBackward];
    program.search.order = Choice::OneOf(orders);
    assert_eq!(slices(&all(&program).plans), [1, 4]);
}

/// In time nothing is gained by slices on one device, but they keep less at a time.
#[test]
fn slices_on_one_device_fit_where_sequences_do_not() {
    let mut program = program();
    program.target = sample::program(1, 4).target;
    sample::give_room(&mut program, Bytes(1 << 30));
    program.model = sample::gpt(1, 256, 4, false);
    program.search.placement = Choice::Open;
    program.search.stages = Numbers::Ranges(vec![(1, 1)]);
    program.search.slices = Numbers::Ranges(vec![(1, 1), (8, 8)]);
    let orders = vec![Order::Sequential, Order::SlicesOneForwardOneBackward];
    program.search.order = Choice::OneOf(orders);
    let plans = all(&program).plans;
    let least = |slices| {
        let own = plans.iter().filter(|own| own.plan.slices == slices);
        own.map(|own| own.device_peak).min().expect("both are plans")
    };
    let [whole, sliced] = [1, 8].map(least);
    assert!(sliced < whole, "{sliced} {whole}");
    program.search.memory = Some(sliced);
    let found = plan(&program, &Options::default()).expect("slices fit");
    assert_eq!(found.best().slices, 8);
}

#[test]
fn no_slices_beat_their_bounds_and_a_plan_costs_what_the_search_says() {
    let mut program = program();
    program.search.slices = Numbers::Ranges(vec![(2, 2), (8, 8)]);
    let plans = all(&program).plans;
    assert!(plans.len() > 10);
    plans.iter().for_each(within_bounds);
    for candidate in &plans[..3] {
        let alone = appraise(&program, &candidate.plan).unwrap();
        assert_eq!(alone.step_time, candidate.step_time);
        within_bounds(&alone);
    }
}
