//! What ranks tell each other at the bounds of periods and at rest: losses, wishes, states, counts.

use super::{
    super::{CudaError, Engine},
    Rank,
};
use crate::{
    machine::{Loss, Measured, Touched},
    ranks::{Among, Ended, Position, Share, Trouble},
    state::{
        Extent, Moment,
        gather::{self, Taker},
    },
};
use roundelay_schedule::{DeviceId, Kind};
use std::{collections::BTreeMap, sync::Arc};

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
    ) -> Result<bool, Ended> {
        self.among.go_on(goes_on, self.losses.drain(..), listener)
    }

    /// The end of this rank.
    pub(in crate::cuda) fn ended(&self, trouble: Trouble) -> CudaError {
        self.among.control.ended(trouble).into()
    }

    /// The end of this rank, which has waited long enough.
    pub(in crate::cuda) fn late(&self) -> CudaError {
        self.ended(self.among.control.late())
    }
}

impl Engine {
    /// This rank among all of them, if there are several.
    fn among(&self) -> Option<&Among> {
        self.share.rank().map(|rank| &rank.among)
    }

    /// This rank is somewhere else now.
    pub(in crate::cuda) fn at(&self, position: Position) {
        if let Some(among) = self.among() {
            among.control.at(position);
        }
    }

    /// Whether some rank wishes something.
    pub(in crate::cuda) fn any(&self, wish: bool) -> Result<bool, CudaError> {
        let Some(among) = self.among() else { return Ok(wish) };
        Ok(among.any(wish)?)
    }

    /// Parts from the other ranks.
    pub(in crate::cuda) fn leave(&mut self) -> Result<(), CudaError> {
        let Share::Part(rank) = &mut self.share else { return Ok(()) };
        rank.peers.leave().map_err(|trouble| rank.ended(trouble))
    }

    /// Hands so much of the state at a moment over, on the first rank.
    pub(in crate::cuda) fn save(
        &mut self,
        wanted: (Moment, Extent),
        take: &mut Taker<'_>,
    ) -> Result<(), CudaError> {
        let (schedule, among) = (Arc::clone(&self.schedule), self.among().cloned());
        let read = |device, start, bytes: &mut [u8]| self.read(device, start, bytes);
        match among {
            None => gather::save(&schedule, wanted, read, take),
            Some(among) => among.save(&schedule, wanted, read, take),
        }
    }

    /// What all ranks counted.
    pub(in crate::cuda) fn sum_up(&self, own: Measured) -> Result<Measured, CudaError> {
        let Some(among) = self.among() else { return Ok(own) };
        Ok(among.sum_up(own)?)
    }

    /// What all ranks used.
    pub(in crate::cuda) fn gather_touched(
        &self,
        own: BTreeMap<(DeviceId, Kind), Touched>,
    ) -> Result<BTreeMap<(DeviceId, Kind), Touched>, CudaError> {
        let Some(among) = self.among() else { return Ok(own) };
        Ok(among.touched(&own)?)
    }
}
