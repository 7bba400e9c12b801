//! Units between which gradients hop back, on the clock: the wait for the next unit does not
//! cascade and is hidden, and a unit keeps one micro-batch more than without.

use crate::{
    local::{PIPELINE, plan, timed, under},
    orders::step,
};
use roundelay_codegen::{LowerError, lower, lower_halved};
use roundelay_dsl::Program;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Argument, Checked, Content, DeviceId, Exactness, Hop, Id, Kind, Order, Pass,
    Placement, Plan, PlanFault, Role, Rule, Schedule, States, Work, check,
};

/// f, ι (what I takes) and w.
const F: u64 = 1_000_000;
const I: u64 = 13 * F / 10;
const W: u64 = 2 * F;

const HOPS: [Hop; 2] = [Hop::Added, Hop::Alone];

fn program(hop: Hop, units: u32, n: u32) -> Program {
    under(Rule::Local { units, hop }, units, n)
}

/// Units that all take the same.
fn equal(hop: Hop, units: u32, n: u32, message: u64) -> Checked {
    let program = program(hop, units, n);
    let times = |_, pass| match pass {
        Pass::Forward => F,
        Pass::InputGradient => I,
        Pass::WeightGradient => W,
        Pass::Backward | Pass::Combine | Pass::Norm | Pass::Update => 0,
    };
    timed(&program, &plan(&program, units, PIPELINE, n), message, times)
}

/// M (f + ι + w) + (J − 1) f: as without hops, but that I stands apart. The last micro-batch of a
/// unit waits for I of the next one, which starts a forward pass later.
#[test]
fn a_step_takes_as_long_as_without_but_for_what_is_taken_back_twice() {
    for hop in HOPS {
        for (j, m) in [(2, 1), (2, 5), (4, 8), (8, 3), (8, 16)] {
            let (units, n) = (u64::from(j), u64::from(m));
            let found = step(&equal(hop, j, m, 0));
            let expected = n * (F + I + W) + (units - 1) * F;
            // The first units fill what they wait with their next forward pass, which the last
            // micro-batch of a step has not.
            let wait = if n == 1 { F } else { 0 };
            let close = found.span.abs_diff(expected) <= wait + F / 1000;
            assert!(close, "{hop:?} {j} {m}: {} is not {expected}", found.span);
            let kept: Vec<usize> = (1..=j)
                .map(|unit| if unit < j { 2.min(m as usize) } else { 1 })
                .collect();
            assert_eq!(found.kept, kept, "{hop:?} {j} {m}");
        }
    }
}

/// Messages add one hop per boundary on the way there, and one on the way back, whatever the number
/// of units: nothing comes back further than one unit.
#[test]
fn the_wait_for_the_next_unit_does_not_cascade() {
    let message = F / 4;
    for j in [2, 4, 8] {
        let [near, far] =
            [0, message].map(|message| step(&equal(Hop::Added, j, 6, message)).span);
        let (more, expected) = (far - near, u64::from(j) * message);
        assert!(more.abs_diff(expected) < F / 1000, "{j} units: {more}, not {expected}");
    }
}

/// One gradient comes back over each boundary, for each micro-batch.
#[test]
fn each_boundary_gives_one_gradient_back() {
    for hop in HOPS {
        let schedule = equal(hop, 4, 3, 0);
        let mut pairs = Vec::new();
        for action in schedule.actions.values() {
            if let Work::Transfer {
                from,
                to,
                content: Content::ValueGradient(_, i),
                ..
            } = &action.work
            {
                pairs.push((from.at.ring.index(), to.at.ring.index(), i.index()));
            }
        }
        pairs.sort_unstable();
        let back = (1..4).flat_map(|from| (0..3).map(move |i| (from, from - 1, i)));
        assert_eq!(pairs, back.collect::<Vec<_>>());
    }
}

/// On one device two units at most are on their way at a time, with what passes between them.
#[test]
fn one_device_keeps_the_activations_of_two_units() {
    let peak = |units: u32, hop: Hop| {
        let program = under(Rule::Local { units, hop }, 8, 2);
        let (cuts, rule) = (program.model.boundaries(), Rule::Local { units, hop });
        let (placement, order) = (Placement::Accumulate, Order::Sequential);
        let plan = Plan::new(rule, placement, order, States::Replicated, 2, cuts.clone());
        let schedule = lower(&program, &plan.with_boundaries(cuts)).unwrap();
        let facts = check(schedule, &Kernels).unwrap().facts().clone();
        let own = [Kind::Activation, Kind::Boundary];
        let live =
            own.map(|kind| facts.live_peak.get(&(DeviceId::new(0), kind)).copied());
        live.map(|bytes| bytes.map_or(0, |bytes| bytes.0)).iter().sum::<u64>()
    };
    let local = peak(8, Hop::None);
    for hop in HOPS {
        let [two, eight] = [2, 8].map(|units| peak(units, hop));
        assert!(local < eight && eight <= 3 * local, "{hop:?}: {local}, {eight}");
        assert!(eight < two, "{hop:?}: {eight}, {two}");
    }
}

#[test]
fn the_class_is_truncated() {
    for (units, class) in [(4, Exactness::Truncated), (1, Exactness::Exact)] {
        let program = under(Rule::Local { units, hop: Hop::Added }, units, 2);
        assert_eq!(plan(&program, units, PIPELINE, 2).exactness(), class);
    }
}

#[test]
fn a_unit_is_one_stage() {
    let program = under(Rule::Local { units: 2, hop: Hop::Added }, 4, 2);
    let wrong = lower(&program, &plan(&program, 2, PIPELINE, 2));
    let Err(LowerError::Plan(PlanFault::Units(message))) = wrong else {
        panic!("{:?}", wrong.map(|_| ()))
    };
    assert!(message.contains("one stage for each unit, not 4 stages"), "{message}");
}

/// A schedule whose rule lets gradients hop back has them hop back.
#[test]
fn a_schedule_without_hops_is_not_taken_for_one_with_them() {
    let program = program(Hop::None, 4, 2);
    let schedule = lower_halved(&program, &plan(&program, 4, PIPELINE, 2)).unwrap();
    check(schedule.clone(), &Kernels).expect("it is sound as what it is");
    for hop in HOPS {
        let mut told = schedule.clone();
        told.plan.rule = Rule::Local { units: 4, hop };
        let found = check(told, &Kernels).unwrap_err().to_string();
        assert!(found.contains("that s2 hands back"), "{found}");
    }
}

/// A checker that is told another rule, or finds what hopped back handed on, says so.
#[test]
fn gradients_that_go_where_the_rule_does_not_say_are_found() {
    let program = program(Hop::Added, 4, 2);
    let schedule = lower(&program, &plan(&program, 4, PIPELINE, 2)).unwrap();
    let faults = |schedule| check(schedule, &Kernels).unwrap_err().to_string();
    let mut told = schedule.clone();
    told.plan.rule = Rule::Local { units: 4, hop: Hop::None };
    let found = faults(told);
    assert!(found.contains("none passes between these units"), "{found}");
    let mut handed_on = schedule;
    let find = |schedule: &Schedule, pass| {
        let mut all = schedule.routines.iter();
        let found = all.find(|(_, own)| own.pass == pass && own.stage.index() == 1);
        found.map(|(id, _)| id).expect("unit 1 has it")
    };
    let [input, weight] =
        [Pass::InputGradient, Pass::WeightGradient].map(|pass| find(&handed_on, pass));
    let arguments = &handed_on.routines[weight].arguments;
    let is_gradient = |one: &Argument| matches!(one.role, Role::ValueGradient(_));
    let at = arguments.iter().position(is_gradient).expect("something hops back");
    let hopped = arguments[at].clone();
    handed_on.routines[input].arguments.push(hopped);
    let launched = handed_on.actions.values().find_map(|action| match &action.work {
        Work::Launch { routine, rows, .. } if *routine == weight => Some(rows[at]),
        _ => None,
    });
    let row = launched.expect("it is launched");
    for (_, action) in handed_on.actions.iter_mut() {
        if let Work::Launch { routine, rows, .. } = &mut action.work
            && *routine == input
        {
            *rows = rows.iter().copied().chain([row]).collect();
        }
    }
    let found = faults(handed_on);
    assert!(found.contains("what hops back is for weights alone"), "{found}");
}
