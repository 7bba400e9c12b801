//! Who is to be woken next: times per device, and a tree whose nodes know the earliest below them.
//! Devices have few times each and are many, so this is less work than one heap of all times.

use roundelay_schedule::Nanos;

/// A device is woken at no time of this length.
const NEVER: Nanos = Nanos(u64::MAX);

/// When devices are to be woken.
pub(super) struct Alarms {
    /// The times of each device, in any order.
    times: Vec<Vec<Nanos>>,
    /// The earliest time below each node; the root is node 1, the children of node i are 2i and
    /// 2i + 1, and the leaves, one per device, are the second half.
    earliest: Vec<Nanos>,
}

impl Alarms {
    /// No times yet.
    pub(super) fn new(devices: usize) -> Self {
        let leaves = devices.next_power_of_two();
        Self { times: vec![Vec::new(); devices], earliest: vec![NEVER; 2 * leaves] }
    }

    /// Wakes a device then, too.
    pub(super) fn set(&mut self, device: usize, time: Nanos) {
        self.times[device].push(time);
        let mut node = self.earliest.len() / 2 + device;
        while node > 0 && time < self.earliest[node] {
            self.earliest[node] = time;
            node /= 2;
        }
    }

    /// The earliest time, and the first device that is woken then; it is not woken at that time again
    /// unless that is set anew.
    pub(super) fn next(&mut self) -> Option<(Nanos, usize)> {
        let time = self.earliest[1];
        if time == NEVER {
            return None;
        }
        let leaves = self.earliest.len() / 2;
        let mut node = 1;
        while node < leaves {
            node = 2 * node + usize::from(self.earliest[2 * node] != time);
        }
        let device = node - leaves;
        self.times[device].retain(|own| *own != time);
        self.earliest[node] = self.times[device].iter().copied().min().unwrap_or(NEVER);
        while node > 1 {
            node /= 2;
            self.earliest[node] =
                self.earliest[2 * node].min(self.earliest[2 * node + 1]);
        }
        Some((time, device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Random;
    use std::collections::BTreeSet;

    #[test]
    fn devices_are_woken_in_the_order_of_time() {
        let mut random = Random::new(13);
        for devices in [1, 2, 3, 8, 21] {
            let mut alarms = Alarms::new(devices);
            let mut all = BTreeSet::new();
            for _ in 0..2000 {
                if random.below(2) == 0 {
                    let (time, device) =
                        (Nanos(random.below(50)), random.below(devices as u64));
                    alarms.set(device as usize, time);
                    all.insert((time, device as usize));
                } else {
                    assert_eq!(alarms.next(), all.pop_first());
                }
            }
        }
    }
}
