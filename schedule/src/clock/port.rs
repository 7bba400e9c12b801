//! A device's port to its links: one message at a time, whichever is ready first.

use super::Busy;
use crate::{DeviceId, Nanos, Table};

/// When a port is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    /// In ascending order and apart from each other. Messages come about in the order of time,
    /// so that new ones stand at the end or close to it.
    taken: Vec<Busy>,
}

impl Port {
    /// How many spans at the front are `early`; those behind them are not.
    fn front(&self, early: impl Fn(&Busy) -> bool) -> usize {
        match self.taken.last() {
            Some(last) if !early(last) => self.taken.partition_point(early),
            Some(_) | None => self.taken.len(),
        }
    }

    /// The first moment from `ready` on at which the port is free for `time`; even what takes no
    /// time does not start where a span does.
    fn free(&self, ready: Nanos, time: Nanos) -> Nanos {
        let over = self.front(|taken| taken.end <= ready);
        let mut start = ready;
        for taken in &self.taken[over..] {
            if start < taken.start && start + time <= taken.start {
                break;
            }
            start = taken.end;
        }
        start
    }

    /// Takes a stretch that is free.
    fn take(&mut self, busy: Busy) {
        let Busy { start, end } = busy;
        if start == end {
            return;
        }
        let place = self.front(|taken| taken.start < start);
        let (before, after) = self.taken.split_at_mut(place);
        let before = before.last_mut().filter(|before| before.end == start);
        let after = after.first_mut().filter(|after| after.start == end);
        match (before, after) {
            (Some(before), Some(after)) => {
                before.end = after.end;
                self.taken.remove(place);
            }
            (Some(before), None) => before.end = end,
            (None, Some(after)) => after.start = start,
            (None, None) => self.taken.insert(place, busy),
        }
    }
}

/// The ports of all devices.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    outgoing: Table<DeviceId, Port>,
    incoming: Table<DeviceId, Port>,
}

impl Ports {
    /// Free ports of some devices.
    pub(super) fn new(devices: usize) -> Self {
        let free = || (0..devices).map(|_| Port::default()).collect();
        Self { outgoing: free(), incoming: free() }
    }

    /// Takes all ports of a message at the first moment at which all are free; says when.
    pub(super) fn take(
        &mut self,
        senders: &[DeviceId],
        receivers: &[DeviceId],
        ready: Nanos,
        time: Nanos,
    ) -> Busy {
        let outgoing = senders.iter().map(|device| &self.outgoing[*device]);
        let incoming = receivers.iter().map(|device| &self.incoming[*device]);
        let all = senders.len() + receivers.len();
        let (mut start, mut agreed) = (ready, 0);
        for port in outgoing.chain(incoming).cycle() {
            let free = port.free(start, time);
            agreed = if free == start { agreed + 1 } else { 1 };
            start = free;
            if agreed == all {
                break;
            }
        }
        let busy = Busy::new(start, time);
        senders.iter().for_each(|device| self.outgoing[*device].take(busy));
        receivers.iter().for_each(|device| self.incoming[*device].take(busy));
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Id;

    #[test]
    fn a_message_takes_the_first_gap_that_all_its_ports_have() {
        let mut ports = Ports::new(2);
        let [one, other] = [0, 1].map(DeviceId::new);
        let mut take = |senders: &[DeviceId], receivers: &[DeviceId], ready, time| {
            ports.take(senders, receivers, Nanos(ready), Nanos(time)).start.0
        };
        assert_eq!(take(&[one], &[], 10, 5), 10);
        assert_eq!(take(&[], &[other], 2, 4), 2);
        assert_eq!(take(&[one], &[other], 0, 2), 0);
        assert_eq!(take(&[one], &[other], 1, 4), 6);
        assert_eq!(take(&[one], &[], 3, 4), 15);
        assert_eq!(take(&[one], &[], 2, 4), 2);
        assert_eq!(ports.outgoing[one].taken, [Busy::new(Nanos(0), Nanos(19))]);
    }

    #[test]
    fn nothing_takes_no_time_and_no_port() {
        let mut ports = Ports::new(1);
        let device = DeviceId::new(0);
        let busy = ports.take(&[device], &[device], Nanos(3), Nanos(0));
        assert_eq!(busy, Busy::new(Nanos(3), Nanos(0)));
        assert!(ports.outgoing[device].taken.is_empty());
    }

    /// A linear congruential generator (Knuth's MMIX constants).
    fn below(state: &mut u64, end: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005);
        *state = state.wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % end
    }

    /// Spans as they were taken, one list a port, in no order.
    type Spans = [Vec<(u64, u64)>; 6];

    /// The start of a message, by the definition: the first moment from `ready` on that lies in
    /// no span of its ports, and from which on no span begins before the message ends.
    fn defined(spans: &Spans, ports: &[usize], (ready, time): (u64, u64)) -> u64 {
        let held: Vec<(u64, u64)> =
            ports.iter().flat_map(|port| &spans[*port]).copied().collect();
        let fits = |start: &u64| {
            let apart = |&(taken, end): &(u64, u64)| {
                *start >= end || (*start < taken && start + time <= taken)
            };
            held.iter().all(apart)
        };
        (ready..).find(fits).expect("all spans end")
    }

    #[test]
    fn messages_start_when_the_definition_says() {
        let mut state = 5;
        for case in 0..300 {
            let (mut ports, mut spans) = (Ports::new(3), Spans::default());
            for message in 0..40 {
                let own = |first: usize, state: &mut u64| -> Vec<usize> {
                    match below(state, 4) {
                        3 => (first..first + 3).collect(),
                        one => vec![first + one as usize],
                    }
                };
                let (senders, receivers) = (own(0, &mut state), own(3, &mut state));
                let ready = message / 2 + below(&mut state, 30);
                let time = below(&mut state, 6);
                let all = [senders.as_slice(), receivers.as_slice()].concat();
                let start = defined(&spans, &all, (ready, time));
                let ids = |ports: &[usize]| -> Vec<DeviceId> {
                    ports.iter().map(|port| DeviceId::new(port % 3)).collect()
                };
                let (senders, receivers) = (ids(&senders), ids(&receivers));
                let found = ports.take(&senders, &receivers, Nanos(ready), Nanos(time));
                assert_eq!(found.start, Nanos(start), "case {case}, message {message}");
                for port in all.into_iter().filter(|_| time > 0) {
                    spans[port].push((start, start + time));
                }
            }
        }
    }
}
