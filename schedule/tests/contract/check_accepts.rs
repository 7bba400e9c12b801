//! Sound schedules pass, and the facts are those that one counts by hand.

use crate::tiny::{
    Letters, accumulate, delayed, halves::halves, pipeline, reduced, turning,
};
use roundelay_schedule::{Bytes, Id, Kind, Schedule, Waits, check};

#[test]
fn sound_schedules_pass() {
    let sound: [Schedule; 12] = [
        accumulate(1),
        accumulate(2),
        accumulate(3),
        delayed(1),
        delayed(2),
        delayed(3),
        reduced(),
        turning(),
        pipeline(),
        halves(1),
        halves(2),
        halves(3),
    ];
    for (number, schedule) in sound.into_iter().enumerate() {
        let checked = check(schedule, &Letters);
        assert!(checked.is_ok(), "{number}: {}", checked.unwrap_err());
    }
}

#[test]
fn an_order_that_lanes_already_give_needs_no_waits() {
    let mut schedule = accumulate(2);
    for (id, action) in schedule.actions.iter_mut() {
        // Feeds and reports stand in the host's queue; launches follow each other in theirs.
        let between_queues = !matches!(id.index(), 4 | 8);
        if !between_queues {
            action.after = Waits::default();
        }
    }
    assert!(check(schedule, &Letters).is_ok());
}

#[test]
fn an_all_reduce_counts_twice_the_array_for_two_members() {
    let checked = check(reduced(), &Letters).unwrap();
    let facts = checked.facts();
    assert_eq!(facts.link_bytes.values().copied().collect::<Vec<_>>(), [Bytes(2 * 64)]);
    assert_eq!(facts.sent.values().copied().collect::<Vec<_>>(), [Bytes(64)]);
    assert_eq!((facts.messages, facts.comm_rounds), (1, 1));
    assert_eq!(facts.pool_arena.len(), 2);
}

#[test]
fn a_pipeline_sends_one_value_and_one_gradient() {
    let checked = check(pipeline(), &Letters).unwrap();
    let facts = checked.facts();
    assert_eq!(facts.link_bytes.values().copied().collect::<Vec<_>>(), [Bytes(2 * 64)]);
    assert_eq!(facts.messages, 2);
    assert!(facts.device_arena.values().all(|arena| *arena == Bytes(6 * 64)));
}

#[test]
fn a_row_is_live_from_its_write_to_its_last_read() {
    let checked = check(accumulate(2), &Letters).unwrap();
    let (facts, device) = (checked.facts(), roundelay_schedule::DeviceId::new(0));
    for kind in
        [Kind::Parameter, Kind::Gradient, Kind::Activation, Kind::Input, Kind::Metric]
    {
        assert_eq!(facts.live_peak[&(device, kind)], Bytes(64), "{kind}");
    }
    // During the second forward pass: parameters, the first gradient, activation, input, loss.
    assert_eq!(facts.device_live_peak[&device], Bytes(5 * 64));
    assert_eq!(facts.device_arena[&device], Bytes(5 * 64));
}

#[test]
fn both_slots_of_delayed_parameters_are_carried() {
    let checked = check(delayed(2), &Letters).unwrap();
    let device = roundelay_schedule::DeviceId::new(0);
    assert_eq!(checked.facts().live_peak[&(device, Kind::Parameter)], Bytes(2 * 64));
}
