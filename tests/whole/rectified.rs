//! Rectifiers behind batch norms: a residual network trains the same, bit for bit, whether its backward
//! passes make norms again, in one call or two, or read what the rectifiers made; and what is no number in
//! a model is seen in its loss.

use crate::{
    models::{job, program},
    networks::resnet,
    oracle::{RESTS, recursion, replay},
    plans::plan,
};
use roundelay::{
    Checked, Program,
    parts::{
        codegen::{Everywhere, lower, lower_with},
        kernels::Kernels,
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{Attribute, Call, Float, Job, check},
    },
};
use roundelay_schedule::{Order, Placement, Recompute, Rule, States};

/// How often a call of a kernel with or without a flag stands in the routines of a schedule.
fn count(schedule: &Checked, kernel: &str, flag: (&str, bool)) -> usize {
    let (name, wanted) = flag;
    let is_set = |call: &Call| call.attributes.get(name) == Some(&Attribute::Flag(true));
    let calls = schedule.routines.values().flat_map(|routine| routine.calls.iter());
    calls.filter(|call| call.kernel == kernel && is_set(call) == wanted).count()
}

/// The schedule of one stage, or two, without rewrites and with all.
fn lowered(program: &Program, cuts: &[u32], recompute: Recompute) -> [Checked; 2] {
    let (placement, order) = match cuts {
        [] => (Placement::Accumulate, Order::Sequential),
        [..] => (Placement::Pipeline, Order::Gpipe),
    };
    let kind = (Rule::Sync, placement, order, States::Replicated);
    let plan = plan(kind, 2, cuts.to_vec()).recomputing(recompute);
    let both = [lower(program, &plan), lower_with(program, &plan, &Everywhere)];
    both.map(|schedule| check(schedule.unwrap(), &Kernels).unwrap())
}

/// The first norm is node 1 of the model, its rectifier node 2.
const CUTS: [&[u32]; 3] = [&[], &[2], &[3]];

#[test]
fn a_residual_network_trains_the_same_however_its_rectifiers_go_back() {
    for dtype in [Float::F32, Float::F64] {
        let mut program = resnet(8);
        program.train.dtype = dtype;
        let mut all = Vec::new();
        for cuts in CUTS {
            for recompute in Recompute::ALL {
                let both = lowered(&program, cuts, *recompute);
                let data = Dataset::open(&both[0].job, None).unwrap();
                let start = State::initial(&both[0].job);
                let apart = count(&both[0], "relu_backward_again", ("again", false));
                let again = count(&both[1], "batch_norm_backward", ("again", true));
                assert!(apart >= again && again > 0, "{cuts:?} {recompute}");
                for schedule in &both {
                    all.push(recursion(schedule, &data, &start).losses);
                }
                let replayed = replay(&both[1], &data, &start, RESTS[2]);
                all.push(replayed.losses);
            }
        }
        assert!(all.iter().all(|losses| *losses == all[0]), "{dtype:?}");
    }
}

/// What crosses a cut is there already: one rectifier more reads what it made.
#[test]
fn a_rectifier_behind_a_cut_reads_its_result() {
    let program = resnet(8);
    let of = |cuts: &[u32]| {
        let [bare, _] = lowered(&program, cuts, Recompute::None);
        ["relu_backward_again", "relu_backward"]
            .map(|kernel| count(&bare, kernel, ("accumulate", false)))
    };
    let [[again, read], [fewer, more], same] = CUTS.map(of);
    // Each in the routines for the first micro-batch and for later ones.
    assert_eq!([fewer + 2, more], [again, read + 2]);
    assert_eq!(same, [again, read]);
}

/// Rectifiers behind affine maps, alone and at the gate of a block; the last map is finite whatever they make.
const MAPS: &str = "model maps {
    input features: real[batch, 16]
    input wanted: real[batch, 16]
    x = relu(linear(features, 16))
    x = gated(x, 8, activation = \"relu\")
    loss mse(linear(x, 16), wanted)
}";

/// The state at the beginning with one tensor whose numbers have become infinite.
fn overflowed(job: &Job, name: &str) -> State {
    let mut state = State::initial(job);
    let tensor = state.tensors.get_mut(name).expect("a parameter has this name");
    let infinite = if job.dtype == Float::F64 {
        f64::INFINITY.to_ne_bytes().to_vec()
    } else {
        f32::INFINITY.to_ne_bytes().to_vec()
    };
    for version in &mut tensor.versions {
        version
            .chunks_exact_mut(infinite.len())
            .for_each(|x| x.copy_from_slice(&infinite));
    }
    state
}

/// Losses of the recursion, and of a machine.
fn losses(schedule: &Checked, state: &State) -> Vec<f64> {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut all: Vec<f64> = recursion(schedule, &data, state).losses.concat();
    let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(state).unwrap();
    cpu.replay(1, &mut |loss| all.push(loss.loss)).unwrap();
    all
}

/// Sums in which +∞ and −∞ meet are none. Rectifiers that made zeros of them would leave a finite loss.
#[test]
fn a_loss_is_none_where_rectifiers_got_what_is_no_number() {
    let text = format!("{MAPS}\n{}", job(4));
    let models = [(program(&text), "linear.weight"), (resnet(8), "stem.weight")];
    for (mut program, name) in models {
        for dtype in [Float::F32, Float::F64] {
            program.train.dtype = dtype;
            for schedule in &lowered(&program, &[], Recompute::None) {
                let start = State::initial(&schedule.job);
                assert!(losses(schedule, &start).iter().all(|loss| loss.is_finite()));
                let found = losses(schedule, &overflowed(&schedule.job, name));
                assert!(found.iter().all(|loss| loss.is_nan()), "{name} {found:?}");
            }
        }
    }
}
