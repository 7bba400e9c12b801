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

fn written(body: &str, rule: &str) -> Result<Model, String> {
    let text = format!(
        "model it {{
            seq = 8, vocab = 24
            input tokens: i32[batch, seq]
            input targets: i32[batch, seq]
            input wide: real[batch, seq, 16]
            x = embedding(tokens, vocab, 16)
            {body}
            loss cross_entropy(linear(layer_norm(x), vocab), targets)
        }}
        plan {{ exactness local, rule {rule} }}"
    );
    let source = SourceFile::new("it.rdl", text);
    match parse(&source, &NoFiles) {
        Ok((program, _)) => Ok(program.model),
        Err(wrong) => Err(wrong.to_string()),
    }
}

const LAYERS: &str = "repeat 3 as layer { x = x + linear(layer_norm(x), 16) }";

fn heads(model: &Model, units: u32) -> Vec<String> {
    let local = localised(model, units).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let names = local.parameters.values().map(|parameter| parameter.name.clone());
    names.filter(|name| name.starts_with("unit")).collect()
}

#[test]
fn a_head_behind_passes_stands_at_every_boundary() {
    let body = format!(
        "{LAYERS}
        head after layer {{ loss cross_entropy(linear(x, vocab, bias = false), targets) }}"
    );
    let model = written(&body, "local(units = 3, overlap = 0)").expect("it is right");
    let wanted = ["unit0.head.linear.weight", "unit1.head.linear.weight"];
    assert_eq!(heads(&model, 3), wanted);
}

#[test]
fn a_head_behind_a_value_stands_there_alone() {
    let body = "y = relu(linear(x, 16))
        head after y {
            z = gelu(linear(y, 4))
            loss cross_entropy(linear(z, vocab), targets)
        }
        x = linear(y, 16)";
    let model = written(body, "local(units = 2)").expect("it is right");
    let all = heads(&model, 4);
    assert!(all.iter().any(|name| name.starts_with("unit1.head.linear_1")), "{all:?}");
}

/// Heads belong to local rules: whoever reads the model under another rule sees none of them.
#[test]
fn heads_change_nothing_under_other_rules() {
    let head = "head after layer { loss cross_entropy(linear(x, vocab), targets) }";
    let plain = written(LAYERS, "sync").expect("it is right");
    let headed = written(&format!("{LAYERS}\n{head}"), "sync").expect("it is right");
    assert_eq!(plain.to_string(), headed.to_string());
    assert_eq!(Model { heads: Vec::new(), ..headed }, plain);
}

#[test]
fn mistakes_of_heads_and_units_have_a_place_and_a_hint() {
    let head =
        |after: &str, body: &str| format!("{LAYERS}\nhead after {after} {{ {body} }}");
    let ends = "loss cross_entropy(linear(x, vocab), targets)";
    let twice = format!("{}\nhead after layer {{ {ends} }}", head("layer", ends));
    let pair = "y = x\nrepeat 2 as layer { x = relu(x), y = gelu(y) }\nx = x + y
        head after layer { loss mse(x, x) }";
    let skip = "y = relu(x)\nz = gelu(y)\nx = y + z
        head after z { loss mse(z, wide) }";
    let cases = [
        (head("layer", "y = relu(x)"), "local(units = 2)", "the head has no loss"),
        (head("nobody", ends), "local(units = 2)", "nothing above is called `nobody`"),
        (head("vocab", ends), "local(units = 2)", "no value that the model computes"),
        (head("tokens", ends), "local(units = 2)", "`tokens` is not computed"),
        (head("layer", "loss mse(wide, wide)"), "sync", "does not depend on `x`"),
        (head("layer", "loss mse(x, wide)"), "sync", "needs the input `wide`"),
        (twice, "sync", "a head stands behind `x` already"),
        (pair.into(), "sync", "`x` and `y` again"),
        (skip.into(), "sync", "no unit can end here"),
        (
            format!("repeat 2 as l {{ head after x {{ {ends} }} }}"),
            "sync",
            "into a model",
        ),
        (LAYERS.into(), "local(units = 4)", "4 units need as many layers"),
        (
            LAYERS.into(),
            "local(units = 2, overlap = 1)",
            "`overlap = 1` is not supported",
        ),
        (LAYERS.into(), "local", "needs a number of units"),
        (LAYERS.into(), "pairwise", "`pairwise` is not supported"),
        (LAYERS.into(), "local(unit = 2)", "takes `units` and `overlap`"),
    ];
    for (body, rule, message) in cases {
        let wrong = written(&body, rule).expect_err(message);
        assert!(wrong.contains(message), "{message}: {wrong}");
        assert!(wrong.contains("it.rdl:"), "it has a place: {wrong}");
    }
}
