//! Routines of a grid of tensor rows and columns: parts in lockstep make the loss and the gradients
//! of the whole model; layers alternate between the directions, so nothing is laid out anew; one
//! column is what rows alone make.

use crate::support::{
    build::nodes,
    split::{
        CHARACTERS, DEEP_HEAD, EXAMPLES, GPT, LLAMA, PACKED, STORED, assert_same, model,
        stages,
    },
};
use roundelay_codegen::{BackwardForm, Everywhere, StageForm, Storage, stages_in};
use roundelay_kernels::{Exchange, Joint, Kernel};
use roundelay_schedule::{
    Collective, Contraction, Division, Float, Id, Line, Recompute, Routine, Sequence,
    Stage, Tensor,
};

/// Every grid of several columns and at most eight parts that divides this many heads, in
/// every way.
fn grids(heads: u32) -> impl Iterator<Item = Tensor> {
    let rows = (1..=8u32).filter(move |rows| heads.is_multiple_of(*rows));
    let columns = [2, 3, 4, 6, 8];
    rows.flat_map(move |rows| columns.map(|columns| Tensor::grid(rows, columns)))
        .filter(|tensor| tensor.parts() <= 8)
        .flat_map(ways)
        .filter(move |tensor| {
            let gathers = tensor.contraction == Contraction::Gather;
            !gathers || heads.is_multiple_of(tensor.columns)
        })
}

/// A grid with whole sequences and with split ones, and whose maps gather.
fn ways(tensor: Tensor) -> impl Iterator<Item = Tensor> {
    let gather = Tensor { contraction: Contraction::Gather, ..tensor };
    [tensor, split(tensor), gather].into_iter().filter(Tensor::can_contract)
}

fn split(tensor: Tensor) -> Tensor {
    Tensor { sequence: Sequence::Split, ..tensor }
}

#[test]
fn grids_in_lockstep_make_the_gradients_of_the_whole() {
    for (text, heads) in [(GPT, 12), (PACKED, 6), (LLAMA, 6), (STORED, 6)] {
        let model = model(text);
        for tensor in grids(heads) {
            assert_same(&model, &[], tensor, StageForm::default());
        }
    }
}

/// Who divides the extent of sequences, as a reshape makes of features, divides no tokens.
#[test]
fn parts_of_sequences_are_no_shares_of_tokens() {
    for count in [4, 8] {
        let text = format!(
            "model reshaped {{
                input x: real[batch, 8]
                input y: real[batch, {count}, 4]
                h = dropout(gelu(reshape(linear(x, 4 * {count}), [batch, {count}, 4])), 0.2)
                loss mse(linear(layer_norm(h), 4), y)
            }}"
        );
        for tensor in [(1, 2), (2, 2), (4, 2), (2, 4)] {
            for tensor in ways(Tensor::grid(tensor.0, tensor.1)) {
                assert_same(&model(&text), &[], tensor, StageForm::default());
            }
        }
    }
}

/// Parts of columns are no parts of the rows that a reshape makes of them, nor those of pixels.
#[test]
fn parts_of_an_example_are_no_shares_of_a_folded_batch() {
    let columns = "r = reshape(linear(given, 8), [4 * batch, 2])
        b = linear(reshape(gelu(r), [batch, 8]), 4)
        found = b + linear(reshape(linear(r, 4), [batch, 16]), 4)";
    let back = "h = reshape(linear(reshape(given, [4 * batch, 2]), 8), [batch, 4, 8])
        found = linear(reshape(gelu(h), [batch, 32]), 4)";
    let axial = "h = conv2d(reshape(given, [batch, 4, 2, 1]), 4)
        r = gelu(reshape(h, [4 * batch, 2, 4])) + positions(2, 4)
        found = linear(reshape(attention(r, 2), [batch, 32]), 4)";
    for body in [columns, back, axial] {
        let text = format!(
            "model folded {{
                input given: real[batch, 8]
                input wanted: real[batch, 4]
                {body}
                loss mse(found + linear(relu(linear(given, 8)), 4), wanted)
            }}"
        );
        for tensor in [(1, 2), (2, 1), (2, 2)] {
            for tensor in ways(Tensor::grid(tensor.0, tensor.1)) {
                assert_same(&model(&text), &[], tensor, StageForm::default());
            }
        }
    }
}

/// Convolutions in turn, from an input and to a loss, in groups, side by side, and turning back;
/// norms of channels and of groups, even over several parts; every pool.
const IMAGES: &str = "model images {
    input images: real[batch, 4, 4, 3]
    input wanted: real[batch, 4, 4, 2]
    x = relu(batch_norm(max_pool(conv2d(images, 24), 2)))
    y = conv2d(silu(group_norm(x, 24)), 24, bias = false)
    y = conv2d(relu(batch_norm(y)), 24)
    x = x + batch_norm(conv2d(x, 24, kernel = 1)) * y
    y = conv2d(group_norm(x, 1), 48, groups = 24)
    x = upsample(dropout(conv2d(x, 48, kernel = 1, bias = false) + y, 0.2))
    z = conv2d(x, 24, bias = false) + conv2d(gelu(x), 24, bias = false)
    w = avg_pool(conv2d(z, 24, kernel = 2, stride = 2), 2)
    v = linear(relu(linear(global_pool(w), 48)), 24)
    z = avg_pool(relu(z), 1)
    loss 1e-5 * mse(conv2d(z, 2), wanted) + 1e-5 * mse(v, global_pool(z))
}";

#[test]
fn images_in_lockstep_make_the_gradients_of_the_whole() {
    let model = model(IMAGES);
    for tensor in grids(24).chain([2, 3, 8].map(|rows| Tensor::grid(rows, 1))) {
        assert_same(&model, &[], tensor, StageForm::default());
    }
    for cut in 1..nodes(&model) - 2 {
        assert_same(&model, &[cut], Tensor::grid(2, 2), StageForm::default());
    }
}

/// Tables that are too small to be divided by rows, or whose users want different parts.
#[test]
fn small_and_shared_tables_are_cut_where_they_are_read() {
    for text in [CHARACTERS, DEEP_HEAD] {
        let model = model(text);
        for tensor in [(1, 2), (2, 2), (4, 2), (2, 4), (1, 8)] {
            for tensor in ways(Tensor::grid(tensor.0, tensor.1)) {
                assert_same(&model, &[], tensor, StageForm::default());
            }
        }
    }
}

/// Single maps, norms behind maps, sums of values that lie differently, a loss over features.
#[test]
fn layouts_meet_wherever_a_model_mixes_them() {
    let text = "model mixed {
        input x: real[batch, 6, 8]
        input y: real[batch, 6, 4]
        a = linear(x, 24)
        b = linear(relu(linear(a, 16)), 24)
        c = layer_norm(a + b) * rms_norm(b)
        d = dropout(linear(c, 24) + c, 0.25)
        e = softmax(linear(d, 24))
        loss mse(linear(e + a, 4), y)
    }";
    for tensor in [(1, 2), (2, 2), (2, 4), (4, 2), (1, 4)] {
        let tensor = Tensor::grid(tensor.0, tensor.1);
        for tensor in ways(tensor) {
            assert_same(&model(text), &[], tensor, StageForm::default());
        }
    }
}

#[test]
fn what_is_computed_again_or_in_halves_changes_nothing() {
    for text in [GPT, PACKED, LLAMA, STORED, IMAGES] {
        let model = model(text);
        for recompute in Recompute::STEPS.iter().copied() {
            for backward in [BackwardForm::Whole, BackwardForm::Split] {
                let form = StageForm { backward, recompute };
                for tensor in [Tensor::grid(2, 2), split(Tensor::grid(2, 2))] {
                    assert_same(&model, &[], tensor, form);
                }
            }
        }
    }
}

#[test]
fn cuts_fall_anywhere() {
    let model = model(&LLAMA.replace("repeat 2", "repeat 1"));
    for cut in 1..nodes(&model) {
        for tensor in [(2, 2), (1, 3), (3, 2)] {
            let tensor = split(Tensor::grid(tensor.0, tensor.1));
            let whole = Tensor { sequence: Sequence::Whole, ..tensor };
            assert_same(&model, &[cut], tensor, StageForm::default());
            assert_same(&model, &[cut], whole, StageForm::default());
        }
    }
}

/// Everything of the exchanges of a routine.
fn exchanges(routine: &Routine) -> Vec<Exchange> {
    let kernels =
        routine.calls.iter().map(|call| Kernel::parse(call).expect("it is one"));
    kernels.filter_map(|kernel| kernel.exchange()).collect()
}

/// What one layer of a model adds to the exchanges of both passes, in the elements that each
/// device sends by a ring, times the parts of the grid; sums of norms, one or two numbers for a
/// token, apart.
fn of_layer(text: &str, tensor: Tensor, tokens: u64) -> [u64; 2] {
    let of = |layers: u32| {
        let model = model(&text.replace("repeat 2", &format!("repeat {layers}")));
        let code = stages(&model, &[], tensor, StageForm::default());
        let stage = &code.stages[Stage::new(0)];
        let both = [&stage.forward, stage.backward.first()[0]];
        let mut sent = [0, 0];
        for exchange in both.into_iter().flat_map(exchanges) {
            let rounds = match exchange.kind {
                Joint::Collective(Collective::AllReduce) => 2,
                Joint::Collective(Collective::AllGather | Collective::ReduceScatter) => 1,
                Joint::Halo(_) | Joint::HaloAdd(_) => panic!("there are no images"),
            };
            let parts = u64::from(exchange.line.parts);
            let elements = exchange.elements() as u64 * rounds * (parts - 1);
            let is_norm = exchange.elements() as u64 <= 2 * tokens;
            let all = elements * u64::from(tensor.parts());
            assert!(all.is_multiple_of(parts));
            sent[usize::from(is_norm)] += all / parts;
        }
        sent
    };
    let (one, two) = (of(2), of(3));
    [two[0] - one[0], two[1] - one[1]]
}

/// Two layers of a GPT.
fn gpt(length: u64, width: u64, heads: u64) -> String {
    format!(
        "model gpt {{
            input tokens:  i32[batch, {length}]
            input targets: i32[batch, {length}]
            x = embedding(tokens, 64, {width})
            repeat 2 as layer {{
                x = x + attention(layer_norm(x), {heads}, causal = true)
                x = x + linear(gelu(linear(layer_norm(x), 4 * {width})), {width})
            }}
            loss cross_entropy(linear(layer_norm(x), 64), targets)
        }}"
    )
}

/// A layer of a GPT sends 2 tokens / parts · (12 h (columns − 1) + 4 h (rows − 1)), one of a
/// Llama-like model with a quarter of the key heads and a hidden width of 3.5 h sends 13 h and
/// 4 h; each of its norms sums two numbers, or one, per token in each pass.
#[test]
fn a_layer_sends_what_the_formulas_say() {
    let gpt = gpt(12, 48, 8);
    let llama = "model llama {
        input tokens:  i32[batch, 12]
        input targets: i32[batch, 12]
        x = embedding(tokens, 64, 64)
        repeat 2 as layer {
            x = x + attention(rms_norm(x), 16, key_heads = 4, rotary = 100.0, bias = false,
                              causal = true)
            x = x + gated(rms_norm(x), 224)
        }
        loss cross_entropy(linear(rms_norm(x), 64, bias = false), targets)
    }";
    let tokens = EXAMPLES * 12;
    for (text, [a, b], statistics, most) in [
        (gpt.as_str(), [12 * 48, 4 * 48], 2, 8),
        // In the backward pass and in the forward pass one sum each.
        (llama, [13 * 64, 4 * 64], 1, 4),
    ] {
        let grids = [1, 2, 4, 8]
            .into_iter()
            .filter(|rows| *rows <= most)
            .flat_map(|rows| [1, 2, 4, 8].map(|columns| Tensor::grid(rows, columns)));
        for tensor in grids.filter(|tensor| (2..=8).contains(&tensor.parts())) {
            let [rows, columns] = [tensor.rows, tensor.columns].map(u64::from);
            let [features, norms] = of_layer(text, tensor, tokens);
            let expected = 2 * tokens * (a * (columns - 1) + b * (rows - 1));
            assert_eq!(features, expected, "{tensor:?}");
            // Two norms, two passes, an all-reduce of the statistics in every row.
            let expected = 2 * 2 * 2 * statistics * tokens * (columns - 1) * rows;
            assert_eq!(norms, expected, "norms of {tensor:?}");
        }
    }
}

/// Shares of the tokens are gathered and sums scattered where whole tokens would be summed, which
/// sends as much, and once more for backward: 4 h on the columns, 2 h on the rows. Statistics are
/// those of own tokens, and what all tokens use alike is summed over the shares: gains and
/// biases of norms, biases behind scattered sums.
#[test]
fn a_layer_of_shared_tokens_gathers_once_more() {
    const WIDTH: u64 = 48;
    let text = &gpt(12, WIDTH, 8);
    let tokens = EXAMPLES * 12;
    for (rows, columns) in [(1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2)] {
        let tensor = split(Tensor::grid(rows, columns));
        let [rows, columns] = [rows, columns].map(u64::from);
        let features = tokens * WIDTH * (28 * (columns - 1) + 10 * (rows - 1));
        let norms = 2 * 2 * 2 * 2 * tokens * (columns - 1);
        let shared = 2 * WIDTH * (6 * (rows - 1) + 4 * (columns - 1));
        let [one, other] = of_layer(text, tensor, tokens);
        assert_eq!(one + other, features + norms + shared, "{tensor:?}");
    }
}

/// In a grid of one row the columns divide the table as it is read, so nothing gathers it.
#[test]
fn a_table_is_read_as_the_columns_of_one_row_keep_it() {
    for columns in [2, 3, 4] {
        let tensor = Tensor::grid(1, columns);
        let code = stages(&model(GPT), &[], tensor, StageForm::default());
        let stage = &code.stages[Stage::new(0)];
        let both = [&stage.forward, stage.backward.first()[0]];
        let mut all = both.into_iter().flat_map(exchanges);
        let is_table = |exchange: &Exchange| exchange.elements() >= 1027 * 24;
        assert!(!all.any(|exchange| is_table(&exchange)), "{columns}");
    }
}

/// In a stack of layers no exchange moves a value to another place: all are sums.
#[test]
fn layers_are_never_laid_out_anew() {
    for text in [GPT, LLAMA] {
        let code = stages(&model(text), &[], Tensor::grid(2, 2), StageForm::default());
        let stage = &code.stages[Stage::new(0)];
        let moved = |routine: &Routine| -> usize {
            let all = exchanges(routine);
            let is_sum = |exchange: &Exchange| {
                exchange.kind == Joint::Collective(Collective::AllReduce)
            };
            all.iter().filter(|exchange| !is_sum(exchange)).count()
        };
        // The embedding's sum is scattered, the head's operand and the loss's sums are gathered.
        assert_eq!(moved(&stage.forward), 3);
    }
}

#[test]
fn weights_are_divided_in_both_directions_in_turn() {
    let code = stages(&model(GPT), &[], Tensor::grid(2, 3), StageForm::default());
    let of = |name: &str| {
        let found = code.parameters.iter().find(|p| p.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let shape = |name: &str| (of(name).shape.clone(), of(name).whole_shape());
    assert_eq!(shape("table"), (vec![172, 24], vec![1027, 24]));
    assert_eq!(shape("layer.0.attention.query.weight"), (vec![12, 8], vec![24, 24]));
    assert_eq!(shape("layer.0.attention.query.bias"), (vec![12], vec![24]));
    assert_eq!(shape("layer.0.attention.output.weight"), (vec![8, 12], vec![24, 24]));
    assert_eq!(shape("layer.0.attention.output.bias"), (vec![8], vec![24]));
    assert_eq!(shape("layer.1.layer_norm.gain"), (vec![8], vec![24]));
    let lines = |name: &str| -> Vec<(u32, Line)> {
        let all = Line { parts: 6, stride: 1 };
        let splits = of(name).split;
        let line =
            |split: &roundelay_schedule::Split| (split.extent, split.line.unwrap_or(all));
        splits.splits().iter().map(line).collect()
    };
    let (rows, columns) = (Line { parts: 2, stride: 3 }, Line { parts: 3, stride: 1 });
    assert_eq!(lines("layer.0.attention.query.weight"), [(0, rows), (1, columns)]);
    assert_eq!(lines("layer.0.attention.output.weight"), [(1, rows), (0, columns)]);
    assert_eq!(lines("layer.0.attention.output.bias"), [(0, columns)]);
    assert_eq!(lines("table"), [(0, Line { parts: 6, stride: 1 })]);
    assert!(matches!(of("layer.0.attention.query.bias").split, Division::One(_)));
}

/// With one column the second direction leaves no trace: calls say no stride, splits no line.
#[test]
fn one_column_is_what_rows_alone_make() {
    for text in [GPT, PACKED, LLAMA, STORED] {
        let code = stages(&model(text), &[], Tensor::grid(2, 1), StageForm::default());
        for parameter in &code.parameters {
            for split in parameter.split.splits() {
                assert_eq!(split.line, None, "{}", parameter.name);
            }
        }
        let stage = &code.stages[Stage::new(0)];
        for routine in [&stage.forward, stage.backward.first()[0]] {
            for call in &routine.calls {
                assert!(!call.attributes.contains_key("stride"), "{}", call.kernel);
                assert!(!call.kernel.starts_with("norm_part"), "{}", call.kernel);
            }
            for exchange in exchanges(routine) {
                assert_eq!(exchange.line, Line { parts: 2, stride: 1 });
            }
        }
    }
}

fn refused(text: &str, tensor: Tensor) -> String {
    let cut: (&[u32], Tensor) = (&[], tensor);
    let form = |_| StageForm::default();
    let storage = Storage { dtype: Float::F32, padding: 16 };
    let made = stages_in(&model(text), cut, EXAMPLES, storage, form, &Everywhere);
    made.expect_err("it does not split").to_string()
}

#[test]
fn what_columns_do_not_split_is_refused_by_name() {
    let text = "model conv {
        input images: real[batch, 8, 8, 3]
        input targets: i32[batch]
        x = relu(conv2d(images, 8))
        x = conv2d(x, 8, groups = 2)
        x = class_token(reshape(x, [batch, 64, 8]))
        loss cross_entropy(linear(select(x, 0), 10, bias = false), targets)
    }";
    let found = refused(text, Tensor::grid(2, 2));
    assert_eq!(
        found,
        "`class_token`: tensor columns do not split a class token: set `tensor { columns 1 }` \
         and use rows or replicas instead"
    );
    let found = refused(text, Tensor::grid(1, 4));
    assert_eq!(
        found,
        "`conv2d_1`: its 2 groups do not divide among 4 tensor columns; columns up to 16 that do: \
         1, 2"
    );
}

#[test]
fn what_a_grid_does_not_divide_is_refused_with_what_would() {
    let found = refused(LLAMA, Tensor::grid(4, 2));
    let expected = "its 6 heads do not divide among 4 tensor rows; rows up to 16 that do: \
                    1, 2, 3, 6";
    assert!(found.contains(expected), "{found}");
    let found = refused(GPT, Tensor::grid(2, 5));
    let expected = "features do not divide among 5 tensor columns; columns up to 16 that do: \
                    1, 2, 3, 4, 6, 8, 12";
    assert!(found.contains(expected), "{found}");
}

/// The message tries no more parts than could divide the size, so it is there at once.
#[test]
fn more_parts_than_anything_has_are_refused_at_once() {
    let found = refused(GPT, Tensor::grid(1, 4_000_000_000));
    let expected = "do not divide among 4000000000 tensor columns; columns up to 4096 that do: \
                    1, 2, 3, 4, 6, 8, 12, 24";
    assert!(found.contains(expected), "{found}");
}

/// For this many parts: what rows alone send in a GPT layer, in units of 2 m h / parts, columns and
/// rows of the grid that sends least, and what it saves in percent; by the law √(3 parts) for rows,
/// in powers of two.
#[test]
fn the_best_grid_saves_what_the_law_says() {
    let text = &gpt(2, 256, 64);
    let tokens = EXAMPLES * 2;
    let law = [
        (4, 12, (1, 4), 0),
        (8, 28, (2, 4), 14),
        (16, 60, (2, 8), 33),
        (32, 124, (4, 8), 48),
        (64, 252, (4, 16), 62),
    ];
    for (parts, alone, best, saving) in law {
        let sent = |columns: u32| {
            let tensor = Tensor::grid(parts / columns, columns);
            of_layer(text, tensor, tokens)[0] / (2 * tokens * 256)
        };
        let columns = (0..).map(|power| 1u32 << power);
        let columns: Vec<u32> = columns.take_while(|columns| *columns <= parts).collect();
        let least = columns.iter().copied().min_by_key(|columns| sent(*columns));
        let least = least.expect("there is a grid");
        assert_eq!((sent(1), sent(parts)), (alone, 12 * (u64::from(parts) - 1)));
        assert_eq!((least, parts / least), best);
        let saved = 100 * (alone - sent(least));
        assert_eq!((saved + alone / 2) / alone, saving);
    }
}
