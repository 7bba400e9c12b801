//! Times convolutions for `benches/convolution.py`: reads one layer per line from standard input
//! (`forward`, `backward` or `weights`, then batch, height, width, channels, filters, kernel,
//! stride, threads, repeats), and answers with the least wall time in seconds.
#![allow(unsafe_code, reason = "kernels take addresses")]
#![allow(clippy::print_stdout, reason = "answers go to standard output")]

use roundelay_kernels::{Context, Kernel, Mode, random::Stream};
use roundelay_schedule::{Attribute, Bytes, Call, Element, Operand};
use std::{
    io::{self, BufRead},
    time::Instant,
};

/// One line of the input.
struct Layer {
    pass: String,
    x: [u64; 4],
    weight: [u64; 4],
    stride: u64,
    threads: usize,
    repeats: usize,
}

impl Layer {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let pass = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [batch, height, width, channels, filters, kernel, stride, threads, repeats] =
            numbers.try_into().ok()?;
        Some(Self {
            pass,
            x: [batch, height, width, channels],
            weight: [filters, kernel, kernel, channels],
            stride,
            threads: usize::try_from(threads).ok()?,
            repeats: usize::try_from(repeats).ok()?,
        })
    }

    fn call(&self) -> Call {
        let [batch, height, width, _] = self.x;
        let padding = self.weight[1] / 2;
        let places =
            |extent: u64| (extent + 2 * padding - self.weight[1]) / self.stride + 1;
        let y = [batch, places(height), places(width), self.weight[0]];
        let (kernel, shapes) = match self.pass.as_str() {
            "backward" => ("conv2d_backward", [y, self.weight, self.x]),
            "weights" => ("conv2d_weights", [self.x, y, self.weight]),
            _ => ("conv2d", [self.x, self.weight, y]),
        };
        let integer = |name: &'static str, value: u64| {
            (name.into(), Attribute::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
        };
        let operand = |(argument, shape): (u32, [u64; 4])| Operand {
            argument,
            offset: Bytes(0),
            element: Element::Real,
            shape: shape.into(),
        };
        Call {
            kernel: kernel.into(),
            attributes: [
                integer("stride", self.stride),
                integer("padding", padding),
                integer("groups", 1),
            ]
            .into_iter()
            .collect(),
            operands: (0..).zip(shapes).map(operand).collect(),
        }
    }

    /// Least seconds of several repeats.
    fn seconds(&self) -> Result<f64, String> {
        let call = self.call();
        let kernel = Kernel::parse(&call)?;
        let stream = Stream::new(1, &[]);
        let fill = |operand: &Operand| -> Vec<f32> {
            let length = operand.elements().unwrap_or(0);
            (0..length).map(|index| stream.uniform(index) as f32 - 0.5).collect()
        };
        let mut arrays: Vec<Vec<f32>> = call.operands.iter().map(fill).collect();
        let pointers: Vec<*mut u8> =
            arrays.iter_mut().map(|array| array.as_mut_ptr().cast()).collect();
        let context = Context {
            step: 0,
            updates: 1,
            micro_batch: 0,
            seed: 0,
            mode: Mode::Training,
            rate: 0.0,
            slice_offset: 0,
            part: 0,
            threads: self.threads,
        };
        kernel.prepare::<f32>(self.threads);
        let once = || {
            let start = Instant::now();
            // SAFETY: the arrays have the lengths of the call's operands.
            unsafe { kernel.run::<f32>(&pointers, &context) };
            start.elapsed().as_secs_f64()
        };
        Ok((0..self.repeats).map(|_| once()).fold(f64::INFINITY, f64::min))
    }
}

fn main() {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match Layer::parse(&line).map(|layer| layer.seconds()) {
            Some(Ok(seconds)) => println!("{seconds}"),
            Some(Err(mistake)) => println!("{mistake}"),
            None => println!("expected a pass and nine numbers"),
        }
    }
}
