//! Rule 4 for transfers and collectives.

use super::{
    contents::{Run, Step},
    held::Held,
    sums::SumId,
};
use crate::{
    Collective, Content, Group, GroupId, Row, Schedule, Splits, Spot, Stage, strided,
};

impl Run<'_> {
    /// The source holds the content, then the destination does.
    pub(super) fn transfer(
        &mut self,
        step: Step,
        from: Spot,
        to: Spot,
        content: &Content,
    ) {
        let held = self.moved(step, from, 0, content);
        self.write(step, to, held);
    }

    /// What leaves a row: what the content says, with the contributions it has so far.
    fn moved(
        &mut self,
        step: Step,
        spot: Spot,
        touch: usize,
        content: &Content,
    ) -> Held<SumId> {
        let (t, found) = (step.t, self.read(spot));
        let expected = match content {
            Content::Parameter(stage) => Held::Parameter(*stage, t),
            Content::Optimizer(stage) => Held::Optimizer(*stage, t),
            Content::Gradient(stage, _) => match self.sum_of(step.action) {
                Some(sum) => Held::Gradient(*stage, t, sum),
                None => Held::Nothing,
            },
            Content::Squares(first, last) => Held::Squares([*first, *last], t),
            Content::Value(value, i) => Held::Value(*value, *i, t),
            Content::ValueGradient(value, i) => match found {
                Held::ValueGradient(own, other, served, _)
                    if (own, other, served) == (*value, *i, t) =>
                {
                    found
                }
                _ => Held::ValueGradient(*value, *i, t, self.flows.all(*value)),
            },
        };
        self.expect(step, spot, touch, expected);
        expected
    }

    /// All members give, then all members get.
    pub(super) fn collective(
        &mut self,
        step: Step,
        (kind, group): (Collective, GroupId),
        [from, to]: [Row; 2],
        content: &Content,
    ) {
        let schedule = self.schedule;
        let places = &schedule.groups[group].places;
        let held = match (kind, content) {
            (
                Collective::AllReduce | Collective::ReduceScatter,
                Content::Gradient(stage, _),
            ) => self.reduced(step, *stage, &schedule.groups[group], from),
            _ => {
                let mut held = Held::Nothing;
                for (touch, at) in places.iter().enumerate() {
                    let spot = Spot { at: *at, row: from };
                    held = self.moved(step, spot, touch, content);
                }
                held
            }
        };
        for at in places {
            self.write(step, Spot { at: *at, row: to }, held);
        }
    }

    /// The sum of what all members hold, in group order.
    fn reduced(
        &mut self,
        step: Step,
        stage: Stage,
        group: &Group,
        from: Row,
    ) -> Held<SumId> {
        let Some(tree) = self.tree(stage) else { return Held::Nothing };
        let carried = self.sum_of(step.action).unwrap_or(tree.whole);
        let planned = Held::Gradient(stage, step.t, tree.whole);
        let mut own = Vec::new();
        let spot = |at| Spot { at, row: from };
        for (touch, at) in group.places.iter().enumerate() {
            match self.read(spot(*at)) {
                Held::Gradient(found, t, sum) if (found, t) == (stage, step.t) => {
                    own.push(sum);
                }
                _ => {
                    let expected = Held::Gradient(stage, step.t, carried);
                    self.refuse(step, spot(*at), touch, expected);
                    return planned;
                }
            }
        }
        let total = self.total(stage, group, &own);
        if !tree.has(total) {
            self.misplan(step, stage, spot(group.places[0]), total);
            return planned;
        }
        let named = total == carried || own.iter().all(|own| *own == carried);
        if !named {
            let expected = Held::Gradient(stage, step.t, carried);
            self.refuse(step, spot(group.places[0]), 0, expected);
        }
        Held::Gradient(stage, step.t, total)
    }

    fn total(&mut self, state: Stage, group: &Group, own: &[SumId]) -> SumId {
        let mut all = None;
        for shift in shifts(self.schedule, state, group) {
            for sum in own {
                let sum = self.sums.shifted(*sum, shift as usize);
                all = Some(self.sums.append(all, sum));
            }
        }
        all.expect("groups have members")
    }
}

/// How many gradients of a state each coordinate of a group's axes lies behind the first one's.
fn shifts(schedule: &Schedule, state: Stage, group: &Group) -> Vec<u32> {
    let each = schedule.plan.additions_each(state);
    let mut stride = schedule.cell_micro_batches() * each;
    let mut strides = Vec::new();
    for (id, axis) in schedule.axes.iter().rev() {
        if group.axes.contains(&id) {
            strides.push((axis.extent, stride));
        }
        if axis.splits == Splits::Batch {
            stride *= axis.extent;
        }
    }
    strided(strides.into_iter().rev())
}
