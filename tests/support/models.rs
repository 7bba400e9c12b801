//! Small models as programs; the tests of several crates share them.

use roundelay_dsl::{NoFiles, Program, SourceFile, parse};

/// Layers of one width with dropout, a skip over all of them, and a mean squared error.
pub(crate) fn mlp(layers: u32, batch: u32) -> Program {
    let hidden = "x = dropout(gelu(linear(x, 16)), 0.1)";
    let body = vec![hidden; layers as usize].join("\n");
    program(&format!(
        "model mlp {{
            input features: real[batch, 16]
            input wanted: real[batch, 16]
            x = linear(features, 16)
            early = x
            {body}
            loss mse(layer_norm(x + early), wanted)
        }}
        {}",
        job(batch)
    ))
}

/// A language model with dropout; the residual stream crosses every cut.
pub(crate) fn gpt(layers: u32, batch: u32) -> Program {
    program(&format!(
        "model gpt {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            x = embedding(tokens, 24, 16) + positions(8, 16)
            early = x
            repeat {layers} as layer {{
                x = x + dropout(attention(layer_norm(x), 2, causal = true), 0.1)
                x = x + linear(relu(linear(layer_norm(x), 32)), 16)
            }}
            loss cross_entropy(linear(layer_norm(x + early), 24), targets)
        }}
        {}",
        job(batch)
    ))
}

/// Many devices, and six steps of AdamW whose rate drops after three.
pub(crate) fn job(batch: u32) -> String {
    format!(
        "device core {{ memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }}
        link bus {{ bandwidth 1 GB/s, latency 1 us }}
        cluster many {{ 64 x core joined by bus }}
        train {{
            data synthetic
            batch {batch}
            optimizer adamw(lr = step(1e-2, 0.1, 3), weight_decay = 0.1)
            steps 6
            seed 11
        }}"
    )
}

/// Parses a program that must be right.
pub(crate) fn program(text: &str) -> Program {
    let source = SourceFile::new("test.rdl", text);
    let (program, _) = parse(&source, &NoFiles).unwrap_or_else(|wrong| panic!("{wrong}"));
    program
}

/// The cuts that split the nodes of a model into S stages evenly.
pub(crate) fn even_cuts(program: &Program, s: u32) -> Vec<u32> {
    let nodes = program.model.cuttable() as u32;
    (1..s).map(|stage| stage * nodes / s).collect()
}
