//! Boundaries between stages: values that go on, some past several stages that read them, and their
//! gradients that come back, each stage adding its own; and the one hop back between local units.
//!
//! Stages between the first and the last are linear, so that what is between the values that leave
//! the first and those that reach the last is one operator, and what comes back is its adjoint.

use super::{
    Bench, MEMBERS, Moment, Product, SCALE, STEP, Seat, compiled, hold, in_doubles,
    models::{even_cuts, job, program},
    plans::{kinds, pipelines, plan},
    random,
};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Access, Checked, Content, Hop, Id, MicroBatch, Order, Pass, Placement, Plan, Role,
    Rule, Spot, Stage, States, Subject, ValueId, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// Every layer reads what the first stage makes. Rows are as long as what they hold.
fn straight(layers: u32, batch: u32) -> Program {
    in_doubles(program(&format!(
        "model straight {{
            input features: real[batch, 5]
            input wanted: real[batch, 8]
            x = linear(features, 8)
            early = x
            repeat {layers} as layer {{
                x = linear(x, 8, bias = false) + linear(early, 8, bias = false)
            }}
            loss mse(linear(x + early, 8), wanted)
        }}
        {}",
        job(batch)
    )))
}

/// One micro-batch on its way.
struct Way<'a> {
    bench: &'a Bench,
    micro_batch: MicroBatch,
    last: Stage,
}

impl Way<'_> {
    /// The pass of a launch of this micro-batch, and where among all stages.
    fn pass(&self, moment: Moment<'_>) -> Option<(Pass, Stage)> {
        match &moment.action.work {
            Work::Launch { routine, micro_batch, .. } => {
                let routine = self.bench.routine(*routine);
                let own = *micro_batch == Some(self.micro_batch);
                own.then_some((routine.pass, routine.stage))
            }
            Work::Transfer { .. }
            | Work::Collective { .. }
            | Work::Feed { .. }
            | Work::Report { .. } => None,
        }
    }

    fn moments(&self) -> impl Iterator<Item = Moment<'_>> {
        self.bench.moments().filter(|moment| moment.step == STEP)
    }

    /// The same numbers in all memory, parameters among them, before values go on and before
    /// gradients come back.
    fn start(&self) {
        let stream = roundelay_kernels::random::Stream::new(5, &[]);
        self.bench.fill(|k| stream.normal(k));
    }

    fn random(&self, label: u64, value: ValueId, seat: Seat) -> Vec<f64> {
        let labels = [label, value.index() as u64, seat.coordinate as u64];
        random(&labels, self.bench.read(seat).len())
    }

    /// Values from the first stage to the last, and their product with gradients there.
    fn ahead(&self) -> Product {
        self.start();
        let mut product = Product::default();
        for moment in self.moments() {
            if self.carries(moment, Step::Ahead) {
                self.bench.execute(moment);
            }
            if let Some((Pass::Forward, stage)) = self.pass(moment) {
                self.forward(moment, stage, &mut product);
            }
        }
        product
    }

    fn forward(&self, moment: Moment<'_>, stage: Stage, product: &mut Product) {
        if stage.index() == 0 {
            for (value, seat) in self.rows(moment, value, |own| own == Access::Write) {
                self.bench.write(seat, &self.random(1, value, seat));
            }
        } else if stage == self.last {
            for (value, seat) in self.rows(moment, value, |own| own == Access::Read) {
                product.add(&self.bench.read(seat), &self.random(2, value, seat));
            }
        } else {
            self.bench.execute(moment);
        }
    }

    /// Gradients from the last stage to the first, their product with values there, and how many
    /// moves there were.
    fn back(&self, scaled: Option<usize>) -> (Product, usize) {
        self.start();
        let (mut product, mut moves) = (Product::default(), 0);
        for moment in self.moments() {
            if self.carries(moment, Step::Back) {
                self.bench.execute(moment);
                if scaled == Some(moves) {
                    self.bench.scale(moment);
                }
                moves += 1;
            }
            let pass = self.pass(moment);
            if let Some((Pass::Backward | Pass::InputGradient, stage)) = pass {
                self.backward(moment, stage, &mut product);
            }
        }
        (product, moves)
    }

    /// The first stage may have gradients of its own to add to those that it finds; the last one
    /// begins them all.
    fn backward(&self, moment: Moment<'_>, stage: Stage, product: &mut Product) {
        if stage.index() == 0 {
            for (value, seat) in self.rows(moment, gradient, |own| own != Access::Write) {
                product.add(&self.bench.read(seat), &self.random(1, value, seat));
            }
        } else if stage == self.last {
            for (value, seat) in self.rows(moment, gradient, |own| own == Access::Write) {
                self.bench.write(seat, &self.random(2, value, seat));
            }
        } else {
            self.bench.execute(moment);
        }
    }

    /// Rows of values, or of their gradients, that a pass does something with.
    fn rows(
        &self,
        moment: Moment<'_>,
        of: fn(Role) -> Option<ValueId>,
        wanted: fn(Access) -> bool,
    ) -> Vec<(ValueId, Seat)> {
        let bound = self.bench.bound(moment, |_, access| wanted(access));
        bound.into_iter().filter_map(|(role, _, seat)| Some((of(role)?, seat))).collect()
    }

    /// Whether it moves a value of this micro-batch, or a gradient of one.
    fn carries(&self, moment: Moment<'_>, step: Step) -> bool {
        let Work::Transfer { content, .. } = &moment.action.work else { return false };
        match content {
            Content::Value(_, i) => step == Step::Ahead && *i == self.micro_batch,
            Content::ValueGradient(_, i) => step == Step::Back && *i == self.micro_batch,
            Content::Parameter(_)
            | Content::Optimizer(_)
            | Content::Gradient(..)
            | Content::Squares(..) => false,
        }
    }
}

fn value(role: Role) -> Option<ValueId> {
    match role {
        Role::Value(value) => Some(value),
        _ => None,
    }
}

fn gradient(role: Role) -> Option<ValueId> {
    match role {
        Role::ValueGradient(value) => Some(value),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Ahead,
    Back,
}

/// How many moves come back, over all micro-batches that are looked at.
fn holds(schedule: &Checked, what: &str) -> usize {
    let bench = Bench::new(schedule);
    let ends = [0, schedule.cell_micro_batches() as usize - 1];
    let mut all = 0;
    for micro_batch in BTreeSet::from(ends).into_iter().map(MicroBatch::new) {
        let last = Stage::new(schedule.plan.stages as usize - 1);
        let way = Way { bench: &bench, micro_batch, last };
        let ahead = way.ahead();
        let (_, moves) = way.back(None);
        let what = format!("{what}, {micro_batch}");
        hold(&what, moves, |scaled| ahead.error(way.back(scaled).0));
        all += moves;
    }
    all
}

#[test]
fn gradients_come_back_the_way_that_values_went_through_pipelines() {
    for stages in MEMBERS {
        let program = straight(stages, 4);
        let cuts = even_cuts(&program, stages);
        let plans = pipelines(4, &cuts);
        assert!(plans.len() > 2, "{stages}");
        for plan in plans {
            let schedule = compiled(&program, &plan);
            let what = format!("{stages} {} {}", plan.order, plan.chunks);
            let is_alone = BTreeSet::from_iter(&schedule.plan.devices).len() == 1;
            assert_eq!(holds(&schedule, &what) == 0, is_alone, "{what}");
        }
    }
}

#[test]
fn gradients_come_back_the_way_that_values_went_in_every_placement() {
    for n in MEMBERS {
        let program = straight(n, n);
        for kind in kinds(n, n) {
            let (_, placement, ..) = kind;
            let moves = matches!(placement, Placement::Shared | Placement::Pipeline);
            if !moves {
                continue;
            }
            let schedule = compiled(&program, &plan(kind, n, even_cuts(&program, n)));
            assert!(holds(&schedule, &format!("{n} {kind:?}")) > 0, "{n} {kind:?}");
        }
    }
}

/// A transfer: from where, to where.
type Ends = [Spot; 2];

/// What goes on and comes back at a boundary, by what is carried.
fn transfers(schedule: &Checked) -> [BTreeMap<(ValueId, MicroBatch), Vec<Ends>>; 2] {
    let mut all = [BTreeMap::new(), BTreeMap::new()];
    for action in schedule.actions.values() {
        let Work::Transfer { from, to, content, .. } = &action.work else { continue };
        let (step, key) = match content {
            Content::Value(value, i) => (0, (*value, *i)),
            Content::ValueGradient(value, i) => (1, (*value, *i)),
            Content::Parameter(_)
            | Content::Optimizer(_)
            | Content::Gradient(..)
            | Content::Squares(..) => continue,
        };
        all[step].entry(key).or_insert_with(Vec::new).push([*from, *to]);
    }
    all
}

/// A copy to another device, and the copy back of what is declared to be its dual.
fn copies(bench: &Bench, [ahead, back]: [Moment<'_>; 2], scale: f64) -> f64 {
    let product = |moment: Moment<'_>, labels: [u64; 2], scale: f64| {
        let Work::Transfer { from, to, .. } = &moment.action.work else {
            panic!("{} is no transfer", moment.id)
        };
        let [from, to] = [from, to].map(|spot| {
            let Spot { at, row } = *spot;
            Seat { at, row, period: moment.period, coordinate: 0 }
        });
        let count = bench.read(from).len();
        bench.write(from, &random(&labels[..1], count));
        bench.execute(moment);
        let own: Vec<f64> = bench.read(to).iter().map(|x| x * scale).collect();
        let mut product = Product::default();
        product.add(&own, &random(&labels[1..], count));
        product
    };
    product(ahead, [1, 2], 1.0).error(product(back, [2, 1], scale))
}

#[test]
fn what_hops_back_between_local_units_is_the_adjoint_of_what_went_on() {
    for units in MEMBERS {
        for (hop, comes_back) in [(Hop::None, false), (Hop::Added, true)] {
            let whole = straight_units(units);
            let rule = Rule::Local { units, hop };
            let program =
                whole.under(rule).expect("there is a layer for each").into_owned();
            let cuts = program.model.boundaries();
            let (placement, order) = (Placement::Pipeline, Order::OneForwardOneBackward);
            let plan =
                Plan::new(rule, placement, order, States::Replicated, 2, cuts.clone());
            let schedule = compiled(&program, &plan.with_boundaries(cuts));
            assert_eq!(hops(&schedule, &format!("{units}")) > 0, comes_back, "{units}");
        }
    }
}

fn straight_units(layers: u32) -> Program {
    in_doubles(program(&format!(
        "model units {{
            input tokens:  i32[batch, 4]
            input targets: i32[batch, 4]
            x = embedding(tokens, 6, 4)
            repeat {layers} as layer {{ x = x + linear(layer_norm(x), 4) }}
            loss cross_entropy(linear(layer_norm(x), 6), targets)
        }}
        {}",
        job(4)
    )))
}

/// Each gradient that a schedule sends back over a boundary against the value that went over it.
fn hops(schedule: &Checked, what: &str) -> usize {
    let bench = Bench::new(schedule);
    let [ahead, back] = transfers(schedule);
    for (key, ends) in &back {
        let mirrored: Vec<Ends> =
            ahead[key].iter().map(|[from, to]| [*to, *from]).collect();
        assert_eq!(ends.len(), 1, "{what}: a unit hands on to the next one alone");
        assert_eq!(ends[0].map(|spot| spot.at), mirrored[0].map(|spot| spot.at));
        let subject = |spot: Spot| schedule.buffers[spot.row.buffer].subject;
        assert_eq!(subject(mirrored[0][0]).dual(), Some(subject(ends[0][0])));
        let of = |wanted: fn(ValueId, MicroBatch) -> Content| {
            let wanted = wanted(key.0, key.1);
            let mut all = bench.moments().filter(|moment| moment.step == STEP);
            let found = all.find(|moment| {
                matches!(&moment.action.work, Work::Transfer { content, .. } if *content == wanted)
            });
            found.expect("it is in every period")
        };
        let both = [of(Content::Value), of(Content::ValueGradient)];
        hold(what, 1, |scaled| {
            copies(&bench, both, if scaled.is_some() { SCALE } else { 1.0 })
        });
    }
    back.len()
}

#[test]
fn duals_are_of_each_other() {
    let (stage, value) = (Stage::new(3), ValueId::new(2));
    let whole = roundelay_schedule::Slice::Whole;
    for subject in [Subject::Parameter(stage, whole), Subject::Value(value)] {
        let dual = subject.dual().expect("something is differentiated by it");
        assert_ne!(dual, subject);
        assert_eq!(dual.dual(), Some(subject));
    }
    assert_eq!(Subject::Optimizer(stage, whole).dual(), None);
}
