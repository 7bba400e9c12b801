//! Exchanges that go on beside the calls that follow: when each must be done, and what calls take
//! together then.
//!
//! Calls are made one after another. An exchange that goes on begins in its turn and is carried by
//! its link, one exchange after another; it must be done before the first later call that touches
//! what it makes or writes what it brings, and before the routine ends.

use crate::{Access, Meanwhile, Nanos};
use std::{collections::BTreeMap, ops::Range};

/// A call as exchanges beside it see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touching {
    /// The argument, its bytes, and what is done with them, for each operand.
    pub operands: Vec<(u32, Range<u64>, Access)>,
    /// What is done until it is done, if it is an exchange.
    pub exchange: Option<Meanwhile>,
}

/// What a call is to the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It keeps the device busy.
    Computes,
    /// It keeps a link busy, and perhaps the device.
    Exchanges {
        /// What the device does.
        meanwhile: Meanwhile,
        /// The number of the link.
        link: usize,
    },
}

impl Touching {
    fn goes_on(&self) -> bool {
        self.exchange == Some(Meanwhile::GoesOn)
    }

    /// Whether this call cannot begin before an exchange is done.
    fn needs(&self, exchange: &Self) -> bool {
        let meets = |(argument, bytes, access): &(u32, Range<u64>, Access)| {
            exchange.operands.iter().any(|(own, moved, made)| {
                let overlap = bytes.start < moved.end && moved.start < bytes.end;
                let reads = [*access, *made] == [Access::Read; 2];
                own == argument && overlap && !reads
            })
        };
        self.operands.iter().any(meets)
    }
}

/// Which of the exchanges that go on, counted in their order, must be done before each call begins,
/// and before the routine ends; each is named once.
pub fn needed_by(calls: &[Touching]) -> Vec<Vec<usize>> {
    let mut open: Vec<(usize, &Touching)> = Vec::new();
    let mut begun = 0;
    let mut needed = Vec::with_capacity(calls.len() + 1);
    for call in calls {
        let is_needed = |(_, exchange): &mut (usize, &Touching)| call.needs(exchange);
        let own = open.extract_if(.., is_needed).map(|(number, _)| number);
        needed.push(own.collect());
        if call.goes_on() {
            open.push((begun, call));
            begun += 1;
        }
    }
    needed.push(open.into_iter().map(|(number, _)| number).collect());
    needed
}

/// How many of the exchanges that go on are done before each call, for whoever ends them in the order
/// in which they begin: all up to the last one that is needed.
pub fn in_turn(needed: &[Vec<usize>]) -> Vec<usize> {
    let mut done = 0;
    let count = |own: &Vec<usize>| {
        done = own.iter().map(|number| number + 1).fold(done, usize::max);
        done
    };
    needed.iter().map(count).collect()
}

/// The most exchanges that have begun and are not done at one time, where this many are done before each
/// call.
pub fn most_open(calls: &[Touching], done: &[usize]) -> usize {
    let mut begun = 0;
    let mut most = 0;
    for (call, done) in calls.iter().zip(done) {
        begun += usize::from(call.goes_on());
        most = most.max(begun - done);
    }
    most
}

/// The time of calls, where these of the exchanges that go on are done before each begins
/// ([`needed_by`]).
///
/// Law: with C the calls that compute, W the exchanges that are waited for and G those that go on over
/// the busiest link, ΣW + ΣC ≤ time, ΣG ≤ time, and no time is longer than the sum of all calls,
/// which it is where none goes on.
pub fn time_beside(
    calls: impl IntoIterator<Item = (Nanos, Doing)>,
    needed: &[Vec<usize>],
) -> Nanos {
    let mut device = Nanos(0);
    let mut links: BTreeMap<usize, Nanos> = BTreeMap::new();
    let mut ends = Vec::new();
    let mut all = needed.iter();
    let done = |now: Nanos, needed: &[usize], ends: &[Nanos]| {
        needed.iter().map(|number| ends[*number]).fold(now, Nanos::max)
    };
    for ((time, doing), needed) in calls.into_iter().zip(&mut all) {
        device = done(device, needed, &ends);
        match doing {
            Doing::Computes => device += time,
            Doing::Exchanges { meanwhile, link } => {
                let link = links.entry(link).or_default();
                *link = device.max(*link) + time;
                match meanwhile {
                    Meanwhile::Waits => device = *link,
                    Meanwhile::GoesOn => ends.push(*link),
                }
            }
        }
    }
    all.fold(device, |device, needed| done(device, needed, &ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A call, the link that it takes if it is an exchange, and its time.
    type Timed = (Touching, usize, u64);

    /// A call that reads one cell of memory and writes another.
    fn call(read: u64, write: u64, exchange: Option<Meanwhile>) -> Touching {
        let cell = |cell: u64, access| (0, cell * 8..cell * 8 + 8, access);
        let operands = vec![cell(read, Access::Read), cell(write, Access::Write)];
        Touching { operands, exchange }
    }

    fn touching(calls: &[Timed]) -> Vec<Touching> {
        calls.iter().map(|(call, ..)| call.clone()).collect()
    }

    fn time(calls: &[Timed]) -> u64 {
        let times = calls.iter().map(|(call, link, time)| {
            let exchange = |meanwhile| Doing::Exchanges { meanwhile, link: *link };
            (Nanos(*time), call.exchange.map_or(Doing::Computes, exchange))
        });
        time_beside(times, &needed_by(&touching(calls))).0
    }

    /// What the device and the links do, nanosecond by nanosecond: the plain form of the law.
    fn simulated(calls: &[Timed]) -> u64 {
        let mut left: Vec<u64> = calls.iter().map(|(_, _, time)| *time).collect();
        let mut lines: [VecDeque<usize>; 2] = Default::default();
        let (mut next, mut now) = (0, 0);
        loop {
            for line in &mut lines {
                while line.front().is_some_and(|first| left[*first] == 0) {
                    line.pop_front();
                }
            }
            let mut works = false;
            if let Some((call, link, _)) = calls.get(next) {
                let mut open = lines.iter().flatten();
                let blocked = open.any(|open| call.needs(&calls[*open].0));
                let waits = call.exchange == Some(Meanwhile::Waits);
                if !blocked && call.goes_on() {
                    lines[*link].push_back(next);
                    next += 1;
                    continue;
                }
                works = !blocked && (!waits || lines[*link].is_empty());
                if works && left[next] == 0 {
                    next += 1;
                    continue;
                }
            } else if lines.iter().all(VecDeque::is_empty) {
                return now;
            }
            if works {
                left[next] -= 1;
            }
            for line in &lines {
                if let Some(first) = line.front() {
                    left[*first] -= 1;
                }
            }
            now += 1;
        }
    }

    /// Layers of two halves in turn: each computes, then exchanges what the next layer reads.
    fn halves(layers: u64, compute: u64, exchange: u64) -> Vec<Timed> {
        let go = Some(Meanwhile::GoesOn);
        let layer = |layer: u64| {
            (0..2).flat_map(move |half| {
                let cell = |number: u64| number * 2 + half;
                let (read, made) = (cell(2 * layer), cell(2 * layer + 1));
                let after = cell(2 * layer + 2);
                [
                    (call(read, made, None), 0, compute),
                    (call(made, after, go), 0, exchange),
                ]
            })
        };
        (0..layers).flat_map(layer).collect()
    }

    #[test]
    fn two_halves_take_the_longer_of_both_and_what_nothing_hides() {
        // The first half computes alone, and the last exchange is hidden by nothing.
        for (compute, exchange) in [(5, 3), (5, 5), (3, 5), (7, 1)] {
            for layers in 1..6 {
                let longer = compute.max(exchange);
                let expected = compute + (2 * layers - 1) * longer + exchange;
                assert_eq!(time(&halves(layers, compute, exchange)), expected);
            }
        }
    }

    #[test]
    fn what_is_waited_for_hides_nothing() {
        let mut calls = halves(4, 5, 3);
        for (call, ..) in &mut calls {
            call.exchange = call.exchange.map(|_| Meanwhile::Waits);
        }
        assert_eq!(time(&calls), 4 * 2 * (5 + 3));
    }

    #[test]
    fn an_exchange_is_done_before_what_it_brings_is_written_again() {
        let go = Some(Meanwhile::GoesOn);
        let calls = [call(0, 1, None), call(1, 2, go), call(3, 1, None)];
        assert_eq!(needed_by(&calls), [vec![], vec![], vec![0], vec![]]);
        let apart = [call(0, 1, None), call(1, 2, go), call(1, 3, None)];
        assert_eq!(needed_by(&apart), [vec![], vec![], vec![], vec![0]]);
        assert_eq!(most_open(&apart, &in_turn(&needed_by(&apart))), 1);
    }

    /// Who ends exchanges in their order ends the first one with the second.
    #[test]
    fn in_turn_all_are_done_up_to_the_last_that_is_needed() {
        let go = Some(Meanwhile::GoesOn);
        let calls = [call(0, 1, go), call(2, 3, go), call(3, 4, None), call(1, 5, None)];
        let needed = needed_by(&calls);
        assert_eq!(needed, [vec![], vec![], vec![1], vec![0], vec![]]);
        assert_eq!(in_turn(&needed), [0, 0, 2, 2, 2]);
        assert_eq!(most_open(&calls, &in_turn(&needed)), 2);
    }

    prop_compose! {
        fn any_call()(
            read in 0..6u64, step in 1..6u64, kind in 0..5u8, link in 0..2usize, time in 0..9u64
        ) -> Timed {
            let exchange = match kind {
                0..2 => None,
                2 => Some(Meanwhile::Waits),
                _ => Some(Meanwhile::GoesOn),
            };
            (call(read, (read + step) % 6, exchange), link, time)
        }
    }

    proptest! {
        #[test]
        fn the_law_is_what_the_plain_simulation_says(
            calls in proptest::collection::vec(any_call(), 0..24)
        ) {
            let time = time(&calls);
            prop_assert_eq!(time, simulated(&calls));
            let sum = |counts: &dyn Fn(&Timed) -> bool| -> u64 {
                calls.iter().filter(|call| counts(call)).map(|(_, _, time)| time).sum()
            };
            prop_assert!(sum(&|(call, ..)| !call.goes_on()) <= time);
            for own in 0..2 {
                prop_assert!(
                    sum(&|(call, link, _)| call.exchange.is_some() && *link == own) <= time
                );
            }
            prop_assert!(time <= sum(&|_| true));
        }
    }
}
