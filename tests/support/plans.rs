//! Every kind of plan for N micro-batches and S stages; the tests of several crates share it.

use roundelay_schedule::{Order, Placement, Plan, Rule, States};

/// The decisions without a number.
pub(crate) type Kind = (Rule, Placement, Order, States);

/// A plan of a kind whose stages start at the first node and at `cuts`.
pub(crate) fn plan(
    (rule, placement, order, states): Kind,
    n: u32,
    cuts: Vec<u32>,
) -> Plan {
    Plan::new(rule, placement, order, states, n, cuts)
}

/// Every rule × placement × order × states that can be lowered for N and S.
pub(crate) fn kinds(n: u32, s: u32) -> Vec<Kind> {
    let cyclic =
        [Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(1), Rule::CyclicSlack(2)];
    let cyclic = cyclic.into_iter().flat_map(|rule| cyclic_kinds(rule, n, s));
    synchronous_kinds(n).into_iter().chain(cyclic).collect()
}

/// A synchronous pipeline in every order that is defined for N and the stages between `cuts`.
pub(crate) fn pipelines(n: u32, cuts: &[u32]) -> Vec<Plan> {
    let stages = cuts.len() as u32 + 1;
    let named = Order::ALL
        .iter()
        .copied()
        .filter(|order| order.is_of_pipelines())
        .filter(|order| *order != Order::Listed && !order.is_found())
        .filter(|order| !order.takes_slices());
    let sizes = named.flat_map(|order| [1, 2, 3, 4].map(|chunks| (order, chunks)));
    let lawful = sizes.filter(|(order, chunks)| order.fits(*chunks, stages, n).is_ok());
    let states = States::Replicated;
    let plan = |(order, chunks)| {
        Plan::new(Rule::Sync, Placement::Pipeline, order, states, n, cuts.to_vec())
            .with_chunks(chunks)
    };
    lawful.map(plan).collect()
}

fn synchronous_kinds(n: u32) -> Vec<Kind> {
    use {Order as O, Placement as P, States as T};
    let kind = |placement, order, states| (Rule::Sync, placement, order, states);
    let held: &[T] = match n {
        1 => &[T::Replicated],
        _ => &[T::Replicated, T::Zero1, T::Zero2, T::Zero3],
    };
    let mut kinds = vec![
        kind(P::Accumulate, O::Sequential, T::Replicated),
        kind(P::Concurrent, O::Parallel, T::Replicated),
        kind(P::Shared, O::Parallel, T::Replicated),
        kind(P::Pipeline, O::Gpipe, T::Replicated),
        kind(P::Pipeline, O::OneForwardOneBackward, T::Replicated),
    ];
    kinds.extend(held.iter().map(|states| kind(P::Data, O::Parallel, *states)));
    kinds
}

fn cyclic_kinds(rule: Rule, n: u32, s: u32) -> Vec<Kind> {
    use {Order as O, Placement as P, States as T};
    let mut kinds = vec![(rule, P::Accumulate, O::Sequential, T::Replicated)];
    let placements = [P::Concurrent, P::Data, P::Shared];
    kinds.extend(placements.map(|placement| (rule, placement, O::Cyclic, T::Replicated)));
    kinds.push((rule, P::Data, O::Cyclic, T::Handoff));
    if rule != Rule::CyclicV1 || n + 1 >= s {
        kinds.push((rule, P::Pipeline, O::Cyclic, T::Replicated));
    }
    kinds
}
