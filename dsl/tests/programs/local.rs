//! Models in units: where they end, which heads they have, and what is refused.

use roundelay_dsl::{
    Diagnostic, Mistake, Model, ModelParameter, NoFiles, Operation, Program, SourceFile,
    Tables, localised, parse, parse_set,
};
use roundelay_schedule::{Belonging, Hop, Treatment};

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

fn in_units(model: &Model, units: u32) -> Result<Model, Mistake> {
    localised(model, units, Hop::None)
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
    let stops = model
        .nodes
        .values()
        .filter(|node| matches!(node.operation, Operation::Boundary(Hop::None)));
    let above = stops.map(|node| match node.operands[..] {
        [roundelay_dsl::Source::Node(above)] => model.nodes[above].name.clone(),
        _ => panic!("a stop reads one node"),
    });
    above.collect()
}

#[test]
fn parameters_of_heads_are_told_from_those_of_the_model() {
    let whole = gpt(3);
    let local = in_units(&whole, 3).expect("it is right");
    let is_whole = |own: &ModelParameter| own.belonging == Belonging::Model;
    assert!(whole.parameters.values().all(is_whole));
    let (own, heads): (Vec<_>, Vec<_>) =
        local.parameters.values().partition(|parameter| is_whole(parameter));
    assert_eq!(own.len(), whole.parameters.len());
    assert!(!heads.is_empty() && heads.iter().all(|head| head.name.contains(".head.")));
}

#[test]
fn units_have_the_same_number_of_layers_up_to_one() {
    for layers in 1..6 {
        for units in 1..=layers {
            let local = in_units(&gpt(layers), units).expect("there are enough layers");
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
    let local = in_units(&gpt(2), 2).unwrap();
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
    let local = in_units(&model(IMAGES), 3).unwrap();
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
        let wrong = in_units(&model, units).unwrap_err();
        assert!(wrong.message.contains(message), "{}", wrong.message);
        assert!(wrong.hints[0].contains(hint), "{:?}", wrong.hints);
    }
}

#[test]
fn names_that_are_taken_stay() {
    let mut model = gpt(2);
    let first = model.parameters.ids().next().unwrap();
    model.parameters[first].name = "unit0.weight".to_owned();
    let local = in_units(&model, 2).unwrap();
    let mut names: Vec<&str> =
        local.parameters.values().map(|parameter| parameter.name.as_str()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.contains(&"unit0_1.head.linear.weight"), "{names:?}");
}

fn written(body: &str, rule: &str) -> Result<Model, String> {
    trained(body, rule, "")
}

/// The warnings about heads of a program that is right.
fn warned(body: &str, plan: &str) -> Vec<String> {
    let (_, warnings) = read("", body, "", plan).expect("it is right");
    let warnings = warnings.iter().map(ToString::to_string);
    warnings.filter(|warning| warning.contains("head")).collect()
}

fn trained(body: &str, rule: &str, train: &str) -> Result<Model, String> {
    planned("", body, train, &format!("exactness local, rule {rule}"))
}

fn planned(blocks: &str, body: &str, train: &str, plan: &str) -> Result<Model, String> {
    read(blocks, body, train, plan).map(|(program, _)| program.model)
}

fn read(
    blocks: &str,
    body: &str,
    train: &str,
    plan: &str,
) -> Result<(Program, Vec<Diagnostic>), String> {
    let source = source(blocks, body, train, plan);
    parse(&source, &NoFiles).map_err(|wrong| wrong.to_string())
}

fn source(blocks: &str, body: &str, train: &str, plan: &str) -> SourceFile {
    let text = format!(
        "{blocks}
        model it {{
            seq = 8, vocab = 24
            input tokens: i32[batch, seq]
            input targets: i32[batch, seq]
            input wide: real[batch, seq, 16]
            x = embedding(tokens, vocab, 16)
            {body}
            loss cross_entropy(linear(layer_norm(x), vocab), targets)
        }}
        train {{ {train} }}
        plan {{ {plan} }}"
    );
    SourceFile::new("it.rdl", text)
}

const LAYERS: &str = "repeat 3 as layer { x = x + linear(layer_norm(x), 16) }";

fn heads(model: &Model, units: u32) -> Vec<String> {
    let local = in_units(model, units).unwrap_or_else(|wrong| panic!("{wrong:?}"));
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

/// What a program writes and no rule trains is said, with where units end instead.
#[test]
fn a_head_where_no_unit_ends_is_told() {
    let body = "x = relu(linear(x, 16))
        y = x
        repeat 4 as layer { x = x + linear(layer_norm(x), 16) }
        head after y { loss cross_entropy(linear(y, vocab), targets) }";
    let two = warned(body, "exactness local, rule local(units = 2)");
    let wanted = ["no unit ends here, so the head is left out", "it.rdl:11:20"];
    assert_eq!(two.len(), 1, "{two:?}");
    for part in wanted.iter().chain(&["units end behind `layer.1.add`; write"]) {
        assert!(two[0].contains(part), "{part}: {}", two[0]);
    }
    let open = warned(body, "exactness local");
    assert!(open[0].contains("`layer.0.add`, `layer.1.add`, `layer.2.add`;"), "{open:?}");
    assert_eq!(warned(body, "rule sync"), [""; 0], "no rule has units");
    let there = body.replace("after y", "after layer").replace("(y,", "(x,");
    assert_eq!(warned(&there, "exactness local, rule local(units = 2)"), [""; 0]);
}

/// What is warned of is the program with what was set.
#[test]
fn a_head_is_told_under_the_rule_that_is_set() {
    let body = "x = relu(linear(x, 16))
        y = x
        repeat 4 as layer { x = x + linear(layer_norm(x), 16) }
        head after y { loss cross_entropy(linear(y, vocab), targets) }";
    let source = source("", body, "", "exactness local, rule sync");
    let said = |settings: &[&str]| -> Vec<String> {
        let read = parse_set(&source, &NoFiles, Tables::Read, settings);
        let (_, warnings) = read.unwrap_or_else(|refused| panic!("{refused:?}"));
        warnings
            .iter()
            .map(ToString::to_string)
            .filter(|own| own.contains("head"))
            .collect()
    };
    assert_eq!(said(&[]), [""; 0]);
    let told = said(&["rule = local(units = 2)"]);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in ["no unit ends here", "it.rdl:11:20", "units end behind `layer.1.add`"] {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
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
        (head("vocab", ends), "local(units = 2)", "not a value that the model computes"),
        (head("tokens", ends), "local(units = 2)", "`tokens` is not computed"),
        (head("layer", "loss mse(wide, wide)"), "sync", "does not depend on `x`"),
        (head("layer", "loss mse(x, wide)"), "sync", "needs the input `wide`"),
        (twice, "sync", "a head stands behind `x` already"),
        (pair.into(), "sync", "`x` and `y` again"),
        (skip.into(), "sync", "no unit can end here"),
        (
            format!("repeat 2 as l {{ head after x {{ {ends} }} }}"),
            "sync",
            "behind a repeat of a model",
        ),
        (LAYERS.into(), "local(units = 4)", "4 units need as many layers"),
        (LAYERS.into(), "pairwise(units = 4)", "4 units need as many layers"),
        (LAYERS.into(), "local", "`local` needs a number of units"),
        (LAYERS.into(), "local(units = 0)", "error[value]: `local` has at least 1 unit"),
        (LAYERS.into(), "pairwise", "`pairwise` needs a number of units"),
        (LAYERS.into(), "pairwise(2, overlap = 1)", "takes `units`, not `overlap`"),
        (LAYERS.into(), "pairwise(2, units = 3)", "leave one `units` out"),
        (LAYERS.into(), "local(units = 2, overlap = 2)", "by one unit, or not at all"),
        (LAYERS.into(), "local(unit = 2)", "did you mean `units`?"),
        (
            "repeat 2 as a { repeat 2 as b { x = relu(x) } }
            head after b { loss mse(x, wide) }"
                .into(),
            "sync",
            "nothing above is called `b`",
        ),
        (
            "repeat 2 as a { x = relu(x) }
            y = linear(x, 8)
            repeat 2 as a { y = relu(y) }
            x = linear(y, 16)
            head after a { loss cross_entropy(linear(x, vocab), targets) }"
                .into(),
            "sync",
            "`x` and `y` again",
        ),
        (
            "z = batch_norm(x)
            x = x + z
            repeat 2 as a { x = x + linear(layer_norm(x), 16) }
            head after a {
                n = batch_norm(x, momentum = 0.2)
                loss cross_entropy(linear(n, vocab), targets)
            }"
            .into(),
            "sync",
            "the momentum is 0.2, but that of `z.running_mean` is 0.1",
        ),
    ];
    for (body, rule, message) in cases {
        let wrong = written(&body, rule).expect_err(message);
        assert!(wrong.contains(message), "{message}: {wrong}");
        assert!(wrong.contains("it.rdl:"), "it has a place: {wrong}");
    }
}

/// What heads make of targets is what the loss makes of them: else the data would be at fault.
#[test]
fn heads_have_the_classes_of_the_loss() {
    let cases = [
        (
            "cross_entropy(linear(x, 5), targets)",
            "the head has 5 classes for `targets`, the loss of the model has 24",
        ),
        ("cross_entropy(linear(x, 25), targets)", "give the head 24 classes"),
        (
            "mse(x, embedding(targets, 5, 16))",
            "the head takes `targets` below 5, the model below 24",
        ),
    ];
    for (loss, message) in cases {
        let body = format!("{LAYERS}\nhead after layer {{ loss {loss} }}");
        let wrong = written(&body, "sync").expect_err(message);
        assert!(wrong.contains(message), "{message}: {wrong}");
        assert!(wrong.contains("it.rdl:9:12"), "it has a place: {wrong}");
    }
}

/// Weight decay spares the parameters of heads by their whole names, of written and of other heads.
#[test]
fn weight_decay_spares_parameters_of_heads_by_name() {
    let head = format!(
        "{LAYERS}\nhead after layer {{ loss cross_entropy(linear(x, vocab), targets) }}"
    );
    for body in [head.as_str(), LAYERS] {
        let treatments = |pattern: &str| {
            let train = format!("optimizer adamw(1e-3, no_decay = [\"{pattern}\"])");
            let model = trained(body, "local(units = 3)", &train)?;
            let local = in_units(&model, 3).map_err(|wrong| wrong.message)?;
            let weights = local.parameters.values();
            let weights = weights.filter(|own| own.name.ends_with("head.linear.weight"));
            Ok::<_, String>(weights.map(|own| own.treatment).collect::<Vec<_>>())
        };
        let (decayed, spared) = (Treatment::Decayed, Treatment::Spared);
        assert_eq!(treatments("*.bias"), Ok(vec![decayed, decayed]));
        assert_eq!(treatments("*head*.weight"), Ok(vec![spared, spared]));
        assert_eq!(treatments("unit1.head.*"), Ok(vec![decayed, spared]));
        let wrong = treatments("unit7.head.*").expect_err("there is no unit 7");
        assert!(wrong.contains("no parameter matches `unit7.head.*`"), "{wrong}");
    }
}

/// A head reads the inputs of the model, under whatever names the program has for them.
#[test]
fn a_head_reads_inputs_and_not_their_names() {
    let body = format!(
        "wanted = targets
        {LAYERS}
        tokens = wanted
        head after layer {{ loss cross_entropy(linear(x, vocab), tokens) }}"
    );
    let model = written(&body, "local(units = 3)").expect("it is right");
    let local = in_units(&model, 3).expect("it is right");
    for loss in &local.auxiliary {
        let roundelay_dsl::Source::Input(read) = local.nodes[*loss].operands[1] else {
            panic!("a loss reads targets")
        };
        assert_eq!(local.inputs[read].name, "targets");
    }
}

/// What no rule trains is not said to be named wrongly; where rules are open, heads are those of
/// all that are tried.
#[test]
fn patterns_are_compared_with_what_rules_train() {
    let train =
        |pattern: &str| format!("optimizer adamw(1e-3, no_decay = [\"{pattern}\"])");
    let many = "exactness local, rule local(units = 99)";
    let wrong = planned("", LAYERS, &train("*.bias"), many).expect_err("too many units");
    assert!(wrong.contains("99 units need as many layers"), "{wrong}");
    assert!(!wrong.contains("no parameter matches"), "{wrong}");
    let under = |pattern: &str, plan: &str| planned("", LAYERS, &train(pattern), plan);
    under("unit0.head.*", "exactness local").expect("two units are tried");
    for (pattern, plan) in
        [("unit7.head.*", "exactness local"), ("unit0.head.*", "exactness reordered")]
    {
        let wrong = under(pattern, plan).expect_err("no rule has such a head");
        assert!(wrong.contains("no parameter matches"), "{wrong}");
    }
}

/// What hops back trains something, or the program is told that it does not.
#[test]
fn what_hops_back_has_weights_to_train() {
    let model = model(
        "input wide: real[batch, 8, 16]
        x = relu(wide)
        repeat 3 as layer { x = relu(x) }
        loss cross_entropy(linear(x, 24), targets)",
    );
    localised(&model, 2, Hop::None).expect("heads are trained");
    for hop in [Hop::Added, Hop::Alone] {
        let wrong = localised(&model, 2, hop).expect_err("no layer has parameters");
        assert!(wrong.message.contains("unit 0 has nothing"), "{}", wrong.message);
    }
}

/// A model's head means the model's passes, whatever is counted alike in its blocks; those of a
/// block where the model has none.
#[test]
fn repeats_of_blocks_take_no_passes_away() {
    let blocks = "block twice(x) {
            h = x
            repeat 2 as layer { h = h + linear(layer_norm(h), 16) }
            return h
        }";
    let behind = |body: &str| {
        let model = planned(blocks, body, "", "exactness local");
        model.expect("it is right").heads[0].after.len()
    };
    let both = "x = twice(x)
        repeat 3 as layer { x = x + linear(layer_norm(x), 16) }
        x = twice(x)
        head after layer { loss cross_entropy(linear(x, vocab), targets) }";
    assert_eq!(behind(both), 3);
    let block = "x = twice(x)
        head after layer { loss cross_entropy(linear(h, vocab), targets) }";
    assert_eq!(behind(block), 2);
}

/// Passes are those of outermost repeats, wherever they stand: repeats in heads and other repeats
/// take nothing away from them.
#[test]
fn other_repeats_take_no_passes_away() {
    let body = "repeat 3 as layer {
            repeat 2 as layer { x = x + linear(layer_norm(x), 16) }
        }
        head after layer {
            repeat 2 as layer { x = relu(x) }
            loss cross_entropy(linear(x, vocab), targets)
        }";
    let model = written(body, "local(units = 3)").expect("it is right");
    assert_eq!(model.heads[0].after.len(), 3);
    assert_eq!(in_units(&model, 3).expect("it is right").auxiliary.len(), 2);
    let two = "repeat 2 as layer { x = x + linear(layer_norm(x), 16) }
        repeat 2 as layer { x = x + linear(layer_norm(x), 16) }
        head after layer { loss cross_entropy(linear(x, vocab), targets) }";
    assert_eq!(written(two, "sync").expect("it is right").heads[0].after.len(), 4);
}

/// Cuts are measured in the model that the rule trains.
#[test]
fn cuts_lie_inside_of_the_model_in_units() {
    let whole = written(LAYERS, "sync").expect("it is right").cuttable();
    let local = written(LAYERS, "local(units = 3)").expect("it is right");
    let local = in_units(&local, 3).expect("it is right").cuttable();
    assert!(local > whole);
    let with = |rule: &str, cut: usize| written(LAYERS, &format!("{rule}, cuts [{cut}]"));
    with("local(units = 3)", local - 1).expect("it is inside");
    with("sync | local(units = 3)", local - 1).expect("it is inside of one");
    let wrong = with("local(units = 3)", local).expect_err("it is behind");
    assert!(wrong.contains(&format!("the model's {local} operations")), "{wrong}");
    let wrong = with("sync", whole).expect_err("it is behind");
    assert!(wrong.contains(&format!("the model's {whole} operations")), "{wrong}");
}
