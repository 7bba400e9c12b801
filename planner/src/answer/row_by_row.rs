//! Attention that GPUs make without tensor cores, which rooflines know nothing of.

use roundelay_dsl::{Node, Operation, Program};
use roundelay_kernels::cuda::tiled_depths;
use roundelay_schedule::Float;
use std::collections::BTreeSet;

/// What the times of a program in 16 bits, which GPUs alone train, do not say of its attention. Those that
/// a table measured do.
pub(crate) fn row_by_row(program: &Program) -> Option<String> {
    let dtype = program.train.dtype;
    let on_gpus = matches!(dtype, Float::Bf16(_) | Float::F16(_));
    if !on_gpus || !program.profiles.is_empty() {
        return None;
    }
    let nodes = || program.model.nodes.values();
    let depths: BTreeSet<u64> = nodes().filter_map(depth).collect();
    let mut made: Vec<String> = depths
        .into_iter()
        .filter(|depth| tiled_depths().all(|tiled| tiled != *depth))
        .map(|depth| format!("attention of heads of {depth} numbers"))
        .collect();
    if nodes().any(|node| matches!(node.operation, Operation::Scores { .. })) {
        made.push("stored scores".to_owned());
    }
    (!made.is_empty()).then(|| {
        format!(
            "GPUs make {} row by row, without the tensor cores that these times count on, which take heads of \
             {} numbers; `profile` measures others",
            made.join(" and "),
            tiled_depths().map(|depth| depth.to_string()).collect::<Vec<_>>().join(", ")
        )
    })
}

/// The numbers of a head.
fn depth(node: &Node) -> Option<u64> {
    let Operation::Attention { heads, .. } = node.operation else { return None };
    Some(node.shape.last()?.size / heads.all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn told(heads: u64, more: &str, dtype: &str) -> Option<String> {
        row_by_row(&sample::parsed(&format!(
            "model it {{
                input tokens: i32[batch, 8]
                input next: i32[batch, 8]
                x = embedding(tokens, 32, 256)
                x = attention(x, {heads}{more})
                loss cross_entropy(linear(x, 32), next)
            }}
            device gpu {{ memory 8 GB, compute 1 TFLOP/s, bandwidth 1 TB/s }}
            link bus {{ bandwidth 10 GB/s, latency 1 us }}
            cluster two {{ 2 x gpu joined by bus }}
            train {{ data synthetic, batch 4, steps 1, dtype {dtype}, optimizer sgd(lr = 0.1) }}"
        )))
    }

    #[test]
    fn heads_without_tiles_and_stored_scores_are_told() {
        let of_16 = told(16, "", "bf16").expect("16 numbers have none");
        assert!(of_16.contains("heads of 16 numbers row by row"), "{of_16}");
        assert!(of_16.contains("take heads of 32, 64, 80, 96, 128 numbers"), "{of_16}");
        assert_eq!(told(8, "", "bf16"), None, "32 numbers");
        assert_eq!(told(4, "", "bf16"), None, "64 numbers");
        assert_eq!(told(2, "", "f16"), None, "128 numbers");
        assert_eq!(told(16, "", "f32"), None, "a CPU trains it as well");
        let stored =
            told(4, ", stored_scores = true", "bf16").expect("they are products");
        assert!(stored.contains("make stored scores row by row"), "{stored}");
    }
}
