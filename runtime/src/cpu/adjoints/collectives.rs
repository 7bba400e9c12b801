//! Collectives on rows of all members, whole ones, shards of them, and parts of unequal length.

use super::{
    Bench, MEMBERS, Moment, Product, SCALE, STEP, Seat, compiled, hold, in_doubles,
    models::mlp, random, workers,
};
use crate::machine::Member;
use roundelay_schedule::{
    Action, ActionId, Checked, Collective, Content, GroupId, Id, LinkId, Order,
    Placement, Plan, Row, Rule, States, Work,
};
use std::collections::BTreeSet;

/// A collective of a schedule, or one on rows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Operator {
    link: LinkId,
    kind: Collective,
    group: GroupId,
    from: Row,
    to: Row,
}

impl Operator {
    fn of(action: &Action) -> Option<(Self, &Content)> {
        match &action.work {
            Work::Collective { link, kind, group, from, to, content } => {
                let (link, kind, group) = (*link, *kind, *group);
                Some((Self { link, kind, group, from: *from, to: *to }, content))
            }
            Work::Launch { .. }
            | Work::Transfer { .. }
            | Work::Feed { .. }
            | Work::Report { .. } => None,
        }
    }

    /// What its kind declares, from where it ends to where it begins.
    fn adjoint(self) -> Self {
        Self { kind: self.kind.adjoint(), from: self.to, to: self.from, ..self }
    }

    /// Executes it on rows of random numbers, and tells their product with others at its end. What
    /// it does not write stands for zero.
    fn product(self, bench: &Bench, labels: [u64; 2], scale: f64) -> Product {
        let seats = |row| -> Vec<Seat> {
            let members = bench.shared.members[self.group].iter().flatten();
            let seat = |&Member { coordinate, place }: &Member| Seat {
                at: place,
                row,
                period: STEP,
                coordinate,
            };
            members.map(seat).collect()
        };
        let numbers =
            |label, number, seat| random(&[label, number], bench.read(seat).len());
        for seat in seats(self.to) {
            bench.change(seat, |_, _| 0.0);
        }
        for (number, seat) in (0..).zip(seats(self.from)) {
            bench.write(seat, &numbers(labels[0], number, seat));
        }
        let Self { link, kind, group, from, to } = self;
        let content = Content::Parameter(Id::new(0));
        let work = Work::Collective { link, kind, group, from, to, content };
        let action = Action { lag: 0, reach: 0, after: Default::default(), work };
        let id = ActionId::new(0);
        bench.execute(Moment { id, action: &action, period: STEP, step: STEP });
        let mut product = Product::default();
        for (number, seat) in (0..).zip(seats(self.to)) {
            let own: Vec<f64> = bench.read(seat).iter().map(|x| x * scale).collect();
            product.add(&own, &numbers(labels[1], number, seat));
        }
        product
    }

    fn hold(self, bench: &Bench, what: &str) {
        let ahead = self.product(bench, [1, 2], 1.0);
        hold(&format!("{what}: {self:?}"), 1, |scaled| {
            let scale = if scaled.is_some() { SCALE } else { 1.0 };
            ahead.error(self.adjoint().product(bench, [2, 1], scale))
        });
    }
}

/// The collectives of a schedule, each once.
fn operators(schedule: &Checked) -> BTreeSet<Operator> {
    schedule.actions.values().filter_map(Operator::of).map(|(own, _)| own).collect()
}

#[test]
fn collectives_of_workers_have_the_adjoints_that_they_declare() {
    let mut kinds = BTreeSet::new();
    for n in MEMBERS {
        for states in [States::Replicated, States::Zero1, States::Zero2, States::Zero3] {
            let schedule = workers(n, states, 4);
            let bench = Bench::new(&schedule);
            for operator in operators(&schedule) {
                kinds.insert(operator.kind);
                operator.hold(&bench, &format!("{n} {states}"));
            }
        }
    }
    let all = [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather];
    assert_eq!(kinds, BTreeSet::from(all));
}

#[test]
fn collectives_of_replicas_and_their_groups_have_the_adjoints_that_they_declare() {
    for (replicas, shards) in [(2, 2), (4, 2), (6, 3), (8, 4), (8, 2)] {
        let program = in_doubles(mlp(1, 2 * replicas));
        let states = States::Hsdp;
        let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, states);
        let plan = Plan::new(kind.0, kind.1, kind.2, states, 1, vec![]);
        let schedule = compiled(&program, &plan.replicated(replicas, shards));
        let bench = Bench::new(&schedule);
        let operators = operators(&schedule);
        assert!(operators.len() >= 2, "{operators:?}");
        for operator in operators {
            operator.hold(&bench, &format!("{replicas} in {shards}"));
        }
    }
}

/// Flat arrays are padded to equal shards, so no schedule has unequal ones; the machine's parts may be
/// all the same: whole rows of which every member has its part in place, and rows with room for the
/// longest part.
#[test]
fn parts_of_unequal_length_have_the_same_adjoints() {
    let mut unequal = BTreeSet::new();
    for n in MEMBERS {
        let schedule = workers(n, States::Replicated, 4);
        let bench = Bench::new(&schedule);
        for whole in operators(&schedule) {
            let size = |row: Row| schedule.buffers[row.buffer].size.0 / 8;
            let elements = size(whole.from);
            let home = schedule.buffers[whole.from.buffer].home;
            let fits = |size| size >= elements.div_ceil(u64::from(n)) && size <= elements;
            let others = schedule.buffers.iter().filter(|(id, buffer)| {
                let apart = *id != whole.from.buffer && buffer.home == home;
                apart && fits(buffer.size.0 / 8) && buffer.size.0 % 8 == 0
            });
            for (buffer, _) in others {
                let to = Row { buffer, place: 0 };
                let scatter = Operator { kind: Collective::ReduceScatter, to, ..whole };
                scatter.hold(&bench, "scattered");
                scatter.adjoint().hold(&bench, "gathered");
                if !elements.is_multiple_of(u64::from(n)) {
                    unequal.insert((n, size(to) == elements));
                }
            }
        }
    }
    for n in [3, 5, 6, 7] {
        assert!(unequal.contains(&(n, true)) && unequal.contains(&(n, false)), "{n}");
    }
}
