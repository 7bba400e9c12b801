//! Mistakes are told together, once each, and with the calls that led to them.

use roundelay_dsl::{Diagnostic, NoFiles, SourceFile, parse};

/// All that is said of a program, mistakes or warnings.
fn said(text: &str) -> Vec<Diagnostic> {
    match parse(&SourceFile::new("m.rdl", text), &NoFiles) {
        Ok((_, warnings)) => warnings,
        Err(refused) => refused.iter().cloned().collect(),
    }
}

fn messages(text: &str) -> Vec<String> {
    said(text).into_iter().map(|one| one.message).collect()
}

#[test]
fn arguments_are_judged_though_others_are_wrong_or_unknown() {
    let text = "model m {
        input x: real[batch, 8], input y: i32[batch]
        h = linear(x, 8, biass = false, deviatoin = 3)
        h = linear(h, 8, deviaton = 3)
        loss cross_entropy(linear(h, 4), y, maskd = true)
    }";
    let all = ["biass", "deviatoin", "deviaton", "maskd"];
    let callees = ["linear", "linear", "linear", "cross_entropy"];
    let expected = callees
        .iter()
        .zip(all)
        .map(|(callee, name)| format!("`{callee}` has no argument `{name}`"));
    assert_eq!(messages(text), expected.collect::<Vec<_>>());
}

#[test]
fn constant_calls_tell_all_unknown_arguments_and_wrong_values() {
    let text = "model m { input x: real[batch, 8], loss mse(linear(x, 8), x) }
        train { optimizer adamw(1e-3, beta = 0.9, betas = 2, epsilon = flase) }";
    let told = messages(text);
    for said in ["no argument `beta`", "no argument `betas`", "`flase`"] {
        assert!(told.iter().any(|one| one.contains(said)), "{said}: {told:?}");
    }
}

#[test]
fn an_argument_too_many_or_given_twice_is_told_once() {
    let of = |call: &str| {
        messages(&format!("model m {{ input x: real[batch, 8], loss mse({call}, x) }}"))
    };
    assert_eq!(of("relu(x, 1, 2, 3)"), ["`relu` takes 1 arguments, found 4"]);
    assert_eq!(of("linear(x, bais = true)"), ["`linear` has no argument `bais`"]);
    assert_eq!(of("linear(x)"), ["`linear` needs the argument `width`"]);
}

#[test]
fn bodies_without_passes_or_calls_are_looked_over() {
    let text = "block idle(a) { return linear(a, 8, biass = true) }
    model m {
        input x: real[batch, 8]
        repeat depth { x = linear(x, 8, deviaton = 1) }
        loss mse(x, x)
    }";
    let told = messages(text);
    for said in ["no argument `biass`", "name `depth`", "no argument `deviaton`"] {
        assert!(told.iter().any(|one| one.contains(said)), "{said}: {told:?}");
    }
}

const MLP: &str = "block mlp(x, width) {
    h = gelu(linear(x, 4 * width))
    return x + linear(h, width)
}
";

#[test]
fn what_is_wrong_in_a_block_names_the_calls() {
    let text = format!(
        "{MLP}block twice(x) {{ return mlp(x, 12) }}
model m {{
    input x: real[batch, 8]
    b = mlp(x, 16)
    c = twice(x)
    d = mlp(x, 16)
    loss mse(d, x)
}}"
    );
    let all = said(&text);
    let places = |one: &Diagnostic| -> Vec<(u32, String)> {
        one.labels.iter().map(|(place, label)| (place.line, label.clone())).collect()
    };
    let called = |lines: &[u32]| -> Vec<(u32, String)> {
        lines.iter().map(|line| (*line, "called here".to_owned())).collect()
    };
    assert_eq!(all.len(), 2, "the third call says what the first one says: {all:?}");
    assert!(all.iter().all(|one| one.place.line == 3), "{all:?}");
    assert_eq!(places(&all[0]), called(&[8]));
    assert_eq!(places(&all[1]), called(&[5, 9]));
}

#[test]
fn what_only_a_later_pass_does_wrong_says_which() {
    let pass = |head: &str, inside: &str| {
        let text = format!(
            "model m {{
    input x: real[batch, 8]
    rates = [0.1, 0.2, 3]
    i = 0
    {head} {{ x = dropout(x, rates[{inside}]), i = i + 1 }}
    loss mse(linear(x, 8), x)
}}"
        );
        let all = said(&text);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].labels.iter().map(|(_, label)| label.clone()).collect::<Vec<_>>()
    };
    assert_eq!(pass("repeat 3 as layer", "layer"), ["where `layer` is 2"]);
    assert_eq!(pass("repeat 3", "i"), ["in pass 3"]);
    assert!(pass("repeat 3", "2").is_empty(), "every pass does it wrong");
}

/// The lines of all that is said of a program.
fn lines(text: &str) -> Vec<u32> {
    said(text).iter().map(|one| one.place.line).collect()
}

#[test]
fn a_call_in_vain_is_warned_of_once_where_it_stands() {
    let warned = |blocks: &str, statements: &str| {
        lines(&format!(
            "{MLP}{blocks}model m {{
    input x: real[batch, 8]
    {statements}
    loss mse(x, x)
}}"
        ))
    };
    assert_eq!(warned("", "z = mlp(x, 8)\n x = mlp(x, 8)\n y = mlp(x, 8)"), [7, 9]);
    let deep = "block deep(x) {\n y = mlp(x, 8)\n return linear(x, 8)\n }\n";
    assert_eq!(warned(deep, "x = deep(x)"), [6], "the call in the body is in vain");
    let both = warned(deep, "z = deep(x), x = deep(x)");
    assert_eq!(both, [6, 11], "one of the calls is in vain as a whole");
}

/// The call is not in vain: its value is used.
#[test]
fn what_a_body_leaves_out_is_warned_of_there() {
    let text = "block layer(x) {
    h = gelu(linear(x, 8))
    return x
}
model m {
    input x: real[batch, 8]
    x = layer(layer(x))
    loss mse(linear(x, 8), x)
}";
    let lines = lines(text);
    assert!(!lines.is_empty() && lines.iter().all(|line| *line == 2), "{lines:?}");
}

/// Of a long way to a mistake its end and its begin are told.
#[test]
fn few_calls_are_named_however_many_lead_to_a_mistake() {
    let blocks = (0..20).map(|i| format!("block f{i}(x) {{ return f{}(x) }}\n", i + 1));
    let blocks: String = blocks.collect();
    let text = format!(
        "{blocks}block f20(x) {{ return x + linear(x, 9) }}
model m {{ input x: real[batch, 8], loss mse(f0(x), x) }}"
    );
    let all = said(&text);
    let lines: Vec<u32> = all[0].labels.iter().map(|(place, _)| place.line).collect();
    assert_eq!(lines, [20, 19, 18, 22]);
}
