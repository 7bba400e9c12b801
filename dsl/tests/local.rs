//! Models in units: where they end, which heads they have, and what is refused.

use roundelay_dsl::{Model, NoFiles, Operation, SourceFile, localised, parse};

fn model(body: &str) -> Model {
    let text = format!(
        "model it {{
            input tokens: i32[batch, 8]
            input targets: i32[batch, 8]
            input images: real[batch, 8, 8, 3]
            input classes: i32[batch]
            {body}
        }}"
    );
    let source = SourceFile::new("it.rdl", text);
    let (program, _) = parse(&source, &NoFiles).unwrap_or_else(|wrong| panic!("{wrong}"));
    program.model
}

fn gpt(layers: u32) -> Model {
    model(&format!(
        "x = embedding(tokens, 24, 16) + positions(8, 16)
        repeat {layers} as layer {{
            x = x + attention(layer_norm(x), 2, causal = true)
            x = x + linear(relu(linear(layer_norm(x), 32)), 16)
        }}
        loss cross_entropy(linear(layer_norm(x), 24), targets)"
    ))
}

const IMAGES: &str = "x = relu(batch_norm(conv2d(images, 4, bias = false)))
    x = relu(batch_norm(conv2d(x, 8, stride = 2, bias = false)))
    x = relu(batch_norm(conv2d(x, 16, stride = 2, bias = false)))
    loss cross_entropy(linear(global_pool(x), 10), classes)";

/// The names of the values behind which gradients stop.
fn ends(model: &Model) -> Vec<String> {
    let stops = model.nodes.values().filter(|node| node.operation == Operation::Stop);
    let above = stops.map(|node| match node.operands[..] {
        [roundelay_dsl::Source::Node(above)] => model.nodes[above].name.clone(),
        _ => panic!("a stop reads one node"),
    });
    above.collect()
}

#[test]
fn units_have_the_same_number_of_layers_up_to_one() {
    for layers in 1..6 {
        for units in 1..=layers {
            let local = localised(&gpt(layers), units).expect("there are enough layers");
            let pass = |end: &String| end.split('.').nth(1).unwrap().parse().unwrap();
            let found: Vec<u32> = ends(&local).iter().map(pass).collect();
            let wanted: Vec<u32> =
                (1..units).map(|unit| unit * layers / units - 1).collect();
            assert_eq!(found, wanted, "{layers} layers, {units} units");
        }
    }
}

#[test]
fn a_head_is_a_copy_of_the_last_part_with_parameters_of_its_own() {
    let local = localised(&gpt(2), 2).unwrap();
    let names = local.parameters.values().map(|parameter| parameter.name.as_str());
    let heads: Vec<&str> = names.filter(|name| name.starts_with("unit0")).collect();
    let wanted = ["layer_norm.gain", "layer_norm.bias", "linear.weight", "linear.bias"];
    assert_eq!(heads, wanted.map(|name| format!("unit0.head.{name}")));
    assert_eq!(local.auxiliary.len(), 1);
    let metrics: Vec<&str> = local.metrics.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(metrics, ["loss_unit0"]);
    assert_eq!(local.metrics[0].node, local.auxiliary[0]);
}

#[test]
fn image_features_of_any_width_are_pooled_and_classified() {
    let local = localised(&model(IMAGES), 3).unwrap();
    let parameters = local.parameters.values();
    let shapes: Vec<(&str, &[u64])> = parameters
        .filter(|parameter| parameter.name.ends_with("head.linear.weight"))
        .map(|parameter| (parameter.name.as_str(), parameter.shape.as_slice()))
        .collect();
    let wanted: [(&str, &[u64]); 2] =
        [("unit0.head.linear.weight", &[10, 4]), ("unit1.head.linear.weight", &[10, 8])];
    assert_eq!(shapes, wanted);
    assert!(local.boundaries().len() == 2);
}

#[test]
fn what_cannot_be_in_units_is_refused_with_what_would_work() {
    let tied = model(
        "param table: [24, 16]
        x = embedding(tokens, table)
        repeat 2 as layer { x = x + linear(layer_norm(x), 16) }
        loss cross_entropy(linear(x, weight = table, bias = false), targets)",
    );
    let odd = model(
        "x = embedding(tokens, 24, 8)
        x = relu(linear(x, 16))
        loss cross_entropy(linear(x, 24), targets)",
    );
    let cases = [
        (gpt(2), 3, "3 units need as many layers; the model has 2 layers", "units = 2"),
        (gpt(2), 0, "at least 1 unit", "units = 2"),
        (tied, 2, "`table` is used in two units", "a parameter of its own"),
        (odd, 3, "no head is known for `embedding`", "head after"),
    ];
    for (model, units, message, hint) in cases {
        let wrong = localised(&model, units).unwrap_err();
        assert!(wrong.message.contains(message), "{}", wrong.message);
        assert!(wrong.hints[0].contains(hint), "{:?}", wrong.hints);
    }
}

#[test]
fn names_that_are_taken_stay() {
    let mut model = gpt(2);
    let first = model.parameters.ids().next().unwrap();
    model.parameters[first].name = "unit0.weight".to_owned();
    let local = localised(&model, 2).unwrap();
    let mut names: Vec<&str> =
        local.parameters.values().map(|parameter| parameter.name.as_str()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.contains(&"unit0_1.head.linear.weight"), "{names:?}");
}
