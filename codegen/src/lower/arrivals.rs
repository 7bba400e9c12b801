//! The order in which a device of a pipeline gets its messages: that in which it needs them. A
//! device takes its arrivals one after another, so a message that comes early never stands in
//! the way of one that is needed before.

use super::draft::{Draft, DraftWork, Key};
use roundelay_schedule::Place;
use std::collections::BTreeMap;

/// A message of a pipeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Its place among the draft's actions.
    pub(crate) action: usize,
    /// The slot that needs it.
    pub(crate) needed: u32,
}

/// Puts each message behind the one that its device needs before. All stay above the slots that
/// need them: those are in the same order.
pub(crate) fn order(draft: &mut Draft<'_>) {
    let mut devices: BTreeMap<Place, Vec<Arrival>> = BTreeMap::new();
    for arrival in &draft.arrivals {
        if let DraftWork::Transfer { to, .. } = &draft.actions[arrival.action].work {
            devices.entry(to.0).or_default().push(*arrival);
        }
    }
    for arrivals in devices.values_mut() {
        arrivals.sort_by_key(|arrival| (arrival.needed, arrival.action));
        let mut last: Option<Key> = None;
        for arrival in arrivals {
            let key = &mut draft.actions[arrival.action].key;
            if let Some(last) = last.filter(|last| *last > *key) {
                *key = last.behind();
            }
            last = Some(*key);
        }
    }
}
