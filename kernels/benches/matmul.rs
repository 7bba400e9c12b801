//! Time of the crate `gemm` over the time of `matmul`, one thread, on the products of a small
//! GPT's step: `cargo bench -p roundelay-kernels --features peer`.
#![allow(unsafe_code, reason = "kernels and `gemm` take addresses")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use gemm::Parallelism;
use roundelay_kernels::{Context, Kernel, Mode, random::Stream};
use roundelay_schedule::{Attribute, Bytes, Call, Element, Operand};
use std::{collections::BTreeMap, time::Instant};

const CONTEXT: Context = Context {
    step: 0,
    updates: 1,
    micro_batch: 0,
    seed: 0,
    mode: Mode::Training,
    rate: 0.0,
    slice_offset: 0,
    part: 0,
    threads: 1,
};

/// One product: which operands are stored transposed, and m, n, k.
struct Shape {
    name: &'static str,
    transpose_a: bool,
    transpose_b: bool,
    extents: [u64; 3],
}

const fn forward(extents: [u64; 3]) -> Shape {
    Shape { name: "forward", transpose_a: false, transpose_b: false, extents }
}
const fn to_input(extents: [u64; 3]) -> Shape {
    Shape { name: "input gradient", transpose_a: false, transpose_b: true, extents }
}
const fn to_weight(extents: [u64; 3]) -> Shape {
    Shape { name: "weight gradient", transpose_a: true, transpose_b: false, extents }
}

const SHAPES: &[Shape] = &[
    forward([1024, 128, 128]),
    forward([1024, 512, 128]),
    forward([1024, 128, 512]),
    forward([1024, 256, 128]),
    to_input([1024, 128, 128]),
    to_input([1024, 128, 512]),
    to_input([1024, 512, 128]),
    to_weight([128, 128, 1024]),
    to_weight([128, 512, 1024]),
    to_weight([512, 128, 1024]),
    to_weight([192, 768, 4160]),
    to_weight([768, 192, 4160]),
    forward([512, 512, 512]),
    forward([1024, 1024, 1024]),
    forward([256, 16, 16]),
];

impl Shape {
    fn call(&self) -> Call {
        let [m, n, k] = self.extents;
        let operand = |argument: u32, shape: [u64; 2]| Operand {
            argument,
            offset: Bytes(0),
            element: Element::Real,
            shape: shape.to_vec().into(),
        };
        let flag = |name: &'static str, value| (name.into(), Attribute::Flag(value));
        Call {
            kernel: "matmul".into(),
            attributes: BTreeMap::from([
                flag("transpose_a", self.transpose_a),
                flag("transpose_b", self.transpose_b),
            ])
            .into(),
            operands: vec![
                operand(0, if self.transpose_a { [k, m] } else { [m, k] }),
                operand(1, if self.transpose_b { [n, k] } else { [k, n] }),
                operand(2, [m, n]),
            ],
        }
    }

    fn peer(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        let [m, n, k] = self.extents.map(|extent| extent as usize);
        let [m_stride, n_stride, k_stride] = [m, n, k].map(|extent| extent as isize);
        let (a_row, a_column) =
            if self.transpose_a { (1, m_stride) } else { (k_stride, 1) };
        let (b_row, b_column) =
            if self.transpose_b { (1, k_stride) } else { (n_stride, 1) };
        // SAFETY: the arrays have the lengths that extents and strides say.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out.as_mut_ptr(),
                1,
                n_stride,
                false,
                a.as_ptr(),
                a_column,
                a_row,
                b.as_ptr(),
                b_column,
                b_row,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}

/// Least seconds of both of several repeats in turn, so that a clock that changes is the same for both.
fn seconds(mut works: [&mut dyn FnMut(); 2]) -> [f64; 2] {
    let mut least = [f64::INFINITY; 2];
    for _ in 0..200 {
        for (work, least) in works.iter_mut().zip(&mut least) {
            let start = Instant::now();
            work();
            *least = least.min(start.elapsed().as_secs_f64());
        }
    }
    least
}

fn main() {
    println!("{:>16} {:>16} {:>8} {:>8}", "product", "m, n, k", "ratio", "GFLOP/s");
    let stream = Stream::new(1, &[]);
    let fill = |length: u64| -> Vec<f32> {
        (0..length).map(|index| stream.uniform(index) as f32 - 0.5).collect()
    };
    for shape in SHAPES {
        let [m, n, k] = shape.extents;
        let (mut a, mut b, mut out) = (fill(m * k), fill(k * n), fill(m * n));
        let kernel = Kernel::parse(&shape.call()).expect("the call is well formed");
        let pointers: [*mut u8; 3] =
            [&mut a, &mut b, &mut out].map(|array| array.as_mut_ptr().cast());
        let mut peer_out = out.clone();
        let [ours, theirs] = seconds([
            // SAFETY: the arrays have the lengths of the call's operands.
            &mut || unsafe { kernel.run::<f32>(&pointers, &CONTEXT) },
            &mut || shape.peer(&a, &b, &mut peer_out),
        ]);
        let rate = (2 * m * n * k) as f64 / ours / 1e9;
        let extents = format!("{m}, {n}, {k}");
        println!("{:>16} {extents:>16} {:>8.2} {rate:>8.1}", shape.name, theirs / ours);
    }
}
