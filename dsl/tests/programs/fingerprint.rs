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
