//! How parameters get from an update to the passes that read them, and how gradients get from
//! passes to the update: whatever moves them, the latter is the adjoint of the former.
//!
//! Parameters of one version are put where the update leaves them, gradients of one step where passes
//! do; all moves between them are the schedule's, and so is what adds up what was received. What
//! members have alike counts once.

use super::{
    Bench, MEMBERS, Moment, Product, STEP, Seat, compiled, hold, in_doubles,
    models::{even_cuts, gpt, job, mlp, program},
    plans::{kinds, pipelines, plan},
    random,
};
use roundelay_schedule::{
    Access, Checked, Content, Id, MicroBatch, Order, Pass, Placement, Plan, Role,
    Routine, Rule, Slice, Splits, Stage, States, Subject, Tie, Work,
};
use std::collections::BTreeMap;

/// A pass that has read parameters: their state, its stage, micro-batch and coordinate.
type Reader = (Stage, Stage, MicroBatch, usize);

/// What a walk over the actions of a step finds, and how many moves it made.
#[derive(Default)]
struct Found {
    parameters: BTreeMap<Reader, Vec<f64>>,
    gradients: BTreeMap<Reader, Vec<f64>>,
    /// Of those of updates: what there is, and whether it counts.
    sums: Vec<(Vec<f64>, Seat)>,
    moves: usize,
}

fn launch(bench: &Bench, moment: Moment<'_>) -> Option<(Routine, Option<MicroBatch>)> {
    match &moment.action.work {
        Work::Launch { routine, micro_batch, .. } => {
            Some((bench.routine(*routine).clone(), *micro_batch))
        }
        Work::Transfer { .. }
        | Work::Collective { .. }
        | Work::Feed { .. }
        | Work::Report { .. } => None,
    }
}

fn content(moment: Moment<'_>) -> Option<&Content> {
    match &moment.action.work {
        Work::Transfer { content, .. } | Work::Collective { content, .. } => {
            Some(content)
        }
        Work::Launch { .. } | Work::Feed { .. } | Work::Report { .. } => None,
    }
}

/// Which part of its stage's parameters a row holds.
fn shard(bench: &Bench, seat: Seat) -> u64 {
    let coordinate = &bench.shared.coordinates[seat.coordinate];
    let shard = bench.schedule().buffers[seat.row.buffer].subject.shard();
    shard.map_or(0, |(_, axis)| u64::from(coordinate[axis.index()]))
}

/// Whether a row is the first of those that hold the same.
fn counts(bench: &Bench, seat: Seat) -> bool {
    let schedule = bench.schedule();
    let own = match schedule.buffers[seat.row.buffer].subject {
        Subject::Gradient(_, Slice::Shard(axis)) => Some(axis),
        _ => None,
    };
    let coordinate = &bench.shared.coordinates[seat.coordinate];
    schedule.axes.iter().all(|(id, axis)| {
        assert_eq!(axis.splits, Splits::Batch, "no test splits tensors");
        Some(id) == own || coordinate[id.index()] == 0
    })
}

/// Random parameters of a part of a stage.
fn parameters(bench: &Bench, stage: Stage, seat: Seat) -> Vec<f64> {
    let labels = [1, stage.index() as u64, shard(bench, seat)];
    random(&labels, bench.read(seat).len())
}

/// Parameters from where they are updated to all who read them.
fn ahead(bench: &Bench, found: &mut Found) {
    bench.fill(|_| 0.0);
    for moment in bench.moments() {
        if let Some(Content::Parameter(_)) = content(moment) {
            if moment.step == STEP {
                bench.execute(moment);
            }
            continue;
        }
        match launch(bench, moment) {
            Some((Routine { pass: Pass::Update, stage, .. }, _)) => {
                if moment.step + 1 == STEP {
                    updated(bench, moment, stage);
                }
            }
            Some((routine, Some(i))) => read(bench, moment, (&routine, i), found),
            Some((_, None)) | None => {}
        }
    }
}

/// What an update leaves.
fn updated(bench: &Bench, moment: Moment<'_>, stage: Stage) {
    let next = bench.bound(moment, |role, _| role == Role::NextParameter);
    let own = bench.bound(moment, |role, access| {
        role == Role::Parameter && access == Access::Update
    });
    let left = if next.is_empty() { own } else { next };
    assert!(!left.is_empty(), "an update writes");
    for (_, _, seat) in left {
        bench.write(seat, &parameters(bench, stage, seat));
    }
}

/// What a pass reads; all passes of one micro-batch through a stage read the same.
fn read(
    bench: &Bench,
    moment: Moment<'_>,
    (routine, i): (&Routine, MicroBatch),
    found: &mut Found,
) {
    let (plan, stage) = (&bench.schedule().plan, routine.stage);
    let is_read = |role, _| matches!(role, Role::Parameter | Role::Tied(_));
    for (role, _, seat) in bench.bound(moment, is_read) {
        let state = plan.state_of(role, stage);
        if moment.step - i64::from(plan.delay(state, i)) != STEP {
            continue;
        }
        let (numbers, reader) = (bench.read(seat), (state, stage, i, seat.coordinate));
        let known = found.parameters.entry(reader).or_insert_with(|| numbers.clone());
        assert!(*known == numbers, "{} reads another version", routine.name);
    }
}

/// Gradients from all who make them to where parameters are updated.
fn back(bench: &Bench, found: &mut Found, scaled: Option<usize>) {
    bench.fill(|_| 0.0);
    for moment in bench.moments().filter(|moment| moment.step == STEP) {
        if let Some(Content::Gradient(..)) = content(moment) {
            bench.execute(moment);
            if scaled == Some(found.moves) {
                bench.scale(moment);
            }
            found.moves += 1;
            continue;
        }
        match launch(bench, moment) {
            Some((Routine { pass: Pass::Combine, .. }, _)) => bench.execute(moment),
            Some((Routine { pass: Pass::Update, .. }, _)) => {
                let sums = bench.bound(moment, |role, _| role == Role::Gradient);
                let sums = sums.into_iter().map(|(.., seat)| (bench.read(seat), seat));
                found.sums.extend(sums);
            }
            Some((routine, Some(i))) => add(bench, moment, (&routine, i), found),
            Some((_, None)) | None => {}
        }
    }
}

/// A pass begins a sum of gradients, or adds to it.
fn add(
    bench: &Bench,
    moment: Moment<'_>,
    (routine, i): (&Routine, MicroBatch),
    found: &mut Found,
) {
    for (role, access, seat) in bench.bound(moment, |role, _| role.is_sum()) {
        let (stage, coordinate) = (routine.stage, seat.coordinate);
        let state = bench.schedule().plan.state_of(role, stage);
        let labels = [2, state.index(), stage.index(), i.index(), coordinate];
        let labels = labels.map(|label| label as u64);
        let own = random(&labels, bench.read(seat).len());
        bench.change(seat, |k, sum| match access {
            Access::Write => own[k],
            Access::Update => sum + own[k],
            Access::Read => panic!("{} makes gradients", routine.name),
        });
        let made = found.gradients.insert((state, stage, i, coordinate), own);
        assert!(made.is_none(), "{} makes one gradient", routine.name);
    }
}

fn stage_of(bench: &Bench, seat: Seat) -> Stage {
    match bench.schedule().buffers[seat.row.buffer].subject {
        Subject::Gradient(stage, _) => stage,
        other => panic!("{other:?} is no gradient"),
    }
}

/// How many moves of gradients a schedule has.
fn holds(schedule: &Checked, what: &str) -> usize {
    let bench = Bench::new(schedule);
    let mut whole = Found::default();
    ahead(&bench, &mut whole);
    back(&bench, &mut whole, None);
    let mut product = Product::default();
    for (reader, gradient) in &whole.gradients {
        product.add(&whole.parameters[reader], gradient);
    }
    assert_eq!(whole.parameters.len(), whole.gradients.len(), "{what}");
    hold(what, whole.moves, |scaled| {
        let mut found = Found::default();
        back(&bench, &mut found, scaled);
        let mut own = Product::default();
        for (sum, seat) in found.sums.iter().filter(|(_, seat)| counts(&bench, *seat)) {
            own.add(sum, &parameters(&bench, stage_of(&bench, *seat), *seat));
        }
        product.error(own)
    });
    whole.moves
}

#[test]
fn gradients_go_back_the_way_of_parameters_in_every_placement() {
    for n in MEMBERS {
        let program = in_doubles(mlp(n, 2 * n));
        for kind in kinds(n, n) {
            let plan = plan(kind, n, even_cuts(&program, n));
            let moves = holds(&compiled(&program, &plan), &format!("{n} {kind:?}"));
            let alone = matches!(
                kind.1,
                Placement::Accumulate | Placement::Concurrent | Placement::Pipeline
            );
            assert!(alone || moves > 0, "{n} {kind:?}");
        }
    }
}

#[test]
fn gradients_of_replicas_go_back_the_way_of_parameters() {
    let sharded = [States::Replicated, States::Zero1, States::Zero2, States::Zero3];
    for replicas in MEMBERS {
        let program = in_doubles(mlp(2, 4 * replicas));
        for states in sharded {
            for (placement, order) in [
                (Placement::Accumulate, Order::Sequential),
                (Placement::Pipeline, Order::OneForwardOneBackward),
            ] {
                let cuts = even_cuts(&program, 2);
                let plan = Plan::new(Rule::Sync, placement, order, states, 2, cuts);
                let plan = plan.replicated(replicas, 1);
                let what = format!("{replicas} {placement} {states}");
                assert!(holds(&compiled(&program, &plan), &what) > 0, "{what}");
            }
        }
    }
}

#[test]
fn gradients_of_groups_of_replicas_go_back_the_way_of_parameters() {
    for (replicas, shards) in [(4, 2), (6, 2), (6, 3), (8, 2), (8, 4)] {
        let program = in_doubles(mlp(2, 2 * replicas));
        let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Hsdp);
        let plan = plan(kind, 2, even_cuts(&program, 2)).replicated(replicas, shards);
        holds(&compiled(&program, &plan), &format!("{replicas} in {shards}"));
    }
}

/// Each slice reads the parameters of its stage, and its backward pass adds a term of its own; such
/// sums stay where they are made.
#[test]
fn gradients_of_slices_go_back_the_way_of_parameters() {
    let program = in_doubles(gpt(2, 8));
    for order in [Order::SlicesOneForwardOneBackward, Order::TeraPipe] {
        for slices in [2, 4] {
            let (placement, states) = (Placement::Pipeline, States::Replicated);
            let cuts = even_cuts(&program, 2);
            let plan = Plan::new(Rule::Sync, placement, order, states, 2, cuts);
            let plan = plan.with_slices(slices).replicated(2, 1);
            let what = format!("{slices} {order}");
            assert!(holds(&compiled(&program, &plan), &what) > 0, "{what}");
        }
    }
}

/// Two devices hold a stage, where pipelines go in both directions.
#[test]
fn gradients_of_pipelines_go_back_the_way_of_parameters_in_every_order() {
    let mut moves = 0;
    for stages in [2, 4, 6, 8] {
        let program = in_doubles(mlp(stages, 2 * stages));
        for plan in pipelines(stages, &even_cuts(&program, stages)) {
            let what = format!("{stages} {} {}", plan.order, plan.chunks);
            moves += holds(&compiled(&program, &plan), &what);
        }
    }
    assert!(moves > 0, "some pipelines go in both directions");
}

/// The first and the last stage use one map, and replicas of both do.
#[test]
fn gradients_of_ties_go_back_the_way_of_parameters() {
    let text = "model tied {
        input x: real[batch, 8]
        input y: real[batch, 8]
        param map: [8, 8] = normal(0.3)
        h = linear(x, weight = map)
        repeat 6 as layer { h = h + tanh(linear(h, 8)) }
        loss mse(linear(h, weight = map), y)
    }";
    for stages in [2, 4, 6] {
        let program = in_doubles(program(&format!("{text}\n{}", job(2 * stages))));
        for plan in pipelines(stages, &even_cuts(&program, stages)) {
            if plan.is_mirrored() {
                continue;
            }
            let plan = plan.with_ties(vec![Tie(vec![0, stages - 1])]);
            for plan in [plan.clone(), plan.replicated(2, 1)] {
                let what = format!("{stages} {} {}", plan.order, plan.chunks);
                holds(&compiled(&program, &plan), &what);
            }
        }
    }
}
