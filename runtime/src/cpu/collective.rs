//! Collectives: sums in group order, by direct exchange.
//!
//! Member k of n owns part k. Every other member sends it its part, it adds them in group order,
//! and sends the result to all others. Each member so sends 2(n−1)/n of the row in an all-reduce,
//! half of it in a reduce-scatter or an all-gather; what is counted is what is copied. Members of
//! other ranks send and get messages instead, in the order in which each member is dealt with here.

use super::{
    Shared,
    execute::{Executor, Turn},
    rank::{Brought, label},
};
use crate::{
    machine::{Joint, Member, Span, part, placed},
    memory::Claim,
    native::native,
    ranks::Share,
};
use roundelay_kernels::Real;
use roundelay_schedule::{Collective, DeviceId, Native, Row};
use std::ops::{ControlFlow, Range};

/// Elements that are summed at a time.
const BLOCK: usize = 512;

/// One instance of a collective.
struct Exchange<'a> {
    shared: &'a Shared,
    turn: Turn<'a>,
    joint: Joint,
    members: &'a [Member],
}

impl Executor<'_> {
    /// All instances of a collective, one after another; breaks when everything stops meanwhile.
    pub(super) fn collective(
        &mut self,
        turn: Turn<'_>,
        joint: Joint,
        claim: &mut Claim,
    ) -> ControlFlow<()> {
        let shared = self.shared;
        for members in &shared.members[joint.group] {
            let exchange = Exchange { shared, turn, joint, members };
            let first = || exchange.span(0, joint.to).device;
            if members.len() > 1 && shared.share.has(first()) {
                shared.meter.message();
            }
            match joint.kind {
                Collective::AllReduce => {
                    exchange.reduce(claim)?;
                    exchange.gather(self, claim, joint.to)?;
                }
                Collective::ReduceScatter => exchange.reduce(claim)?,
                Collective::AllGather => exchange.gather(self, claim, joint.from)?,
            }
        }
        ControlFlow::Continue(())
    }
}

impl Exchange<'_> {
    fn span(&self, member: usize, row: Row) -> Span {
        let Shared { schedule, coordinates, .. } = self.shared;
        let Member { coordinate, place } = self.members[member];
        Span::of(schedule, place, row, self.joint.period, &coordinates[coordinate])
    }

    fn count(&self, sender: DeviceId, receiver: DeviceId, bytes: u64) {
        if sender != receiver && self.shared.share.has(sender) {
            self.shared.meter.moved(self.joint.link, sender, bytes);
        }
    }

    /// Every member's part becomes the sum over all members.
    fn reduce(&self, claim: &mut Claim) -> ControlFlow<()> {
        for owner in 0..self.members.len() {
            match native(self.shared.schedule.job.dtype) {
                Native::F32 => self.sum_part::<f32>(claim, owner)?,
                Native::F64 => self.sum_part::<f64>(claim, owner)?,
            }
        }
        ControlFlow::Continue(())
    }

    fn sum_part<R: Real>(&self, claim: &mut Claim, owner: usize) -> ControlFlow<()> {
        let (count, size) = (self.members.len(), size_of::<R>() as u64);
        let whole = self.span(owner, self.joint.from).len();
        let part = part(whole, count, owner, size);
        let target = placed(&self.span(owner, self.joint.to), whole, &part);
        for member in 0..count {
            let sender = self.span(member, self.joint.from).device;
            self.count(sender, target.device, target.len());
        }
        if !self.shared.share.has(target.device) {
            return self.contribute(claim, target.device, &part);
        }
        let brought = self.brought(target.len())?;
        let mut sums = [R::ZERO; BLOCK];
        let block = BLOCK as u64 * size;
        for start in (0..target.len()).step_by(BLOCK * size_of::<R>()) {
            let bytes = start..target.len().min(start + block);
            let sums = &mut sums[..((bytes.end - start) / size) as usize];
            for member in 0..count {
                let numbers = match brought.get(member).and_then(Option::as_ref) {
                    Some(own) => own.block().numbers::<R>(claim, bytes.clone()),
                    None => {
                        let source =
                            self.span(member, self.joint.from).part(part.clone());
                        let source = source.part(bytes.clone());
                        let arena = self.shared.arenas.of(source.device);
                        arena.numbers::<R>(claim, source.bytes)
                    }
                };
                add(numbers, sums, member);
            }
            let arena = self.shared.arenas.of(target.device);
            let target = target.part(bytes).bytes;
            arena.numbers_mut::<R>(claim, target).copy_from_slice(sums);
        }
        ControlFlow::Continue(())
    }

    /// Sends what members of this process bring to a part that another one sums.
    fn contribute(
        &self,
        claim: &Claim,
        to: DeviceId,
        part: &Range<u64>,
    ) -> ControlFlow<()> {
        let Shared { share, arenas, .. } = self.shared;
        let all =
            (0..self.members.len()).map(|member| self.span(member, self.joint.from));
        for own in all.filter(|own| share.has(own.device)) {
            let bytes = arenas.of(own.device).read(claim, own.part(part.clone()).bytes);
            self.shared.send(label(&self.turn), to, bytes)?;
        }
        ControlFlow::Continue(())
    }

    /// What members of other processes bring to a part of this many bytes that this one sums, by member;
    /// nothing at all where all are here.
    fn brought(&self, bytes: u64) -> ControlFlow<(), Vec<Option<Brought<'_>>>> {
        let Share::Part(_) = self.shared.share else {
            return ControlFlow::Continue(Vec::new());
        };
        let mut all = Vec::with_capacity(self.members.len());
        for member in 0..self.members.len() {
            let device = self.span(member, self.joint.from).device;
            all.push(match self.shared.share.has(device) {
                true => None,
                false => Some(self.shared.receive(label(&self.turn), device, bytes)?),
            });
        }
        ControlFlow::Continue(all)
    }

    /// Every member gets the parts of all others; `source` is the row that holds them.
    fn gather(
        &self,
        executor: &Executor<'_>,
        claim: &mut Claim,
        source: Row,
    ) -> ControlFlow<()> {
        let count = self.members.len();
        let element = self.shared.schedule.job.dtype.size();
        for owner in 0..count {
            let length = self.span(owner, self.joint.to).len();
            let part = part(length, count, owner, element);
            let from = placed(&self.span(owner, source), length, &part);
            for member in 0..count {
                let to = self.span(member, self.joint.to).part(part.clone());
                self.count(from.device, to.device, to.len());
                if from != to {
                    executor.bring(self.turn, claim, &from, &to)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn add<R: Real>(numbers: &[R], sums: &mut [R], member: usize) {
    match member {
        0 => sums.copy_from_slice(numbers),
        _ => sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += *number),
    }
}
