//! A device per cyclic worker: partial gradient sums and parameters go from worker to worker.
//!
//! Replicated: every worker keeps one copy of every stage; the last worker updates, and θ_t goes
//! from it along the workers, each taking it right after its last use of θ_{t−1}.
//! Handoff: a stage travels from its user to the next user of the same version; its owner, the
//! first worker that is fresh under v2, keeps what the update needs.

use super::{Addition, StageRows, UpdateRows, version};
use crate::lower::{
    LowerError,
    draft::{Draft, End, Moment, Side, Slotting},
};
use roundelay_schedule::{
    BufferId, Content, Id, MicroBatch, Pass, Place, RingId, Rule, Slice, Stage, Subject,
    Sum, Timeline,
};

pub(super) fn replicated(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let owner = draft.last();
    let copies: Vec<BufferId> = draft
        .order
        .micro_batches()
        .map(|i| {
            let versions =
                if i == owner { 1 + draft.delay(stage, i).unsigned_abs() } else { 1 };
            draft.state_buffer(ring(i), Subject::Parameter, stage, versions)
        })
        .collect();
    let mut rows = gradients(draft, stage, owner, copies[owner.index()])?;
    for i in draft.order.micro_batches() {
        for pass in draft.order.passes(stage) {
            let hold = version(copies[i.index()], draft.delay(stage, i));
            rows.parameter.insert((*pass, i), hold);
        }
    }
    spread(draft, stage, owner, &copies)?;
    Ok(rows)
}

/// Sends each version from its owner along the fresh workers, then along the stale ones. A worker
/// passes it on after its own first use: that is early enough, and neighbours then send one after
/// another, not all at once after the update.
fn spread(
    draft: &mut Draft<'_>,
    stage: Stage,
    owner: MicroBatch,
    copies: &[BufferId],
) -> Result<(), LowerError> {
    let made = created(draft, stage);
    for delay in 0..=draft.plan.delays.staleness(stage.index()) {
        let delay = i32::try_from(delay).expect("a delay is a small number");
        let (mut source, mut ready) = (owner, made);
        let readers = draft.order.micro_batches().filter(|i| *i != owner);
        for reader in
            readers.filter(|i| draft.delay(stage, *i) == delay).collect::<Vec<_>>()
        {
            let freed = draft.released(stage, reader).later(i64::from(delay - 1));
            let used = draft.after(Pass::Forward, stage, reader).later(delay.into());
            let ends = [source, reader].map(|i| end(i, copies[i.index()]));
            let content = Content::Parameter(stage);
            carry(draft, ready.max(freed), 0, ends, content)?;
            (source, ready) = (reader, used);
        }
    }
    Ok(())
}

/// Right after the update that makes version 0.
fn created(draft: &Draft<'_>, stage: Stage) -> Moment {
    draft.released(stage, draft.last()).later(-1)
}

/// Adds a transfer of version 0 at a moment, and returns when it is there.
pub(super) fn carry(
    draft: &mut Draft<'_>,
    moment: Moment,
    reach: u32,
    ends: [End; 2],
    content: Content,
) -> Result<Moment, LowerError> {
    let moment = draft.following(moment);
    let work = draft.transfer(ends, content)?;
    draft.push_reaching(moment, reach, work);
    Ok(moment)
}

/// Passes the partial sum from worker to worker and updates at the owner.
fn gradients(
    draft: &mut Draft<'_>,
    stage: Stage,
    owner: MicroBatch,
    parameter: BufferId,
) -> Result<StageRows, LowerError> {
    let mut rows = StageRows::default();
    let mut sum = Vec::new();
    let mut last = None;
    for i in draft.order.micro_batches() {
        let partial = draft.state_buffer(ring(i), Subject::Gradient, stage, 1);
        if let Some((giver, given)) = last {
            send_sum(draft, stage, (giver, given), (i, partial), &sum)?;
        }
        let addition = Addition::nth(i.index());
        rows.gradient.insert(i, (version(partial, 0), addition));
        sum.push(i);
        last = Some((i, partial));
    }
    let (giver, mut gradient) = last.expect("there is at least one micro-batch");
    if giver != owner {
        let whole = Subject::Gradient(stage, Slice::Whole);
        let size = draft.state_size(whole);
        let total = draft.buffer(ring(owner), whole, 1, size, Slotting::PerStep(1));
        send_sum(draft, stage, (giver, gradient), (owner, total), &sum)?;
        gradient = total;
    }
    let optimizer = draft.optimizer(ring(owner), stage);
    let bound = UpdateRows::whole(parameter, gradient, optimizer);
    draft.push_last_update(stage, owner, &bound)?;
    Ok(rows)
}

fn send_sum(
    draft: &mut Draft<'_>,
    stage: Stage,
    (giver, from): (MicroBatch, BufferId),
    (taker, to): (MicroBatch, BufferId),
    sum: &[MicroBatch],
) -> Result<(), LowerError> {
    let moment = draft.released(stage, giver);
    let ends = [end(giver, from), end(taker, to)];
    let sum = Box::new(Sum::list(sum.iter().copied()));
    let content = Content::Gradient(stage, sum);
    carry(draft, moment, 0, ends, content)?;
    Ok(())
}

/// A stay of version 0 with one worker, over one or more uses in a row.
struct Stay {
    worker: MicroBatch,
    passes: Vec<Pass>,
    /// Right before its first use.
    needs: Moment,
    /// Right after its last use.
    ends: Moment,
}

pub(super) fn handoff(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let owner = owner(draft, stage);
    let staleness = draft.plan.delays.staleness(stage.index());
    let kept = draft.state_buffer(ring(owner), Subject::Parameter, stage, 1 + staleness);
    let mut rows = gradients(draft, stage, owner, kept)?;
    let (mut holder, mut left) = ((owner, kept), created(draft, stage));
    for stay in stays(draft, stage) {
        let next = (stay.worker, residence(draft, stage, (owner, kept), &stay));
        if next.1 != kept {
            let moment = left.max(stay.ends.later(-1)).min(stay.needs);
            let ends = [holder, next].map(|(i, buffer)| end(i, buffer));
            carry(draft, moment, staleness, ends, Content::Parameter(stage))?;
        }
        for pass in &stay.passes {
            let hold = version(next.1, draft.delay(stage, stay.worker));
            rows.parameter.insert((*pass, stay.worker), hold);
        }
        (holder, left) = (next, stay.ends);
    }
    Ok(rows)
}

/// Where a worker holds the stage during a stay: the owner has it anyway.
fn residence(
    draft: &mut Draft<'_>,
    stage: Stage,
    (owner, kept): (MicroBatch, BufferId),
    stay: &Stay,
) -> BufferId {
    if stay.worker == owner {
        return kept;
    }
    let which = 1 + u32::from(stay.passes[0] != Pass::Forward);
    let subject = Subject::Parameter(stage, Slice::Whole);
    let size = draft.state_size(subject);
    draft.buffer(ring(stay.worker), subject, which, size, Slotting::PerStep(1))
}

/// Who uses version 0 of a stage, in order of time.
fn stays(draft: &Draft<'_>, stage: Stage) -> Vec<Stay> {
    let of = |pass, worker| {
        let beside = |side| {
            let moment = draft.beside(pass, stage, worker, side);
            moment.later(draft.delay(stage, worker).into())
        };
        let (needs, ends) = (beside(Side::Before), beside(Side::After));
        Stay { worker, passes: vec![pass], needs, ends }
    };
    let all = draft.order.micro_batches();
    let passes = draft.order.passes(stage).iter();
    let mut uses: Vec<Stay> = all
        .flat_map(|i| passes.clone().map(move |pass| (*pass, i)))
        .map(|(pass, i)| of(pass, i))
        .collect();
    uses.sort_by_key(|stay| stay.needs);
    let mut stays: Vec<Stay> = Vec::new();
    for next in uses {
        match stays.last_mut().filter(|last| last.worker == next.worker) {
            Some(last) => {
                last.passes.extend(next.passes);
                last.ends = next.ends;
            }
            None => stays.push(next),
        }
    }
    stays
}

/// The worker that keeps a stage's optimizer state: the first that is fresh under v2, which is
/// worker N + 1 − j (counted from one) for S = N.
fn owner(draft: &Draft<'_>, stage: Stage) -> MicroBatch {
    let (n, s) = (draft.plan.micro_batches, draft.plan.stages);
    let freshest = Rule::CyclicV2.delays(Timeline::Workers, n, s);
    let fresh = |i: &MicroBatch| freshest.delay(i.index(), stage.index()) == 0;
    draft.order.micro_batches().find(fresh).unwrap_or_else(|| draft.last())
}

/// A cyclic worker's ring is numbered like its micro-batch.
fn ring(worker: MicroBatch) -> RingId {
    RingId::new(worker.index())
}

/// Where a worker has version 0 in a buffer.
fn end(worker: MicroBatch, buffer: BufferId) -> End {
    let at = Place { ring: ring(worker), place: 0 };
    End { at, hold: version(buffer, 0) }
}
