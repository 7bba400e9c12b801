//! What a space counts is all there is.

use super::*;
use crate::sample;
use roundelay_dsl::{Numbers, PinnedStages};
use roundelay_schedule::Exactness;

fn whole(program: &Program) -> Space {
    let space = Space::new(program);
    let dropped: u64 = space.dropped.values().sum();
    assert_eq!(space.combinations, space.plans.len() as u64 + dropped);
    space
}

#[test]
fn every_combination_is_a_plan_or_has_a_reason() {
    for (devices, batch) in [(1, 1), (3, 6), (8, 16)] {
        let mut program = sample::program(devices, batch);
        program.search.exactness = Some(Exactness::Delayed);
        let space = whole(&program);
        let values = Values::new(&program);
        let families = values.rules.len()
            * values.placements.len()
            * values.orders.len()
            * values.states.len();
        assert!(space.combinations >= (families * values.recompute.len()) as u64 / 2);
    }
}

#[test]
fn pinned_stages_leave_one_way_to_compute_again() {
    let mut program = sample::program(2, 4);
    program.search.stages = Numbers::Ranges(vec![(2, 2)]);
    let open = whole(&program).plans.len();
    let recompute = Recompute::Full;
    program.search.pinned = vec![PinnedStages { first: 0, last: 1, recompute }];
    let pinned = whole(&program);
    assert_eq!(pinned.plans.len() * Recompute::ALL.len(), open);
    assert!(pinned.dropped["same_or_never_better"] > 0);
}

/// No number of devices is worked out for numbers that no plan has.
#[test]
fn numbers_without_measure_are_dropped_like_others() {
    let mut program = sample::program(4, 8192);
    program.search.exactness = Some(Exactness::Delayed);
    program.search.stages = Numbers::Ranges(vec![(1 << 20, 1 << 20)]);
    program.search.micro_batches = Numbers::Ranges(vec![(8192, 8192)]);
    let space = whole(&program);
    assert!(space.plans.is_empty() && space.dropped["uncuttable"] > 0);
}
