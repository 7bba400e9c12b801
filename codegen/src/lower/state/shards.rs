//! States that the members of an axis split among them, in equal parts.
//!
//! | states | gradients | update | parameters |
//! | --- | --- | --- | --- |
//! | zero1 | whole sum, reduce-scatter behind the last micro-batch's | own shard | all-gather once a step |
//! | zero2 | reduce-scatter of each micro-batch's, added up in the shard | own shard | all-gather once a step |
//! | zero3 | as zero2 | own shard | all-gather for each pass that reads them, dropped behind it |
//! | hsdp | as zero3 inside a group, then an all-reduce of the shard across groups | own shard | as zero3 inside a group |
//!
//! A gather stands one turn before its pass, so two units are whole at a time: one that a pass
//! reads, one that arrives. So do two whole gradients: one that a pass makes, one that leaves. W reads
//! no parameters but where a gradient hops back, so nothing is gathered for it elsewhere. Sums that
//! have no pass left to hide behind stand behind the messages of the step ([`Members::closing`]).
//!
//! Where the gradient is clipped, each finds the square of the norm of its shard, and an all-reduce
//! inside a group makes that of the whole (`norm.rs`).

use super::{
    Addition, StageRows, Update, UpdateRows,
    axis::{Along, Exchange, Members},
    norm::Split,
    version,
};
use crate::lower::{
    LowerError,
    draft::{Draft, Hold, Instance, Moment, Slotting},
};
use roundelay_schedule::{
    AxisId, Bytes, Collective, Content, Id, MicroBatch, Pass, Slice, Stage, States,
    Subject, Sum,
};

/// How parameters get from their shards to those who read them; gradients go back by its adjoint.
const PARAMETERS: Collective = Collective::AllGather;

/// A stage whose state is split.
struct Shards {
    members: Members,
    /// Those who hold the parts of one whole.
    inside: Along,
    /// Those who hold the same part.
    across: Option<Along>,
    axis: AxisId,
    /// With as many shards as there are parts.
    state: UpdateRows,
}

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let shards = Shards::new(draft, stage)?;
    let mut rows = StageRows::default();
    match draft.plan.states {
        States::Zero1 => {
            shards.gather_once(draft, &mut rows);
            shards.reduce_once(draft, &mut rows)?;
        }
        States::Zero2 => {
            shards.gather_once(draft, &mut rows);
            shards.reduce_each(draft, &mut rows)?;
        }
        States::Zero3 | States::Hsdp => {
            shards.gather_each(draft, &mut rows);
            shards.reduce_each(draft, &mut rows)?;
        }
        States::Replicated | States::Handoff => {
            unreachable!("whole states are laid out elsewhere")
        }
    }
    Ok(rows)
}

impl Shards {
    fn new(draft: &mut Draft<'_>, stage: Stage) -> Result<Self, LowerError> {
        let members = Members::new(draft, stage);
        let axes = draft.sites.batch_axes();
        let (axis, outer) = axes.split_last().expect("what is split has an axis");
        let inside = members.along(draft, vec![*axis])?;
        let repeated = outer.iter().any(|outer| draft.sites.axes[*outer].extent > 1);
        let across =
            if repeated { Some(members.along(draft, outer.to_vec())?) } else { None };
        let parts = u64::from(draft.sites.axes[*axis].extent);
        let slice = Slice::Shard(*axis);
        let keeps = draft.job.optimizer_width() > 0;
        let mut shard = |subject: Subject| {
            let size = Bytes(draft.state_size(subject).0 / parts);
            draft.buffer(members.ring, subject, 0, size, Slotting::PerStep(1))
        };
        let parameter = shard(Subject::Parameter(stage, slice));
        let gradient = shard(Subject::Gradient(stage, slice));
        let optimizer = keeps.then(|| shard(Subject::Optimizer(stage, slice)));
        let state = UpdateRows { parameter, gradient, optimizer, shards: parts };
        Ok(Self { members, inside, across, axis: *axis, state })
    }

    fn stage(&self) -> Stage {
        self.members.stage
    }

    /// Whole parameters for all passes of a step.
    fn gather_once(&self, draft: &mut Draft<'_>, rows: &mut StageRows) {
        let whole =
            draft.state_buffer(self.members.ring, Subject::Parameter, self.stage(), 1);
        let first = self.members.turn(draft, Pass::Forward, MicroBatch::new(0));
        self.gather(draft, first, version(whole, 0));
        for i in draft.order.micro_batches() {
            rows.reads(draft, (self.stage(), i), whole);
        }
    }

    /// Whole parameters for each pass that reads them, while the pass before it runs.
    fn gather_each(&self, draft: &mut Draft<'_>, rows: &mut StageRows) {
        let code = &draft.code.stages[self.stage()];
        let passes = draft.order.passes(self.stage()).iter().zip((0..).step_by(2));
        let passes = passes.filter(|(pass, _)| code.reads(**pass));
        let all = passes.flat_map(|(pass, which)| {
            let turn = |i| (self.members.turn(draft, *pass, i), *pass, i, which);
            draft.order.micro_batches().map(turn).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(turn, ..)| *turn);
        for (turn, pass, i, which) in all {
            let subject = Subject::Parameter(self.stage(), Slice::Whole);
            let hold = self.in_turn(draft, subject, which, (turn, i));
            self.gather(draft, turn.saturating_sub(1), hold);
            rows.parameter.insert((pass, i), hold);
        }
    }

    /// A row that every other turn takes; `which` tells apart those of one subject.
    fn in_turn(
        &self,
        draft: &mut Draft<'_>,
        subject: Subject,
        which: u32,
        (turn, i): (usize, MicroBatch),
    ) -> Hold {
        let parity = u32::from(turn % 2 == 1);
        let whole = draft.state_size(subject);
        let size = match subject {
            Subject::Gradient(_, Slice::Shard(_)) => Bytes(whole.0 / self.state.shards),
            _ => whole,
        };
        let slots = Slotting::InTurn(parity);
        let buffer =
            draft.buffer(self.members.ring, subject, which + parity, size, slots);
        Hold { buffer, instance: Instance::MicroBatch(i) }
    }

    fn gather(&self, draft: &mut Draft<'_>, turn: usize, to: Hold) {
        let from = version(self.state.parameter, 0);
        let (along, kind) = (self.inside, PARAMETERS);
        let content = Content::Parameter(self.stage());
        let moment = self.members.before(draft, turn);
        let exchange = Exchange { along, kind, from, to, content };
        exchange.push(draft, moment);
    }

    /// Every member adds up its own micro-batches' whole gradients first.
    fn reduce_once(
        &self,
        draft: &mut Draft<'_>,
        rows: &mut StageRows,
    ) -> Result<(), LowerError> {
        let ring = self.members.ring;
        let last = self.members.whole(draft);
        let whole = draft.state_buffer(ring, Subject::Gradient, self.stage(), 1);
        for i in draft.order.micro_batches() {
            rows.adds(i, whole, i.index());
        }
        let sum = Sum::list(draft.order.micro_batches());
        let moment = self.members.closing(draft, last, 1);
        self.scatter(draft, moment, (version(whole, 0), self.gradient()), sum);
        self.update(draft, last, 2)
    }

    /// Each micro-batch's gradient is split up at once, and added up in the shard.
    fn reduce_each(
        &self,
        draft: &mut Draft<'_>,
        rows: &mut StageRows,
    ) -> Result<(), LowerError> {
        let mut last = 0;
        for i in draft.order.micro_batches() {
            let closing = draft.order.closing(self.stage());
            let turn = self.members.turn(draft, closing, i);
            let subject = Subject::Gradient(self.stage(), Slice::Whole);
            let whole = self.in_turn(draft, subject, 0, (turn, i));
            rows.gradient.insert(i, (whole, Addition::First));
            let moment = self.members.summed(draft, i, turn, 1);
            let sum = Sum::list([i]);
            if i.index() == 0 {
                self.scatter(draft, moment, (whole, self.gradient()), sum);
            } else {
                let subject = Subject::Gradient(self.stage(), Slice::Shard(self.axis));
                let received = self.in_turn(draft, subject, 1, (turn, i));
                self.scatter(draft, moment, (whole, received), sum);
                let moment = self.members.summed(draft, i, turn, 2);
                self.add(draft, moment, received);
            }
            last = turn;
        }
        let reduced = usize::from(self.across.is_some());
        if let Some(along) = self.across {
            self.reduce_across(draft, along, last);
        }
        self.update(draft, last, 2 + reduced)
    }

    /// The update this many turns behind the last one that makes a gradient. Where the norm of the whole
    /// has to be found, that takes a turn, and another one to add up what shards have.
    fn update(
        &self,
        draft: &mut Draft<'_>,
        last: usize,
        later: usize,
    ) -> Result<(), LowerError> {
        let turn = |more| self.members.closing(draft, last, later + more);
        let [gradient, added, updated] = [0, 1, 2].map(turn);
        let split = Split { axis: self.axis, inside: self.inside, added, updated };
        let place = (self.stage(), draft.last());
        let update = Update::new(draft, place, gradient, self.state);
        draft.push_update(Update { split: Some(split), ..update })
    }

    fn gradient(&self) -> Hold {
        version(self.state.gradient, 0)
    }

    fn scatter(
        &self,
        draft: &mut Draft<'_>,
        moment: Moment,
        (from, to): (Hold, Hold),
        sum: Sum,
    ) {
        let (along, kind) = (self.inside, PARAMETERS.adjoint());
        let content = Content::Gradient(self.stage(), Box::new(sum));
        let exchange = Exchange { along, kind, from, to, content };
        exchange.push(draft, moment);
    }

    /// Adds what was received to the shard.
    fn add(&self, draft: &mut Draft<'_>, moment: Moment, received: Hold) {
        let sums = [self.gradient(), received];
        let place = (self.stage(), draft.last());
        draft.push_combine(place, moment, sums, self.state.shards);
    }

    /// The groups' sums, in order; each is that of all micro-batches of a group.
    fn reduce_across(&self, draft: &mut Draft<'_>, along: Along, last: usize) {
        let cell = draft.sites.micro_batches as usize;
        let group = |i: MicroBatch| {
            let parts = 0..self.state.shards as usize;
            Sum::list(parts.map(move |part| MicroBatch::new(part * cell + i.index())))
        };
        let sum = Sum::all(draft.order.micro_batches().map(group).collect());
        let (kind, gradient) = (Collective::AllReduce, self.gradient());
        let content = Content::Gradient(self.stage(), Box::new(sum));
        let moment = self.members.closing(draft, last, 2);
        let exchange = Exchange { along, kind, from: gradient, to: gradient, content };
        exchange.push(draft, moment);
    }
}
