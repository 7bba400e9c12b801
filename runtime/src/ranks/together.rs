//! What ranks make of what each of them has: whether all go on, losses, the state, counts.

use super::{seated::Among, trouble::Ended};
use crate::{
    machine::{Loss, Measured, Touched},
    state::{
        Extent, Moment,
        gather::{self, Taker, Wanted},
    },
};
use roundelay_schedule::{DeviceId, Kind, Schedule};
use std::{collections::BTreeMap, iter, ops::ControlFlow};

/// Bytes of a loss.
const LOSS: usize = 24;

/// What a rank has used of one kind of memory of a device.
type Used = (DeviceId, Kind, Touched);

fn loss(bytes: &[u8; LOSS]) -> Loss {
    let (words, _) = bytes.as_chunks::<8>();
    let [step, micro_batch, loss] = [0, 1, 2].map(|word| u64::from_le_bytes(words[word]));
    Loss { step, micro_batch, loss: f64::from_bits(loss) }
}

impl Among {
    /// Whether all ranks want to go on; hands on the losses that each of them brings.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn go_on(
        &self,
        goes_on: bool,
        losses: impl Iterator<Item = Loss>,
        listener: &mut dyn FnMut(Loss),
    ) -> Result<bool, Ended> {
        let mut own = vec![u8::from(goes_on)];
        for Loss { step, micro_batch, loss } in losses {
            for word in [step, micro_batch, loss.to_bits()] {
                own.extend(word.to_le_bytes());
            }
        }
        let all = self.gather(own)?;
        let told = all.iter().filter_map(|own| own.get(1..));
        let told = told.flat_map(|own| own.as_chunks::<LOSS>().0.iter().map(loss));
        self.control.telling(|| told.for_each(listener));
        Ok(all.iter().all(|own| own.first() != Some(&0)))
    }

    /// Whether some rank wishes something; losses that a rank has yet to tell stay with it.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn any(&self, wish: bool) -> Result<bool, Ended> {
        self.go_on(!wish, iter::empty(), &mut |_| {}).map(|none| !none)
    }

    /// All ranks are done.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn leave(&self) -> Result<(), Ended> {
        self.gather(Vec::new()).map(drop)
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Ended> {
        self.control.gather(own).map_err(|trouble| self.control.ended(trouble))
    }

    /// Hands so much of the state at a moment over on the first rank, until the taker wants no more. Every
    /// rank reads what its device has through `read(device, first byte, bytes)`; there is one round of
    /// arrays at a time as it was sent, and one array as it is put together.
    ///
    /// # Errors
    /// When a row cannot be read, or something goes wrong on one of them.
    pub(crate) fn save<E: From<Ended>>(
        &self,
        schedule: &Schedule,
        (moment, extent): (Moment, Extent),
        mut read: impl FnMut(DeviceId, u64, &mut [u8]) -> Result<(), E>,
        take: &mut Taker<'_>,
    ) -> Result<(), E> {
        let arrays = gather::wanted(schedule, moment, extent);
        let mut flow = ControlFlow::Continue(());
        for round in gather::rounds(&arrays) {
            // No rank sends ahead of what the first one has put together, nor what it takes no more.
            if self.any(flow.is_break())? {
                break;
            }
            let all = self.control.collect(self.own(round, &mut read)?);
            if let Some(all) = all.map_err(|trouble| self.control.ended(trouble))? {
                flow = self.take(round, &all, take)?;
            }
        }
        Ok(())
    }

    /// What the device of this rank has of a round.
    fn own<E>(
        &self,
        round: &[Wanted<'_>],
        read: &mut impl FnMut(DeviceId, u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let reads = round.iter().flat_map(Wanted::reads);
        let reads = reads.filter(|(device, ..)| *device == self.seated.device);
        let mut own = vec![0; reads.clone().map(|(.., length)| length).sum()];
        let mut rest = &mut own[..];
        for (device, start, length) in reads {
            let (bytes, behind) = rest.split_at_mut(length);
            read(device, start, bytes)?;
            rest = behind;
        }
        Ok(own)
    }

    /// Takes in what all ranks sent of a round, each of them in the order of [`Wanted::reads`].
    fn take(
        &self,
        round: &[Wanted<'_>],
        all: &[Vec<u8>],
        take: &mut Taker<'_>,
    ) -> Result<ControlFlow<()>, Ended> {
        let Self { control, owners, .. } = self;
        let mut next = vec![0; all.len()];
        for array in round {
            let numbers = array.read(|device, _, bytes| {
                let owner = owners.rank(device) as usize;
                let range = next[owner]..next[owner] + bytes.len();
                next[owner] = range.end;
                match all[owner].get(range) {
                    Some(theirs) => bytes.copy_from_slice(theirs),
                    None => {
                        let said = format!("rank {owner} sent too little of its state");
                        return Err(control.ended(control.fail(&said)));
                    }
                }
                Ok(())
            })?;
            if take(array, numbers).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What all ranks counted, on the first one; on others what they counted themselves.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn sum_up(&self, own: Measured) -> Result<Measured, Ended> {
        let all = self.control.collect_as(&own);
        let all = all.map_err(|trouble| self.control.ended(trouble))?;
        Ok(all
            .map_or(own, |all| all.into_iter().fold(Measured::default(), Measured::with)))
    }

    /// What all ranks used, on the first one; on others what they used themselves.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn touched(
        &self,
        own: &BTreeMap<(DeviceId, Kind), Touched>,
    ) -> Result<BTreeMap<(DeviceId, Kind), Touched>, Ended> {
        let told: Vec<Used> =
            own.iter().map(|((device, kind), used)| (*device, *kind, *used)).collect();
        let all = self.control.collect_as(&told);
        let all = all.map_err(|trouble| self.control.ended(trouble))?;
        let used = all.unwrap_or_else(|| vec![told]).into_iter().flatten();
        Ok(used.map(|(device, kind, used)| ((device, kind), used)).collect())
    }
}
