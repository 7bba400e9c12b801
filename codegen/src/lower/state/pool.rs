//! A ring of devices per stage that turns under its micro-batches.
//!
//! Every device adds up the gradients of its own micro-batches; the devices' sums are combined in
//! the order of the micro-batch that each took last, so a stage of ring length L sends L − 1
//! sums. The device of the last micro-batch updates; the others take the new version when they
//! switch micro-batch. Optimizer state follows the update from device to device.

use super::{StageRows, Update, end, version};
use crate::lower::{
    LowerError,
    draft::{Draft, End, Moment},
};
use roundelay_schedule::{
    BufferId, Content, Id, MicroBatch, Place, RingId, Stage, Subject,
};

/// The ring of one stage.
struct Pool {
    stage: Stage,
    ring: RingId,
    length: i64,
    micro_batches: i64,
}

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let ring = draft.sites.ring(stage, draft.last());
    let length = i64::from(draft.sites.length(ring));
    let pool =
        Pool { stage, ring, length, micro_batches: i64::from(draft.sites.micro_batches) };
    let versions = pool.versions(draft);
    let state = draft.whole_state(ring, stage, versions);
    let devices = draft.sites.length(ring) as usize;
    let numbered = draft.order.micro_batches().map(|i| (i.index() / devices, i));
    let rows = StageRows::alike(draft, stage, &state, numbered);
    pool.combine(draft, state.gradient)?;
    let update = Update::last(draft, (stage, draft.last()), state);
    draft.push_update(update)?;
    if let Some(optimizer) = state.optimizer {
        pool.pass_on(draft, optimizer)?;
    }
    pool.spread(draft, state.parameter, versions)?;
    Ok(rows)
}

impl Pool {
    /// One slot suffices when the device that updates goes on with the new version.
    fn versions(&self, draft: &Draft<'_>) -> u32 {
        let next = MicroBatch::numbered(counted(self.length - 1));
        1 + draft.delay(self.stage, next).unsigned_abs()
    }

    /// The place, in a period, of the device that takes micro-batch number m = tN + i.
    fn place(&self, number: i64, period: i64) -> Place {
        let place = (number - self.micro_batches * period).rem_euclid(self.length);
        Place { ring: self.ring, place: counted(place) }
    }

    /// Where the device of micro-batch number m has version 0 in a buffer, at a moment.
    fn end(&self, number: i64, moment: Moment, buffer: BufferId) -> End {
        end(self.place(number, moment.period), buffer)
    }

    /// The version that micro-batch number m reads.
    fn version_of(&self, draft: &Draft<'_>, number: i64) -> i64 {
        let (step, i) = self.split(number);
        step - i64::from(draft.delay(self.stage, i))
    }

    fn split(&self, number: i64) -> (i64, MicroBatch) {
        let i = number.rem_euclid(self.micro_batches);
        let step = number.div_euclid(self.micro_batches);
        (step, MicroBatch::numbered(counted(i)))
    }

    /// Right after the last pass of micro-batch number m.
    fn released(&self, draft: &Draft<'_>, number: i64) -> Moment {
        let (step, i) = self.split(number);
        let mut moment = draft.released(self.stage, i);
        moment.period += step;
        moment
    }

    /// Sends the sums along the devices, each adding its own.
    fn combine(
        &self,
        draft: &mut Draft<'_>,
        gradient: BufferId,
    ) -> Result<(), LowerError> {
        let sum = draft.plan.sum(self.stage.number());
        let last = draft.last().index() as i64;
        for hop in 1..self.length {
            let (giver, taker) = (last - self.length + hop, last - self.length + hop + 1);
            let received =
                draft.spare_buffer(self.ring, Subject::Gradient, self.stage, 1);
            let moment = self.released(draft, giver);
            let ends = [(giver, gradient), (taker, received)]
                .map(|(number, buffer)| self.end(number, moment, buffer));
            let so_far = Box::new(sum.beginning(counted(hop) as usize));
            draft.carry(moment, ends, Content::Gradient(self.stage, so_far))?;
            self.add(draft, taker, [gradient, received]);
        }
        Ok(())
    }

    /// Adds what was received to the sum of the device of micro-batch number m, behind its last pass.
    fn add(&self, draft: &mut Draft<'_>, number: i64, sums: [BufferId; 2]) {
        let (_, i) = self.split(number);
        let moment = draft.released(self.stage, i);
        let sums = sums.map(|sum| version(sum, 0));
        draft.push_combine((self.stage, i), moment, sums, 1);
    }

    /// Optimizer state goes to the device that updates next.
    fn pass_on(
        &self,
        draft: &mut Draft<'_>,
        optimizer: BufferId,
    ) -> Result<(), LowerError> {
        if self.micro_batches % self.length == 0 {
            return Ok(());
        }
        let updated = self.released(draft, -1);
        let ends = [-1, self.micro_batches - 1]
            .map(|number| self.end(number, updated, optimizer));
        draft.carry(updated, ends, Content::Optimizer(self.stage))?;
        Ok(())
    }

    /// Each device takes version 0 when it has done its last micro-batch of the version whose
    /// slot it takes; it goes from device to device, in the order of their first use.
    fn spread(
        &self,
        draft: &mut Draft<'_>,
        parameter: BufferId,
        versions: u32,
    ) -> Result<(), LowerError> {
        let first = (0..).find(|number| self.version_of(draft, *number) == 0);
        let first = first.expect("some micro-batch reads every version");
        let (mut source, mut ready) = (-1i64, self.released(draft, -1));
        let made = source.rem_euclid(self.length);
        for reader in
            (first..first + self.length).filter(|m| m.rem_euclid(self.length) != made)
        {
            let stale =
                |number: &i64| self.version_of(draft, *number) <= -i64::from(versions);
            let earlier = (1..).map(|turn| reader - turn * self.length).find(stale);
            let earlier = earlier.expect("versions grow with micro-batches");
            let freed = self.released(draft, earlier);
            let moment = ready.max(freed);
            let ends = [source, reader].map(|number| self.end(number, moment, parameter));
            ready = draft.carry(moment, ends, Content::Parameter(self.stage))?;
            source = reader;
        }
        Ok(())
    }
}

/// A number of a device or micro-batch.
fn counted(number: i64) -> u32 {
    u32::try_from(number).expect("devices and micro-batches are counted in 32 bits")
}
