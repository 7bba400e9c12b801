//! Operators of Llama, GPT-2 and ViT: what they are made of, and how their parameters are called.

use roundelay_dsl::{Model, NoFiles, Operation, Source, SourceFile, Window, parse};
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
        heads: 6,
        key_heads: 2,
        causal: true,
        window: Window::Nearest(3),
    };
    let rotary = |heads| Operation::Rotary { heads, base: 500.0 };
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
        heads: 3,
        key_heads: 3,
        causal: false,
        window: Window::Open,
    };
    assert_eq!(operations(&model)[3], open);
    assert_eq!(parameters(&model).len(), 8);
    let turned = sequences("z = attention(x, 3, rotary = true)");
    let rotary = Operation::Rotary { heads: 3, base: 10_000.0 };
    assert_eq!(operations(&turned)[1], rotary);
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
