//! What documents say where not all is well: nothing that standard error has is missing in them.

use crate::support::{
    PROGRAM, Scratch, compiled, diagnostics, document, ended, printed, refused, root,
    roundelay,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A schedule in which nothing waits breaks more rules than anybody reads.
#[test]
fn violations_that_are_not_listed_are_counted() {
    let scratch = Scratch::new("unlisted");
    let program = root().join("examples/pipeline.rdl");
    let schedule = compiled(&scratch, &program, "whole.schedule");
    let text = fs::read_to_string(schedule).expect("it was written");
    let unbound = text.lines().map(|line| line.split("  after ").next());
    let unbound: Vec<&str> = unbound.flatten().collect();
    let broken = scratch.file("broken.schedule", &(unbound.join("\n") + "\n"));
    let told = diagnostics(roundelay("check --seal").arg(&broken), 1);
    let (last, listed) = told.split_last().expect("it breaks rules");
    let message = last["message"].as_str().expect("the schema holds");
    assert!(listed.len() >= 50 && message.ends_with(" are not listed"), "{message}");
    let said = ended(roundelay("check --seal").arg(&broken)).err;
    assert!(said.contains(message), "{said}");
}

/// A schedule of others, which says of every routine that it takes this long.
fn foretold(scratch: &Scratch, nanos: u64) -> PathBuf {
    let program = scratch.file("line.rdl", PROGRAM);
    let set = ["placement = accumulate", "stages = 1"].map(|set| ["--set", set]);
    let schedule = scratch.path("line.schedule");
    let mut compile = roundelay("compile -o");
    printed(compile.arg(&schedule).args(set.concat()).arg(program));
    let text = fs::read_to_string(&schedule).expect("it was written");
    let is_time = |line: &&str| line.trim_start().starts_with("predicted: ");
    let foretold = text.lines().map(|line| match is_time(&line) {
        true => format!("    predicted: {nanos}"),
        false => line.to_owned(),
    });
    let foretold: Vec<String> = foretold.collect();
    fs::write(&schedule, foretold.join("\n") + "\n").expect("it can be written");
    printed(roundelay("check --seal").arg(&schedule));
    schedule
}

#[test]
fn what_takes_no_time_has_no_rate() {
    let scratch = Scratch::new("timeless");
    let schedule = foretold(&scratch, 0);
    let found = document(roundelay("simulate").arg(&schedule), "simulate");
    assert_eq!(
        (&found["step_time_s"], &found["samples_per_s"]),
        (&0.0.into(), &().into())
    );
    let said = printed(roundelay("simulate").arg(&schedule));
    assert!(said.contains(" a step, bubble "), "{said}");
}

#[test]
fn what_takes_longer_than_can_be_counted_has_no_timeline() {
    let scratch = Scratch::new("uncounted");
    let schedule = foretold(&scratch, 9_000_000_000_000_000_000);
    for command in ["simulate", "simulate --steps 1", "show", "show --as html"] {
        let words =
            ["longer than the 584 years that are counted", "device core.0 computes"];
        refused(roundelay(command).arg(&schedule), 1, &words);
    }
    let told = diagnostics(roundelay("simulate").arg(&schedule), 1);
    assert_eq!(told[0]["code"], "limit");
}

/// Whatever warns on standard error stands in the document too.
#[test]
fn plans_of_other_programs_are_warned_of_in_a_comparison() {
    let scratch = Scratch::new("doubtful");
    let program = scratch.file("line.rdl", PROGRAM);
    let plan = scratch.path("plan.yaml");
    printed(roundelay("plan -o").arg(&plan).arg(&program));
    let diff = |program| {
        let mut command = roundelay("plan");
        command.arg("--diff").args([&plan, &plan]).arg(program);
        document(&mut command, "diff")
    };
    assert!(diff(&program).get("warnings").is_none());
    let other = PROGRAM.replace("model line", "model curve");
    let found = diff(&scratch.file("other.rdl", &other));
    assert_eq!(found["warnings"].as_array().map(Vec::len), Some(2), "{found}");
}

/// Of tokens in a file of 16 bits each.
const TOKENS: &str = r#"
model tokens {
    input tokens: i32[batch, 4]
    input targets: i32[batch, 4]
    loss cross_entropy(linear(embedding(tokens, 8, 4), 8), targets)
}
train { data tokens("tokens.bin", u16), batch 2, steps 1, optimizer sgd(lr = 0.1) }
"#;

/// Whoever mends what a document tells looks at the file that it names, not at the one that was run.
#[test]
fn what_is_wrong_is_told_of_the_file_at_fault_with_its_hint_apart() {
    let scratch = Scratch::new("at-fault");
    let line = scratch.file("line.rdl", PROGRAM);
    let line = compiled(&scratch, &line, "line.schedule");
    let program = scratch.file("tokens.rdl", TOKENS);
    let tokens = compiled(&scratch, &program, "tokens.schedule");
    let torn = scratch.file("tokens.bin", "an odd length");
    let [nowhere, folder] = ["nowhere", ""].map(|name| scratch.path(name));
    let within = nowhere.join("w.safetensors");
    let told = |words: &str, last: [&Path; 2], [code, hint]: [&str; 2], file: &Path| {
        let told = diagnostics(roundelay(words).args(last), 1);
        assert_eq!((told.len(), &told[0]["code"]), (1, &code.into()), "{told:?}");
        assert_eq!(told[0]["file"], file.display().to_string(), "{words}");
        assert_eq!(told[0]["hint"], hint, "{words}");
        let message = told[0]["message"].as_str().expect("the schema holds");
        assert!(!message.contains(hint), "{message}");
        let said = ended(roundelay(words).args(last)).err;
        assert!(said.starts_with("error: "), "{said}");
        assert!(said.ends_with(&format!("\n  hint: {hint}\n")), "{said}");
    };
    let read = "check that it exists and may be read";
    let weights = ["weights", read];
    told("run --device cpu --weights", [&nowhere, &line], weights, &nowhere);
    told("evaluate --device cpu --weights", [&nowhere, &line], weights, &nowhere);
    let named = ["checkpoint", "name the one that `run --checkpoint` wrote to"];
    told("evaluate --device cpu --checkpoint", [&nowhere, &line], named, &nowhere);
    let own = ["checkpoint", "name one for checkpoints"];
    told("run --device cpu --checkpoint", [&torn, &line], own, &torn);
    let room = ["file", "make it first, or name another file"];
    told("run --device cpu --save", [&within, &line], room, &within);
    let drawn = "drop --data, or name `text`, `tokens`, `cifar10` or `images` in `train`";
    told("run --device cpu --data", [&folder, &line], ["data", drawn], &line);
    let there = ["data", "name one that is there with --data DIR"];
    told("run --device cpu --data", [&nowhere, &tokens], there, &nowhere);
    told("run --device cpu --data", [&torn, &tokens], there, &torn);
    let cut = ["data", "the file is cut or its tokens have another width"];
    let [batches, table] = ["batches", "table.yaml"].map(|name| scratch.path(name));
    told("data -o", [&batches, &tokens], cut, &torn);
    told("profile --device cpu -o", [&table, &program], cut, &torn);
    fs::remove_file(&torn).expect("it is there");
    fs::create_dir(&torn).expect("a folder stands in its place");
    let below = "name a file in it, or, in `text`, all files below it by a pattern that ends with \
                 `/**`";
    told("data -o", [&batches, &tokens], ["data", below], &tokens);
}

#[test]
fn what_a_launcher_says_wrong_is_no_matter_of_gpus() {
    let scratch = Scratch::new("launched");
    let program = scratch.file("line.rdl", PROGRAM);
    let mut run = roundelay("run --device cpu");
    let told = diagnostics(run.arg(program).env("RANK", "x").env("WORLD_SIZE", "2"), 3);
    assert_eq!((&told[0]["code"], &told[0]["file"]), (&"ranks".into(), &"".into()));
    assert_eq!(told[0]["hint"], "it must be a number below 2, which is WORLD_SIZE");
}

/// A cluster that repeats a tier with a memory of its own has several of one name, and ten devices
/// are not between the first and the second one.
#[test]
fn pools_are_told_apart_and_devices_stand_in_their_order() {
    let scratch = Scratch::new("pools");
    let program = r#"
model line {
    input x: real[batch, 16]
    loss mse(linear(x, 16), x)
}
device core { memory 2 GB, compute 40 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster tiers {
    node = 6 x core joined by bus sharing 1 GB
    2 x node joined by bus
}
train { data synthetic, batch 12, steps 2, optimizer sgd(lr = 0.1) }
plan { exactness delayed, rule cyclic_v2, placement data, micro_batches 12, stages 1 }
"#;
    let program = scratch.file("tiers.rdl", program);
    let schedule = compiled(&scratch, &program, "tiers.schedule");
    let facts = document(roundelay("check").arg(&schedule), "check");
    let pools = facts["pools"].as_object().expect("the schema holds");
    assert!(pools.keys().eq(["node.0", "node.1"]), "{pools:?}");
    let planned = document(roundelay("plan").arg(&program), "plan");
    let taken = &planned["plans"][0]["pools"];
    for (pool, arena) in pools {
        assert_eq!(&taken[pool]["arena_bytes"], arena, "{taken}");
    }
    let run = printed(roundelay("run --json").arg(&schedule));
    assert!(run.contains("\"node.1\""), "{run}");
    let said = printed(roundelay("check").arg(&schedule));
    let cores = said.lines().filter_map(|line| line.strip_prefix("core."));
    let numbers = cores.filter_map(|line| line.split(':').next()?.parse::<u32>().ok());
    assert!(numbers.eq(0..12), "{said}");
}
