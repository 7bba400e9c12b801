//! The fingerprint of a program: what changes it, and which half.

use roundelay_dsl::{NoFiles, SourceFile, fingerprint, parse};

#[test]
fn the_fingerprint_changes_with_model_and_cluster_alone() {
    let text = include_str!("quickstart.rdl");
    let of = |text: &str| {
        let source = SourceFile::new("test.rdl", text);
        fingerprint(&parse(&source, &NoFiles).expect("it is right").0)
    };
    let print = of(text);
    assert_eq!(print.len(), 33);
    assert_eq!(of(&text.replace("steps     200", "steps     300")), print);
    assert_eq!(of(&text.replace("seed      7", "seed 8 # comment")), print);
    assert_ne!(of(&text.replace("repeat 4", "repeat 3")), print);
    let slower = of(&text.replace("latency 2 us", "latency 3 us"));
    assert_ne!(slower, print);
    let computed = |print: &str| print[..16].to_owned();
    assert_eq!(computed(&slower), computed(&print), "what is computed is the same");
    let drawn = "embedding(tokens, vocab, width, deviation = 0.5)";
    let drawn = of(&text.replace("embedding(tokens, vocab, width)", drawn));
    assert!(drawn != print && computed(&drawn) == computed(&print));
    let wide = "linear(gelu(linear(layer_norm(x), 4 * width)), width)";
    assert!(text.contains(wide));
    let named = ["wide", "h"].map(|name| {
        let before = format!("{name} = gelu(linear(layer_norm(x), 4 * width))");
        let line = format!("linear({name}, width)");
        of(&text
            .replace(&format!("x = x + {wide}"), &format!("{before}, x = x + {line}")))
    });
    assert!(named[0] != named[1] && computed(&named[0]) == computed(&named[1]));
    for (one, other) in [
        ("causal = true", "causal = false"),
        ("gelu(", "relu("),
        ("x = x + linear", "x = x - linear"),
        ("attention(layer_norm(x)", "attention(layer_norm(x, epsilon = 0.1)"),
        ("weight_decay = 0.1", "weight_decay = 0.1, no_decay = [\"*table\"]"),
    ] {
        assert!(text.contains(one), "{one}");
        assert_ne!(computed(&of(&text.replace(one, other))), computed(&print), "{other}");
    }
}

/// A small model on a cluster that says all that clusters may say, in words of its own.
const CLUSTER: &str = r#"
model small {
    input features: real[batch, 16]
    input wanted: i32[batch]
    x = batch_norm(linear(features, 32), momentum = 0.25)
    loss cross_entropy(linear(relu(x), 8), wanted)
}
device fast {
    memory 2 GB
    reserved 1 MB
    compute 1 TFLOP/s { ramp 8 ns, attention 0.3, unaligned 0.5 }
    bandwidth 1 TB/s
}
link near {
    bandwidth 368 GB/s
    latency 1700 ns
    startup 50 us
    short { bandwidth 40 GB/s, startup 5 us }
    nvls  { bandwidth 310 GB/s, startup 40 us }
}
link far { bandwidth 50 GB/s, latency 16 us, form rails | tree }
cluster two {
    node = 2 x fast joined by near
    2 x node joined by far
}
train { data synthetic(), batch 8, optimizer sgd(lr = 0.1), steps 4, seed 1 }
plan { rule sync }
"#;

/// Runs that were stopped go on where the first half is the same: it changes with what is computed, not
/// with what anything is called here.
#[test]
fn the_fingerprint_of_a_program_stays() {
    let of = |text: &str| {
        let source = SourceFile::new("test.rdl", text);
        fingerprint(&parse(&source, &NoFiles).expect("it is right").0)
    };
    let quickstart = include_str!("quickstart.rdl");
    assert_eq!(of(quickstart), "e99ac67001860f43-c78287f8959adec8");
    assert_eq!(of(CLUSTER), "c15e33735437b341-08ba589668ea11f1");
}
