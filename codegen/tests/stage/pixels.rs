//! Routines of rows that divide the height of images: parts in lockstep make the loss and the
//! gradients of the whole model, and send halos, statistics and sums of gradients alone.

use crate::support::{
    build::nodes,
    split::{EXAMPLES, assert_same, model, stages},
};
use roundelay_codegen::{BackwardForm, Everywhere, StageForm, Storage, stages_in};
use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Exchanging, Float, Id, Recompute, Routine, Sequence, Stage, Tensor,
};

/// Convolutions of one to seven rows, in steps of one and two, in groups, from an input and behind
/// others; pools of every kind; both norms, masks, sums, what is whole, and losses of pixels.
const IMAGES: &str = "model images {
    input images: real[batch, 32, 8, 3]
    input wanted: real[batch, 16, 4, 2]
    x = relu(batch_norm(conv2d(images, 4, kernel = 7, stride = 2)))
    y = max_pool(x, 3, stride = 2, padding = 1)
    y = conv2d(silu(group_norm(y, 2)), 6, bias = false)
    y = y + conv2d(gelu(y), 6, kernel = 5, groups = 2)
    y = avg_pool(dropout(batch_norm(conv2d(y, 4, kernel = 1)), 0.2), 3, stride = 1, padding = 1)
    y = linear(layer_norm(upsample(y)), 4)
    z = conv2d(x, 4, bias = false) + conv2d(relu(y), 4, bias = false)
    z = conv2d(z * x, 4, kernel = 2, stride = 2, padding = 0)
    v = linear(relu(linear(global_pool(z), 48)), 4)
    w = linear(reshape(z, [batch, 64]), 4)
    pixels = 1e-3 * mse(conv2d(upsample(z), 2), wanted)
    loss pixels + 1e-3 * mse(v, global_pool(x)) + 1e-3 * mse(w, v)
}";

const ROWS: [u32; 3] = [2, 4, 8];

#[test]
fn pixels_in_lockstep_make_the_gradients_of_the_whole() {
    let model = model(IMAGES);
    for rows in ROWS {
        assert_same(&model, &[], Tensor::pixels(rows), StageForm::default());
    }
}

#[test]
fn stages_of_pixels_make_the_gradients_of_the_whole_wherever_they_are_cut() {
    let model = model(IMAGES);
    for cut in 1..nodes(&model) - 2 {
        assert_same(&model, &[cut], Tensor::pixels(2), StageForm::default());
    }
}

#[test]
fn pixels_make_the_same_in_every_form() {
    let model = model(IMAGES);
    for backward in [BackwardForm::Whole, BackwardForm::Split] {
        for recompute in Recompute::STEPS.iter().copied() {
            let form = StageForm { backward, recompute };
            assert_same(&model, &[9], Tensor::pixels(4), form);
        }
    }
}

/// Patches become tokens, which heads and maps divide otherwise.
#[test]
fn tokens_behind_images_of_pixels_make_the_gradients_of_the_whole() {
    let text = "model patches {
        input images:  real[batch, 16, 8, 3]
        input targets: i32[batch]
        x = conv2d(images, 8, kernel = 2, stride = 2, padding = 0)
        x = reshape(x, [batch, 32, 8]) + positions(32, 8)
        x = x + attention(layer_norm(x), 4)
        x = x + linear(gelu(linear(layer_norm(x), 24)), 8)
        loss cross_entropy(linear(select(layer_norm(x), 0), 10), targets)
    }";
    for rows in [2, 4] {
        for sequence in [Sequence::Whole, Sequence::Split] {
            let tensor = Tensor { sequence, ..Tensor::pixels(rows) };
            assert_same(&model(text), &[], tensor, StageForm::default());
        }
    }
}

/// How many exchanges of strips a routine makes.
fn strips(routine: &Routine) -> usize {
    let kernels =
        routine.calls.iter().map(|call| Kernel::parse(call).expect("it is one"));
    let exchanges = kernels.filter_map(|kernel| kernel.exchange());
    let is_strips = |kind| matches!(kind, Exchanging::Strips(_));
    exchanges.filter(|exchange| is_strips(exchange.exchanged(Float::F64).kind)).count()
}

/// Windows whose rows are those of the part, or less, fetch nothing; a mean is not read by backward.
#[test]
fn halos_are_fetched_where_they_are_read_and_nowhere_else() {
    let of = |window: &str| {
        let text = format!(
            "model windows {{
                input images: real[batch, 16, 8, 3]
                input wanted: real[batch, 3]
                x = conv2d(images, 3, kernel = 1)
                x = {window}
                loss mse(global_pool(x), wanted)
            }}"
        );
        let code = stages(&model(&text), &[], Tensor::pixels(4), StageForm::default());
        let stage = &code.stages[Stage::new(0)];
        [strips(&stage.forward), strips(stage.backward.first()[0])]
    };
    assert_eq!(of("conv2d(x, 3)"), [1, 2]);
    assert_eq!(of("max_pool(x, 3, stride = 1, padding = 1)"), [1, 2]);
    assert_eq!(of("avg_pool(x, 3, stride = 1, padding = 1)"), [1, 1]);
    assert_eq!(of("conv2d(x, 3, kernel = 1, stride = 2)"), [0, 0]);
    assert_eq!(of("conv2d(x, 3, kernel = 2, stride = 2, padding = 0)"), [0, 0]);
    assert_eq!(of("max_pool(x, 2)"), [0, 0]);
}

fn refused(text: &str, rows: u32) -> String {
    let cut: (&[u32], Tensor) = (&[], Tensor::pixels(rows));
    let form = |_| StageForm::default();
    let storage = Storage { dtype: Float::F32, padding: 16 };
    let made = stages_in(&model(text), cut, EXAMPLES, storage, form, &Everywhere);
    made.expect_err("it does not split").to_string()
}

#[test]
fn heights_that_rows_do_not_divide_are_refused_with_what_would() {
    assert_eq!(
        refused(IMAGES, 16),
        "`max_pool`: 16 tensor rows do not divide images of 8 rows of pixels; numbers of rows that \
         divide all heights of the model: 1, 2, 4, 8"
    );
    let text = "model maps {
        input x: real[batch, 6, 10]
        input y: real[batch, 6, 5]
        loss mse(linear(relu(linear(x, 24)), 5), y)
    }";
    assert_eq!(
        refused(text, 2),
        "no operation of the model has a window that moves over images, which 2 tensor rows that \
         split images could divide: set `images whole`"
    );
}
