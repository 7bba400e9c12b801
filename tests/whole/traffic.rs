//! What whole networks send on grids, counted by the machine, is what their layers send and what
//! stands before and behind them; with depth, their flat parameters besides, padding included.

use crate::{
    columns::{counted, grids},
    depth::deep,
    images::{UNET, small_unet},
    models::{job, program},
    support::compiled,
};
use roundelay::{
    Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{Float, Tensor},
    },
};

/// A language model of this many layers.
struct Network {
    layer: &'static str,
    norm: &'static str,
    width: u64,
    vocabulary: u64,
    layers: u64,
    /// A and B of the features of a layer.
    coefficients: [u64; 2],
    /// Numbers that a norm sums for a token in both passes together.
    sums: u64,
    /// The most rows, which divide the heads that share keys.
    rows_most: u32,
}

const EXAMPLES: u64 = 8;
const SEQUENCE: u64 = 6;

impl Network {
    const fn gpt(vocabulary: u64) -> Self {
        Self {
            layer: "x = x + attention(layer_norm(x), 8, causal = true)
                    x = x + linear(gelu(linear(layer_norm(x), 4 * 48)), 48)",
            norm: "layer_norm",
            width: 48,
            vocabulary,
            layers: 2,
            coefficients: [12 * 48, 4 * 48],
            sums: 4,
            rows_most: 8,
        }
    }

    const fn llama(vocabulary: u64) -> Self {
        Self {
            layer: "x = x + attention(rms_norm(x), 8, key_heads = 2, rotary = 100.0,
                                      bias = false, causal = true)
                    x = x + gated(rms_norm(x), 168)",
            norm: "rms_norm",
            coefficients: [13 * 48, 4 * 48],
            sums: 2,
            rows_most: 2,
            ..Self::gpt(vocabulary)
        }
    }

    fn program(&self) -> Program {
        let Self { layer, norm, width, vocabulary, layers, .. } = self;
        let mut program = program(&format!(
            "model network {{
                input tokens:  i32[batch, {SEQUENCE}]
                input targets: i32[batch, {SEQUENCE}]
                x = embedding(tokens, {vocabulary}, {width})
                repeat {layers} as layer {{
                    {layer}
                }}
                loss cross_entropy(linear({norm}(x), {vocabulary}), targets)
            }}
            {}",
            job(EXAMPLES as u32)
        ));
        program.train.dtype = Float::F64;
        program
    }

    /// Numbers that all devices together send in a step, for this many tokens.
    fn sent(&self, tensor: Tensor, tokens: u64) -> u64 {
        let [rows, columns] = [tensor.rows, tensor.columns].map(u64::from);
        let parts = rows * columns;
        let [a, b] = self.coefficients;
        let norm = self.sums * (columns - 1) * rows;
        let layer = a * (columns - 1) + b * (rows - 1) + 2 * norm;
        // Every part makes classes of its own from whole features, which are gathered once more for
        // the weights' gradient; their gradient is scattered to the columns and summed over the rows.
        let classes = self.width * (3 * rows * (columns - 1) + 2 * (rows - 1));
        // The greatest logit of all parts and the sum of exponentials, everywhere.
        let loss = 2 * parts * (parts - 1);
        // Parts of a large table have a summand each: scattered to the columns, summed over the rows,
        // and the gradient is gathered. Of a small one everybody has own columns.
        let is_large = self.vocabulary >= 128 * parts;
        let table = self.width * (2 * rows * (columns - 1) + 2 * (rows - 1));
        let table = if is_large { table } else { 0 };
        tokens * (2 * (self.layers * layer + norm) + classes + loss + table)
    }

    /// Elements of the flat parameters of a part, in this many equal shards: every array begins at a
    /// multiple of 16, and shards are multiples of 16.
    fn flat(&self, tensor: Tensor, shards: u64) -> u64 {
        let [rows, columns] = [tensor.rows, tensor.columns].map(u64::from);
        let (h, parts) = (self.width, rows * columns);
        // Weights of both directions; vectors of features that rows divide, and columns.
        let (weights, inner, outer) = match self.norm {
            "layer_norm" => (
                vec![h * h; 4].into_iter().chain([4 * h * h; 2]).collect::<Vec<_>>(),
                vec![h, h, h, 4 * h],
                vec![h; 6],
            ),
            _ => {
                let keys = h * h / 4;
                (
                    vec![h * h, keys, keys, h * h, 168 * h, 168 * h, 168 * h],
                    vec![],
                    vec![h; 2],
                )
            }
        };
        let line = |elements: u64| elements.next_multiple_of(16);
        let all =
            |own: &[u64], parts| own.iter().map(|all| line(all / parts)).sum::<u64>();
        let layer = all(&weights, parts) + all(&inner, rows) + all(&outer, columns);
        let norms = if self.norm == "layer_norm" { 2 } else { 1 };
        let norm = all(&vec![h; norms], columns);
        let (table, head) = (self.vocabulary * h, [self.vocabulary * h, self.vocabulary]);
        let is_large = self.vocabulary >= 128 * parts;
        let table = line(table / if is_large { parts } else { columns });
        let sum = self.layers * layer + norm + table + all(&head, parts);
        sum.next_multiple_of(16 * shards)
    }

    /// So many groups of `depth` replicas of a grid send what the formulas say.
    fn holds_depth(&self, tensor: Tensor, (depth, groups): (u32, u32)) {
        let program = self.program();
        let plan = deep(&program, tensor, depth * groups, depth);
        let schedule = compiled(&program, &plan);
        let [depth, groups] = [depth, groups].map(u64::from);
        let elements: u64 = schedule.job.elements.values().sum();
        assert_eq!(elements, self.flat(tensor, depth), "{tensor:?} {depth}");
        let flat = u64::from(tensor.parts()) * elements;
        let gathers = 3 * groups * (depth - 1) * flat;
        let sums = 2 * (groups - 1) * flat;
        let expected = self.sent(tensor, EXAMPLES * SEQUENCE) + gathers + sums;
        let data = Dataset::open(&schedule.job, None).unwrap();
        let mut cpu = Cpu::new(&schedule, Box::new(data), CpuOptions::default()).unwrap();
        cpu.load(&State::initial(&schedule.job)).unwrap();
        cpu.replay(1, &mut |_| {}).unwrap();
        let found: u64 =
            cpu.measured().unwrap().link_bytes.values().map(|own| own.0).sum();
        assert_eq!(found, 8 * expected, "{tensor:?} {depth} {groups}");
    }

    fn fits(&self, tensor: &Tensor) -> bool {
        let [rows, columns] = [tensor.rows, tensor.columns];
        let powers = rows.is_power_of_two() && columns.is_power_of_two();
        powers && rows <= self.rows_most && tensor.parts() > 1
    }
}

#[test]
fn whole_language_models_send_what_the_formulas_say_to_the_byte() {
    for vocabulary in [64, 2048] {
        for network in [Network::gpt(vocabulary), Network::llama(vocabulary)] {
            let program = network.program();
            for tensor in grids().filter(|tensor| network.fits(tensor)) {
                let found = counted(&program, tensor);
                let expected = 8 * network.sent(tensor, EXAMPLES * SEQUENCE);
                assert_eq!(found, expected, "{} {vocabulary} {tensor:?}", network.norm);
            }
        }
    }
}

/// Each device gathers the parameters of its part for either pass and scatters their gradient, among
/// `depth` that take examples of their own; groups of them sum their shards.
#[test]
fn depth_on_grids_adds_flat_parameters_to_the_byte() {
    let tensors = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4)];
    let tensors = tensors.map(|(rows, columns)| Tensor::grid(rows, columns));
    for network in [Network::gpt(64), Network::llama(64)] {
        for tensor in tensors.iter().filter(|own| own.rows <= network.rows_most) {
            for (depth, groups) in [(2, 1), (4, 1), (8, 1), (2, 2), (2, 4), (4, 2)] {
                network.holds_depth(*tensor, (depth, groups));
            }
        }
    }
}

/// The first convolution reads images that everybody has and makes own channels; of the last one's
/// three channels all columns of a row have summands.
#[test]
fn a_whole_unet_sends_what_the_formulas_say_to_the_byte() {
    const WIDTH: u64 = 8;
    let program = small_unet(Float::F64);
    let examples = u64::from(program.train.batch);
    // Four groups of channels are divided without a gather.
    let fits = |own: &Tensor| [own.rows, own.columns].map(|n| 4 % n) == [0, 0];
    for tensor in grids().filter(|tensor| tensor.parts() > 1 && fits(tensor)) {
        let [rows, columns] = [tensor.rows, tensor.columns].map(u64::from);
        let blocks = UNET.iter().map(|(count, pixels, block)| {
            count * WIDTH * block.sent(examples * pixels, tensor)
        });
        let last = 2 * examples * 1024 * 3 * (columns - 1) * rows;
        let expected = blocks.sum::<u64>() + last;
        assert_eq!(counted(&program, tensor), 8 * expected, "{tensor:?}");
    }
}
