//! Words that other systems and libraries use, and what says the same here. They are asked before
//! the nearest known name, which may mean something else.

/// What a word is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    /// A key of this section.
    Key(&'a str),
    /// A value of this key or kind.
    Word(&'a str),
    /// An argument of this operator.
    Argument(&'a str),
}

use Asked::{Argument, Key, Word};

/// Words in small letters, and the hint for whoever writes one of them.
const BORROWED: &[(Asked<'static>, &[&str], &str)] = &[
    (
        Key("plan"),
        &[
            "tp",
            "tensor_parallel",
            "tensor_parallelism",
            "tensor_parallel_size",
            "tensor_model_parallel_size",
            "model_parallel",
        ],
        "write `tensor { rows 4 }`",
    ),
    (
        Key("plan"),
        &[
            "pp",
            "pipeline",
            "pipeline_parallel",
            "pipeline_parallelism",
            "pipeline_parallel_size",
            "pipeline_model_parallel_size",
        ],
        "write `placement pipeline` and `stages 4`",
    ),
    (
        Key("plan"),
        &["dp", "ddp", "data_parallel", "data_parallelism", "data_parallel_size"],
        "write `replicas 4`; `placement data` has a device for each micro-batch",
    ),
    (
        Key("plan"),
        &["zero", "zero_stage", "zero_optimization", "fsdp", "sharding"],
        "write `states zero1`, `states zero2` or `states zero3`, which is what FSDP does",
    ),
    (
        Key("plan"),
        &[
            "gradient_accumulation",
            "gradient_accumulation_steps",
            "grad_accum",
            "accumulation",
            "accumulation_steps",
            "micro_batch_size",
        ],
        "write `micro_batches 8`, into which the examples of a replica are divided",
    ),
    (
        Key("plan"),
        &[
            "activation_checkpointing",
            "gradient_checkpointing",
            "checkpointing",
            "activation_recomputation",
            "remat",
        ],
        "write `recompute full` or `recompute selective`",
    ),
    (
        Key("plan"),
        &["sp", "sequence_parallel", "sequence_parallelism"],
        "write `sequence split`, beside `tensor { rows 4 }`",
    ),
    (
        Key("plan"),
        &["cp", "context_parallel", "context_parallelism"],
        "attention over the sequences of several devices is not supported; `slices 4` sends \
         them through a pipeline slice by slice",
    ),
    (
        Key("plan"),
        &[
            "interleave",
            "interleaved",
            "interleaving",
            "virtual_stages",
            "virtual_pipeline",
            "virtual_pipeline_size",
            "vpp",
        ],
        "write `order interleaved` and `chunks 2`",
    ),
    (Key("plan"), &["schedule", "pipeline_schedule"], "write `order 1f1b`"),
    (
        Key("plan"),
        &["cost"],
        "write `minimize cost`, with `price 2.5 USD/h` in every device",
    ),
    (Key("plan"), &["overdecompose"], "write `tensor { overdecompose 2 }`"),
    (Key("plan"), &["units"], "write `rule local(units = 4)`"),
    (Key("plan"), &["overlap"], "write `rule local(units = 4, overlap = 1)`"),
    (Key("plan"), &["heads"], "write `head after NAME { … loss … }` in the model"),
    (
        Key("plan"),
        &["batch", "data", "optimizer", "steps", "seed", "evaluate", "dtype"],
        "it is a key of `train`",
    ),
    (
        Key("train"),
        &["lr", "learning_rate", "weight_decay", "momentum"],
        "write `optimizer adamw(lr = 1e-3, weight_decay = 0.1)`",
    ),
    (Key("train"), &["epochs", "epoch", "max_steps"], "write `steps 1000`"),
    (
        Key("train"),
        &["precision", "mixed_precision", "bf16", "fp16"],
        "write `dtype bf16`",
    ),
    (Word("states"), &["fsdp"], "FSDP is `zero3`"),
    (Word("states"), &["zero"], "`zero1`, `zero2` and `zero3` are its three stages"),
    (
        Word("states"),
        &["ddp", "dp", "none"],
        "whole states on every device are `replicated`",
    ),
    (
        Word("rule"),
        &["async", "asynchronous", "asgd", "hogwild", "stale"],
        "`cyclic_v2` and `cyclic_v1` use parameters that are at most one step old; `sync` \
         uses the newest alone",
    ),
    (Word("rule"), &["pipedream", "pipedream_2bw"], "PipeDream-2BW is `cyclic_v1`"),
    (
        Word("placement"),
        &["ddp", "dp", "fsdp", "zero", "data_parallel"],
        "write `data`, a device for each micro-batch; `states` says who holds what",
    ),
    (Word("placement"), &["pp", "pipeline_parallel"], "write `pipeline`"),
    (
        Word("placement"),
        &["tp", "tensor", "tensor_parallel"],
        "it goes with every placement: write `tensor { rows 4 }`",
    ),
    (Word("objective"), &["throughput", "time", "speed"], "write `step_time`"),
    (Word("optimizer"), &["adam"], "Adam is `adamw` with `weight_decay = 0`"),
    (
        Argument("attention"),
        &["num_heads", "n_heads", "n_head", "nhead", "num_attention_heads"],
        "write `heads`",
    ),
    (
        Argument("attention"),
        &["kv_heads", "num_kv_heads", "n_kv_heads", "num_key_value_heads"],
        "write `key_heads`",
    ),
    (
        Argument("attention"),
        &["head_dim", "head_size", "d_head", "d_k"],
        "write `head_width`",
    ),
    (Argument("attention"), &["is_causal", "mask", "attn_mask"], "write `causal = true`"),
    (
        Argument("attention"),
        &["rope", "rope_theta", "rotary_base", "theta"],
        "write `rotary = 10000`",
    ),
    (Argument("attention"), &["sliding_window", "window_size"], "write `window`"),
    (Argument("attention"), &["qk_norm"], "write `head_norm = 1e-6`"),
    (Argument("layer_norm"), &["normalized_shape", "dim", "width"], WIDTH),
    (Argument("rms_norm"), &["normalized_shape", "dim", "width"], WIDTH),
    (Argument("layer_norm"), &["eps"], "write `epsilon`"),
    (Argument("rms_norm"), &["eps"], "write `epsilon`"),
    (Argument("linear"), &["out_features", "units", "features"], "write `width`"),
    (Argument("linear"), &["in_features"], WIDTH),
    (Argument("conv2d"), &["out_channels", "channels"], "write `filters`"),
    (Argument("conv2d"), &["kernel_size"], "write `kernel`"),
    (Argument("conv2d"), &["in_channels"], "they are the last extent of `x`"),
];

const WIDTH: &str = "it is the last extent of `x`";

/// What says the same as a word from elsewhere.
pub(crate) fn borrowed(asked: Asked<'_>, found: &str) -> Option<&'static str> {
    let found = found.to_ascii_lowercase();
    let is_meant = |row: &&(Asked<'static>, &[&str], &str)| {
        row.0 == asked && row.1.contains(&found.as_str())
    };
    BORROWED.iter().find(is_meant).map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Objective, SECTIONS, operators::OPERATORS};
    use roundelay_schedule::{Placement, Rule, States};

    /// The names that are known where a word is asked for.
    fn known(asked: Asked<'_>) -> Vec<String> {
        let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        match asked {
            Key(owner) => {
                let section = SECTIONS.iter().find(|(section, _)| *section == owner);
                texts(section.expect("a section").1)
            }
            Word("states") => States::ALL.iter().map(ToString::to_string).collect(),
            Word("placement") => Placement::ALL.iter().map(ToString::to_string).collect(),
            Word("rule") => texts(&Rule::FORMS),
            Word("objective") => texts(&Objective::ALL.map(Objective::name)),
            Word("optimizer") => texts(&["adamw", "sgd"]),
            Word(other) => panic!("no words of {other} are known"),
            Argument(callee) => {
                let operator = OPERATORS.iter().find(|known| known.name == callee);
                let formals = operator.expect("an operator").formals;
                formals.iter().map(|formal| formal.name.to_owned()).collect()
            }
        }
    }

    #[test]
    fn words_are_not_known_and_hints_name_what_is() {
        let sections = SECTIONS
            .iter()
            .flat_map(|(section, keys)| keys.iter().copied().chain(section.split('.')));
        let keys: Vec<&str> = sections.chain(["head"]).collect();
        for (asked, words, hint) in BORROWED {
            let known = known(*asked);
            for word in *words {
                assert!(!known.iter().any(|known| known == word), "{word} is known");
                assert_eq!(borrowed(*asked, &word.to_uppercase()), Some(*hint), "{word}");
            }
            let first = hint.split('`').nth(1).expect("a hint names something");
            let first = first.split([' ', '(']).next().expect("it is no empty text");
            let named = known.iter().any(|known| known == first);
            assert!(named || keys.contains(&first), "{hint} names {first}");
        }
    }

    #[test]
    fn a_word_is_borrowed_where_it_is_asked_for_alone() {
        assert_eq!(borrowed(Word("states"), "FSDP"), Some("FSDP is `zero3`"));
        assert_eq!(borrowed(Word("order"), "fsdp"), None);
    }
}
