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
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

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
        let losses = self.losses.drain(..);
        self.peers.control().go_on(goes_on, losses, listener)
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
        let whole = (&**schedule, &rank.owners);
        let state = rank.peers.control().whole_state(whole, (step, origin), own);
        state.map_err(|trouble| rank.ended(trouble))
    }

    /// What all ranks counted.
    pub(in crate::cuda) fn sum_up(&self, own: Measured) -> Result<Measured, CudaError> {
        let Share::Part(rank) = &self.share else { return Ok(own) };
        rank.peers.control().sum_up(own).map_err(|trouble| rank.ended(trouble))
    }

    /// What all ranks used.
    pub(in crate::cuda) fn gather_touched(
        &self,
        own: BTreeMap<(DeviceId, Kind), Touched>,
    ) -> Result<BTreeMap<(DeviceId, Kind), Touched>, CudaError> {
        let Share::Part(rank) = &self.share else { return Ok(own) };
        rank.peers.control().all_touched(&own).map_err(|trouble| rank.ended(trouble))
    }
}
