//! Laws of the steady state: what a step takes where rings turn and steps differ.

use super::*;

#[test]
fn the_step_time_is_the_mean_over_a_turn_of_the_rings() {
    // The sender is d1 in odd periods; in even ones the move stays within d0.
    let mut s = schedule(2, 1);
    let devices = vec![DeviceId::new(0), DeviceId::new(1)];
    let ring = s.rings.push(Ring { devices, turn: 1, lanes: 1 });
    let u = routine(&mut s, Pass::Update, 0, 0);
    let mut work = transfer(0, 0);
    if let Work::Transfer { from, .. } = &mut work {
        from.at = place(ring.index());
    }
    let sent = push(&mut s, work, &[(ActionId::new(1), 1)]);
    push(&mut s, launch(0, 0, u, 0), &[(sent, 0)]);
    let checked = Checked::unproven_for_tests(s);
    let steps = simulate_steady(&checked).steps();
    for steps in steps..steps + 4 {
        assert_eq!(simulate(&checked, steps).step_time(), Nanos((50 + 507) / 2));
    }
}

/// The first device is through with all steps before the steady state is measured.
#[test]
fn a_device_that_runs_ahead_is_as_busy_as_one_that_does_not() {
    let mut s = schedule(2, 1);
    let f = routine(&mut s, Pass::Forward, 0, 10);
    let u = routine(&mut s, Pass::Update, 1, 100);
    let ahead = push(&mut s, launch(0, 0, f, 0), &[]);
    push(&mut s, launch(1, 0, u, 0), &[(ahead, 0)]);
    let checked = Checked::unproven_for_tests(s);
    let steps = simulate_steady(&checked).steps();
    for steps in [steps, steps + 1, 100] {
        let run = simulate(&checked, steps);
        assert_eq!(run.step_time(), Nanos(100));
        assert!((run.bubble() - 0.45).abs() < 1e-12, "{steps}: {}", run.bubble());
    }
}

/// Each of two devices waits for what the other one sent a step before: the round takes two steps, of
/// 537 and 517 ns in turn.
fn alternate(s: &mut Schedule) {
    let u = routine(s, Pass::Update, 0, 10);
    let f = routine(s, Pass::Forward, 1, 30);
    let [there, back] = [1, 3].map(ActionId::new);
    let first = push(s, launch(0, 0, u, 0), &[(back, 1)]);
    push(s, transfer(0, 1), &[(first, 0)]);
    let second = push(s, launch(1, 0, f, 0), &[(there, 1)]);
    push(s, transfer(1, 0), &[(second, 0)]);
}

#[test]
fn steps_that_alternate_are_averaged_in_pairs() {
    let mut s = schedule(2, 1);
    alternate(&mut s);
    let checked = Checked::unproven_for_tests(s);
    let least = simulate_steady(&checked).steps();
    for steps in [8, 9, least, least + 1, least + 2] {
        assert_eq!(simulate(&checked, steps).step_time(), Nanos(527), "{steps}");
    }
}

/// The same beside a ring that stands as before after three steps.
#[test]
fn steps_that_alternate_beside_a_ring_of_three_are_averaged_over_both() {
    let mut s = schedule(3, 1);
    let devices = [0, 1, 2].map(DeviceId::new).to_vec();
    s.rings.push(Ring { devices, turn: 1, lanes: 1 });
    alternate(&mut s);
    let checked = Checked::unproven_for_tests(s);
    assert_eq!(simulate_steady(&checked).step_time(), Nanos(527));
}

/// A round over three devices takes three steps, and the ring beside it two.
#[test]
fn a_run_with_turning_rings_is_as_long_as_it_takes_until_times_repeat() {
    let mut s = schedule(3, 1);
    let devices = [0, 1].map(DeviceId::new).to_vec();
    s.rings.push(Ring { devices, turn: 1, lanes: 1 });
    let u = routine(&mut s, Pass::Update, 0, 10);
    let f = routine(&mut s, Pass::Forward, 1, 30);
    let g = routine(&mut s, Pass::Forward, 2, 50);
    for (device, routine) in [u, f, g].into_iter().enumerate() {
        let before = ActionId::new((2 * device + 5) % 6);
        let launched = push(&mut s, launch(device, 0, routine, 0), &[(before, 1)]);
        push(&mut s, transfer(device, (device + 1) % 3), &[(launched, 0)]);
    }
    let checked = Checked::unproven_for_tests(s);
    let run = simulate_steady(&checked);
    assert!(run.is_steady() && run.steps() > 12);
    assert_eq!(run.step_time(), Nanos((10 + 30 + 50 + 3 * 507) / 3));
    assert!(!simulate(&checked, 1).is_steady());
}
