//! `devices`: what this machine has, as a cluster file.

use super::{FORMAT, Form, args::DevicesArgs, failure::Failure, load, print, print_json};
use serde::Serialize;

#[derive(Serialize)]
struct Document {
    format: u32,
    cluster: String,
    missing: Vec<String>,
}

pub(super) fn devices(args: &DevicesArgs) -> Result<(), Failure> {
    let cluster = roundelay::machine();
    if let Some(path) = &args.output {
        load::write(path, &cluster)?;
    }
    if args.json {
        let absent = roundelay::gpus().err();
        let missing =
            absent.map(|absent| format!("cuda: {absent}")).into_iter().collect();
        return print_json(
            &Document { format: FORMAT, cluster, missing },
            Form::Document,
        );
    }
    print(&cluster)
}
