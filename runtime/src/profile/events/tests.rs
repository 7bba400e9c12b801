//! The law: what is left of all pieces of a step adds up to the step without events.

use super::*;
use roundelay_schedule::{DeviceId, Id};

const STEPS: u64 = 8;

fn call(index: usize) -> Piece {
    Piece::Call(RoutineId::new(0), index)
}

/// What pieces take, and how often a step has each.
type Pieces<'a> = &'a [(Piece, u64, u64)];

/// The usual time of a piece.
fn time(pieces: Pieces<'_>, wanted: Piece) -> Nanos {
    let found = pieces.iter().find(|(piece, ..)| *piece == wanted);
    Nanos(found.expect("every piece has a time").1)
}

/// What one step's pieces add up to, when each event costs so much.
fn step(pieces: Pieces<'_>, event: Nanos) -> Nanos {
    let left =
        |(_, time, count): &(Piece, u64, u64)| without(Nanos(*time), event) * *count;
    pieces.iter().map(left).sum()
}

/// One stream with these pieces, whose steps take so long without events.
fn events(pieces: Pieces<'_>, pace: Nanos) -> Events {
    let load = Load {
        calls: step(pieces, Nanos(0)) * STEPS,
        pieces: pieces.iter().map(|(piece, _, count)| (*piece, count * STEPS)).collect(),
    };
    Events {
        steps: STEPS,
        with: vec![step(pieces, Nanos(0)); 3],
        without: vec![pace; 5],
        streams: [(lane(0), load)].into(),
    }
}

fn lane(device: usize) -> (PhysicalQueue, usize) {
    (PhysicalQueue::Lane(DeviceId::new(device), 0), 0)
}

fn cost(pieces: Pieces<'_>, pace: u64) -> Nanos {
    events(pieces, Nanos(pace)).cost(|piece| time(pieces, piece))
}

/// Long calls, short ones, and launches.
fn mixed() -> [(Piece, u64, u64); 4] {
    [
        (call(0), 90_000, 3),
        (call(1), 7_200, 10),
        (call(2), 2_000, 5),
        (Piece::Launch, 3_000, 2),
    ]
}

#[test]
fn an_event_costs_all_pieces_the_same() {
    let whole = step(&mixed(), Nanos(0));
    assert_eq!(cost(&mixed(), whole.0 - 20 * 1_000), Nanos(1_000));
    assert_eq!(without(Nanos(7_200), Nanos(1_000)), Nanos(6_200));
}

/// Also where short calls keep their quarter, and long ones take off what these do not.
#[test]
fn what_is_left_adds_up_to_a_step_without_events() {
    let (whole, pieces) = (step(&mixed(), Nanos(0)), 20);
    let least = step(&mixed(), Nanos::NEVER);
    assert_eq!(least, Nanos(whole.0 / 4));
    for percent in 25..=100 {
        let pace = Nanos(whole.0 * percent / 100);
        let left = step(&mixed(), cost(&mixed(), pace.0));
        assert!(left >= pace && left <= pace + Nanos(pieces), "{pace}: {left}");
    }
    assert_eq!(step(&mixed(), cost(&mixed(), least.0 / 2)), least, "a quarter stays");
}

#[test]
fn a_short_call_keeps_a_quarter() {
    let event = cost(&mixed(), step(&mixed(), Nanos(0)).0 - 70_000);
    assert!(event > Nanos(2_000), "{event}");
    assert_eq!(without(Nanos(2_000), event), Nanos(500));
    assert_eq!(without(Nanos(90_000), event), Nanos(90_000) - event);
    assert_eq!(
        [0, 1, 2, 5].map(|time| without(Nanos(time), event)),
        [0, 1, 1, 2].map(Nanos)
    );
}

#[test]
fn nothing_is_added_and_nothing_guessed() {
    let whole = step(&mixed(), Nanos(0));
    assert_eq!(cost(&mixed(), whole.0), Nanos(0));
    assert_eq!(cost(&mixed(), whole.0 + 5_000), Nanos(0));
    let mut unknown = events(&mixed(), whole);
    unknown.without.clear();
    assert_eq!((unknown.cost(|_| Nanos(9)), unknown.pace()), (Nanos(0), None));
    assert_eq!(Events::default().cost(|_| Nanos(9)), Nanos(0));
}

/// Of several streams the one that computes longest says what an event costs, and exchanges
/// between rows, which have no time of their own in a table, give what all do.
#[test]
fn the_longest_stream_decides() {
    let pieces: Pieces<'_> = &[(call(0), 50_000, 1), (call(1), 50_000, 3)];
    let mut several = events(pieces, step(pieces, Nanos(0)) - Nanos(4_000));
    let short = Load { calls: Nanos(10), pieces: [(call(0), STEPS * 400)].into() };
    several.streams.insert(lane(1), short);
    let exchange = |piece| match piece {
        Piece::Call(_, 1) => Nanos::NEVER,
        Piece::Call(..) | Piece::Launch => Nanos(1_000),
    };
    assert_eq!(several.cost(|piece| time(pieces, piece)), Nanos(1_000));
    assert_eq!(several.cost(exchange), Nanos((4_000 - 750) / 3));
}
