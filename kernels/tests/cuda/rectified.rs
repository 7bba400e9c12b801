//! The rectifier behind a batch norm whose norm is made again going back: every gradient counts where
//! it counts by what forward stored, bit for bit, whatever x, the statistics, gain and bias are.

use crate::{
    common::{Array, Body, Build, CONTEXT, call, run},
    emulation::{
        Bound, can_compile,
        compare::steps,
        run_steps,
        stored::{Placement, Stored, half_value},
    },
};
use roundelay_kernels::{Context, Kernel, Mode, Real};
use roundelay_schedule::{Access, Call, Element, Float, GradientSums, Operand};

/// Every number of 16 bits is in each column.
const ROWS: usize = 1 << 16;

/// Gain, bias, mean and variance of each column: results of every size and sign; of both zeros, of
/// numbers below the least one of 32 bits, near to the least one of each type, and of none.
const CHANNELS: [[f64; 4]; 16] = [
    [1.0, 0.0, 0.0, 1.0],
    [-0.7, 0.3, 0.1, 2.5],
    [0.013, -1.9, -4.0, 0.02],
    [1.0, -0.0, 0.0, 1.0],
    [0.0, 0.0, 1.0, 1.0],
    [-0.0, 0.5, 0.25, 9.0],
    [0.0, -0.0, 0.5, 0.3],
    [3e-8, 0.0, 0.0, 1.0],
    [3e-8, -3e-8, 1.0, 1.0],
    [-6e-8, 3e-8, 0.125, 7.0],
    [1e-38, 0.0, 0.0, 1.0],
    [1e-38, 5e-41, 1.0, 1.0],
    [-1e-38, 9.183549615799121e-41, 0.0, 1e30],
    [2e30, 0.0, -1.0, 0.0],
    [1.0, f64::INFINITY, 0.0, 1.0],
    [f64::NAN, 1.0, 0.0, 1.0],
];

const BF16: Float = Float::Bf16(GradientSums::Same);
const F16: Float = Float::F16(GradientSums::Same);
const CONTEXT_OF_RUNNING: Context = Context { mode: Mode::Evaluation, ..CONTEXT };

/// The number with some bits.
fn number(bits: u16, dtype: Float) -> f64 {
    match dtype {
        F16 => half_value(bits),
        _ => f64::from(f32::from_bits(u32::from(bits) << 16)),
    }
}

/// x, dy, and gain, bias, mean and variance.
struct Given {
    x: Vec<f64>,
    dy: Vec<f64>,
    channels: [Vec<f64>; 4],
}

impl Given {
    fn new(dtype: Float) -> Self {
        let columns = CHANNELS.len();
        let x = (0..ROWS * columns).map(|i| number((i / columns) as u16, dtype));
        let dy = (0..ROWS * columns).map(|i| 1.0 + (i % 61) as f64 / 64.0);
        let channels = [0, 1, 2, 3].map(|which: usize| {
            CHANNELS.iter().map(|channel| channel[which]).collect::<Vec<f64>>()
        });
        Self { x: x.collect(), dy: dy.collect(), channels }
    }

    /// The norm with the statistics of these channels and max(·, 0).
    fn forward(&self) -> (Call, Vec<Vec<f64>>) {
        let [x, row] =
            [&[ROWS as u64, CHANNELS.len() as u64][..], &[CHANNELS.len() as u64]];
        let call = call("batch_norm").flag("relu", true).reals(&[x, row, row, row, row]);
        let [gain, bias, mean, variance] = self.channels.clone();
        let made = [self.x.len(), gain.len(), gain.len()].map(|count| vec![0.0; count]);
        let read = [self.x.clone(), gain, bias, mean, variance];
        (wide(call.real(x), 2, row), read.into_iter().chain(made).collect())
    }

    /// What passes back by y, and by the norm that is made again.
    fn rectified(&self, y: &[f64]) -> [(Call, Vec<Vec<f64>>); 2] {
        let [x, row] =
            [&[ROWS as u64, CHANNELS.len() as u64][..], &[CHANNELS.len() as u64]];
        let given = call("relu_backward").reals(&[x, x, x]);
        let again = call("relu_backward_again").reals(&[x, row, row]);
        let again = wide(again, 2, row).reals(&[x, x]);
        let made = vec![0.0; self.x.len()];
        let [gain, bias, mean, variance] = self.channels.clone();
        let read = [self.x.clone(), gain, bias, mean, variance, self.dy.clone()];
        [
            (given, vec![y.to_vec(), self.dy.clone(), made.clone()]),
            (again, read.into_iter().chain([made]).collect()),
        ]
    }

    /// All gradients by y, by the norm that is made again, and by y with dt besides.
    fn backward(&self, y: &[f64]) -> [(Call, Vec<Vec<f64>>); 3] {
        let [x, row] =
            [&[ROWS as u64, CHANNELS.len() as u64][..], &[CHANNELS.len() as u64]];
        let call = call("batch_norm_backward").flag("relu", true).reals(&[x, row]);
        let call = wide(call, 2, row);
        let again = call.clone().flag("again", true).real(row);
        let opened = call.clone().flag("opened", true).reals(&[x, x]);
        let [gain, bias, mean, variance] = self.channels.clone();
        let ways = [(call.real(x), y.to_vec()), (again, bias), (opened, y.to_vec())];
        ways.map(|(call, said)| {
            let call = call.reals(&[x, x, row, row, row, row]);
            let norm = [self.x.clone(), gain.clone(), mean.clone(), variance.clone()];
            let sums = [(); 4].map(|()| vec![0.0; gain.len()]);
            let rows = call.operands.len() - norm.len() - sums.len() - 2;
            let made = vec![vec![0.0; self.x.len()]; rows];
            let given = norm.into_iter().chain([said, self.dy.clone()]);
            (call, given.chain(made).chain(sums).collect())
        })
    }
}

/// With this many statistics more.
fn wide(call: Call, count: usize, shape: &[u64]) -> Call {
    (0..count).fold(call, |call, _| call.operand(Element::Wide, shape))
}

/// What a call writes, on the CPU.
fn on_cpu<R: Real>((call, arrays): &(Call, Vec<Vec<f64>>), body: Body) -> Vec<Vec<f64>> {
    let of = |array: &Vec<f64>| Array::Real(array.iter().map(|x| R::of(*x)).collect());
    let mut arrays: Vec<Array<R>> = arrays.iter().map(of).collect();
    run(call, &mut arrays, body, &CONTEXT_OF_RUNNING);
    let back = |index: usize| arrays[index].values().iter().map(|x| x.widen()).collect();
    written(call).into_iter().map(back).collect()
}

/// What a call writes, on a device.
fn on_device(
    (call, arrays): &(Call, Vec<Vec<f64>>),
    (dtype, placement): (Float, Placement),
) -> Vec<Vec<f64>> {
    let operands = call.operands.iter().zip(arrays);
    let store = |(operand, array): (&Operand, &Vec<f64>)| {
        let array = Array::Real(array.clone());
        Stored::new(&array, operand.element, dtype).placed(placement)
    };
    let mut stored: Vec<Stored> = operands.map(store).collect();
    let pointers: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    let context = &CONTEXT_OF_RUNNING;
    run_steps(&steps(call, dtype), &Bound { operands: &pointers, context });
    written(call).into_iter().map(|index| stored[index].values()).collect()
}

fn written(call: &Call) -> Vec<usize> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let all = kernel.accesses().iter().enumerate();
    all.filter(|(_, access)| **access != Access::Read).map(|(index, _)| index).collect()
}

/// What is no number has no bits that anybody says.
fn bits(all: &[Vec<f64>]) -> Vec<u64> {
    let bits = |value: &f64| if value.is_nan() { u64::MAX } else { value.to_bits() };
    all.iter().flatten().map(bits).collect()
}

/// Runs all calls one way, and holds both ways back to each other and to y.
fn hold(given: &Given, run: impl Fn(&(Call, Vec<Vec<f64>>)) -> Vec<Vec<f64>>) {
    let y = &run(&given.forward())[0];
    let [opened, again] = given.rectified(y).map(|call| run(&call));
    for (place, (y, dt)) in y.iter().zip(&again[0]).enumerate() {
        assert_eq!(*dt != 0.0, *y > 0.0, "{:?} {y}", CHANNELS[place % CHANNELS.len()]);
    }
    assert_eq!(bits(&opened), bits(&again));
    let open = y.iter().filter(|y| **y > 0.0).count();
    assert!(open > y.len() / 4 && open < y.len() / 4 * 3, "{open} are open");
    let [by_y, again, besides] = given.backward(y).map(|call| run(&call));
    assert_eq!(bits(&by_y), bits(&again));
    let (dt, rest) = besides.split_at(1);
    assert!(bits(&opened) == bits(dt) && bits(&by_y) == bits(rest));
}

#[test]
fn the_norm_says_which_count_as_its_result_does() {
    for dtype in [BF16, F16] {
        let given = Given::new(dtype);
        for body in [Body::Fast, Body::Plain] {
            hold(&given, |call| on_cpu::<f32>(call, body));
            hold(&given, |call| on_cpu::<f64>(call, body));
        }
    }
}

/// In 16 bits too, where a result that is > 0 may be stored as zero.
#[test]
fn the_norm_says_which_count_as_its_stored_result_does() {
    if !can_compile() {
        return;
    }
    let aligned = Placement::Aligned;
    for (numbers, dtype, placement) in [
        (BF16, BF16, aligned),
        (F16, F16, Placement::Unaligned),
        (BF16, Float::F32, aligned),
        (F16, Float::F64, aligned),
    ] {
        let given = Given::new(numbers);
        let y = &on_device(&given.forward(), (dtype, placement))[0];
        hold(&given, |call| on_device(call, (dtype, placement)));
        let rounded = y.iter().enumerate().filter(|(place, y)| {
            let channel = CHANNELS[place % CHANNELS.len()];
            **y == 0.0 && made(given.x[*place], channel) > 0.0
        });
        assert!(rounded.count() > 100 || numbers != dtype, "{dtype:?}");
    }
}

/// The norm in 64 bits.
fn made(x: f64, [gain, bias, mean, variance]: [f64; 4]) -> f64 {
    (x - mean) / (variance + 1e-5).sqrt() * gain + bias
}

#[test]
fn what_a_rectifier_leaves_open_is_said_in_one_way() {
    let (x, row): (&[u64], &[u64]) = (&[4, 3], &[3]);
    let all = call("batch_norm_backward");
    let all = all.reals(&[x, row, row, row, row, x, x, row, row, row, row]);
    for (flags, expected) in [
        (&["again"][..], "`again` needs `relu`"),
        (&["opened"], "`opened` needs `relu`"),
        (&["again", "opened"], "`again` needs `relu`"),
        (&["again", "opened", "relu"], "`again` and `opened` exclude each other"),
    ] {
        let call = flags.iter().fold(all.clone(), |call, flag| call.flag(flag, true));
        let mistake = Kernel::parse(&call).unwrap_err();
        assert!(mistake.contains(expected), "{mistake}");
    }
}
