//! A device per cyclic worker: partial gradient sums and parameters go from worker to worker.
//!
//! Replicated: every worker keeps one copy of every stage; the last worker updates, and θ_t goes
//! from it along the workers, each taking it right after its last use of θ_{t−1}.
//! Handoff: a stage travels from its user to the next user of the same version; its owner, the
//! first worker that is fresh under v2, keeps what the update needs.

use super::{StageRows, Update, UpdateRows, end, version};
use crate::lower::{
    LowerError,
    draft::{Draft, End, Moment, Side},
};
use roundelay_schedule::{
    BufferId, Content, Id, MicroBatch, Pass, Place, RingId, Rule, Stage, Subject, Sum,
    Timeline,
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
        rows.reads(draft, (stage, i), copies[i.index()]);
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
    for delay in 0..=draft.plan.staleness(stage) {
        let delay = i32::try_from(delay).expect("a delay is a small number");
        let (mut source, mut ready) = (owner, made);
        let readers = draft.order.micro_batches().filter(|i| *i != owner);
        for reader in
            readers.filter(|i| draft.delay(stage, *i) == delay).collect::<Vec<_>>()
        {
            let freed = draft.released(stage, reader).later(i64::from(delay - 1));
            let used = draft.after(Pass::Forward, stage, reader).later(delay.into());
            let ends = [source, reader].map(|i| end_of(i, copies[i.index()]));
            draft.carry(ready.max(freed), ends, Content::Parameter(stage))?;
            (source, ready) = (reader, used);
        }
    }
    Ok(())
}

/// Right after the update that makes version 0.
fn created(draft: &Draft<'_>, stage: Stage) -> Moment {
    draft.released(stage, draft.last()).later(-1)
}

/// Passes the partial sum from worker to worker and updates at the owner.
fn gradients(
    draft: &mut Draft<'_>,
    stage: Stage,
    owner: MicroBatch,
    parameter: BufferId,
) -> Result<StageRows, LowerError> {
    let mut rows = StageRows::default();
    let mut last = None;
    for i in draft.order.micro_batches() {
        let partial = draft.state_buffer(ring(i), Subject::Gradient, stage, 1);
        if let Some((giver, given)) = last {
            send_sum(draft, stage, (giver, given), (i, partial))?;
        }
        rows.adds(i, partial, i.index());
        last = Some((i, partial));
    }
    let (giver, mut gradient) = last.expect("there is at least one micro-batch");
    if giver != owner {
        let total = draft.spare_buffer(ring(owner), Subject::Gradient, stage, 1);
        send_sum(draft, stage, (giver, gradient), (owner, total))?;
        gradient = total;
    }
    let optimizer = draft.optimizer(ring(owner), stage);
    let state = UpdateRows { parameter, gradient, optimizer, shards: 1 };
    let update = Update::last(draft, (stage, owner), state);
    draft.push_update(update)?;
    Ok(rows)
}

/// Sends the sum of all micro-batches up to the giver's.
fn send_sum(
    draft: &mut Draft<'_>,
    stage: Stage,
    (giver, from): (MicroBatch, BufferId),
    (taker, to): (MicroBatch, BufferId),
) -> Result<(), LowerError> {
    let moment = draft.released(stage, giver);
    let ends = [end_of(giver, from), end_of(taker, to)];
    let sum = Box::new(Sum::through(giver));
    draft.carry(moment, ends, Content::Gradient(stage, sum))?;
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
    let staleness = draft.plan.staleness(stage);
    let kept = draft.state_buffer(ring(owner), Subject::Parameter, stage, 1 + staleness);
    let mut rows = gradients(draft, stage, owner, kept)?;
    let (mut holder, mut left) = ((owner, kept), created(draft, stage));
    for stay in stays(draft, stage) {
        let next = (stay.worker, residence(draft, stage, (owner, kept), &stay));
        if next.1 != kept {
            let moment = left.max(stay.ends.later(-1)).min(stay.needs);
            let ends = [holder, next].map(|(i, buffer)| end_of(i, buffer));
            let content = Content::Parameter(stage);
            draft.carry_reaching(moment, staleness, ends, content)?;
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
    draft.spare_buffer(ring(stay.worker), Subject::Parameter, stage, which)
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
fn end_of(worker: MicroBatch, buffer: BufferId) -> End {
    end(Place { ring: ring(worker), place: 0 }, buffer)
}
