//! What messages take of the room of devices: the slots in which they come and wait for the passes that
//! read them.

use super::pipe::{
    Account, Half, Limited, Passes, Pipe, Received, Rooms, StageHalves, kind,
};
use roundelay_schedule::{Bytes, Nanos};

impl Limited {
    /// What each device may keep under any order: its slots of messages take some of its room.
    pub(crate) fn rooms_to_keep(&self) -> Rooms {
        match &self.rooms {
            Rooms::Live(each) => Rooms::Live(each.clone()),
            Rooms::Slots(each) => {
                let kept = |(device, room): (usize, &Bytes)| {
                    *room - self.pipe.least_received(device)
                };
                Rooms::Slots(each.iter().enumerate().map(kept).collect())
            }
        }
    }
}

impl Pipe {
    /// What the slots of messages take beyond what a device keeps, if one is there while the next is on
    /// its way.
    fn least_received(&self, device: usize) -> Bytes {
        let StageHalves { values, gradients, .. } = &self.stages[device];
        let of = |(from, received): (Half, &Received)| -> Bytes {
            let slots = |until| if kind(from, until).is_some() { 1 } else { 2 };
            let each = Half::ALL.into_iter().zip(received);
            each.map(|(until, size)| *size * slots(until)).sum()
        };
        let before = (device > 0).then_some((Half::Forward, values));
        let behind = (device + 1 < self.devices()).then_some((Half::Input, gradients));
        before.into_iter().chain(behind).map(of).sum()
    }

    /// When the passes of each kind start on each device in list order: that in which a lowered
    /// schedule has them, where each takes as long as any other.
    pub(super) fn starts(&self, passes: &Passes) -> Vec<[Vec<Nanos>; 3]> {
        let beat = StageHalves {
            forward: Nanos(1),
            input: Nanos(1),
            weight: Nanos(1),
            ..StageHalves::default()
        };
        let stages = vec![beat; self.devices()];
        let beats = Self { stages, micro_batches: self.micro_batches };
        let mut starts = vec![[const { Vec::new() }; 3]; self.devices()];
        beats.play(passes, |device, half, end| {
            starts[device][half as usize].push(end - Nanos(1));
        });
        starts
    }

    /// What the slots of messages take beyond what a device keeps anyway; one message is on its
    /// way while a pass reads the one before.
    pub(super) fn received(
        &self,
        starts: &[[Vec<Nanos>; 3]],
        device: usize,
        account: &Account,
    ) -> Bytes {
        let StageHalves { values, gradients, .. } = &self.stages[device];
        let slots = |from: Half, sender: Option<usize>, received: &Received| {
            let Some(sent) = sender.and_then(|sender| starts.get(sender)) else {
                return Bytes(0);
            };
            let of = |(until, size): (Half, &Bytes)| {
                let there =
                    most_there(&sent[from as usize], &starts[device][until as usize]);
                let kept = kind(from, until).map_or(0, |kind| account.most[kind]);
                *size * (there + 1).saturating_sub(kept) as u64
            };
            let some = Half::ALL.into_iter().zip(received).filter(|(_, size)| size.0 > 0);
            some.map(of).sum()
        };
        slots(Half::Forward, device.checked_sub(1), values)
            + slots(Half::Input, Some(device + 1), gradients)
    }
}

/// The most messages that are there at a time, from the start of the pass that sends each to that
/// of the last one that reads it. Of passes that start together the latter comes first in a lowered
/// schedule.
fn most_there(sent: &[Nanos], read: &[Nanos]) -> usize {
    let mut gone = 0;
    let each = sent.iter().enumerate().map(|(number, sent)| {
        gone += read[gone..].iter().take_while(|read| *read <= sent).count();
        number + 1 - gone
    });
    each.max().unwrap_or(0)
}
