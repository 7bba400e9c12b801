//! Routines of tensor rows: rows in lockstep make the loss and the gradients of the whole model,
//! wherever it is cut, whatever is computed again, and with dropout's very masks.

use crate::support::{
    build::nodes,
    split::{
        CHARACTERS, DEEP_HEAD, EXAMPLES, GPT, LLAMA, MAPS, PACKED, STORED, assert_same,
        model, stages,
    },
};
use roundelay_codegen::{
    BackwardForm, Everywhere, StageError, StageForm, Storage, stages_in,
};
use roundelay_dsl::{Motion, Operation, Part};
use roundelay_kernels::{Exchange, Joint, Kernel};
use roundelay_schedule::{
    Argument, Collective, Float, GradientSums, Id, Line, Recompute, Role, Routine,
    Sequence, Stage, Tensor,
};

fn tensors() -> Vec<Tensor> {
    let rows = [2, 3, 4, 6];
    let both = [Sequence::Whole, Sequence::Split];
    rows.into_iter()
        .flat_map(|rows| both.map(|sequence| Tensor::rows(rows, sequence)))
        .collect()
}

#[test]
fn rows_in_lockstep_make_the_gradients_of_the_whole() {
    for text in [GPT, PACKED, LLAMA, STORED, MAPS] {
        let model = model(text);
        for tensor in tensors() {
            assert_same(&model, &[], tensor, StageForm::default());
        }
    }
}

/// Parts of rows that the number of parts does not divide, of tables that are kept whole.
#[test]
fn a_shared_table_is_cut_between_its_rows() {
    for text in [CHARACTERS, DEEP_HEAD] {
        let model = model(text);
        for tensor in tensors() {
            assert_same(&model, &[], tensor, StageForm::default());
        }
    }
}

/// Masks are functions of places in the whole tensor, which parts of unequal length would shift.
#[test]
fn classes_that_do_not_divide_evenly_keep_their_masks() {
    let text = |loss: &str| {
        format!(
            "model dropped {{
                input x: real[batch, 12]
                input targets: i32[batch]
                h = linear(layer_norm(linear(gelu(linear(x, 24)), 12)), 65)
                dropped = dropout(h, 0.5)
                loss {loss}
            }}"
        )
    };
    let alone = "cross_entropy(dropped, targets)";
    let both = format!("cross_entropy(h, targets) + {alone}");
    for loss in [alone, &both] {
        for tensor in tensors() {
            assert_same(&model(&text(loss)), &[], tensor, StageForm::default());
        }
    }
}

/// As deep as a program can make them.
#[test]
fn a_deep_model_is_split_without_recursion() {
    let text = "model deep {
        input x: real[batch, 6, 10]
        input y: real[batch, 6, 5]
        h = linear(x, 24)
        repeat 30000 { h = relu(h) }
        loss mse(linear(h, 5), y)
    }";
    let tensor = Tensor::rows(2, Sequence::Whole);
    let code = stages(&model(text), &[], tensor, StageForm::default());
    assert!(code.parameters.iter().any(|parameter| !parameter.split.is_whole()));
}

#[test]
fn what_is_computed_again_or_in_halves_changes_nothing() {
    for text in [GPT, PACKED, LLAMA, STORED] {
        let model = model(text);
        for sequence in [Sequence::Whole, Sequence::Split] {
            for recompute in Recompute::STEPS.iter().copied() {
                for backward in [BackwardForm::Whole, BackwardForm::Split] {
                    let tensor = Tensor::rows(2, sequence);
                    assert_same(&model, &[], tensor, StageForm { backward, recompute });
                }
            }
        }
    }
}

#[test]
fn cuts_fall_anywhere() {
    let model = model(&LLAMA.replace("repeat 2", "repeat 1"));
    for cut in 1..nodes(&model) {
        for sequence in [Sequence::Whole, Sequence::Split] {
            let tensor = Tensor::rows(2, sequence);
            assert_same(&model, &[cut], tensor, StageForm::default());
        }
    }
}

/// The exchanges of a routine, with the elements of each whole array.
fn exchanges(routine: &Routine) -> Vec<(Collective, usize)> {
    let kernels =
        routine.calls.iter().map(|call| Kernel::parse(call).expect("it is one"));
    let joint = kernels.filter_map(|kernel| kernel.exchange());
    let kind = |exchange: &Exchange| match exchange.kind {
        Joint::Collective(kind) => kind,
        Joint::Halo(_) | Joint::HaloAdd(_) => panic!("there are no images"),
    };
    joint.map(|exchange| (kind(&exchange), exchange.elements())).collect()
}

/// A transformer layer has two sums of b s h in each pass (arXiv 1909.08053), or as many gathers
/// and scatters of the same size (arXiv 2205.05198); vectors of the loss and of norms are small.
#[test]
fn a_layer_exchanges_what_megatron_does() {
    let (tokens, width) = (EXAMPLES * 12, 24);
    let large =
        |sequence, pass: fn(&roundelay_codegen::StageCode) -> Routine, layers: u32| {
            let text = GPT.replace("repeat 2", &format!("repeat {layers}"));
            let tensor = Tensor::rows(2, sequence);
            let code = stages(&model(&text), &[], tensor, StageForm::default());
            let all = exchanges(&pass(&code.stages[Stage::new(0)]));
            let mut large: Vec<Collective> = Vec::new();
            for (kind, elements) in all {
                if elements as u64 == tokens * width {
                    large.push(kind);
                }
            }
            large
        };
    let of_layer = |sequence, pass: fn(&roundelay_codegen::StageCode) -> Routine| {
        let [one, two] = [1, 2].map(|layers| large(sequence, pass, layers));
        let count =
            |list: &[Collective], kind| list.iter().filter(|k| **k == kind).count();
        [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter]
            .map(|kind| count(&two, kind) - count(&one, kind))
    };
    let forward: fn(&roundelay_codegen::StageCode) -> Routine =
        |code| code.forward.clone();
    let backward: fn(&roundelay_codegen::StageCode) -> Routine =
        |code| code.backward.first()[0].clone();
    assert_eq!(of_layer(Sequence::Whole, forward), [2, 0, 0]);
    assert_eq!(of_layer(Sequence::Whole, backward), [2, 0, 0]);
    assert_eq!(of_layer(Sequence::Split, forward), [0, 2, 2]);
    // Two of the gathers are those of forward, made again.
    assert_eq!(of_layer(Sequence::Split, backward), [0, 4, 2]);
}

#[test]
fn parameters_are_divided_where_their_users_are() {
    let tensor = Tensor::rows(4, Sequence::Whole);
    let code = stages(&model(GPT), &[], tensor, StageForm::default());
    let shape = |name: &str| {
        let found = code.parameters.iter().find(|p| p.name == name);
        let found = found.unwrap_or_else(|| panic!("no {name}"));
        (found.shape.clone(), found.whole_shape())
    };
    assert_eq!(shape("table"), (vec![257, 24], vec![1027, 24]));
    assert_eq!(shape("layer.0.attention.query.weight"), (vec![6, 24], vec![24, 24]));
    assert_eq!(shape("layer.0.attention.query.bias"), (vec![6], vec![24]));
    assert_eq!(shape("layer.0.attention.output.weight"), (vec![24, 6], vec![24, 24]));
    assert_eq!(shape("layer.0.attention.output.bias"), (vec![24], vec![24]));
    assert_eq!(shape("layer.1.layer_norm.gain"), (vec![24], vec![24]));
}

#[test]
fn what_cannot_be_split_is_refused_by_name() {
    let model = model(
        "model conv {
        input images: real[batch, 8, 8, 3]
        input targets: i32[batch]
        x = relu(conv2d(images, 8, kernel = 3, padding = 1))
        loss cross_entropy(linear(global_pool(x), 10, bias = false), targets)
    }",
    );
    let tensor = Tensor::rows(64, Sequence::Whole);
    let form = |_| StageForm::default();
    let storage = Storage { dtype: Float::F32, padding: 16 };
    let refused = stages_in(&model, (&[], tensor), EXAMPLES, storage, form, &Everywhere);
    assert_eq!(refused, Err(StageError::Unsplit { tensor: tensor.shown() }));
    let text = refused.expect_err("it was").to_string();
    assert!(text.contains("64 tensor rows"), "{text}");
    assert!(text.ends_with("an affine map or its heads must be a multiple of them"));
}

/// No program has parts: they are no operators of the language.
#[test]
fn a_part_says_what_it_is() {
    let part = Part::Exchange { value: Motion::Sum, gradient: Motion::Keep };
    let text = Operation::Part { part, line: Line { parts: 2, stride: 1 } }.to_string();
    assert!(text.contains("Sum") && text.ends_with("of 2"), "{text}");
}

/// Bytes that one layer of a GPT adds to a device: its states, and what forward keeps of it.
fn of_layer((width, heads): (u64, u64), tensor: Tensor) -> [u64; 2] {
    let dtype = Float::Bf16(GradientSums::F32);
    let stage = |layers: u32| {
        let text = format!(
            "model gpt {{
                input tokens:  i32[batch, 64]
                input targets: i32[batch, 64]
                x = embedding(tokens, 512, {width})
                repeat {layers} as layer {{
                    x = x + attention(layer_norm(x), {heads}, causal = true)
                    x = x + linear(gelu(linear(layer_norm(x), 4 * {width})), {width})
                }}
                loss cross_entropy(linear(x, 512, bias = false), targets)
            }}"
        );
        let form = |_| StageForm::default();
        let cut: (&[u32], Tensor) = (&[], tensor);
        let storage = Storage { dtype, padding: 1 };
        let code = stages_in(&model(&text), cut, 1, storage, form, &Everywhere)
            .expect("it splits");
        let states = dtype.size() + dtype.gradient().size(dtype) + 3 * dtype.wide_size();
        let kept = |a: &&Argument| matches!(a.role, Role::Activation | Role::Retained);
        let arguments = &code.stages[Stage::new(0)].forward.arguments;
        let kept: u64 = arguments.iter().filter(kept).map(|a| a.size.0).sum();
        [code.elements[Stage::new(0)] * states, kept]
    };
    let (one, two) = (stage(2), stage(3));
    [two[0] - one[0], two[1] - one[1]]
}

/// Weights, gradients and optimizer state in mixed precision, as figure 1 of arXiv 2205.05198
/// says for its four models, in GiB; the figure counts layers alone.
#[test]
fn states_of_published_plans_are_those_of_their_paper() {
    let published = [
        (48, 6144, 64, 1, 45.56),
        (96, 12288, 96, 8, 45.56),
        (105, 20480, 128, 35, 31.64),
        (128, 25600, 160, 64, 32.96),
    ];
    for (layers, width, heads, devices, expected) in published {
        let tensor = Tensor::rows(8, Sequence::Whole);
        let [states, _] = of_layer((width, heads), tensor);
        let found = (states * layers / devices) as f64 / f64::from(1 << 30);
        assert!((found / expected - 1.0).abs() < 0.02, "{found} GiB for {expected}");
    }
}

/// Table 2 of the same paper: rows divide what is inside of a layer's two halves, and a split
/// sequence also what stands around them.
#[test]
fn rows_divide_what_is_kept_and_a_split_sequence_all_of_it() {
    let kept = |rows, sequence| of_layer((256, 8), Tensor::rows(rows, sequence))[1];
    let whole = kept(1, Sequence::Whole);
    let [two, four] = [2, 4].map(|rows| kept(rows, Sequence::Whole));
    assert_eq!(whole - two, 2 * (two - four), "kept = around + inside / rows");
    assert!(four > whole / 4);
    for rows in [2, 4] {
        assert_eq!(kept(rows, Sequence::Split) * u64::from(rows), whole);
    }
}
