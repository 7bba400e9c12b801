//! Equal members, folded into axes: replicas of a cell, or synchronous workers. Collectives move
//! gradients and parameters; with whole states on every member an all-reduce does.
//!
//! What a pass made possible stands a turn later than it could: a turn is one pass of the
//! device, so that a reduction has a pass to hide behind before its result is wanted, and the
//! next gather goes first where both use one queue. What closes a step and has no pass left to hide
//! behind stands behind the messages of the last one ([`Side::Closing`]).

use super::{StageRows, Update, local, version};
use crate::lower::{
    LowerError,
    draft::{Draft, DraftWork, Hold, Moment, Side},
    site::group_of,
};
use roundelay_schedule::{
    AxisId, Collective, Content, GroupId, Id, LinkId, MicroBatch, Pass, Placement,
    RingId, Stage, Sum,
};
use std::rc::Rc;

/// One stage on every coordinate of the axes.
pub(super) struct Members {
    pub(super) stage: Stage,
    pub(super) ring: RingId,
    /// The passes of the stage's device in list order, as numbers of slots.
    turns: Rc<[u32]>,
    /// Turns that what a pass made possible may stand later; none without a flush, nor where
    /// micro-batches have lanes of their own.
    patience: usize,
}

/// The members along some axes, and what joins them.
#[derive(Clone, Copy)]
pub(super) struct Along {
    group: GroupId,
    link: LinkId,
}

/// A collective of a stage's members.
pub(super) struct Exchange {
    pub(super) along: Along,
    pub(super) kind: Collective,
    pub(super) from: Hold,
    pub(super) to: Hold,
    pub(super) content: Content,
}

impl Exchange {
    /// Adds it.
    pub(super) fn push(self, draft: &mut Draft<'_>, moment: Moment) {
        let Self { along: Along { group, link }, kind, from, to, content } = self;
        let work = DraftWork::Collective { link, kind, group, from, to, content };
        draft.push(moment, work);
    }
}

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let members = Members::new(draft, stage);
    let (rows, state) = local::kept(draft, stage);
    let all = members.along(draft, draft.sites.batch_axes())?;
    let last = members.turn(draft, draft.order.closing(stage), draft.last());
    let gradient = version(state.gradient, 0);
    let sum = Box::new(Sum::list(draft.additions(stage)));
    let content = Content::Gradient(stage, sum);
    let kind = Collective::AllReduce;
    let exchange = Exchange { along: all, kind, from: gradient, to: gradient, content };
    exchange.push(draft, members.closing(draft, last, 1));
    let moment = update_moment(&members, draft, last);
    let update = Update::new(draft, (stage, draft.last()), moment, state);
    draft.push_update(update)?;
    Ok(rows)
}

/// Where the update of step 0 stands. Without a flush the lane goes on with passes that read older
/// versions, so it stands right above the first one that reads what it makes, or that begins the
/// next sum in its place. So many passes hide the sum over the members.
fn update_moment(members: &Members, draft: &Draft<'_>, last: usize) -> Moment {
    let stage = members.stage;
    let soonest = members.closing(draft, last, 2);
    let plan = draft.plan;
    if plan.placement != Placement::Pipeline || plan.rule.is_synchronous() {
        return soonest;
    }
    let above = |pass, i| draft.beside(pass, stage, i, Side::Before);
    let read = draft
        .order
        .micro_batches()
        .map(|i| above(Pass::Forward, i).later(1 + i64::from(draft.delay(stage, i))));
    let next_sum = above(draft.order.closing(stage), MicroBatch::new(0)).later(1);
    let latest = read.chain([next_sum]).min();
    latest.map_or(soonest, |latest| latest.max(soonest))
}

impl Members {
    pub(super) fn new(draft: &Draft<'_>, stage: Stage) -> Self {
        let ring = draft.sites.ring(stage, draft.last());
        let turns = draft.turns(ring);
        let in_turn =
            draft.plan.rule.is_synchronous() && draft.sites.rings[ring].lanes == 1;
        Self { stage, ring, turns, patience: usize::from(in_turn) }
    }

    /// All members along some axes.
    pub(super) fn along(
        &self,
        draft: &mut Draft<'_>,
        axes: Vec<AxisId>,
    ) -> Result<Along, LowerError> {
        let (group, link) = draft.sites.members(&draft.levels, self.ring, axes)?;
        Ok(Along { group: group_of(&mut draft.groups, group), link })
    }

    /// The number of a pass of the stage among those of its device.
    pub(super) fn turn(&self, draft: &Draft<'_>, pass: Pass, i: MicroBatch) -> usize {
        let (slot, _) = draft.order.find(pass, self.stage, i);
        let found = self.turns.binary_search(&slot);
        found.expect("a pass of the stage is one of its device's")
    }

    /// The turn behind which a stage's whole sum goes: that of its last pass; but the device's last
    /// where nothing stands a turn later, for its lane would stop there for the sum.
    pub(super) fn whole(&self, draft: &Draft<'_>) -> usize {
        match self.patience {
            0 => self.turns.len() - 1,
            _ => self.turn(draft, draft.order.closing(self.stage), draft.last()),
        }
    }

    /// Before the pass of a turn.
    pub(super) fn before(&self, draft: &Draft<'_>, turn: usize) -> Moment {
        self.beside(draft, turn, Side::Before)
    }

    /// So many turns after the pass of a turn, or after the last of the period.
    pub(super) fn after(&self, draft: &Draft<'_>, turn: usize, later: usize) -> Moment {
        self.beside(draft, turn + later * self.patience, Side::After)
    }

    /// The same, for what only the next step waits for: where no pass is left to hide behind, it
    /// lets messages go first.
    pub(super) fn closing(&self, draft: &Draft<'_>, turn: usize, later: usize) -> Moment {
        let turn = turn + later * self.patience;
        let closes = match self.patience {
            // With N = 1 every pass makes a whole sum, and the next one waits for its place.
            0 => draft.sites.micro_batches > 1,
            _ => turn + 1 >= self.turns.len(),
        };
        let side = if closes { Side::Closing } else { Side::After };
        self.beside(draft, turn, side)
    }

    /// The same for the sum of one micro-batch's gradients, of which each is added up at once:
    /// without patience the sum of the last one alone is whole.
    pub(super) fn summed(
        &self,
        draft: &Draft<'_>,
        i: MicroBatch,
        turn: usize,
        later: usize,
    ) -> Moment {
        if self.patience > 0 || i == draft.last() {
            self.closing(draft, turn, later)
        } else {
            self.after(draft, turn, later)
        }
    }

    /// Beside the pass of a turn, or behind the last of the period, in the order of turns.
    fn beside(&self, draft: &Draft<'_>, turn: usize, side: Side) -> Moment {
        let last = self.turns.len() - 1;
        let slot = self.turns[turn.min(last)];
        let overdue = u32::try_from(turn.saturating_sub(last)).unwrap_or(u32::MAX);
        let key = draft.key(slot, side).overdue(overdue);
        Moment::new(key, draft.order.slot(slot).lag)
    }

    /// Behind the pass that follows a moment: what comes then has it to hide behind. The moment itself,
    /// where no pass is left or lanes have no patience.
    pub(super) fn a_turn_behind(&self, draft: &Draft<'_>, moment: Moment) -> Moment {
        let follows = |slot: &u32| draft.order.slot(*slot).end > moment.key.time();
        let next = self.turns.iter().position(follows);
        let next = next.filter(|_| self.patience > 0);
        next.map_or(moment, |turn| self.closing(draft, turn, 0))
    }
}
