//! One rank of several: this process has one of the devices of a schedule, and the others are other
//! processes'.
//!
//! Every rank issues the whole list to all queues that there are at the coordinate of its device, as a
//! machine does that has all devices. What touches none of this rank is passed over like an action that a
//! segment skips: it keeps its place in its queue and its waits. So whatever happens before in the whole
//! list happens before on every rank, and what one device brings to another is a message, whose end is
//! this rank's half of the action.

use super::{
    Cpu, CpuError, CpuOptions, Loss, Recording, Shared,
    execute::Turn,
    room::{self, Asker, Kept},
};
use crate::{
    feed::Feed,
    lock::lock,
    memory::Memory,
    ranks::{
        Among, Control, Ended, Label, Mail, Missing, Position, Share, Trouble, Unsent,
    },
};
use roundelay_schedule::{Bytes, Checked, DeviceId, Id, Schedule};
use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

/// This rank.
pub(super) struct Rank {
    pub(super) among: Among,
    mail: Mail,
    /// What this rank has to tell.
    losses: Mutex<Vec<Loss>>,
}

/// A message of another rank.
pub(super) struct Brought<'a> {
    mail: &'a Mail,
    from: u32,
    block: Option<Memory>,
}

impl Cpu {
    /// Like [`Cpu::new`], for one device of the schedule; the others are other ranks'. All ranks
    /// make their machines, load, replay and save alike, and get the bits that one process gets. No
    /// times are kept: where launches wait for each other across processes, they cannot take turns.
    ///
    /// # Errors
    /// As [`Cpu::new`], and when there are not as many ranks as devices, or something goes wrong on
    /// one of them.
    pub fn of_rank(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CpuOptions,
        control: Arc<Control>,
    ) -> Result<Self, CpuError> {
        let rank = Rank::new(Among::of(schedule, control)?)?;
        let options = CpuOptions { recording: Recording::Off, ..options };
        Self::with(schedule, feed, options, Share::Part(Box::new(rank)))
    }

    /// Looks whether this machine has the memory for the devices of all ranks that are on it, and what the
    /// first one gathers to keep it; all ranks look.
    ///
    /// # Errors
    /// When it says that it has too little, when there are not as many ranks as devices, or something
    /// goes wrong on one of them.
    pub fn room_of_ranks(
        schedule: &Checked,
        kept: Kept,
        control: &Arc<Control>,
    ) -> Result<(), CpuError> {
        let among = Among::of(schedule, Arc::clone(control))?;
        room::for_rank(schedule, (among.asker(), kept), control)
    }

    /// Whether this is the first rank, or the only one.
    pub fn is_first(&self) -> bool {
        self.shared.share.rank().is_none_or(|rank| rank.among.is_first())
    }

    /// Whether some rank wishes something; all ranks ask.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn any(&mut self, wish: bool) -> Result<bool, CpuError> {
        match self.shared.share.rank() {
            None => Ok(wish),
            Some(rank) => Ok(rank.among.any(wish)?),
        }
    }

    /// Parts from the other ranks, when all is done; all ranks do.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn leave(&mut self) -> Result<(), CpuError> {
        match self.shared.share.rank() {
            None => Ok(()),
            Some(rank) => Ok(rank.among.leave()?),
        }
    }

    /// Bytes of the messages that this rank sent to others since it was made.
    pub fn sent(&self) -> Bytes {
        self.shared.share.rank().map_or(Bytes(0), |rank| rank.mail.sent())
    }
}

impl Share<Rank> {
    /// Whether a device is this process's.
    pub(super) fn has(&self, device: DeviceId) -> bool {
        match self {
            Self::Whole => true,
            Self::Part(rank) => rank.among.seated.device == device,
        }
    }

    /// This process as it asks for memory.
    pub(super) fn asker(&self) -> Asker {
        match self {
            Self::Whole => Asker::Whole,
            Self::Part(rank) => rank.among.asker(),
        }
    }

    /// Whether there is something to do for an action in a period.
    pub(super) fn takes(&self, schedule: &Schedule, turn: &Turn<'_>) -> bool {
        match self {
            Self::Whole => true,
            Self::Part(rank) => {
                rank.among.seated.takes(schedule, &turn.action.work, turn.period)
            }
        }
    }
}

impl Among {
    /// This rank as it asks for memory.
    pub(super) fn asker(&self) -> Asker {
        match self.is_first() {
            true => Asker::First(self.seated),
            false => Asker::Other(self.seated),
        }
    }
}

impl Rank {
    /// This rank, once all ranks are connected.
    ///
    /// # Errors
    /// When they do not come together.
    fn new(among: Among) -> Result<Self, CpuError> {
        let mail = Mail::open(&among.control);
        let mail = mail.map_err(|trouble| among.control.ended(trouble))?;
        Ok(Self { among, mail, losses: Mutex::new(Vec::new()) })
    }

    /// The way to the others.
    pub(super) fn control(&self) -> &Control {
        &self.among.control
    }

    /// Keeps a loss until ranks speak with each other again.
    pub(super) fn keep(&self, loss: Loss) {
        lock(&self.losses).push(loss);
    }

    /// Whether all ranks want to go on; hands on the losses of all.
    pub(super) fn agree(
        &self,
        goes_on: bool,
        listener: &mut dyn FnMut(Loss),
    ) -> Result<bool, Ended> {
        let losses = std::mem::take(&mut *lock(&self.losses));
        self.among.go_on(goes_on, losses.into_iter(), listener)
    }

    /// The end of this rank.
    pub(super) fn ended(&self, trouble: Trouble) -> CpuError {
        self.control().ended(trouble).into()
    }

    /// This rank is somewhere else now.
    pub(super) fn at(&self, position: Position) {
        self.control().at(position);
    }
}

/// The messages of an instance.
pub(super) fn label(turn: &Turn<'_>) -> Label {
    Label { action: turn.id.index() as u64, period: turn.period, piece: 0 }
}

impl Brought<'_> {
    /// Its memory, which its holder alone knows.
    pub(super) fn block(&self) -> &Memory {
        self.block.as_ref().expect("it goes back when nobody looks any more")
    }

    /// Its bytes.
    pub(super) fn bytes(&mut self) -> &[u8] {
        let block = self.block.as_mut();
        block.expect("it goes back when nobody looks any more").bytes_mut()
    }
}

impl Drop for Brought<'_> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.mail.give_back(self.from, block);
        }
    }
}

impl Shared {
    /// Sends bytes to the rank of another device; breaks when that is not there any more.
    pub(super) fn send(
        &self,
        label: Label,
        to: DeviceId,
        bytes: &[u8],
    ) -> ControlFlow<()> {
        let rank = self.share.own();
        let owner = rank.among.owners.rank(to);
        let trouble = match rank.mail.send(owner, label, bytes) {
            Ok(()) => return ControlFlow::Continue(()),
            Err(Unsent::Late) => rank.control().late(),
            Err(Unsent::Broken(error)) => {
                rank.control().echo(&format!("it cannot send to rank {owner}: {error}"))
            }
        };
        self.fail(rank.ended(trouble));
        ControlFlow::Break(())
    }

    /// What the rank of another device sends, which must be as much as is awaited; breaks when nothing
    /// comes any more.
    pub(super) fn receive(
        &self,
        label: Label,
        from: DeviceId,
        bytes: u64,
    ) -> ControlFlow<(), Brought<'_>> {
        let rank = self.share.own();
        let from = rank.among.owners.rank(from);
        let stops = || self.parking.is_stopped();
        let trouble = match rank.mail.take(from, label, stops) {
            Ok(block) if block.len() == bytes => {
                let mail = &rank.mail;
                return ControlFlow::Continue(Brought { mail, from, block: Some(block) });
            }
            Ok(block) => rank.control().fail(&format!(
                "rank {from} sent {} bytes, and {bytes} were awaited",
                block.len()
            )),
            Err(Missing::Stopped) => return ControlFlow::Break(()),
            // The other one may have said why.
            Err(Missing::Lost(why)) => rank
                .control()
                .echo(&format!("its connection with rank {from} has ended: {why}")),
        };
        self.fail(rank.ended(trouble));
        ControlFlow::Break(())
    }
}
