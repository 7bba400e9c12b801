//! What a lowerer remembers changes no schedule, and code is derived once for plans that share it.

use crate::{
    models, plans,
    support::{self, kinds},
};
use roundelay_codegen::{Everywhere, Lowerer, LoweringChoice, Neighbour, lower_with};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Hop, Order, Placement, Plan, Recompute, Rewrite, Rule, Schedule, States,
};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Layers whose calls become one: something to choose in every stage.
fn program(batch: u32) -> Program {
    let body = ["x = relu(linear(x, 16))"; 3].join("\n");
    models::program(&format!(
        "model layers {{
            input features: real[batch, 16]
            input wanted: real[batch, 16]
            x = features
            {body}
            loss mse(x, wanted)
        }}
        {}",
        models::job(batch)
    ))
}

fn lowered(lowerer: &Lowerer<'_>, plan: &Plan) -> Schedule {
    let admitted = lowerer.lower_if(plan, |_| Ok::<(), ()>(()));
    admitted.unwrap().unwrap()
}

#[test]
fn plans_lower_to_the_same_one_after_another_as_alone() {
    let program = program(8);
    let lowerer = Lowerer::new(&program, &Everywhere);
    let mut plans = Vec::new();
    for (kind, recompute) in kinds(4, 3)
        .into_iter()
        .zip([Recompute::None, Recompute::None, Recompute::Selective].into_iter().cycle())
    {
        let plan = plans::plan(kind, 4, vec![2, 4]);
        plans.push(Plan { recompute: vec![recompute; 3], ..plan });
    }
    for plan in plans.iter().chain(plans.iter().rev()) {
        let alone = lower_with(&program, plan, &Everywhere).unwrap();
        let alone = Schedule { fingerprint: String::new(), ..alone };
        assert_eq!(lowered(&lowerer, plan), alone, "{plan:?}");
        let laid_out = lowerer.laid_out(plan).unwrap();
        assert_eq!(laid_out.buffers, alone.buffers, "{plan:?}");
    }
    let refused = lowerer.lower_if(&plans[0], |_| Err("no room"));
    assert_eq!(refused.unwrap(), Err("no room"));
}

/// Every rule everywhere, and how often it was asked.
#[derive(Default)]
struct Counted(AtomicUsize);

impl LoweringChoice for Counted {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Everywhere.choose(neighbours)
    }
}

#[test]
fn code_is_derived_once_for_plans_that_share_it() {
    let (program, choice) = (program(8), Counted::default());
    let lowerer = Lowerer::new(&program, &choice);
    let asked = |plan: &Plan| {
        let before = choice.0.load(Ordering::Relaxed);
        lowered(&lowerer, plan);
        choice.0.load(Ordering::Relaxed) - before
    };
    let plan = |rule, order, states, cuts| {
        plans::plan((rule, Placement::Data, order, states), 4, cuts)
    };
    let zero = |states| plan(Rule::Sync, Order::Parallel, states, vec![2, 4]);
    assert!(asked(&zero(States::Zero1)) > 0);
    for states in [States::Zero2, States::Zero3, States::Zero1] {
        assert_eq!(asked(&zero(states)), 0, "{states:?}");
    }
    let other = plan(Rule::Sync, Order::Parallel, States::Zero1, vec![2, 3]);
    let again = Plan { recompute: vec![Recompute::Full; 3], ..zero(States::Zero1) };
    for plan in [other, again] {
        assert!(asked(&plan) > 0, "{plan:?}");
    }
}

/// Plans that differ in nothing but the rule, where the model follows from it.
#[test]
fn rules_with_models_of_their_own_share_no_code() {
    let program = support::program(12, 2);
    let rule = Rule::Local { units: 2, hop: Hop::None };
    let trained = program.under(rule).expect("layers have one width");
    let units = trained.model.boundaries();
    let (placement, order) = (Placement::Pipeline, Order::OneForwardOneBackward);
    let own = plans::plan((rule, placement, order, States::Replicated), 2, units.clone())
        .with_boundaries(units);
    let plain = Plan { rule: Rule::Sync, boundaries: Vec::new(), ..own.clone() };
    let lowerer = Lowerer::new(&program, &Everywhere);
    for plan in [&own, &plain, &own] {
        let alone = lower_with(&program, plan, &Everywhere).unwrap();
        let alone = Schedule { fingerprint: String::new(), ..alone };
        assert_eq!(lowered(&lowerer, plan), alone, "{}", plan.rule);
    }
}
