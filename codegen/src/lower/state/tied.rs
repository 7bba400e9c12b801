//! Parameters that several stages use: the device of the first of them keeps them. Every stage adds
//! up its gradients in a sum of its own. Those of the others go to the first one's device, which
//! adds them up, updates, and gives the new version to other devices before their first use.

use super::{
    StageRows, Update, UpdateRows,
    axis::{Exchange, Members},
    end, version,
};
use crate::lower::{
    LowerError,
    draft::{Draft, Moment, Side},
};
use roundelay_schedule::{
    BufferId, Collective, Content, Pass, Place, Stage, Subject, Sum, Table, Tie,
};
use std::collections::BTreeSet;

/// Lays out the states of all ties, and tells the stages that use them where they find them.
pub(crate) fn lay_out(
    draft: &mut Draft<'_>,
    states: &mut Table<Stage, StageRows>,
) -> Result<(), LowerError> {
    for (state, tie) in draft.plan.tied() {
        Tied::new(draft, state, tie).lay_out(draft, states)?;
    }
    Ok(())
}

/// A tie while it is laid out.
struct Tied<'a> {
    state: Stage,
    tie: &'a Tie,
    home: Place,
    rows: UpdateRows,
}

/// What one stage adds to the gradient of a tie.
struct Share {
    at: Place,
    gradient: BufferId,
    sum: Sum,
    /// When it is whole.
    moment: Moment,
}

impl<'a> Tied<'a> {
    fn new(draft: &mut Draft<'_>, state: Stage, tie: &'a Tie) -> Self {
        let home = place(draft, state);
        Self { state, tie, home, rows: draft.whole_state(home.ring, state, 1) }
    }

    fn lay_out(
        &self,
        draft: &mut Draft<'_>,
        states: &mut Table<Stage, StageRows>,
    ) -> Result<(), LowerError> {
        let mut known = BTreeSet::from([self.home]);
        let mut shares = Vec::new();
        for (number, stage) in self.tie.users() {
            let at = place(draft, stage);
            let parameter =
                draft.state_buffer(at.ring, Subject::Parameter, self.state, 1);
            if known.insert(at) {
                self.give(draft, (stage, at), parameter)?;
            }
            let gradient =
                draft.spare_buffer(at.ring, Subject::Gradient, self.state, number);
            let holds = [parameter, gradient].map(|buffer| version(buffer, 0));
            states[stage].tied.insert(self.state, holds);
            shares.push(self.share(draft, stage, (at, gradient)));
        }
        let moment = self.add_up(draft, &shares)?;
        let moment = self.across(draft, moment, shares)?;
        let last = draft.last();
        let update = Update::new(draft, (self.state, last), moment, self.rows);
        draft.push_update(update)
    }

    /// Another device has the version before until its first pass comes, of whichever micro-batch.
    fn give(
        &self,
        draft: &mut Draft<'_>,
        (stage, at): (Stage, Place),
        parameter: BufferId,
    ) -> Result<(), LowerError> {
        let forward = |i| draft.beside(Pass::Forward, stage, i, Side::Before);
        let first = draft.order.micro_batches().map(forward).min();
        let moment = first.expect("there is a micro-batch");
        let ends = [end(self.home, self.rows.parameter), end(at, parameter)];
        draft.carry(moment, ends, Content::Parameter(self.state))?;
        Ok(())
    }

    fn share(
        &self,
        draft: &Draft<'_>,
        stage: Stage,
        (at, gradient): (Place, BufferId),
    ) -> Share {
        let micro_batches = draft.order.micro_batches();
        let additions = micro_batches.map(|i| draft.plan.addition(self.state, stage, i));
        // Passes of the step wait for none of it.
        let moment = draft.released(stage, draft.last()).closing();
        Share { at, gradient, sum: Sum::list(additions), moment }
    }

    /// Adds the sums of the other stages to that of the first one; says when the whole is there.
    fn add_up(
        &self,
        draft: &mut Draft<'_>,
        shares: &[Share],
    ) -> Result<Moment, LowerError> {
        let mut whole = shares[0].moment;
        for (number, share) in (1..).zip(&shares[1..]) {
            let (received, arrived) = self.bring(draft, number, share)?;
            whole = draft.following(whole.max(arrived));
            let sums = [self.rows.gradient, received].map(|sum| version(sum, 0));
            draft.push_combine((self.state, draft.last()), whole, sums, 1);
            whole = draft.following(whole);
        }
        Ok(whole)
    }

    /// Brings a sum to the device of the first stage: where it lies there, and from when on.
    fn bring(
        &self,
        draft: &mut Draft<'_>,
        number: u32,
        share: &Share,
    ) -> Result<(BufferId, Moment), LowerError> {
        let Share { at, gradient, sum, moment } = share;
        if *at == self.home {
            return Ok((*gradient, *moment));
        }
        let which = self.tie.sums() + number;
        let received =
            draft.spare_buffer(self.home.ring, Subject::Gradient, self.state, which);
        let ends = [end(*at, *gradient), end(self.home, received)];
        let content = Content::Gradient(self.state, Box::new(sum.clone()));
        Ok((received, draft.carry(*moment, ends, content)?))
    }

    /// Adds up the wholes of all replicas.
    fn across(
        &self,
        draft: &mut Draft<'_>,
        moment: Moment,
        shares: Vec<Share>,
    ) -> Result<Moment, LowerError> {
        let axes = draft.sites.batch_axes();
        if axes.is_empty() {
            return Ok(moment);
        }
        let along = Members::new(draft, self.state).along(draft, axes)?;
        let sum = Sum::all(shares.into_iter().map(|share| share.sum).collect());
        let content = Content::Gradient(self.state, Box::new(sum));
        let gradient = version(self.rows.gradient, 0);
        let (kind, from, to) = (Collective::AllReduce, gradient, gradient);
        Exchange { along, kind, from, to, content }.push(draft, moment);
        Ok(draft.following(moment))
    }
}

/// Where a stage is, or the first one of a tie.
fn place(draft: &Draft<'_>, stage: Stage) -> Place {
    draft.sites.site(stage, draft.last(), 0).at
}
