//! Collectives: sums in group order, by direct exchange.
//!
//! Member k of n owns part k. Every other member sends it its part, it adds them in group order,
//! and sends the result to all others. Each member so sends 2(n−1)/n of the row in an all-reduce,
//! half of it in a reduce-scatter or an all-gather; what is counted is what is copied.

use super::{
    Shared,
    execute::{Executor, Turn},
};
use crate::{
    machine::{Span, part, placed},
    memory::Claim,
    native::native,
};
use roundelay_kernels::Real;
use roundelay_schedule::{Collective, DeviceId, LinkId, Native, Place, Row, Work};

/// Elements that are summed at a time.
const BLOCK: usize = 512;

/// One instance of a collective.
struct Exchange<'a> {
    shared: &'a Shared,
    period: i64,
    link: LinkId,
    members: &'a [(usize, Place)],
    from: Row,
    to: Row,
}

impl Executor<'_> {
    /// All instances of a collective, one after another.
    pub(super) fn collective(&mut self, turn: Turn<'_>, claim: &mut Claim) {
        let Work::Collective { link, kind, group, from, to, .. } = &turn.action.work
        else {
            unreachable!("the caller matched a collective")
        };
        for members in &self.shared.members[*group] {
            let exchange = Exchange {
                shared: self.shared,
                period: turn.period,
                link: *link,
                members,
                from: *from,
                to: *to,
            };
            if members.len() > 1 {
                self.shared.meter.message();
            }
            match kind {
                Collective::AllReduce => {
                    exchange.reduce(claim);
                    exchange.gather(self, claim, *to);
                }
                Collective::ReduceScatter => exchange.reduce(claim),
                Collective::AllGather => exchange.gather(self, claim, *from),
            }
        }
    }
}

impl Exchange<'_> {
    fn span(&self, member: usize, row: Row) -> Span {
        let Shared { schedule, coordinates, .. } = self.shared;
        let (coordinate, place) = self.members[member];
        Span::of(schedule, place, row, self.period, &coordinates[coordinate])
    }

    fn count(&self, sender: DeviceId, receiver: DeviceId, bytes: u64) {
        if sender != receiver {
            self.shared.meter.moved(self.link, sender, bytes);
        }
    }

    /// Every member's part becomes the sum over all members.
    fn reduce(&self, claim: &mut Claim) {
        for owner in 0..self.members.len() {
            match native(self.shared.schedule.job.dtype) {
                Native::F32 => self.sum_part::<f32>(claim, owner),
                Native::F64 => self.sum_part::<f64>(claim, owner),
            }
        }
    }

    fn sum_part<R: Real>(&self, claim: &mut Claim, owner: usize) {
        let (count, size) = (self.members.len(), size_of::<R>() as u64);
        let whole = self.span(owner, self.from).len();
        let part = part(whole, count, owner, size);
        let target = placed(&self.span(owner, self.to), whole, &part);
        for member in 0..count {
            let sender = self.span(member, self.from).device;
            self.count(sender, target.device, target.len());
        }
        let mut sums = [R::ZERO; BLOCK];
        let block = BLOCK as u64 * size;
        for start in (0..target.len()).step_by(BLOCK * size_of::<R>()) {
            let bytes = start..target.len().min(start + block);
            let sums = &mut sums[..((bytes.end - start) / size) as usize];
            for member in 0..count {
                let source = self.span(member, self.from).part(part.clone());
                let source = source.part(bytes.clone());
                let arena = self.shared.arenas.of(source.device);
                add(arena.numbers::<R>(claim, source.bytes), sums, member);
            }
            let arena = self.shared.arenas.of(target.device);
            let target = target.part(bytes).bytes;
            arena.numbers_mut::<R>(claim, target).copy_from_slice(sums);
        }
    }

    /// Every member gets the parts of all others; `source` is the row that holds them.
    fn gather(&self, executor: &Executor<'_>, claim: &mut Claim, source: Row) {
        let count = self.members.len();
        let element = self.shared.schedule.job.dtype.size();
        for owner in 0..count {
            let length = self.span(owner, self.to).len();
            let part = part(length, count, owner, element);
            let from = placed(&self.span(owner, source), length, &part);
            for member in 0..count {
                let to = self.span(member, self.to).part(part.clone());
                self.count(from.device, to.device, to.len());
                if from != to {
                    executor.copy(claim, &from, &to);
                }
            }
        }
    }
}

fn add<R: Real>(numbers: &[R], sums: &mut [R], member: usize) {
    match member {
        0 => sums.copy_from_slice(numbers),
        _ => sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += *number),
    }
}
