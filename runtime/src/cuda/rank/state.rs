//! What ranks tell each other at the bounds of periods and at rest: losses, wishes, states, counts.

use super::{
    super::{CudaError, Engine},
    Rank, Share,
};
use crate::{
    machine::{Loss, Measured, Touched},
    ranks::{Position, Trouble},
    state::{State, rows},
};
use roundelay_schedule::{DeviceId, Kind};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of a loss.
const LOSS: usize = 24;

/// What a rank has used of one kind of memory of a device.
type Used = (DeviceId, Kind, Touched);

impl Rank {
    /// Keeps a loss until ranks speak with each other again.
    pub(in crate::cuda) fn keep(&mut self, loss: Loss) {
        self.losses.push(loss);
    }

    /// Whether all ranks want to go on; hands on the losses of all.
    pub(in crate::cuda) fn agree(
        &mut self,
        goes_on: bool,
        listener: &mut dyn FnMut(Loss),
    ) -> Result<bool, Trouble> {
        let mut own = vec![u8::from(goes_on)];
        for Loss { step, micro_batch, loss } in self.losses.drain(..) {
            for word in [step, micro_batch, loss.to_bits()] {
                own.extend(word.to_le_bytes());
            }
        }
        let all = self.peers.control().gather(own)?;
        let told = all.iter().filter_map(|own| own.get(1..));
        told.flat_map(|own| own.as_chunks::<LOSS>().0.iter().map(loss))
            .for_each(listener);
        Ok(all.iter().all(|own| own.first() != Some(&0)))
    }

    /// Looks after the other ranks, and says where this one is, as often as is useful.
    pub(in crate::cuda) fn watch(
        &self,
        position: impl FnOnce() -> Position,
    ) -> Result<(), Trouble> {
        const TICK: Duration = Duration::from_millis(50);
        let now = Instant::now();
        if now.duration_since(self.looked.get()) > TICK {
            self.looked.set(now);
            self.peers.control().at(position());
        }
        self.peers.check()
    }

    /// The end of this rank.
    pub(in crate::cuda) fn ended(&self, trouble: Trouble) -> CudaError {
        let control = self.peers.control();
        CudaError::ranks(control.seat(), control.position(), trouble)
    }

    /// The end of this rank, which has waited long enough.
    pub(in crate::cuda) fn late(&self) -> CudaError {
        self.ended(self.peers.control().late())
    }

    /// What all ranks have, on the first one.
    fn collect<T: Serialize + DeserializeOwned>(
        &self,
        own: &T,
    ) -> Result<Option<Vec<T>>, CudaError> {
        self.peers.control().collect_as(own).map_err(|trouble| self.ended(trouble))
    }
}

fn loss(bytes: &[u8; LOSS]) -> Loss {
    let (words, _) = bytes.as_chunks::<8>();
    let [step, micro_batch, loss] = [0, 1, 2].map(|word| u64::from_le_bytes(words[word]));
    Loss { step, micro_batch, loss: f64::from_bits(loss) }
}

impl Engine {
    /// This rank is somewhere else now.
    pub(in crate::cuda) fn at(&self, position: Position) {
        if let Share::Part(rank) = &self.share {
            rank.peers.control().at(position);
        }
    }

    /// Whether some rank wishes something.
    pub(in crate::cuda) fn any(&mut self, wish: bool) -> Result<bool, CudaError> {
        let Share::Part(rank) = &mut self.share else { return Ok(wish) };
        let agreed = rank.agree(!wish, &mut |_| {});
        agreed.map(|none| !none).map_err(|trouble| rank.ended(trouble))
    }

    /// Parts from the other ranks.
    pub(in crate::cuda) fn leave(&mut self) -> Result<(), CudaError> {
        let Share::Part(rank) = &mut self.share else { return Ok(()) };
        rank.peers.leave().map_err(|trouble| rank.ended(trouble))
    }

    /// The state before a step. Every rank reads the rows of its device in the order in which the
    /// whole is put together from them, and the first one puts it together.
    pub(in crate::cuda) fn save(
        &mut self,
        step: u64,
        origin: u64,
    ) -> Result<Option<State>, CudaError> {
        let schedule = Arc::clone(&self.schedule);
        if let Share::Whole = self.share {
            let read = |device, start, bytes: &mut [u8]| self.read(device, start, bytes);
            return rows::save(&schedule, step, origin, read).map(Some);
        }
        let mut own = Vec::new();
        for (device, start, length) in rows::reads(&schedule, step) {
            if self.arenas.has(device) {
                let first = own.len();
                own.resize(first + length, 0);
                self.read(device, start, &mut own[first..])?;
            }
        }
        let Share::Part(rank) = &self.share else { return Ok(None) };
        let all = rank.peers.control().collect(own);
        let Some(all) = all.map_err(|trouble| rank.ended(trouble))? else {
            return Ok(None);
        };
        let mut next = vec![0; all.len()];
        let from_all = |device: DeviceId, _, bytes: &mut [u8]| {
            let owner = rank.owners[&device] as usize;
            let range = next[owner]..next[owner] + bytes.len();
            next[owner] = range.end;
            match all[owner].get(range) {
                Some(theirs) => bytes.copy_from_slice(theirs),
                None => {
                    let said = format!("rank {owner} sent too little of its state");
                    return Err(rank.ended(rank.peers.control().fail(&said)));
                }
            }
            Ok(())
        };
        rows::save(&schedule, step, origin, from_all).map(Some)
    }

    /// What all ranks counted.
    pub(in crate::cuda) fn sum_up(&self, own: Measured) -> Result<Measured, CudaError> {
        let Share::Part(rank) = &self.share else { return Ok(own) };
        let all = rank.collect(&own)?;
        Ok(all
            .map_or(own, |all| all.into_iter().fold(Measured::default(), Measured::with)))
    }

    /// What all ranks used.
    pub(in crate::cuda) fn gather_touched(
        &self,
        own: BTreeMap<(DeviceId, Kind), Touched>,
    ) -> Result<BTreeMap<(DeviceId, Kind), Touched>, CudaError> {
        let Share::Part(rank) = &self.share else { return Ok(own) };
        let told: Vec<Used> =
            own.iter().map(|((device, kind), used)| (*device, *kind, *used)).collect();
        let all = rank.collect(&told)?.unwrap_or_else(|| vec![told]);
        let used = all.into_iter().flatten();
        Ok(used.map(|(device, kind, used)| ((device, kind), used)).collect())
    }
}
