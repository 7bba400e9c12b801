//! Parameters that several stages of a pipeline use: replays equal the recursion bit for bit, and the
//! run of one stage but for rounding, in every order; what cannot part them says why.

use crate::{
    models::{even_cuts, job, program},
    oracle::{RESTS, STEPS, compare_one, recursion, replay},
    plans::pipelines,
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Plan, Program,
    parts::{
        codegen::{LowerError, lower, stages},
        runtime::{Cpu, CpuOptions, Dataset, Oracle, State},
        schedule::{
            Id, Item, Kind, Order, Pass, Placement, PlanFault, Rule, States, Subject,
            Tensor, Tie, Work,
        },
    },
};

/// A table that the first and the last stage use, and a map that every layer does.
const MODEL: &str = "model tied {
    input tokens:  i32[batch, 4]
    input targets: i32[batch, 4]
    param table: [24, 16] = normal(0.02)
    param map: [32, 16] = normal(0.1)
    x = embedding(tokens, table) + positions(4, 16)
    repeat 4 as layer {
        x = x + dropout(attention(layer_norm(x), 2, causal = true), 0.1)
        x = x + linear(relu(linear(layer_norm(x), weight = map, bias = false)), 16)
    }
    loss LOSS
}";
const LOGITS: &str =
    "cross_entropy(linear(layer_norm(x), weight = table, bias = false), targets)";
const TOGETHER: &str = "linear_cross_entropy(layer_norm(x), targets, weight = table)";

fn tied(loss: &str, batch: u32) -> Program {
    program(&format!("{}\n{}", MODEL.replace("LOSS", loss), job(batch)))
}

/// The ties of the stages between some cuts.
fn ties(program: &Program, cuts: &[u32]) -> Vec<Tie> {
    let examples = u64::from(program.train.batch);
    stages(&program.model, cuts, examples, program.train.dtype, 1).unwrap().ties
}

/// Every order of a pipeline in one direction.
fn orders(program: &Program, n: u32, s: u32) -> Vec<Plan> {
    let cuts = even_cuts(program, s);
    let ties = ties(program, &cuts);
    assert!(ties.contains(&Tie(vec![0, s - 1])), "{ties:?}");
    let plans = pipelines(n, &cuts).into_iter();
    plans
        .filter(|plan| !plan.is_mirrored())
        .map(|plan| plan.with_ties(ties.clone()))
        .collect()
}

#[test]
fn every_order_replays_like_the_recursion() {
    for (loss, n, s) in [(LOGITS, 1, 2), (TOGETHER, 4, 4), (LOGITS, 5, 3), (LOGITS, 8, 6)]
    {
        let program = tied(loss, n);
        let plans = orders(&program, n, s);
        assert!(plans.len() >= 5, "N = {n}, S = {s}: {} plans", plans.len());
        plans.iter().for_each(|plan| compare_one(&program, plan, &RESTS[1..]));
    }
}

#[test]
fn replicas_grids_and_clipped_norms_replay_like_the_recursion() {
    let mut program = tied(LOGITS, 8);
    for clip in [0.0, 0.5] {
        program.train.optimizer.clip = clip;
        for plan in orders(&program, 4, 4) {
            for plan in
                [plan.clone().replicated(2, 1), plan.with_tensor(Tensor::grid(2, 1))]
            {
                compare_one(&program, &plan, &RESTS[2..]);
            }
        }
    }
}

fn trained(schedule: &Checked) -> (Vec<f64>, State) {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let state = State::initial(&schedule.job);
    let found = replay(schedule, &data, &state, &[STEPS]);
    (found.losses.concat(), found.state)
}

#[test]
fn stages_train_like_one() {
    let program = tied(LOGITS, 4);
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
    let (expected, last) = trained(&compiled(&program, &plan(&program, kind, 4, 1)));
    for plan in orders(&program, 4, 4) {
        let (found, state) = trained(&compiled(&program, &plan));
        for (one, other) in found.iter().zip(&expected) {
            assert!((one - other).abs() < 1e-5 * other, "{one} for {other}: {plan:?}");
        }
        assert!(state.tensors.keys().eq(last.tensors.keys()), "{plan:?}");
    }
}

/// Checkpoints know nothing of ties: a run goes on in one stage, or in others.
#[test]
fn a_run_goes_on_elsewhere() {
    let program = tied(LOGITS, 4);
    let plans = orders(&program, 4, 4);
    let schedule = compiled(&program, &plans[0]);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let state = recursion(&schedule, &data, &State::initial(&schedule.job)).state;
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
    for plan in [plan(&program, kind, 4, 1), plans[1].clone()] {
        let other = compiled(&program, &plan);
        let mut oracle = Oracle::new(&other, &state).unwrap();
        let expected = oracle.advance(&mut data.clone());
        let mut cpu =
            Cpu::new(&other, Box::new(data.clone()), CpuOptions::default()).unwrap();
        cpu.load(&state).unwrap();
        let mut losses = vec![0.0; 4];
        cpu.replay(STEPS + 1, &mut |loss| losses[loss.micro_batch as usize] = loss.loss)
            .unwrap();
        assert_eq!(losses, expected, "{plan:?}");
        assert!(saved(&mut cpu) == oracle.state(), "{plan:?}");
    }
}

/// Lists may begin with any micro-batch; backward passes go up.
#[test]
fn a_copy_is_there_for_the_first_pass_whichever_micro_batch_that_is() {
    let program = tied(LOGITS, 2);
    let cuts = even_cuts(&program, 2);
    let ties = ties(&program, &cuts);
    let list = |stage| {
        let item = |pass, i| Item::new(pass, stage, i);
        let (forward, backward) = (Pass::Forward, Pass::Backward);
        vec![item(forward, 1), item(forward, 0), item(backward, 0), item(backward, 1)]
    };
    let (rule, place, states) = (Rule::Sync, Placement::Pipeline, States::Replicated);
    let plan = Plan::new(rule, place, Order::Listed, states, 2, cuts).with_ties(ties);
    compare_one(&program, &plan.with_lists(vec![list(0), list(1)]), &RESTS[1..]);
}

/// One stage keeps a table and its optimizer state; another one has a copy and adds up gradients.
#[test]
fn the_first_stage_keeps_what_others_copy() {
    let program = tied(LOGITS, 4);
    let cuts = vec![2, program.model.cuttable() as u32 - 3];
    let ties = ties(&program, &cuts);
    assert_eq!(ties, [Tie(vec![0, 2])]);
    let order = Order::OneForwardOneBackward;
    let (rule, place, states) = (Rule::Sync, Placement::Pipeline, States::Replicated);
    let plan = Plan::new(rule, place, order, states, 4, cuts).with_ties(ties);
    let schedule = compiled(&program, &plan);
    let (state, _) = schedule.plan.tied().next().unwrap();
    let of = |kind: Kind| {
        let buffers = schedule.buffers.values();
        let own = buffers.filter(|buffer| {
            buffer.subject.kind() == kind
                && buffer.subject.state().is_some_and(|(own, _)| own == state)
        });
        own.map(|buffer| buffer.home.number()).collect::<Vec<u32>>()
    };
    assert_eq!(of(Kind::Parameter), [0, 2]);
    assert_eq!(of(Kind::Optimizer), [0]);
    assert_eq!(of(Kind::Gradient), [0, 2, 0]);
    let moves = schedule.actions.values().filter(|action| match &action.work {
        Work::Transfer { from, .. } => {
            let subject = schedule.buffers[from.row.buffer].subject;
            matches!(subject, Subject::Parameter(..) | Subject::Gradient(..))
        }
        _ => false,
    });
    assert_eq!(moves.count(), 2, "a sum goes there, a version back");
}

#[test]
fn what_cannot_part_users_says_why() {
    let program = tied(LOGITS, 4);
    let cuts = even_cuts(&program, 2);
    let fault = |plan: &Plan| match lower(&program, plan) {
        Err(LowerError::Plan(PlanFault::Ties(message))) => message,
        other => panic!("{:?}", other.map(|_| ())),
    };
    let new = |rule, placement, order, states| {
        Plan::new(rule, placement, order, states, 4, cuts.clone())
    };
    let (whole, zero) = (States::Replicated, States::Zero3);
    let data = new(Rule::Sync, Placement::Data, Order::Parallel, zero);
    assert!(fault(&data).contains("only a pipeline of rule sync"));
    let cyclic = new(Rule::CyclicV2, Placement::Pipeline, Order::Cyclic, whole);
    assert!(fault(&cyclic).contains("only a pipeline of rule sync"));
    let order = Order::OneForwardOneBackward;
    let bare = new(Rule::Sync, Placement::Pipeline, order, whole);
    let Err(LowerError::Ties { found, expected }) = lower(&program, &bare) else {
        panic!("the plan names no ties");
    };
    assert_eq!((found.len(), expected.len()), (0, 1));
    let cuts = cuts.clone();
    let sharded =
        Plan::new(Rule::Sync, Placement::Pipeline, order, States::Zero1, 2, cuts);
    assert!(fault(&sharded.replicated(2, 1)).contains("`states replicated`"));
}
