//! Routines of parts that take the examples of a micro-batch in two halves: parts in lockstep make
//! the loss and the gradients of the whole model, exchanges go on beside the calls of the other half,
//! and what has no halves is refused by name.

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
use roundelay_dsl::Model;
use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Contraction, Float, Id, Meanwhile, Recompute, Routine, Sequence, Stage, Tensor,
    Touching, in_turn, most_open, needed_by,
};

/// Channels in parts, groups over several parts, pools, dropout, a branch that turns back.
const IMAGES: &str = "model images {
    input images: real[batch, 4, 4, 3]
    input wanted: real[batch, 4, 4, 2]
    x = relu(group_norm(max_pool(conv2d(images, 24), 2), 12))
    y = conv2d(silu(group_norm(x, 24)), 24, bias = false)
    x = x + conv2d(x, 24, kernel = 1) * y
    y = conv2d(group_norm(x, 1), 48, groups = 24)
    x = upsample(dropout(conv2d(x, 48, kernel = 1, bias = false) + y, 0.2))
    loss mse(conv2d(x, 2), wanted)
}";

fn few() -> impl Iterator<Item = Tensor> {
    let grids = [(2, 1), (1, 2), (2, 2), (2, 3)];
    let ways = |(rows, columns)| {
        let grid = Tensor::grid(rows, columns);
        let split = Tensor { sequence: Sequence::Split, ..grid };
        let gather = Tensor { contraction: Contraction::Gather, ..grid };
        [grid, split, gather].into_iter().filter(Tensor::can_contract)
    };
    grids.into_iter().flat_map(ways)
}

#[test]
fn halves_in_lockstep_make_the_gradients_of_the_whole() {
    for text in [GPT, PACKED, LLAMA, STORED, IMAGES] {
        let model = model(text);
        for tensor in few() {
            assert_same(&model, &[], tensor.in_halves(), StageForm::default());
        }
    }
    let split = Tensor::rows(2, Sequence::Split).in_halves();
    assert_same(&model(MAPS), &[], split, StageForm::default());
    for text in [CHARACTERS, DEEP_HEAD] {
        assert_same(
            &model(text),
            &[],
            Tensor::grid(2, 2).in_halves(),
            StageForm::default(),
        );
    }
}

#[test]
fn what_is_computed_again_or_later_changes_nothing() {
    for text in [GPT, PACKED, STORED, IMAGES] {
        let model = model(text);
        for recompute in Recompute::STEPS.iter().copied() {
            for backward in [BackwardForm::Whole, BackwardForm::Split] {
                let form = StageForm { backward, recompute };
                assert_same(&model, &[], Tensor::grid(2, 2).in_halves(), form);
            }
        }
    }
}

#[test]
fn cuts_fall_anywhere() {
    let model = model(&LLAMA.replace("repeat 2", "repeat 1"));
    for cut in 1..nodes(&model) {
        for tensor in [Tensor::grid(2, 1), Tensor::grid(2, 2)] {
            assert_same(&model, &[cut], tensor.in_halves(), StageForm::default());
        }
    }
}

fn touching(routine: &Routine) -> Vec<Touching> {
    let kernel =
        |call| Kernel::parse(call).expect("it is one").touching(call, Float::F64);
    routine.calls.iter().map(kernel).collect()
}

/// Exchanges of halves in a routine, and those that something is computed beside. What both share is
/// exchanged for both, and waited for.
fn exchanges(routine: &Routine) -> (usize, usize) {
    let calls = touching(routine);
    let needed = needed_by(&calls);
    assert!(most_open(&calls, &in_turn(&needed)) <= 2);
    let goes_on = |call: &Touching| call.exchange == Some(Meanwhile::GoesOn);
    let starts = calls.iter().enumerate().filter(|(_, call)| goes_on(call));
    let (mut all, mut beside) = (0, 0);
    for (place, _) in starts {
        let own = all;
        all += 1;
        let until = needed.iter().position(|done| done.contains(&own)).expect("it ends");
        let between = calls.get(place + 1..until).unwrap_or_default();
        beside += usize::from(between.iter().any(|call| call.exchange.is_none()));
    }
    (all, beside)
}

#[test]
fn all_but_the_last_exchanges_of_a_pass_go_on_beside_the_other_half() {
    for (text, tensor) in [(GPT, Tensor::grid(2, 1)), (LLAMA, Tensor::grid(2, 1))] {
        let code = stages(&model(text), &[], tensor.in_halves(), StageForm::default());
        let stage = &code.stages[Stage::new(0)];
        for routine in
            [&stage.forward, stage.backward.first()[0], stage.backward.next()[0]]
        {
            let (all, beside) = exchanges(routine);
            assert!(all >= 8, "{}: {all}", routine.name);
            assert!(beside + 2 >= all, "{}: {beside} of {all}", routine.name);
        }
    }
}

/// Without halves the calls are what they were, and every exchange is waited for.
#[test]
fn examples_together_are_waited_for() {
    let code = stages(&model(GPT), &[], Tensor::grid(2, 2), StageForm::default());
    for call in touching(&code.stages[Stage::new(0)].forward) {
        assert_ne!(call.exchange, Some(Meanwhile::GoesOn));
    }
}

fn refused(model: &Model, examples: u64) -> String {
    let (cuts, tensor): (&[u32], _) = (&[], Tensor::grid(2, 1).in_halves());
    let form = |_| StageForm::default();
    let storage = Storage { dtype: Float::F64, padding: 16 };
    let refused: StageError =
        stages_in(model, (cuts, tensor), examples, storage, form, &Everywhere)
            .expect_err("it has no halves");
    refused.to_string()
}

#[test]
fn what_has_no_halves_is_refused_by_name() {
    let odd = refused(&model(GPT), 3);
    assert!(odd.contains("a micro-batch of 3 examples has no 2 equal parts"), "{odd}");
    assert!(odd.contains("overdecompose 1"), "{odd}");
    let normed = IMAGES
        .replace(
            "group_norm(max_pool(conv2d(images, 24), 2), 12)",
            "batch_norm(conv2d(images, 24))",
        )
        .replace("mse(conv2d(x, 2), wanted)", "mse(avg_pool(conv2d(x, 2), 2), wanted)");
    let normed = refused(&model(&normed), EXAMPLES);
    assert!(
        normed.contains("batch norm takes its statistics over all examples"),
        "{normed}"
    );
}
