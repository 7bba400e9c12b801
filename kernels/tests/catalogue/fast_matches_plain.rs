//! Every fast kernel against its plain reference of the same name, on random calls.

use crate::common::{
    Array, Body, Build, CONTEXT, call, run,
    sample::{Draw, contents, results, sample},
};
use roundelay_kernels::{Context, Mode, NAMES, Real};
use roundelay_schedule::{Access, Call};

const CALLS_PER_KERNEL: u64 = 40;

/// The two bodies sum in different orders: at most `tolerance` of the largest value. Scores that
/// nobody sees are −∞ in both.
fn assert_same<R: Real>(
    call: &Call,
    fast: &[Array<R>],
    plain: &[Array<R>],
    tolerance: f64,
) {
    for index in results(call) {
        let (fast, plain) = (fast[index].numbers(), plain[index].numbers());
        let sizes = plain.iter().map(|value| value.widen().abs());
        let scale = sizes.filter(|size| size.is_finite()).fold(1.0f64, f64::max);
        for (i, (fast, plain)) in fast.iter().zip(&plain).enumerate() {
            let error = (fast.widen() - plain.widen()).abs() / scale;
            let shapes: Vec<_> = call.operands.iter().map(|x| &x.shape).collect();
            assert!(
                error <= tolerance || fast == plain,
                "{} {:?} {shapes:?}: operand {index}[{i}] is {fast:?} for {plain:?}",
                call.kernel,
                call.attributes,
            );
        }
    }
}

fn compare<R: Real>(name: &str, seed: u64, context: &Context, tolerance: f64) {
    let draw = &mut Draw::new(seed);
    let call = sample(name, draw);
    let start = contents::<R>(&call, draw);
    let (mut fast, mut plain) = (start.clone(), start);
    run(&call, &mut fast, Body::Fast, context);
    run(&call, &mut plain, Body::Plain, context);
    assert_same(&call, &fast, &plain, tolerance);
}

#[test]
fn every_kernel_in_both_types() {
    for name in NAMES {
        for seed in 0..CALLS_PER_KERNEL {
            let mode = if seed % 4 == 0 { Mode::Evaluation } else { Mode::Training };
            let context = Context { mode, slice_offset: seed % 3, ..CONTEXT };
            compare::<f32>(name, seed, &context, 2e-5);
            compare::<f64>(name, seed, &context, 1e-12);
        }
    }
}

/// More channels times filters than one block of transformed filters has elements.
#[test]
fn convolutions_of_several_blocks() {
    let (image, result): (&[u64], &[u64]) = (&[2, 6, 6, 250], &[2, 6, 6, 280]);
    let weight: &[u64] = &[280, 3, 3, 250];
    let build =
        |name| call(name).integer("stride", 1).integer("padding", 1).integer("groups", 1);
    let calls = [
        build("conv2d").reals(&[image, weight, result]),
        build("conv2d_backward").reals(&[result, weight, image]),
        build("conv2d_weights").reals(&[image, result, weight]),
    ];
    for call in calls {
        let start = contents::<f32>(&call, &mut Draw::new(7));
        let (mut fast, mut plain) = (start.clone(), start);
        run(&call, &mut fast, Body::Fast, &CONTEXT);
        run(&call, &mut plain, Body::Plain, &CONTEXT);
        assert_same(&call, &fast, &plain, 2e-5);
    }
}

/// Scores that overflow to −∞ weigh nothing, also where a query meets nothing else at first.
#[test]
fn keys_whose_scores_are_minus_infinity_weigh_nothing() {
    let (hidden, keys, depth) = (130, 200, 2);
    let queries = [1e30f32, 1.0].repeat(keys);
    let all = (0..keys).map(|j| match j < hidden {
        true => [-1e30, 0.0],
        false => [0.0, (j as f32).sin()],
    });
    let all: Vec<f32> = all.flatten().collect();
    let values = Draw::new(3).normals(keys * depth);
    let (x, lse): (&[u64], &[u64]) = (&[1, 200, 2], &[1, 1, 200]);
    let call = call("attention").integer("heads", 1).integer("key_heads", 1);
    let call = call.reals(&[x, x, x, x, lse]);
    let made = || vec![f32::NAN; keys * depth];
    let start = [queries, all, values, made(), vec![f32::NAN; keys]].map(Array::Real);
    let (mut fast, mut plain) = (start.clone(), start);
    run(&call, &mut fast, Body::Fast, &CONTEXT);
    run(&call, &mut plain, Body::Plain, &CONTEXT);
    assert!(plain[3].values().iter().all(|o| o.is_finite()));
    assert_same(&call, &fast, &plain, 2e-5);
}

/// What says of a call that it adds to something.
const ADDING: [&str; 2] = ["accumulate", "accumulate_sums"];

/// The same call, adding to nothing.
fn writing(mut call: Call) -> Call {
    ADDING.iter().for_each(|flag| drop(call.attributes.remove(*flag)));
    call
}

#[test]
fn accumulation_adds_to_what_was_there() {
    for (name, flag) in NAMES.iter().flat_map(|name| ADDING.map(|flag| (name, flag))) {
        let draw = &mut Draw::new(5);
        let call = std::iter::repeat_with(|| sample(name, draw)).take(20);
        let Some(call) = call.into_iter().find(|call| call.attributes.contains_key(flag))
        else {
            continue;
        };
        let before = contents::<f64>(&call, &mut Draw::new(6));
        let (mut added, mut written) = (before.clone(), before.clone());
        let writing = writing(call);
        run(&writing, &mut written, Body::Plain, &CONTEXT);
        let adding = writing.clone().flag(flag, true);
        run(&adding, &mut added, Body::Fast, &CONTEXT);
        let kernel = roundelay_kernels::Kernel::parse(&adding).unwrap();
        assert!(kernel.accesses().contains(&Access::Update), "{name}");
        for index in results(&writing) {
            let adds = kernel.accesses()[index] == Access::Update;
            let both = written[index].values().iter().zip(before[index].values());
            let sums = both.map(|(written, before)| match adds {
                true => written + before,
                false => *written,
            });
            for (sum, found) in sums.zip(added[index].values()) {
                let near = (sum - found).abs() <= 1e-11 * sum.abs().max(1.0);
                assert!(near || sum == *found, "{name} {flag}");
            }
        }
    }
}

/// What norms sum by the way is added as if it had been written aside before, bit for bit; what else
/// they make stays as it is.
#[test]
fn sums_that_are_added_are_whole() {
    let mut seen = 0;
    for name in NAMES.iter().filter(|name| name.ends_with("_norm_backward")) {
        for seed in 0..20 {
            let draw = &mut Draw::new(seed);
            let call = writing(sample(name, draw));
            let before = contents::<f32>(&call, draw);
            let adding = call.clone().flag("accumulate_sums", true);
            let Ok(kernel) = roundelay_kernels::Kernel::parse(&adding) else { break };
            for body in [Body::Fast, Body::Plain] {
                let [mut added, mut written] = [(); 2].map(|()| before.clone());
                run(&call, &mut written, body, &CONTEXT);
                run(&adding, &mut added, body, &CONTEXT);
                for (index, access) in kernel.accesses().iter().enumerate() {
                    let was = before[index].values().iter().zip(written[index].values());
                    let expected = was.map(|(before, written)| match access {
                        Access::Update => before + written,
                        Access::Read | Access::Write => *written,
                    });
                    let found = added[index].values().iter();
                    let mut same = found.zip(expected);
                    assert!(same.all(|(a, b)| a.to_bits() == b.to_bits()), "{name}");
                }
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 4 * 20);
}

#[test]
fn writing_disregards_what_was_there() {
    for name in NAMES {
        let draw = &mut Draw::new(9);
        let call = writing(sample(name, draw));
        let start = contents::<f32>(&call, draw);
        let kernel = roundelay_kernels::Kernel::parse(&call).unwrap();
        let mut poisoned = start.clone();
        for (access, array) in kernel.accesses().iter().zip(&mut poisoned) {
            if let (Access::Write, Array::Real(values)) = (access, array) {
                values.fill(f32::NAN);
            }
        }
        let mut clean = start;
        run(&call, &mut clean, Body::Fast, &CONTEXT);
        run(&call, &mut poisoned, Body::Fast, &CONTEXT);
        for index in results(&call) {
            let bits = |array: &Array<f32>| -> Vec<u32> {
                array.numbers().iter().map(|value| value.to_bits()).collect()
            };
            assert_eq!(bits(&clean[index]), bits(&poisoned[index]), "{name}");
        }
    }
}
