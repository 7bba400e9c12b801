//! Operators of Llama, GPT-2 and ViT: what they are made of, and how their parameters are called.

use roundelay_dsl::{
    Cap, Heads, Masked, Model, NoFiles, Operation, Projections, Scale, Sight, Source,
    SourceFile, Still, Stretch, Turning, Window, parse,
};
use roundelay_schedule::Initial;

fn model(body: &str) -> Model {
    let text = format!("model m {{\n{body}\n}}");
    let source = SourceFile::new("test.rdl", text.as_str());
    let (program, warnings) =
        parse(&source, &NoFiles).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(warnings.is_empty(), "{warnings:?}");
    program.model
}

/// A model of sequences (batch, 6, 12) that ends in z of the same shape.
fn sequences(body: &str) -> Model {
    model(&format!(
        "input x: real[batch, 6, 12]\ninput y: real[batch, 6, 12]\n{body}\nloss mse(z, y)"
    ))
}

fn parameters(model: &Model) -> Vec<(&str, &[u64])> {
    let rows = model.parameters.values();
    rows.map(|row| (row.name.as_str(), row.shape.as_slice())).collect()
}

fn operations(model: &Model) -> Vec<Operation> {
    model.nodes.values().map(|node| node.operation).collect()
}

#[test]
fn attention_with_everything() {
    let model = sequences(
        "z = attention(x, 6, causal = true, key_heads = 2, window = 3, rotary = 500, bias = false)",
    );
    let expected: [(&str, &[u64]); 4] = [
        ("z.query.weight", &[12, 12]),
        ("z.key.weight", &[4, 12]),
        ("z.value.weight", &[4, 12]),
        ("z.output.weight", &[12, 12]),
    ];
    assert_eq!(parameters(&model), expected);
    let attention = Operation::Attention {
        heads: Heads { all: 6, keys: 2 },
        projections: Projections::Apart,
        sight: Sight { causal: true, window: Window::Nearest(3) },
        scale: Scale::Depth,
        cap: Cap::Open,
    };
    let (base, turned, stretch) = (500.0, 2, Stretch::None);
    let still = Still::None;
    let rotary =
        |heads| Operation::Rotary(Turning { heads, base, turned, still, stretch });
    let linear = Operation::Linear;
    let expected = [
        linear,
        rotary(6),
        linear,
        rotary(2),
        linear,
        attention,
        linear,
        Operation::MeanSquaredError,
    ];
    assert_eq!(operations(&model), expected);
    let names: Vec<&str> = model.nodes.values().map(|node| node.name.as_str()).collect();
    assert_eq!(names[..3], ["z.query", "z.query.rotary", "z.key"]);
}

#[test]
fn attention_that_says_nothing_is_as_it_always_was() {
    let model = sequences("z = attention(x, 3)");
    let open = Operation::Attention {
        heads: Heads { all: 3, keys: 3 },
        projections: Projections::Apart,
        sight: Sight { causal: false, window: Window::Open },
        scale: Scale::Depth,
        cap: Cap::Open,
    };
    assert_eq!(operations(&model)[3], open);
    assert_eq!(parameters(&model).len(), 8);
    let usual = sequences("z = attention(x, 3, rotary = true)");
    let (base, turned, stretch) = (10_000.0, 4, Stretch::None);
    let turning = Turning { heads: 3, base, turned, still: Still::None, stretch };
    assert_eq!(operations(&usual)[1], Operation::Rotary(turning));
}

#[test]
fn packed_attention_has_one_map_for_queries_keys_and_values() {
    let model = sequences("z = attention(x, 6, key_heads = 2, packed = true)");
    let expected: [(&str, &[u64]); 4] = [
        ("z.query_key_value.weight", &[20, 12]),
        ("z.query_key_value.bias", &[20]),
        ("z.output.weight", &[12, 12]),
        ("z.output.bias", &[12]),
    ];
    assert_eq!(parameters(&model), expected);
    let attention = Operation::Attention {
        heads: Heads { all: 6, keys: 2 },
        projections: Projections::Packed,
        sight: Sight { causal: false, window: Window::Open },
        scale: Scale::Depth,
        cap: Cap::Open,
    };
    let [map, loss] = [Operation::Linear, Operation::MeanSquaredError];
    assert_eq!(operations(&model), [map, attention, map, loss]);
    let wide = sequences("z = attention(x, 3, head_width = 8, packed = true)");
    let width = |number: usize| wide.nodes.values().nth(number).unwrap().shape[2].size;
    assert_eq!([width(0), width(1), width(2)], [72, 24, 12]);
    let shown = model.to_string();
    assert!(shown.contains("key_heads = 2, packed, "), "{shown}");
    let turned =
        sequences("z = attention(x, 6, key_heads = 2, packed = true, rotary = 9)");
    let (base, stretch) = (9.0, Stretch::None);
    let still = Still::LastOf(5);
    let rotary =
        Operation::Rotary(Turning { heads: 10, base, turned: 2, still, stretch });
    assert_eq!(operations(&turned), [map, rotary, attention, map, loss]);
    assert!(turned.to_string().contains("turned = 2, still = 5]"), "{turned}");
}

/// Position interpolation, and the way of Llama 3.
#[test]
fn rotary_positions_are_stretched() {
    let stretch = |arguments: &str| {
        let model =
            sequences(&format!("z = attention(x, 3, rotary = true, {arguments})"));
        let shown = model.to_string();
        match operations(&model)[1] {
            Operation::Rotary(turning) => (turning.stretch, shown),
            other => panic!("{other:?} turns nothing"),
        }
    };
    let (even, shown) = stretch("rotary_factor = 2.5");
    assert_eq!(even, Stretch::Even { factor: 2.5 });
    assert!(shown.contains("turned = 4, factor = 2.5]"), "{shown}");
    let (long, shown) = stretch(
        "rotary_factor = 8, rotary_original = 8192, rotary_low = 1, rotary_high = 4",
    );
    let expected = Stretch::Long { factor: 8.0, original: 8192, low: 1.0, high: 4.0 };
    assert_eq!(long, expected);
    let expected = "turned = 4, factor = 8, original = 8192, low = 1, high = 4]";
    assert!(shown.contains(expected), "{shown}");
}

/// What is wrong with arguments that stretch, and what is said of it.
#[test]
fn stretches_that_do_not_fit_are_refused() {
    for (arguments, expected) in [
        ("rotary_factor = 8", "nothing turns without `rotary`"),
        ("rotary = false, rotary_high = 4", "nothing turns without `rotary`"),
        ("rotary = 7, rotary_factor = 0.5", "must be at least 1, found 0.5"),
        (
            "rotary = 7, rotary_low = 1",
            "`rotary_low` says nothing without `rotary_factor`",
        ),
        (
            "rotary = 7, rotary_factor = 8, rotary_low = 1",
            "`rotary_low` says nothing without `rotary_original`",
        ),
        (
            "rotary = 7, rotary_factor = 8, rotary_original = 9, rotary_low = 1",
            "give `rotary_original`, `rotary_low` and `rotary_high` together",
        ),
        (
            "rotary = 7, rotary_factor = 8, rotary_original = 9, rotary_low = 4, rotary_high = 4",
            "`rotary_low` is 4, but `rotary_high` is only 4",
        ),
        (
            "rotary = 7, rotary_factor = 8, rotary_original = 0, rotary_low = 1, rotary_high = 4",
            "must be a whole number of at least 1, found 0",
        ),
        (
            "rotary = 7, rotary_factor = 8, rotary_original = 9, rotary_low = 0, rotary_high = 4",
            "must be a number above 0, found 0",
        ),
    ] {
        let body = format!("attention(x, 3, {arguments})");
        let text =
            format!("model m {{ input x: real[batch, 6, 12]\n loss mse({body}, x) }}");
        let source = SourceFile::new("test.rdl", text.as_str());
        let refused = parse(&source, &NoFiles).expect_err(arguments).to_string();
        assert!(refused.contains(expected), "{arguments}: {refused}");
    }
}

#[test]
fn stored_scores_take_the_core_apart() {
    let model = sequences(
        "z = attention(x, 6, causal = true, key_heads = 2, window = 3, scale = 0.5,
                       stored_scores = true, dropout = 0.1)",
    );
    let whole = sequences("z = attention(x, 6, key_heads = 2)");
    assert_eq!(parameters(&model), parameters(&whole));
    let heads = Heads { all: 6, keys: 2 };
    let sight = Sight { causal: true, window: Window::Nearest(3) };
    let (scale, linear) = (Scale::Factor(0.5), Operation::Linear);
    let scores = Operation::Scores { heads, sight, scale };
    let expected = [
        linear,
        linear,
        linear,
        scores,
        Operation::Softmax,
        Operation::Dropout { rate: 0.1 },
        Operation::Mix { heads },
        linear,
        Operation::MeanSquaredError,
    ];
    assert_eq!(operations(&model), expected);
    let shapes = model.nodes.values().map(|node| node.shape.clone());
    let shapes: Vec<Vec<u64>> =
        shapes.map(|shape| shape.iter().map(|extent| extent.at(5)).collect()).collect();
    assert_eq!(
        shapes[3..7],
        [vec![5, 6, 6, 6], vec![5, 6, 6, 6], vec![5, 6, 6, 6], vec![5, 6, 12]]
    );
}

#[test]
fn scores_that_pass_are_not_dropped_and_stored_ones_not_capped() {
    let refused = |arguments: &str| {
        let text = format!(
            "model m {{ input x: real[batch, 6, 12], loss mse(attention(x, 3{arguments}), x) }}"
        );
        let source = SourceFile::new("test.rdl", text.as_str());
        parse(&source, &NoFiles).expect_err("it is wrong").to_string()
    };
    let dropped = refused(", dropout = 0.1");
    assert!(dropped.contains("not stored cannot be dropped"), "{dropped}");
    let capped = refused(", stored_scores = true, cap = 30.0");
    assert!(capped.contains("stored scores cannot be capped"), "{capped}");
    let rate = refused(", stored_scores = true, dropout = 1.0");
    assert!(rate.contains("below 1"), "{rate}");
}

#[test]
fn a_gated_block_has_three_matrices() {
    let model = sequences("z = x + gated(x, 32)");
    let expected: [(&str, &[u64]); 3] = [
        ("gated.gate.weight", &[32, 12]),
        ("gated.up.weight", &[32, 12]),
        ("gated.output.weight", &[12, 32]),
    ];
    assert_eq!(parameters(&model), expected);
    let expected = [
        Operation::Linear,
        Operation::Silu,
        Operation::Linear,
        Operation::Multiply,
        Operation::Linear,
        Operation::Add,
        Operation::MeanSquaredError,
    ];
    assert_eq!(operations(&model), expected);
}

#[test]
fn a_class_token_lengthens_and_select_takes_it_out() {
    let model = model(
        "input x: real[batch, 6, 12]
         input y: real[batch, 12]
         loss mse(select(class_token(x), 0), y)",
    );
    let token: (&str, &[u64]) = ("class_token.token", &[12]);
    assert_eq!(parameters(&model), [token]);
    let shapes: Vec<Vec<u64>> = model
        .nodes
        .values()
        .map(|node| node.shape.iter().map(|extent| extent.at(5)).collect())
        .collect();
    assert_eq!(shapes, [vec![5, 7, 12], vec![5, 12], vec![]]);
    assert_eq!(operations(&model)[1], Operation::Select { index: 0 });
}

#[test]
fn a_parameter_is_shared_by_embedding_and_head() {
    for lookup in ["embedding(tokens, wte)", "embedding(tokens, table = wte)"] {
        let model = model(&format!(
            "input tokens: i32[batch, 6]
             input targets: i32[batch, 6]
             param wte: [32, 8] = normal(0.03)
             x = {lookup}
             x = x + gated(x, 16)
             loss cross_entropy(linear(x, weight = wte, bias = false), targets)"
        ));
        let tied: (&str, &[u64]) = ("wte", &[32, 8]);
        assert_eq!(parameters(&model)[0], tied, "{lookup}");
        assert_eq!(parameters(&model).len(), 4, "{lookup}");
        let id = model.parameters.ids().next().unwrap();
        assert_eq!(model.parameters[id].initial, Initial::Normal(0.03));
        let users = model.nodes.values();
        let users = users.filter(|node| node.operands.contains(&Source::Parameter(id)));
        let users: Vec<Operation> = users.map(|node| node.operation).collect();
        assert_eq!(users, [Operation::Embedding, Operation::Linear], "{lookup}");
        assert!(model.inputs.values().all(|input| input.bound == 32), "{lookup}");
    }
}

#[test]
fn a_bias_stays_its_own_beside_a_shared_weight() {
    let model = sequences(
        "param w: [12, 12]\nh = linear(x, weight = w)\nz = linear(h, weight = w, bias = false)",
    );
    let expected: [(&str, &[u64]); 2] = [("w", &[12, 12]), ("h.bias", &[12])];
    assert_eq!(parameters(&model), expected);
}

#[test]
fn attention_of_gemma_and_its_like() {
    let model = sequences(
        "z = attention(x, 3, true, 1, rotary = 7, bias = false, head_width = 8, turned = 6,
            head_norm = 1e-6, scale = 0.25, cap = 50, output_bias = true, deviation = 0.01,
            output_deviation = 0.002)",
    );
    let expected: [(&str, &[u64]); 7] = [
        ("z.query.weight", &[24, 12]),
        ("z.query.norm.gain", &[8]),
        ("z.key.weight", &[8, 12]),
        ("z.key.norm.gain", &[8]),
        ("z.value.weight", &[8, 12]),
        ("z.output.weight", &[12, 24]),
        ("z.output.bias", &[12]),
    ];
    assert_eq!(parameters(&model), expected);
    let initials: Vec<Initial> =
        model.parameters.values().map(|row| row.initial).collect();
    let (drawn, gain) = (Initial::Normal(0.01), Initial::Constant(1.0));
    let zero = Initial::Constant(0.0);
    let last = Initial::Normal(0.002);
    assert_eq!(initials, [drawn, gain, drawn, gain, drawn, last, zero]);
    let (base, turned, stretch) = (7.0, 6, Stretch::None);
    let still = Still::None;
    let rotary =
        |heads| Operation::Rotary(Turning { heads, base, turned, still, stretch });
    let norm = Operation::RmsNorm { epsilon: 1e-6 };
    let attention = Operation::Attention {
        heads: Heads { all: 3, keys: 1 },
        projections: Projections::Apart,
        sight: Sight { causal: true, window: Window::Open },
        scale: Scale::Factor(0.25),
        cap: Cap::At(50.0),
    };
    let [map, view] = [Operation::Linear, Operation::Reshape];
    let queries = [map, view, norm, view, rotary(3)];
    let keys = [map, view, norm, view, rotary(1)];
    let rest = [map, attention, map, Operation::MeanSquaredError];
    assert_eq!(operations(&model), [&queries[..], &keys, &rest].concat());
}

#[test]
fn gates_norms_and_caps_say_what_they_are() {
    let model = sequences(
        "h = gated(layer_norm(x, 1e-12), 32, activation = \"gelu_tanh\", bias = true)
         z = soft_cap(tanh(rms_norm(h, epsilon = 1e-6)), 30)",
    );
    let operations = operations(&model);
    for expected in [
        Operation::LayerNorm { epsilon: 1e-12 },
        Operation::RmsNorm { epsilon: 1e-6 },
        Operation::GeluTanh,
        Operation::SoftCap { cap: 1.0 },
        Operation::SoftCap { cap: 30.0 },
    ] {
        assert!(operations.contains(&expected), "{expected:?}");
    }
    assert!(parameters(&model).contains(&("h.gate.bias", &[32])));
}

#[test]
fn positions_are_rows_of_a_longer_table() {
    let model = sequences("z = x + positions(6, 12, rows = 10, first = 2)");
    let table: (&str, &[u64]) = ("positions.table", &[10, 12]);
    assert_eq!(parameters(&model), [table]);
    assert_eq!(operations(&model)[0], Operation::Rows { first: 2 });
    let whole = sequences("z = x + positions(6, 12, rows = 6)");
    assert_eq!(operations(&whole)[0], Operation::Add);
}

#[test]
fn a_masked_loss_has_one_target_more_than_classes() {
    let model = model(
        "input x: real[batch, 6, 12]
         input targets: i32[batch, 6]
         loss cross_entropy(linear(x, 5), targets, masked = true)",
    );
    assert_eq!(operations(&model)[1], Operation::CrossEntropy { masked: Masked::Yes });
    assert_eq!(model.inputs.values().map(|input| input.bound).max(), Some(6));
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    for (body, expected) in [
        ("attention(x, 3, turned = 2)", "nothing turns without `rotary`"),
        ("attention(x, 3, rotary = true, turned = 3)", "`turned` is 3"),
        ("attention(x, 3, rotary = true, turned = 6)", "from 2 to 4"),
        ("attention(x, 3, cap = 0)", "above 0"),
        ("attention(x, 3, scale = -1)", "above 0"),
        ("attention(x, 3, head_norm = 0)", "above 0"),
        ("attention(x, 5)", "5 heads do not divide the width 12"),
        ("gated(x, 8, activation = \"swish\")", "unknown activation \"swish\""),
        ("x + positions(6, 12, rows = 7, first = 2)", "not in a table of 7"),
        ("x + positions(6, 12, first = 2)", "not in a table of 6"),
        ("layer_norm(x, epsilon = 0)", "above 0"),
        ("layer_norm(x, 32)", "`epsilon` of a norm must be below 1, found 32"),
        ("rms_norm(x, 8)", "the width that is normalised follows from `x`"),
        ("attention(x, 4, head_norm = 8)", "`head_norm` of a norm must be below 1"),
        ("layer_norm(x, -1)", "must be a number above 0, found -1"),
        ("dropout(x, -0.1)", "must be at least 0 and below 1, found -0.1"),
        ("dropout(x, 1)", "must be at least 0 and below 1, found 1"),
        ("attention(x, 3, rotary = true, turned = -2)", "must be from 2 to 4, found -2"),
        ("gelu_new(x)", "there is no operator `gelu_new`"),
    ] {
        let text =
            format!("model m {{ input x: real[batch, 6, 12]\n loss mse({body}, x) }}");
        let source = SourceFile::new("test.rdl", text.as_str());
        let refused = parse(&source, &NoFiles).expect_err(body).to_string();
        assert!(refused.contains(expected), "{body}: {refused}");
    }
}
