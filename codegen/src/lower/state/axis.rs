//! Equal workers, folded into an axis: collectives move gradients and parameters.
//!
//! | states | after backward | update | before a pass |
//! | --- | --- | --- | --- |
//! | replicated | all-reduce | everyone, all | |
//! | zero1 | reduce-scatter, after the whole backward pass | own shard | all-gather once a step |
//! | zero2 | reduce-scatter at once | own shard | all-gather once a step |
//! | zero3 | reduce-scatter at once | own shard | all-gather for forward, again for backward |

use super::{Addition, StageRows, UpdateRows, version};
use crate::lower::{
    LowerError,
    draft::{Draft, DraftWork, Key, Side, Slotting},
    site::group_of,
};
use roundelay_schedule::{
    AxisId, BufferId, Bytes, Collective, Content, GroupId, Id, LinkId, MicroBatch, Pass,
    RingId, Slice, Stage, States, Subject, Sum,
};

/// One stage on the axis.
struct Workers {
    stage: Stage,
    ring: RingId,
    group: GroupId,
    link: LinkId,
    gradient: BufferId,
}

const ONLY: usize = 0;

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let ring = draft.sites.ring(stage, MicroBatch::new(ONLY));
    let (group, link) = draft.sites.workers(draft.target, ring)?;
    let group = group_of(&mut draft.groups, group);
    let gradient = draft.state_buffer(ring, Subject::Gradient, stage, 1);
    let workers = Workers { stage, ring, group, link, gradient };
    let parameter = match draft.plan.states {
        States::Replicated => workers.replicated(draft),
        States::Zero1 | States::Zero2 | States::Zero3 | States::Handoff => {
            workers.sharded(draft)
        }
    };
    let only = MicroBatch::new(ONLY);
    let mut rows = StageRows::default();
    rows.gradient.insert(only, (version(gradient, 0), Addition::First));
    let [forward, backward] = parameter;
    for pass in draft.order.passes(stage) {
        let buffer = if *pass == Pass::Forward { forward } else { backward };
        rows.parameter.insert((*pass, only), version(buffer, 0));
    }
    Ok(rows)
}

impl Workers {
    fn replicated(&self, draft: &mut Draft<'_>) -> [BufferId; 2] {
        let stage = self.stage;
        let parameter = draft.state_buffer(self.ring, Subject::Parameter, stage, 1);
        let optimizer = draft.optimizer(self.ring, stage);
        let (key, lag) = draft.after_last(stage);
        self.reduce(draft, (key, lag), Collective::AllReduce, self.gradient);
        let rows = UpdateRows { parameter, gradient: self.gradient, optimizer, parts: 1 };
        self.update(draft, &rows);
        [parameter; 2]
    }

    fn sharded(&self, draft: &mut Draft<'_>) -> [BufferId; 2] {
        let (stage, axis) = (self.stage, AxisId::new(0));
        let parts = u64::from(draft.sites.axes[axis].extent);
        let shard = |draft: &mut Draft<'_>, subject: Subject| {
            let size = Bytes(draft.state_size(subject, stage).0 / parts);
            draft.buffer(self.ring, subject, 0, size, Slotting::PerStep(1))
        };
        let part = Slice::Shard(axis);
        let parameter = shard(draft, Subject::Parameter(stage, part));
        let gradient = shard(draft, Subject::Gradient(stage, part));
        let keeps = draft.job.optimizer_width() > 0;
        let optimizer = keeps.then(|| shard(draft, Subject::Optimizer(stage, part)));
        let whole = self.gather(draft, parameter);
        let moment = self.reduction_moment(draft);
        self.reduce(draft, moment, Collective::ReduceScatter, gradient);
        self.update(draft, &UpdateRows { parameter, gradient, optimizer, parts });
        whole
    }

    /// ZeRO-1 keeps all gradients until the whole backward pass is over.
    fn reduction_moment(&self, draft: &Draft<'_>) -> (Key, u32) {
        match draft.plan.states {
            States::Zero1 => draft.after_last(Stage::new(0)),
            _ => draft.after_last(self.stage),
        }
    }

    fn reduce(
        &self,
        draft: &mut Draft<'_>,
        (key, lag): (Key, u32),
        kind: Collective,
        to: BufferId,
    ) {
        let content =
            Content::Gradient(self.stage, Sum(vec![vec![MicroBatch::new(ONLY)]]));
        let (link, group) = (self.link, self.group);
        let (from, to) = (version(self.gradient, 0), version(to, 0));
        draft.push(
            key,
            lag,
            DraftWork::Collective { link, kind, group, from, to, content },
        );
    }

    fn update(&self, draft: &mut Draft<'_>, rows: &UpdateRows) {
        let (key, lag) = self.reduction_moment(draft);
        let site = draft.sites.site(self.stage, MicroBatch::new(ONLY), lag);
        draft.push_update(self.stage, site, (key, lag), rows);
    }

    /// Whole parameters for the forward and for the backward pass.
    fn gather(&self, draft: &mut Draft<'_>, shard: BufferId) -> [BufferId; 2] {
        let once = draft.plan.states != States::Zero3;
        let turn = draft.order.turn(self.stage);
        let passes = [(Pass::Forward, 0), (turn, u32::from(!once))];
        passes.map(|(pass, which)| {
            let whole = Subject::Parameter(self.stage, Slice::Whole);
            let size = draft.flat(self.stage);
            let to = draft.buffer(self.ring, whole, which, size, Slotting::PerStep(1));
            if pass == Pass::Forward || !once {
                self.gather_before(draft, pass, shard, to);
            }
            to
        })
    }

    fn gather_before(
        &self,
        draft: &mut Draft<'_>,
        pass: Pass,
        shard: BufferId,
        to: BufferId,
    ) {
        let (slot, found) = draft.order.find(pass, self.stage, MicroBatch::new(ONLY));
        let key = draft.key(slot, Side::Before);
        let (link, kind, group) = (self.link, Collective::AllGather, self.group);
        let (from, to) = (version(shard, 0), version(to, 0));
        let content = Content::Parameter(self.stage);
        let work = DraftWork::Collective { link, kind, group, from, to, content };
        draft.push(key, found.lag, work);
    }
}
