//! Parameters that several stages use, as a person and another program hear of them.

use crate::support::{Scratch, compiled, document, printed, roundelay};
use serde_json::json;

/// The first and the last of two stages use one table.
const TIED: &str = r#"
model tied {
    input tokens:  i32[batch, 8]
    input targets: i32[batch, 8]
    param table: [512, 16] = normal(0.02)
    x = embedding(tokens, table)
    repeat 2 as layer { x = x + linear(relu(linear(layer_norm(x), 32)), 16) }
    loss cross_entropy(linear(x, weight = table, bias = false), targets)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train { data synthetic, batch 8, steps 2, optimizer sgd(lr = 0.1) }
plan { rule sync, placement pipeline, order 1f1b, micro_batches 2, stages 2 }
"#;

#[test]
fn ties_stand_in_the_rows_of_plans() {
    let scratch = Scratch::new("tied-rows");
    let rows = |name: &str, text: &str| {
        let program = scratch.file(name, text);
        document(roundelay("plan").arg(program), "plan")["plans"].take()
    };
    assert_eq!(rows("tied.rdl", TIED)[0]["ties"], json!([[0, 1]]));
    let apart = TIED.replace("weight = table, bias = false", "512");
    assert_eq!(rows("apart.rdl", &apart)[0]["ties"], json!([]));
}

/// There is no stage behind the last one.
#[test]
fn a_timeline_calls_the_update_of_a_tie_by_its_name() {
    let scratch = Scratch::new("tied-timeline");
    let schedule = compiled(&scratch, &scratch.file("tied.rdl", TIED), "tied.schedule");
    let shown = |form: &str| {
        let show = format!("show --as {form}");
        printed(roundelay(&show).arg(&schedule))
    };
    for form in ["grid", "html", "trace"] {
        let told = shown(form);
        assert!(told.contains("Ut0"), "{form}: {told}");
        assert!(!told.contains("U2"), "{form}: {told}");
    }
    for form in ["grid", "html"] {
        let told = shown(form);
        assert!(told.contains("; t0 what stages 0, 1 share"), "{form}: {told}");
    }
}
