//! What keeps decisions from going together: every fault is found, said of its decision, and told
//! with its numbers.

use crate::tiny::empty;
use roundelay_schedule::{
    Contraction, DeviceId, Id, Images, Item, Order, Pass, Placement, Plan, PlanFault,
    Recompute, Reduction, Rule, Sequence, States, Tensor, Timeline,
};

/// A pipeline of two stages on four micro-batches, with nothing wrong.
fn pipeline() -> Plan {
    let order = Order::OneForwardOneBackward;
    Plan::new(Rule::Sync, Placement::Pipeline, order, States::Replicated, 4, vec![5])
}

fn split(tensor: Tensor) -> Plan {
    pipeline().with_tensor(tensor)
}

/// The first fault of a plan for a cluster of sixteen devices.
fn fault(plan: &Plan) -> Option<PlanFault> {
    plan.faults(&empty(Rule::Sync, 1, 1, 16).target).next()
}

#[test]
fn decisions_that_go_together_have_no_fault() {
    let grid = Tensor::grid(2, 2);
    let each = Tensor { contraction: Contraction::Each, ..grid };
    let halves = Tensor { overdecompose: 2, ..grid };
    let plans = [pipeline(), split(grid), split(each), split(halves)];
    let sharded = Plan { states: States::Hsdp, ..pipeline() }.replicated(4, 2);
    for plan in plans.into_iter().chain([sharded]) {
        assert_eq!(fault(&plan), None, "{plan:?}");
    }
}

/// Each case has the decision that it is about, and what is said of it.
fn named<const CASES: usize>(cases: [(&str, &str, Plan); CASES]) {
    for (decision, words, plan) in cases {
        let fault = fault(&plan).unwrap_or_else(|| panic!("no fault: {words}"));
        let said = fault.to_string();
        assert_eq!(fault.decision(), decision, "{said}");
        assert!(said.contains(words), "{said}");
    }
}

fn workers() -> Plan {
    let (rule, placement, order) = (Rule::CyclicV2, Placement::Data, Order::Cyclic);
    Plan::new(rule, placement, order, States::Replicated, 4, vec![5])
}

#[test]
fn stages_orders_and_devices_that_do_not_go_together_are_named() {
    let listed = Plan { order: Order::Listed, ..pipeline() };
    let (one, order) = (Placement::Accumulate, Order::Sequential);
    let single = Plan::new(Rule::Sync, one, order, States::Replicated, 4, vec![5]);
    let on = |devices: &[usize]| Plan {
        devices: devices.iter().copied().map(DeviceId::new).collect(),
        ..pipeline()
    };
    let turned = Plan {
        devices: [0, 2, 1, 3].map(DeviceId::new).into(),
        ..pipeline().replicated(2, 1)
    };
    let sequential =
        "order sequential does not belong to sync in placement pipeline: use gpipe";
    let item = Item::new(Pass::Forward, 0, 0);
    named([
        (
            "cuts",
            "be 1 ascending cut for 2 stages, ",
            Plan { cuts: vec![], ..pipeline() },
        ),
        ("cuts", "3 ascending cuts for 4 stages", Plan { stages: 4, ..pipeline() }),
        ("recompute", "0 values for 2", Plan { recompute: vec![], ..pipeline() }),
        ("delays", "not those of sync", Plan { delays: workers().delays, ..pipeline() }),
        ("order", "order interleaved", Plan { order: Order::Interleaved, ..pipeline() }),
        ("order", sequential, Plan { order: Order::Sequential, ..pipeline() }),
        ("order", "one stage on a device", single.with_chunks(2)),
        ("devices", "there is no device d16", on(&[0, 16])),
        ("devices", "d1 stands twice", on(&[1, 1])),
        ("devices", "takes 2 devices, the plan names 3", on(&[0, 1, 2])),
        ("devices", "device 2 of the plan must be d2, not d1", turned),
        ("stages", "`stages` is 0", Plan { stages: 0, ..pipeline() }),
        ("lists", "not a training step", listed.with_lists(vec![vec![item]])),
    ]);
}

#[test]
fn states_and_replicas_that_do_not_go_together_are_named() {
    let sharded = |states, replicas, shards| {
        Plan { states, ..pipeline() }.replicated(replicas, shards)
    };
    let mirrored = Plan { order: Order::Chimera, ..pipeline() }.replicated(1, 1);
    let zero1 = Plan { states: States::Zero1, ..mirrored.clone() };
    let sums = "sums by_device, its replicas, placement and states sum sequential";
    named([
        ("states", "nothing is split", sharded(States::Zero3, 1, 1)),
        ("states", "travel along the workers", sharded(States::Handoff, 1, 1)),
        ("states", "states zero1 are split", zero1),
        ("replicas", "opposite directions have no replicas", mirrored.replicated(2, 1)),
        ("replicas", "never meet: use rule sync", workers().replicated(2, 1)),
        ("shards", "2 shards are for states hsdp", sharded(States::Zero3, 4, 2)),
        // Even groups alone would not help.
        ("shards", "3 shards are for states hsdp", sharded(States::Zero3, 4, 3)),
        ("shards", "groups of 3 shards", sharded(States::Hsdp, 4, 3)),
        ("shards", "`shards` is 0", sharded(States::Replicated, 4, 0)),
        ("reduction", sums, Plan { reduction: Reduction::ByDevice, ..pipeline() }),
    ]);
}

#[test]
fn parts_of_tensors_and_sequences_that_do_not_go_together_are_named() {
    let (grid, column) = (Tensor::grid(2, 2), Tensor::grid(2, 1));
    let gather = Tensor { contraction: Contraction::Gather, ..grid };
    let each = Tensor { contraction: Contraction::Each, ..column };
    let alone = Tensor { sequence: Sequence::Split, ..Tensor::WHOLE };
    let order = Order::SlicesOneForwardOneBackward;
    named([
        ("slices", "2 slices under order 1f1b", Plan { slices: 2, ..pipeline() }),
        ("slices", "set `slices 1`", Plan { slices: 2, order, ..split(grid) }),
        ("tensor", "one part alone splits no sequence", split(alone)),
        ("tensor", "at least one row", split(Tensor { rows: 0, ..Tensor::WHOLE })),
        ("tensor", "contraction gather is not for a grid of 2 x 2", split(gather)),
        ("tensor", "contraction each is not for a grid of 2 x 1", split(each)),
        ("tensor", "`images whole`", split(Tensor { images: Images::Split, ..grid })),
        ("tensor", "not in 3 parts", split(Tensor { overdecompose: 3, ..grid })),
        ("tensor", "not in 2 parts", split(Tensor { overdecompose: 2, ..Tensor::WHOLE })),
    ]);
}

/// The first that is wrong, as it is and as it should be; or the size that does not fit.
#[test]
fn delays_are_said_of_stage_and_micro_batch() {
    let of = |rule: Rule, n, s| rule.delays(Timeline::Workers, n, s);
    let [stale, fresh] = [of(Rule::CyclicV1, 4, 2), of(Rule::CyclicV2, 4, 2)];
    let cases = [
        (stale, "s0 has delay 1 for micro-batch i0, where the rule demands 0; 7 more"),
        (fresh, "s0 has delay 1 for micro-batch i0, where the rule demands 0; 3 more"),
        (of(Rule::Sync, 2, 2), "they have 2 rows, one for each micro-batch would be 4"),
        (
            of(Rule::Sync, 4, 3),
            "row of micro-batch i0 has 3 delays, one for each stage would be 2",
        ),
    ];
    for (delays, words) in cases {
        let plan = Plan { delays, ..pipeline() };
        let said = fault(&plan).expect(words).to_string();
        assert!(said.starts_with("the delays are not those of sync for pipeline: "));
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn recompute_is_said_for_every_stage() {
    let plan = Plan { recompute: vec![Recompute::Full; 3], ..pipeline() };
    let expected = PlanFault::Recompute { stages: 2, found: 3 };
    assert_eq!(fault(&plan), Some(expected));
}
