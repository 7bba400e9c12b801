//! One rank of several: this process has one of the devices of a schedule, and the others are other
//! processes'.
//!
//! Every rank issues the whole list to all queues that there are at the coordinate of its device, as a
//! machine does that has all devices. What touches none of this rank is passed over like an action that a
//! segment skips: it keeps its place in its queue and its waits. So whatever happens before in the whole
//! list happens before on every rank, and what one device brings to another is a message, whose end is
//! this rank's half of the action.

use super::{CpuError, Loss, Shared, execute::Turn, room::Asker};
use crate::{
    lock::lock,
    memory::Memory,
    ranks::{
        Among, Control, Ended, Label, Mail, Missing, Position, Share, Trouble, Unsent,
    },
};
use roundelay_schedule::{Bytes, DeviceId, Id, Schedule};
use std::{ops::ControlFlow, sync::Mutex};

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

impl Share<Rank> {
    /// The share of a rank, once all ranks are connected.
    ///
    /// # Errors
    /// When they do not come together.
    pub(super) fn of(among: Among) -> Result<Self, CpuError> {
        let mail = Mail::open(&among.control);
        let mail = mail.map_err(|trouble| among.control.ended(trouble))?;
        let losses = Mutex::new(Vec::new());
        Ok(Self::Part(Box::new(Rank { among, mail, losses })))
    }

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
    /// The way to the others.
    pub(super) fn control(&self) -> &Control {
        &self.among.control
    }

    /// Bytes that it has sent to others.
    pub(super) fn sent(&self) -> Bytes {
        self.mail.sent()
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
