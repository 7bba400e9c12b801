//! What ranks make of what each of them has: whether all go on, losses, the state, counts.

use super::{control::Control, seated::Owners, trouble::Trouble};
use crate::{
    machine::{Loss, Measured, Touched},
    state::{State, rows},
};
use roundelay_schedule::{DeviceId, Kind, Schedule};
use std::collections::BTreeMap;

/// Bytes of a loss.
const LOSS: usize = 24;

/// What a rank has used of one kind of memory of a device.
type Used = (DeviceId, Kind, Touched);

fn loss(bytes: &[u8; LOSS]) -> Loss {
    let (words, _) = bytes.as_chunks::<8>();
    let [step, micro_batch, loss] = [0, 1, 2].map(|word| u64::from_le_bytes(words[word]));
    Loss { step, micro_batch, loss: f64::from_bits(loss) }
}

impl Control {
    /// Whether all ranks want to go on; hands on the losses that each of them brings.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn go_on(
        &self,
        goes_on: bool,
        losses: impl Iterator<Item = Loss>,
        listener: &mut dyn FnMut(Loss),
    ) -> Result<bool, Trouble> {
        let mut own = vec![u8::from(goes_on)];
        for Loss { step, micro_batch, loss } in losses {
            for word in [step, micro_batch, loss.to_bits()] {
                own.extend(word.to_le_bytes());
            }
        }
        let all = self.gather(own)?;
        let told = all.iter().filter_map(|own| own.get(1..));
        told.flat_map(|own| own.as_chunks::<LOSS>().0.iter().map(loss))
            .for_each(listener);
        Ok(all.iter().all(|own| own.first() != Some(&0)))
    }

    /// The state before a step, on the first rank. Every rank brings the rows of its device in the
    /// order of [`rows::reads`], in which the whole is put together from them.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn whole_state(
        &self,
        (schedule, owners): (&Schedule, &Owners),
        (step, origin): (u64, u64),
        own: Vec<u8>,
    ) -> Result<Option<State>, Trouble> {
        let Some(all) = self.collect(own)? else { return Ok(None) };
        let mut next = vec![0; all.len()];
        let from_all = |device: DeviceId, _, bytes: &mut [u8]| {
            let owner = owners.rank(device) as usize;
            let range = next[owner]..next[owner] + bytes.len();
            next[owner] = range.end;
            match all[owner].get(range) {
                Some(theirs) => bytes.copy_from_slice(theirs),
                None => {
                    let said = format!("rank {owner} sent too little of its state");
                    return Err(self.fail(&said));
                }
            }
            Ok(())
        };
        rows::save(schedule, step, origin, from_all).map(Some)
    }

    /// What all ranks counted, on the first one; on others what they counted themselves.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn sum_up(&self, own: Measured) -> Result<Measured, Trouble> {
        let all = self.collect_as(&own)?;
        Ok(all
            .map_or(own, |all| all.into_iter().fold(Measured::default(), Measured::with)))
    }

    /// What all ranks used, on the first one; on others what they used themselves.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub(crate) fn all_touched(
        &self,
        own: &BTreeMap<(DeviceId, Kind), Touched>,
    ) -> Result<BTreeMap<(DeviceId, Kind), Touched>, Trouble> {
        let told: Vec<Used> =
            own.iter().map(|((device, kind), used)| (*device, *kind, *used)).collect();
        let all = self.collect_as(&told)?.unwrap_or_else(|| vec![told]);
        let used = all.into_iter().flatten();
        Ok(used.map(|(device, kind, used)| ((device, kind), used)).collect())
    }
}
