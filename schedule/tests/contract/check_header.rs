//! Faults of headers: decisions, devices, names and numbers.

use crate::tiny::{Letters, accumulate, empty, id, pipeline};
use roundelay_schedule::{
    Initial, Method, Order, Placement, Plan, Rate, Reduction, Rule, Schedule, Sequence,
    States, Violations, check,
};

fn refused(mut schedule: Schedule, fault: impl FnOnce(&mut Schedule)) -> Violations {
    fault(&mut schedule);
    check(schedule, &Letters).expect_err("the fault must be found")
}

/// Prices and profiles look at what the plan says, runs at the rings.
#[test]
fn a_plan_names_the_devices_of_the_rings() {
    let named = |devices: &[usize]| {
        refused(pipeline(), |s| {
            s.target = empty(Rule::Sync, 1, 2, 3).target;
            s.plan.devices = devices.iter().copied().map(id).collect();
        })
        .to_string()
    };
    let others = named(&[0, 2]);
    let said = "its devices are not those of the rings at all axes: d0, d1";
    assert!(others.contains(said), "{others}");
    for devices in [&[][..], &[0], &[0, 1, 2]] {
        let found = named(devices);
        assert!(found.contains("the placement takes 2 devices"), "{devices:?}: {found}");
    }
    let twice = named(&[0, 0]);
    assert!(twice.contains("d0 stands twice among the devices"), "{twice}");
}

/// A header says how its lines came about: what no plan can be is no such thing.
#[test]
fn decisions_that_do_not_go_together_are_refused() {
    type Edit = fn(&mut Plan);
    let edits: [(Edit, &str); 9] = [
        (|plan| plan.states = States::Handoff, "travel along the workers"),
        (|plan| plan.states = States::Zero3, "with one replica nothing is split"),
        (|plan| plan.reduction = Reduction::ByDevice, "the plan sums by_device"),
        (
            |plan| plan.order = Order::ZeroBubbleOneP,
            "order zb_1p does not belong to sync in placement accumulate: use sequential",
        ),
        (
            |plan| plan.placement = Placement::Concurrent,
            "does not belong to sync in placement concurrent: use parallel",
        ),
        (|plan| plan.tensor.sequence = Sequence::Split, "one part alone"),
        (|plan| plan.shards = 0, "`shards` is 0"),
        (|plan| plan.chunks = 2, "one stage on a device"),
        (|plan| plan.devices = vec![id(7)], "there is no device d7"),
    ];
    for (edit, said) in edits {
        let found = refused(accumulate(2), |s| edit(&mut s.plan));
        assert!(found.to_string().contains(said), "{said}: {found}");
    }
    let found = refused(pipeline(), |s| s.plan.order = Order::Listed).to_string();
    assert!(found.contains("the lists are not a training step"), "{found}");
}

/// Documents have them as keys, and terminals obey what they cannot show.
#[test]
fn names_of_machines_are_apart_and_can_be_shown() {
    let told = |fault: fn(&mut Schedule)| refused(pipeline(), fault).to_string();
    let twice = told(|s| s.target.devices[id(1)].name = "core 0".into());
    assert!(twice.contains("target: two devices are called `core 0`"), "{twice}");
    let control: [fn(&mut Schedule); 5] = [
        |s| s.target.name = "a\u{1b}[2J".into(),
        |s| s.target.devices[id(0)].name = "a\u{1b}[2J".into(),
        |s| s.job.model = "a\u{1b}[2J".into(),
        |s| s.routines[id(0)].name = "a\u{1b}[2J".into(),
        |s| s.target.links[id(0)].name = "a\u{1b}[2J".into(),
    ];
    for fault in control {
        let found = told(fault);
        assert!(found.contains(r"the name `a\u{1b}[2J` cannot be shown"), "{found}");
    }
}

/// One of them at a time, each named with what to write.
#[test]
fn numbers_that_no_machine_and_no_optimizer_has_are_named() {
    type Fault = fn(&mut Schedule);
    let faults: [(Fault, &str); 9] = [
        (
            |s| s.job.parameters[0].initial = Initial::Normal(f64::NAN),
            "begins with NaN; write a number",
        ),
        (|s| s.target.devices[id(0)].threads = 0, "has no threads; write at least 1"),
        (|s| s.target.devices[id(0)].compute.0 = 0, "has no compute"),
        (|s| s.target.links[id(0)].bandwidth.0 = 0, "has a bandwidth of 0"),
        (|s| s.job.optimizer.rate = Rate::Constant(f64::NAN), "has rate NaN; write"),
        (|s| s.job.optimizer.rate = Rate::Constant(-0.5), "has rate -0.5; write"),
        (
            |s| s.job.optimizer.rate = Rate::Step { initial: 1.0, factor: 0.5, every: 0 },
            "drops its rate every 0 updates",
        ),
        (
            |s| {
                let method = Method::Sgd { momentum: 1.0, nesterov: false };
                s.job.optimizer.method = method;
            },
            "has momentum 1; write at least 0 and less than 1",
        ),
        (|s| s.job.optimizer.clip = f64::INFINITY, "has clip inf; write"),
    ];
    for (fault, said) in faults {
        let found = refused(accumulate(1), fault).to_string();
        assert!(found.contains(said), "{said}: {found}");
    }
}

#[test]
fn bounds_are_told_in_whole_sentences() {
    let lag = refused(pipeline(), |s| s.actions[id(0)].lag = 1 << 20).to_string();
    assert!(lag.contains("has a lag or reach of 1048576; it must be less than"), "{lag}");
    let domains = refused(pipeline(), |s| {
        let domain = s.target.domains[0].clone();
        s.target.domains = vec![domain; (1 << 17) + 1];
    });
    let domains = domains.to_string();
    assert!(domains.contains("131073 domains; at most"), "{domains}");
    assert!(domains.contains("are possible"), "{domains}");
}
