//! A device's port to its links: one message at a time, whichever is ready first.

use crate::{DeviceId, Nanos, Table};
use std::collections::BTreeMap;

/// When a port is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    /// Ends by starts, apart from each other.
    taken: BTreeMap<Nanos, Nanos>,
}

impl Port {
    /// The first moment from `ready` on at which the port is free for `time`.
    fn free(&self, ready: Nanos, time: Nanos) -> Nanos {
        let before = self.taken.range(..=ready).next_back();
        let mut start = before.map_or(ready, |(_, end)| ready.max(*end));
        for (taken, end) in self.taken.range(start..) {
            if start + time <= *taken {
                break;
            }
            start = *end;
        }
        start
    }

    /// Takes a span that is free.
    fn take(&mut self, start: Nanos, end: Nanos) {
        if start == end {
            return;
        }
        let end = self.taken.remove(&end).unwrap_or(end);
        let before = self.taken.range(..start).next_back();
        let start = before.filter(|(_, last)| **last == start).map_or(start, |(s, _)| *s);
        self.taken.insert(start, end);
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

    /// Takes all ports of a message at the first moment at which all are free; gives its start.
    pub(super) fn take(
        &mut self,
        senders: &[DeviceId],
        receivers: &[DeviceId],
        ready: Nanos,
        time: Nanos,
    ) -> Nanos {
        let mut start = ready;
        loop {
            let free = |ports: &Table<DeviceId, Port>, devices: &[DeviceId], start| {
                let free = |start, device: &DeviceId| ports[*device].free(start, time);
                devices.iter().fold(start, free)
            };
            let later = free(&self.outgoing, senders, start);
            let later = free(&self.incoming, receivers, later);
            if later == start {
                break;
            }
            start = later;
        }
        let end = start + time;
        senders.iter().for_each(|device| self.outgoing[*device].take(start, end));
        receivers.iter().for_each(|device| self.incoming[*device].take(start, end));
        start
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
            ports.take(senders, receivers, Nanos(ready), Nanos(time)).0
        };
        assert_eq!(take(&[one], &[], 10, 5), 10);
        assert_eq!(take(&[], &[other], 2, 4), 2);
        assert_eq!(take(&[one], &[other], 0, 2), 0);
        assert_eq!(take(&[one], &[other], 1, 4), 6);
        assert_eq!(take(&[one], &[], 3, 4), 15);
        assert_eq!(take(&[one], &[], 2, 4), 2);
        let taken = [(0, 19)].map(|(start, end)| (Nanos(start), Nanos(end)));
        assert_eq!(ports.outgoing[one].taken, BTreeMap::from(taken));
    }

    #[test]
    fn nothing_takes_no_time_and_no_port() {
        let mut ports = Ports::new(1);
        let device = DeviceId::new(0);
        assert_eq!(ports.take(&[device], &[device], Nanos(3), Nanos(0)), Nanos(3));
        assert!(ports.outgoing[device].taken.is_empty());
    }
}
