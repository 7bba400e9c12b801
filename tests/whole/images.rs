//! Images on grids of tensor rows and columns: convolutions, norms and pools of parts equal the
//! recursion bit for bit and one device but for rounding; blocks of a U-Net send what the formulas
//! say, so the best grid is theirs.

use crate::{
    columns::{
        best_grid, counted_of, descending, grids, trains_like_one_device, volume_alone,
    },
    models::job,
    networks::resnet,
    oracle::{RESTS, compare_one, recursion},
    plans::kinds,
    rows::sequential,
    support::{plan, saved},
};
use roundelay::{
    Checked, Program,
    parts::{
        codegen::{Everywhere, lower_with},
        dsl::{Disk, SourceFile, parse},
        kernels::Kernels,
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{Contraction, Float, Tensor, check},
    },
};

/// A program that may use the blocks of a U-Net.
fn with_blocks(text: &str) -> Program {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/test.rdl");
    let text = format!("import \"models/unet.rdl\"\n{text}");
    let source = SourceFile::new(folder, text);
    parse(&source, &Disk).unwrap_or_else(|wrong| panic!("{wrong}")).0
}

/// Every kind of operation on images, with as many channels, groups and classes.
fn everything(channels: u32, dtype: Float) -> Program {
    let text = format!(
        "model images {{
            c = {channels}
            input images:  real[batch, 4, 4, 3]
            input targets: i32[batch]
            x = max_pool(relu(batch_norm(conv2d(images, c))), 2)
            y = relu(batch_norm(conv2d(x, c, kernel = 1, bias = false)))
            y = conv2d(y, c, kernel = 1, groups = c)
            x = x + batch_norm(conv2d(y, c, kernel = 1))
            short = group_norm(conv2d(x, c, kernel = 1), c)
            y = conv2d(upsample(silu(group_norm(x, 1))), c, kernel = 2, stride = 2, padding = 0)
            x = dropout(short + y, 0.2)
            two = conv2d(x, c, kernel = 1, bias = false) + conv2d(y, c, kernel = 1, bias = false)
            x = avg_pool(two * x, 2)
            loss cross_entropy(linear(global_pool(x), c), targets)
        }}"
    );
    descending(&text, 4, "1e-1", dtype)
}

/// Maps in turn, all gathering, and each in a way of its own, where there are such.
fn contracted(tensor: Tensor) -> impl Iterator<Item = Tensor> {
    let all = Contraction::ALL.iter();
    all.map(move |own| Tensor { contraction: *own, ..tensor })
        .filter(Tensor::can_contract)
}

#[test]
fn images_on_every_grid_train_like_on_one_device() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        for channels in [120, 14] {
            let fits = |tensor: &Tensor| {
                channels % tensor.rows == 0 && channels % tensor.columns == 0
            };
            let grids = grids().filter(fits).flat_map(contracted);
            trains_like_one_device(&everything(channels, dtype), grids, most);
        }
    }
}

/// A convolution that the grid does not divide stands whole beside one whose sum has not met.
#[test]
fn a_sum_of_convolutions_of_which_one_is_not_divided_trains_like_on_one_device() {
    let text = "model uneven {
        input images:  real[batch, 4, 4, 3]
        input targets: i32[batch]
        x = relu(conv2d(images, 8))
        p = conv2d(x, 8)
        q = conv2d(x, 7)
        s = conv2d(q, 7, bias = false) + conv2d(p, 7, bias = false)
        loss cross_entropy(linear(global_pool(s), 8), targets)
    }";
    let program = descending(text, 4, "1e-1", Float::F32);
    trains_like_one_device(&program, [Tensor::grid(2, 1)], 1e-5);
}

pub(crate) fn small_unet(dtype: Float) -> Program {
    let plain = job(4)
        .replace("adamw(lr = step(1e-2, 0.1, 3), weight_decay = 0.1)", "sgd(lr = 1)");
    let mut program = with_blocks(&format!(
        "model small_unet {{
            input images: real[batch, 32, 32, 3]
            input wanted: real[batch, 32, 32, 3]
            loss mse(unet(images, 8, 4), wanted)
        }}
        {plain}"
    ));
    program.train.dtype = dtype;
    program
}

#[test]
fn a_unet_on_grids_trains_like_on_one_device() {
    let grids = [(1, 2), (2, 1), (2, 2), (4, 2), (2, 4)].map(|(r, c)| Tensor::grid(r, c));
    let each = |tensor| Tensor { contraction: Contraction::Each, ..tensor };
    let chosen = [grids[0], grids[2], grids[4]].map(each);
    let all = grids.into_iter().chain(chosen);
    trains_like_one_device(&small_unet(Float::F64), all, 1e-12);
    trains_like_one_device(&small_unet(Float::F32), [grids[2]], 1e-5);
}

#[test]
fn residual_networks_on_grids_replay_like_the_recursion() {
    let program = resnet(8);
    let each = Tensor { contraction: Contraction::Each, ..Tensor::grid(2, 2) };
    for tensor in [Tensor::grid(2, 1), Tensor::grid(1, 2), Tensor::grid(2, 2), each] {
        for kind in kinds(2, 2) {
            let plan = plan(&program, kind, 2, 2).with_tensor(tensor);
            compare_one(&program, &plan, &RESTS[2..]);
        }
    }
}

/// Filters that both directions divide, and running statistics of own channels.
#[test]
fn a_state_of_images_comes_back_from_a_grid_as_it_went_there() {
    let program = resnet(8);
    let whole = sequential(&program, Tensor::WHOLE);
    let data = Dataset::open(&whole.job, None).unwrap();
    let start = State::initial(&whole.job);
    let mut trained = recursion(&whole, &data, &start).state;
    trained.restart();
    for tensor in [(2, 1), (1, 2), (2, 2)].map(|(r, c)| Tensor::grid(r, c)) {
        let grid = sequential(&program, tensor);
        assert!(State::initial(&grid.job) == start, "{tensor:?}");
        let data = Box::new(data.clone());
        let mut cpu = Cpu::new(&grid, data, CpuOptions::default()).unwrap();
        cpu.load(&trained).unwrap();
        assert!(saved(&mut cpu) == trained, "{tensor:?}");
    }
}

/// A block with its numbers of channels: those that it reads beside each other, and those that it
/// makes.
pub(crate) struct Block {
    text: &'static str,
    read: &'static [u64],
    made: u64,
}

impl Block {
    /// A and B of its convolutions in turn, and the filters of the one that turns back.
    fn coefficients(&self) -> [u64; 3] {
        let read: u64 = self.read.iter().sum();
        let back = if self.read == [self.made] { 0 } else { self.made };
        [2 * self.made, read + self.made, back]
    }

    /// What all parts together send for this many pixels: 2 m [A (C − 1) + B (R − 1)], and for a map
    /// that turns back over R rows of C columns 2 m n (C − 1) R: scattered, and gathered again.
    pub(crate) fn sent(&self, pixels: u64, tensor: Tensor) -> u64 {
        let [a, b, back] = self.coefficients();
        let [rows, columns] = [tensor.rows, tensor.columns].map(u64::from);
        2 * pixels * (a * (columns - 1) + b * (rows - 1) + back * (columns - 1) * rows)
    }
}

const BLOCKS: [Block; 4] = [
    Block { text: "steady(x, 8, 8)", read: &[8], made: 8 },
    Block { text: "widening(x, 16, 8)", read: &[8], made: 16 },
    Block { text: "merging(x, x, 8, 8)", read: &[8, 8], made: 8 },
    Block { text: "merging(x, widened, 8, 8)", read: &[8, 16], made: 8 },
];

/// A schedule whose convolutions go as lowering has them, which knows no planner.
fn by_themselves(program: &Program, tensor: Tensor) -> Checked {
    let plan = plan(program, kinds(2, 1)[0], 2, 1).with_tensor(tensor);
    let schedule = lower_with(program, &plan, &Everywhere).unwrap();
    check(schedule, &Kernels).unwrap()
}

#[test]
fn blocks_of_a_unet_send_what_the_formulas_say_to_the_byte() {
    let of = |block: Option<&Block>, tensor| {
        let end = match block {
            Some(Block { text, made: 8, .. }) => format!("{text} + x"),
            Some(Block { text, .. }) => format!("narrowed({text}) + x"),
            None => "x + x".to_owned(),
        };
        let mut program = with_blocks(&format!(
            "block narrowed(x) {{ return merging(x, x, 8, 8) }}
            model blocks {{
                input images: real[batch, 4, 4, 3]
                input wanted: real[batch, 4, 4, 3]
                x = steady(conv2d(images, 8), 8, 8)
                widened = conv2d(images, 16)
                x = {end}
                loss mse(conv2d(x, 3), wanted) + mse(conv2d(widened, 3), wanted)
            }}
            {}",
            job(2)
        ));
        program.train.dtype = Float::F64;
        counted_of(&by_themselves(&program, tensor))
    };
    let pixels = 2 * 4 * 4;
    let powers = |tensor: &Tensor| {
        tensor.rows.is_power_of_two() && tensor.columns.is_power_of_two()
    };
    for tensor in grids().filter(powers).filter(|tensor| tensor.parts() > 1) {
        let without = of(None, tensor);
        for block in &BLOCKS {
            let narrowed = Block { text: "", read: &[16, 16], made: 8 };
            let more = if block.made == 8 { 0 } else { narrowed.sent(pixels, tensor) };
            let found = of(Some(block), tensor) - without;
            let expected = 8 * (block.sent(pixels, tensor) + more);
            assert_eq!(found, expected, "{} {tensor:?}", block.text);
        }
    }
}

const fn block(read: &'static [u64], made: u64) -> Block {
    Block { text: "", read, made }
}

/// How often each block stands in the network, and for how many pixels of an image of 1,024; in
/// channels of the width.
pub(crate) const UNET: [(u64, u64, Block); 14] = [
    (3, 1024, block(&[1], 1)),
    (1, 256, block(&[1], 2)),
    (2, 256, block(&[2], 2)),
    (3, 64, block(&[2], 2)),
    (3, 16, block(&[2], 2)),
    (2, 4, block(&[2], 2)),
    (3, 4, block(&[2, 2], 2)),
    (3, 16, block(&[2, 2], 2)),
    (2, 64, block(&[2, 2], 2)),
    (1, 64, block(&[2, 1], 2)),
    (3, 256, block(&[1, 1], 1)),
    (1, 256, block(&[2, 1], 1)),
    (3, 1024, block(&[1, 1], 1)),
    (1, 1024, block(&[1, 2], 1)),
];

/// The published sums of the whole list, for 1,024 pixels of the input, in channels of the width.
#[test]
fn the_network_has_the_published_coefficients() {
    let mut published = [0, 0];
    let mut parameters = 0;
    for (count, pixels, block) in &UNET {
        let [a, b, back] = block.coefficients();
        let read: u64 = block.read.iter().sum();
        // A convolution that does not turn back sends as any other one does.
        published[0] += count * pixels * (a + back);
        published[1] += count * pixels * (b + if back > 0 { read } else { 0 });
        parameters += count * (9 * block.made * (read + block.made) + read * back);
    }
    assert_eq!(published, [27_592, 40_760]);
    let width = 8;
    let program = small_unet(Float::F32);
    let weights = program.model.parameters.values().filter(|own| own.shape.len() == 4);
    let elements: u64 = weights.map(|own| own.shape.iter().product::<u64>()).sum();
    let ends = 2 * 9 * 3 * width;
    assert_eq!(elements, parameters * width * width + ends);
}

/// Where only what is sent takes time and convolutions take turns, the planner takes the grid that sends
/// least: of the published
/// U-Net columns / rows = B / A = 1.48, in powers of two.
#[test]
fn the_planner_takes_the_grid_of_a_unet_that_sends_least() {
    for (devices, rows, columns) in
        [(4, 2, 2), (8, 2, 4), (16, 4, 4), (32, 4, 8), (64, 8, 8)]
    {
        let program = with_blocks(&format!(
            "model planned {{
                input images: real[batch, 32, 32, 3]
                input wanted: real[batch, 32, 32, 3]
                loss mse(unet(images, 64, 64), wanted)
            }}
            {}",
            volume_alone(devices).replace("tensor {", "tensor { contraction alternate,")
        ));
        assert_eq!(best_grid(&program), Tensor::grid(rows, columns), "{devices}");
    }
}
