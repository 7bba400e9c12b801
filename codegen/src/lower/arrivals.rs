//! The order in which a device of a pipeline gets its messages: that in which it needs them. A
//! device takes its arrivals one after another, so a message that comes early never stands in
//! the way of one that is needed before.

use super::draft::{DraftAction, Key};
use roundelay_schedule::{Place, Ring, RingId, Table};

/// A message of a pipeline.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Its place among the draft's actions.
    action: usize,
    /// The slot that needs it.
    needed: u32,
}

/// The messages of a pipeline that come as soon as they can, by the place that takes them.
pub(crate) struct Arrivals(Table<RingId, Vec<Vec<Arrival>>>);

impl Arrivals {
    /// None yet.
    pub(crate) fn new(rings: &Table<RingId, Ring>) -> Self {
        let places = |ring: &Ring| vec![Vec::new(); ring.devices.len()];
        Self(rings.values().map(places).collect())
    }

    /// Takes the next action of the draft, which a slot needs.
    pub(crate) fn push(&mut self, at: Place, action: usize, needed: u32) {
        self.0[at.ring][at.place as usize].push(Arrival { action, needed });
    }

    /// Puts each message behind the one that its device needs before. All stay above the slots that
    /// need them: those are in the same order.
    pub(crate) fn order(&mut self, actions: &mut [DraftAction]) {
        for (_, places) in self.0.iter_mut() {
            for mut arrivals in places.drain(..) {
                arrivals.sort_by_key(|arrival| (arrival.needed, arrival.action));
                let mut last: Option<Key> = None;
                for arrival in arrivals {
                    let key = &mut actions[arrival.action].key;
                    if let Some(last) = last.filter(|last| *last > *key) {
                        *key = last.right_behind();
                    }
                    last = Some(*key);
                }
            }
        }
    }
}
