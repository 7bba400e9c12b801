//! Rectifiers behind batch norms on a GPU: where one stage has both, backward makes the norm again; behind
//! a cut it reads what forward stored. A training has the same bits, in 16 bits too.

use crate::bench::{Bench, Run, has_compiler, program_of};

const MODEL: &str = "model residual {
    input pixels: real[batch, 6, 6, 4]
    input labels: i32[batch]
    x = relu(batch_norm(conv2d(pixels, 16, bias = false)))
    y = relu(batch_norm(conv2d(x, 16, stride = 2, bias = false)))
    x = batch_norm(conv2d(x, 16, kernel = 1, stride = 2, bias = false))
    x = relu(x + batch_norm(conv2d(y, 16, bias = false)))
    x = relu(batch_norm(conv2d(x, 8, kernel = 1, bias = false)))
    logits = linear(global_pool(x), 4)
    loss cross_entropy(logits, labels)
}";

/// A training in two stages, of which the second begins with this node.
fn run(bench: &Bench, cut: u32, dtype: &str) -> Run {
    let train = format!(
        "batch 8, seed 11, steps 6, optimizer sgd(lr = 0.05, momentum = 0.9), dtype {dtype}"
    );
    let plan = format!(
        "rule sync, placement pipeline, order gpipe, micro_batches 2, stages 2,
        cuts [{cut}], states replicated, replicas 1, recompute none"
    );
    let name = format!("{dtype}-{cut}");
    let program = program_of(bench, &name, (MODEL, 2), &train, &plan);
    bench.run("--device cuda", &program, &[])
}

/// The first norm is node 1, its rectifier node 2.
#[test]
fn a_cut_between_norm_and_rectifier_changes_no_bit() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("rectifying");
    for dtype in ["f32", "bf16"] {
        let [behind, whole] = [2, 3].map(|cut| run(&bench, cut, dtype));
        assert_eq!(behind.losses.len(), 6);
        assert_eq!(behind.losses, whole.losses, "{dtype}");
    }
}
