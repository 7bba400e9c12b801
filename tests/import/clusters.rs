//! What an imported model trains in, and on what.

use super::{accepted, edited, fixture, imported};
use roundelay::{ImportCluster, ImportDtype, ImportOptions, SourceFile};
use serde_json::json;

fn text(name: &str, options: &ImportOptions) -> String {
    imported(&fixture(name), options).unwrap_or_else(|wrong| panic!("{wrong}")).text
}

fn trains_in(text: &str, dtype: &str) -> bool {
    text.lines().any(|line| line.split_whitespace().eq(["dtype", dtype]))
}

#[test]
fn weights_of_sixteen_bits_train_in_mixed_precision() {
    for (name, dtype) in [
        ("gpt2", "f32"),
        ("bert-base-uncased", "f32"),
        ("llama-3-8b", "bf16"),
        ("llama-2-7b", "bf16"),
    ] {
        assert!(trains_in(&accepted(&fixture(name)).text, dtype), "{name}");
    }
    let renamed = edited("gpt2", &[("dtype", json!("torch.bfloat16"))]);
    assert!(trains_in(&accepted(&renamed).text, "bf16"));
    for dtype in ImportDtype::ALL {
        let options = ImportOptions { dtype: Some(dtype), ..ImportOptions::default() };
        assert!(trains_in(&text("llama-3-8b", &options), dtype.name()));
    }
}

#[test]
fn every_cluster_has_the_devices_that_are_asked_for() {
    for cluster in ImportCluster::ALL {
        for count in [1, 3] {
            let nodes = Some(count);
            let options = ImportOptions { cluster, nodes, ..ImportOptions::default() };
            let source = SourceFile::new("imported.rdl", text("llama-3-8b", &options));
            let program = roundelay::parse(&source).unwrap_or_else(|w| panic!("{w}"));
            let devices = program.target.devices.len();
            assert_eq!(devices as u32, 8 * count, "{cluster:?}");
            let batch = program.train.batch;
            assert_eq!(batch, devices as u32, "{cluster:?}: an example for each device");
        }
    }
}

/// 70 billion parameters of 16 bytes take two fifths of eight nodes with 80 GB a device, and more
/// nodes where a device has half of that.
#[test]
fn smaller_devices_make_more_nodes() {
    let large = edited(
        "llama-3-8b",
        &[
            ("hidden_size", json!(8192)),
            ("num_hidden_layers", json!(80)),
            ("intermediate_size", json!(28672)),
            ("num_attention_heads", json!(64)),
        ],
    );
    let nodes = |cluster| {
        let options = ImportOptions { cluster, ..ImportOptions::default() };
        let done = imported(&large, &options).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(done.parameters, 70_553_706_496);
        let program = roundelay::parse(&SourceFile::new("imported.rdl", done.text));
        program.unwrap_or_else(|wrong| panic!("{wrong}")).target.devices.len() / 8
    };
    assert_eq!(nodes(ImportCluster::DgxA100), 8);
    assert_eq!(nodes(ImportCluster::AzureNdA100), 16);
}

/// The largest OPT (arXiv 2205.01068), whose parameters and gradients eight devices cannot hold: stages
/// divide them, the first and the last of which use one table.
#[test]
fn what_one_node_cannot_hold_is_divided_among_stages() {
    let opt = edited(
        "opt-125m",
        &[
            ("hidden_size", json!(12288)),
            ("word_embed_proj_dim", json!(12288)),
            ("num_attention_heads", json!(96)),
            ("num_hidden_layers", json!(96)),
            ("ffn_dim", json!(49152)),
            ("torch_dtype", json!("float16")),
        ],
    );
    let text = accepted(&opt).text;
    assert!(!text.contains("tensor"), "{text}");
    let program = roundelay::parse(&SourceFile::new("imported.rdl", text));
    let mut program = program.unwrap_or_else(|wrong| panic!("{wrong}"));
    program.search.set("order = zb_v").expect("it is an order");
    let options =
        roundelay::SearchOptions { top: 1, clocked_max: 1, ..Default::default() };
    let planned = roundelay::plan(&program, &options);
    let planned = planned.unwrap_or_else(|refused| panic!("{refused}"));
    let best = planned.best();
    assert_eq!((best.ties.len(), best.tensor.rows <= 8), (1, true), "{best:?}");
}
