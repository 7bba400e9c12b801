//! What is left out as superfluous has a plan in the space that is no worse.

use super::*;
use crate::{sample, space::Space};
use roundelay_dsl::{Choice, Numbers, Program};
use roundelay_schedule::{Exactness, Recompute};

/// The plans of a space, in a few words.
fn plans(program: &Program) -> Vec<String> {
    let space = Space::new(program);
    space.plans.iter().map(|one| format!("{}, {}", one.family, one.counts)).collect()
}

#[test]
fn rules_may_stand_in_any_order() {
    let mut program = sample::program(1, 4);
    program.search.exactness = Some(Exactness::Delayed);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.stages = Numbers::Ranges(vec![(1, 1)]);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let rules = [Rule::Sync, Rule::CyclicV2];
    let both = [rules, [rules[1], rules[0]]].map(|rules| {
        program.search.rule = Choice::OneOf(rules.to_vec());
        plans(&program)
    });
    assert_eq!(both[0], both[1]);
    assert_eq!(both[0], ["sync accumulate sequential replicated, N = 1, S = 1"]);
}
