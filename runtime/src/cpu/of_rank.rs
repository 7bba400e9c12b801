//! The CPU machine of one of several ranks.

use super::{Cpu, CpuError, CpuOptions, Loss, Measured, Recording, Share, Touched, room};
use crate::{
    feed::Feed,
    ranks::{Among, Control},
    state::State,
};
use roundelay_schedule::{Bytes, Checked, DeviceId, Kind};
use std::{collections::BTreeMap, sync::Arc};

/// One device of a schedule on this process's CPU; the others are other ranks'. All ranks make their
/// machines, load, replay and save alike, and get the bits that one process gets.
pub struct CpuRank(Cpu);

impl CpuRank {
    /// Connects all ranks, and allocates the arena of this one's device. No times are kept: where
    /// launches wait for each other across processes, they cannot take turns.
    ///
    /// # Errors
    /// As [`Cpu::new`], and when there are not as many ranks as devices, or something goes wrong on
    /// one of them.
    pub fn new(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CpuOptions,
        control: Arc<Control>,
    ) -> Result<Self, CpuError> {
        let share = Share::of(Among::of(schedule, control)?)?;
        let options = CpuOptions { recording: Recording::Off, ..options };
        Cpu::with(schedule, feed, options, share).map(Self)
    }

    /// Looks whether this machine has the memory for the devices of all ranks that are on it, and the
    /// state that each starts from; all ranks look.
    ///
    /// # Errors
    /// When it says that it has too little, when there are not as many ranks as devices, or something
    /// goes wrong on one of them.
    pub fn room(schedule: &Checked, control: &Arc<Control>) -> Result<(), CpuError> {
        let among = Among::of(schedule, Arc::clone(control))?;
        room::for_rank(schedule, among.asker(), control)
    }

    fn among(&self) -> &Among {
        &self.0.shared.share.own().among
    }

    /// The schedule that is replayed.
    pub fn schedule(&self) -> &Checked {
        self.0.schedule()
    }

    /// T: the next training step.
    pub fn step(&self) -> u64 {
        self.0.step()
    }

    /// Whether this is the first rank.
    pub fn is_first(&self) -> bool {
        self.among().is_first()
    }

    /// Whether some rank wishes something; all ranks ask.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn any(&mut self, wish: bool) -> Result<bool, CpuError> {
        Ok(self.among().any(wish)?)
    }

    /// Parts from the other ranks, when all is done; all ranks do.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn leave(&mut self) -> Result<(), CpuError> {
        Ok(self.among().leave()?)
    }

    /// Bytes of the messages that this rank sent to others since it was made.
    pub fn sent(&self) -> Bytes {
        self.0.shared.share.own().sent()
    }

    /// As [`Cpu::load`].
    ///
    /// # Errors
    /// As there.
    pub fn load(&mut self, state: &State) -> Result<(), CpuError> {
        self.0.load(state)
    }

    /// The training state, in global terms: on the first rank, and on others none; all ranks save.
    ///
    /// # Errors
    /// As [`Cpu::save`], and when something goes wrong on another rank.
    pub fn save(&mut self) -> Result<Option<State>, CpuError> {
        let at = self.0.course.here()?;
        let (shared, claim) = self.0.at_rest()?;
        let among = &shared.share.own().among;
        among.save(&shared.schedule, at, |device, start, bytes| {
            shared.arenas.copy(&claim, device, start, bytes);
            Ok(())
        })
    }

    /// As [`Cpu::replay_while`]; every rank's listener gets the losses of all.
    ///
    /// # Errors
    /// As there, and when something goes wrong on another rank.
    pub fn replay_while(
        &mut self,
        end: u64,
        listener: &mut dyn FnMut(Loss),
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), CpuError> {
        self.0.replay_while(end, listener, goes_on)
    }

    /// What was counted since the state was loaded, on the first rank by all of them.
    ///
    /// # Errors
    /// When something goes wrong on another rank.
    pub fn measured(&mut self) -> Result<Measured, CpuError> {
        Ok(self.among().sum_up(self.0.measured())?)
    }

    /// As [`Cpu::touched`], on the first rank of all of them.
    ///
    /// # Errors
    /// When a replay failed before, or something goes wrong on another rank.
    pub fn touched(&mut self) -> Result<BTreeMap<(DeviceId, Kind), Touched>, CpuError> {
        let own = self.0.touched()?;
        Ok(self.among().touched(&own)?)
    }
}
