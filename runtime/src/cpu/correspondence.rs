//! Exchanges of a launch whose other parts are other ranks': what each brings goes as messages, and every
//! part makes the bits that all parts together would make. Messages have as many bytes as are counted, and
//! columns that parts are filled up with; where a sum of three parts or more is added to something every
//! part gets all, which are more, for a sum that is rounded before it is added has other bits.
#![expect(unsafe_code, reason = "operands of an exchange are the launch's own")]

use super::{Shared, rank::Brought};
use crate::{
    blocks::Blocks,
    exchange::{Ends, Join, Way},
    machine::part,
    memory::Memory,
    ranks::Label,
};
use roundelay_schedule::{DeviceId, Line, Native};
use std::{
    ops::{ControlFlow, Range},
    slice,
};

/// Two rounds of messages are told apart by their labels.
const ROUNDS: u64 = 2;

/// The exchanges of one thread.
pub(super) struct Correspondence<'a> {
    shared: &'a Shared,
    /// By part.
    devices: Vec<DeviceId>,
    own: u32,
    /// The launch, whose exchanges are counted from zero.
    launch: Label,
    begun: u64,
    done: u64,
    join: Join,
    /// What cuts and rows of others are put together in.
    blocks: Blocks,
}

/// One exchange.
struct Round<'a> {
    shared: &'a Shared,
    /// Devices of the line, in its order, and this one among them.
    devices: Vec<DeviceId>,
    own: usize,
    label: Label,
}

impl<'a> Correspondence<'a> {
    /// The exchanges of the device that is this part.
    pub(super) fn new(
        shared: &'a Shared,
        devices: Vec<DeviceId>,
        own: u32,
        dtype: Native,
    ) -> Self {
        let join = Join::new(dtype, devices.len());
        let launch = Label { action: 0, period: 0, piece: 0 };
        let (begun, done) = (0, 0);
        let blocks = Blocks::default();
        Self { shared, devices, own, launch, begun, done, join, blocks }
    }

    /// The number of this part.
    pub(super) fn part(&self) -> u32 {
        self.own
    }

    /// Before a launch.
    pub(super) fn start(&mut self, launch: Label) {
        self.launch = launch;
        (self.begun, self.done) = (0, 0);
    }

    fn round(&self, line: Line, number: u64) -> Round<'a> {
        let members = line.members(self.own);
        Round {
            shared: self.shared,
            devices: members.map(|part| self.devices[part as usize]).collect(),
            own: line.place(self.own) as usize,
            label: Label { piece: number * ROUNDS, ..self.launch },
        }
    }

    /// Begins an exchange: sends what the others want of this part.
    ///
    /// # Safety
    /// What `ends` brings is written, and nobody writes it now.
    pub(super) unsafe fn begin(&mut self, ends: &Ends) -> ControlFlow<()> {
        let round = self.round(ends.exchange.line, self.begun);
        self.begun += 1;
        // SAFETY: the caller says so.
        let own =
            unsafe { slice::from_raw_parts(ends.brought.0, ends.brought.1 as usize) };
        for (place, device) in round.others() {
            match Way::of(&ends.exchange) {
                Way::Bring => round.send(device, own)?,
                Way::Share => round.send(device, &own[round.share(ends, place)])?,
                Way::Cut => round.send(device, &cut(ends, place, own))?,
                Way::Strips => round.send_rows((place, device), ends, own)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Ends the first exchange that was begun and is not done.
    ///
    /// # Safety
    /// As for [`Correspondence::begin`], with the same ends; what they get is the caller's own and
    /// apart from what they bring.
    pub(super) unsafe fn finish(&mut self, ends: &Ends) -> ControlFlow<()> {
        let round = self.round(ends.exchange.line, self.done);
        self.done += 1;
        // SAFETY: the caller says so.
        unsafe {
            match Way::of(&ends.exchange) {
                Way::Bring => {
                    let brought = round.receive_each(|_| ends.brought.1)?;
                    self.join(&round, ends, &brought);
                }
                Way::Share => {
                    let own = round.share(ends, round.own);
                    let brought = round.receive_each(|_| own.len() as u64)?;
                    self.join(&round, &within(ends, &own), &brought);
                    round.give_shares(ends, own)?;
                }
                Way::Cut => {
                    let brought = round.receive_each(|_| cut_bytes(ends))?;
                    self.join_cut(&round, ends, &brought);
                }
                Way::Strips => self.join_rows(&round, ends)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// The sum of what all have cut for this part.
    ///
    /// # Safety
    /// As for [`Correspondence::finish`].
    unsafe fn join_cut(
        &mut self,
        round: &Round<'_>,
        ends: &Ends,
        brought: &[Option<Brought<'_>>],
    ) {
        let (first, bytes) = ends.brought;
        // SAFETY: the caller says so.
        let all = unsafe { slice::from_raw_parts(first, bytes as usize) };
        let cut = cut(ends, round.own, all);
        let mut own = self.block(cut.len() as u64);
        own.bytes_mut().copy_from_slice(&cut);
        let exchange = ends.exchange.of_cut();
        let ends = Ends { exchange, brought: (own.start(), own.len()), ..*ends };
        // SAFETY: the caller says so, and the copy is this function's own.
        unsafe { self.join(round, &ends, brought) };
        self.blocks.give_back(own);
    }

    /// What is made of rows of images, of which others send those that this part needs: each row goes to
    /// its place among all that its part brings, where nobody looks at the others. So what this part
    /// brings itself may stand for one of which it needs none.
    ///
    /// # Safety
    /// As for [`Correspondence::finish`].
    unsafe fn join_rows(&mut self, round: &Round<'_>, ends: &Ends) -> ControlFlow<()> {
        let mut all = Vec::with_capacity(round.devices.len());
        for place in 0..round.devices.len() {
            let mut block = || self.block(ends.brought.1);
            all.push(round.receive_rows((place, ends), &mut block)?);
        }
        let addresses = all.iter().map(|other| match other {
            Some(other) => other.start(),
            None => ends.brought.0,
        });
        // SAFETY: the caller says so of its own; blocks are aligned and written, and nobody else knows
        // them.
        unsafe { self.join.join(ends, round.own, addresses) };
        all.into_iter().flatten().for_each(|block| self.blocks.give_back(block));
        ControlFlow::Continue(())
    }

    fn block(&mut self, bytes: u64) -> Memory {
        self.blocks.take(bytes).unwrap_or_else(|| Memory::new(bytes))
    }

    /// # Safety
    /// As for [`Join::join`], of what `ends` brings and gets.
    unsafe fn join(
        &mut self,
        round: &Round<'_>,
        ends: &Ends,
        brought: &[Option<Brought<'_>>],
    ) {
        let addresses = brought.iter().map(|own| match own {
            Some(own) => own.block().start(),
            None => ends.brought.0,
        });
        // SAFETY: the caller says so of its own; blocks are aligned and whole messages, and nobody
        // else knows them.
        unsafe { self.join.join(ends, round.own, addresses) };
    }
}

impl<'a> Round<'a> {
    fn others(&self) -> impl Iterator<Item = (usize, DeviceId)> + '_ {
        let all = self.devices.iter().copied().enumerate();
        all.filter(|(place, _)| *place != self.own)
    }

    fn send(&self, to: DeviceId, bytes: &[u8]) -> ControlFlow<()> {
        self.shared.send(self.label, to, bytes)
    }

    /// Sends the rows that another part needs, one after another; nothing where it needs none.
    fn send_rows(
        &self,
        (place, to): (usize, DeviceId),
        ends: &Ends,
        own: &[u8],
    ) -> ControlFlow<()> {
        let rows = bytes_of(ends, [self.own, place]);
        let packed: Vec<u8> = rows.flat_map(|row| &own[row]).copied().collect();
        match packed.is_empty() {
            true => ControlFlow::Continue(()),
            false => self.send(to, &packed),
        }
    }

    /// The rows that this part needs of another one, among as much as that brings, if it needs some.
    fn receive_rows(
        &self,
        (place, ends): (usize, &Ends),
        block: &mut dyn FnMut() -> Memory,
    ) -> ControlFlow<(), Option<Memory>> {
        let rows: Vec<_> = bytes_of(ends, [place, self.own]).collect();
        let bytes = rows.iter().map(|row| row.len() as u64).sum();
        if place == self.own || bytes == 0 {
            return ControlFlow::Continue(None);
        }
        let mut all = block();
        let mut brought = self.shared.receive(self.label, self.devices[place], bytes)?;
        let mut packed = brought.bytes();
        let target = all.bytes_mut();
        for row in rows {
            let (own, rest) = packed.split_at(row.len());
            target[row].copy_from_slice(own);
            packed = rest;
        }
        ControlFlow::Continue(Some(all))
    }

    /// What the others bring, by their places, of each this many bytes; none of this part.
    fn receive_each(
        &self,
        bytes: impl Fn(usize) -> u64,
    ) -> ControlFlow<(), Vec<Option<Brought<'a>>>> {
        let mut all = Vec::with_capacity(self.devices.len());
        for (place, device) in self.devices.iter().enumerate() {
            all.push(match place == self.own {
                true => None,
                false => Some(self.shared.receive(self.label, *device, bytes(place))?),
            });
        }
        ControlFlow::Continue(all)
    }

    /// The bytes of what is summed that the part at a place sums for all.
    fn share(&self, ends: &Ends, place: usize) -> Range<usize> {
        let element = size(ends) as u64;
        let Range { start, end } =
            part(ends.brought.1, self.devices.len(), place, element);
        start as usize..end as usize
    }

    /// Gives the own share of a sum to all, and gets theirs.
    ///
    /// # Safety
    /// What `ends` gets is the caller's own.
    unsafe fn give_shares(&self, ends: &Ends, own: Range<usize>) -> ControlFlow<()> {
        let second = Self {
            devices: self.devices.clone(),
            label: Label { piece: self.label.piece + 1, ..self.label },
            ..*self
        };
        // SAFETY: the caller says so.
        let got = unsafe { slice::from_raw_parts_mut(ends.got.0, ends.got.1 as usize) };
        for (_, device) in second.others() {
            second.send(device, &got[own.clone()])?;
        }
        let bytes = |place| second.share(ends, place).len() as u64;
        for (place, brought) in second.receive_each(bytes)?.iter_mut().enumerate() {
            if let Some(brought) = brought {
                got[self.share(ends, place)].copy_from_slice(brought.bytes());
            }
        }
        ControlFlow::Continue(())
    }
}

/// The ends of a share of what is summed.
fn within(ends: &Ends, share: &Range<usize>) -> Ends {
    let bytes = share.len() as u64;
    Ends {
        brought: (ends.brought.0.wrapping_add(share.start), bytes),
        got: (ends.got.0.wrapping_add(share.start), bytes),
        ..*ends
    }
}

/// The columns of the part at a place, of an array of all; columns behind the whole are zero.
fn cut(ends: &Ends, place: usize, all: &[u8]) -> Vec<u8> {
    let (exchange, element) = (&ends.exchange, size(ends));
    let (columns, range) = (exchange.columns(), exchange.columns_of(place));
    let mut cut = Vec::with_capacity(exchange.rows * columns * element);
    for row in all.chunks(exchange.whole * element) {
        cut.extend(&row[range.start * element..range.end * element]);
        cut.resize(cut.len() + (columns - range.len()) * element, 0);
    }
    cut
}

/// Bytes of that.
fn cut_bytes(ends: &Ends) -> u64 {
    (ends.exchange.rows * ends.exchange.columns() * size(ends)) as u64
}

/// Bytes of what one part brings that another one needs, row by row.
fn bytes_of(ends: &Ends, parts: [usize; 2]) -> impl Iterator<Item = Range<usize>> {
    let size = size(ends);
    ends.exchange.strips(parts).map(move |row| row.start * size..row.end * size)
}

/// Bytes of a number.
fn size(ends: &Ends) -> usize {
    match ends.dtype {
        Native::F32 => size_of::<f32>(),
        Native::F64 => size_of::<f64>(),
    }
}
