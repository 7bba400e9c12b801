//! What a person asks of `plan` beyond the fastest step: other objectives, the front, two plans
//! side by side, what would make a plan fit, and what would change.

use crate::support::{Ended, Scratch, document, ended, printed, roundelay, schema};
use serde_json::Value;
use std::path::Path;

const PROGRAM: &str = r#"
model line {
    input x: real[batch, 32]
    input y: real[batch, 32]
    loss mse(linear(relu(linear(x, 32)), 32), y)
}
device core { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s, price 2.5 USD/h }
link bus { bandwidth 1 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train { data synthetic, batch 8, optimizer sgd(lr = 0.1) }
plan { exactness delayed }
"#;

fn planned(program: &Path, set: &[&str]) -> Value {
    let mut command = roundelay("plan --top 1");
    command.arg(program);
    command.args(set.iter().flat_map(|line| ["--set", line]));
    document(&mut command, "plan")
}

/// Settings with lines of an answer in place of those that set the same keys.
fn with<'a>(own: &[&'a str], lines: &[&'a str]) -> Vec<&'a str> {
    let key = |line: &'a str| line.split([' ', '=', '<']).next();
    let kept = own.iter().filter(|own| lines.iter().all(|line| key(line) != key(own)));
    kept.chain(lines).copied().collect()
}

fn refused(command: &mut std::process::Command, words: &[&str]) -> Ended {
    let ended = ended(command);
    assert_ne!(ended.code, 0, "{command:?}: {}", ended.out);
    for word in words {
        assert!(ended.err.contains(word), "no `{word}` in {}", ended.err);
    }
    ended
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_step_costs_its_time_at_the_prices_of_its_devices() {
    let scratch = Scratch::new("cost");
    let program = scratch.file("line.rdl", PROGRAM);
    let found = planned(&program, &["minimize = cost"]);
    assert_eq!(found["objective"], "cost");
    let first = &found["plans"][0];
    let hours = number(&first["step_time_s"]) / 3600.0;
    let expected = hours * number(&first["devices"]) * 2.5;
    let cost = number(&first["cost_per_step_usd"]);
    assert!((cost / expected - 1.0).abs() < 1e-6, "{cost} is not {expected}");
    let million = number(&first["cost_per_million_samples_usd"]);
    assert!((million / (cost * 1e6 / 8.0) - 1.0).abs() < 1e-6, "{million}");
    let text = printed(roundelay("plan --set minimize=cost").arg(&program));
    assert!(text.contains("cost/step") && text.contains("USD"), "{text}");
    let free = scratch.file("free.rdl", &PROGRAM.replace(", price 2.5 USD/h", ""));
    let words = ["device `core` has no price", "write `price 2.5 USD/h`", "--set:1:1"];
    refused(roundelay("plan --set minimize=cost").arg(&free), &words);
    let plain = &planned(&free, &[])["plans"][0];
    assert!(plain.get("cost_per_step_usd").is_none());
}

#[test]
fn time_to_result_needs_its_constants_and_weighs_delays_with_them() {
    let scratch = Scratch::new("result");
    let program = scratch.file("line.rdl", PROGRAM);
    let words = ["least_steps, critical_batch, staleness", "result { least_steps 1000"];
    refused(roundelay("plan --set minimize=time_to_result").arg(&program), &words);
    let with = |staleness: &str| {
        let staleness = format!("result.staleness = {staleness}");
        let set = [
            "minimize = time_to_result",
            "result.least_steps = 1000",
            "result.critical_batch = 16",
            &staleness,
        ];
        planned(&program, &set)["plans"][0].clone()
    };
    let strict = with("1000");
    assert_eq!(
        (&strict["staleness"], &strict["steps_to_result"]),
        (&0.into(), &3000.into())
    );
    let time = number(&strict["time_to_result_s"]);
    assert!((time - 3000.0 * number(&strict["step_time_s"])).abs() < 1e-6, "{time}");
    let careless = with("0");
    assert!(number(&careless["time_to_result_s"]) <= time);
    assert_eq!(careless["steps_to_result"], 3000);
}

#[test]
fn the_front_goes_down_in_memory_or_devices() {
    let scratch = Scratch::new("front");
    // Few enough plans that all of them can be looked at.
    let program = scratch.file("line.rdl", &PROGRAM.replace("batch 8", "batch 4"));
    let found = document(roundelay("plan --pareto").arg(&program), "plan");
    let front = &found["front"];
    assert_eq!(front["complete"], true);
    let plans = front["plans"].as_array().expect("the schema holds");
    let point = |plan: &Value| {
        ["step_time_s", "device_peak_bytes", "devices"].map(|key| number(&plan[key]))
    };
    let points: Vec<[f64; 3]> = plans.iter().map(point).collect();
    assert!(points.len() > 2, "{points:?}");
    for (k, one) in points.iter().enumerate() {
        for other in points.iter().skip(k + 1) {
            assert!(one[0] <= other[0] && (other[1] < one[1] || other[2] < one[2]));
        }
    }
    assert_eq!(points[0][0], number(&found["plans"][0]["step_time_s"]));
    let text = printed(roundelay("plan --pareto").arg(&program));
    assert!(
        text.contains("no other beats") && text.contains("none is missing"),
        "{text}"
    );
}

#[test]
fn two_plans_stand_side_by_side() {
    let scratch = Scratch::new("diff");
    let program = scratch.file("line.rdl", PROGRAM);
    let written = |name: &str, set: &str| {
        let path = scratch.path(name);
        printed(roundelay("plan -o").arg(&path).arg(&program).args(["--set", set]));
        path
    };
    let one = written("a.yaml", "placement accumulate");
    let other = written("b.yaml", "placement pipeline");
    let diff = || {
        let mut command = roundelay("plan --diff");
        command.arg(&one).arg(&other);
        command
    };
    let text = printed(&mut diff());
    assert!(text.contains("placement") && text.contains("accumulate"), "{text}");
    assert!(!text.contains("step time"), "{text}");
    let bare = document(&mut diff(), "diff");
    assert!(bare.get("costs").is_none());
    let both = document(diff().arg(&program), "diff");
    assert_eq!(bare["decisions"], both["decisions"]);
    let alone = planned(&program, &["placement pipeline"]);
    let second = &both["costs"]["second"];
    assert_eq!(second["step_time_s"], alone["plans"][0]["step_time_s"]);
    assert_eq!(second["memory"], alone["plans"][0]["memory"]);
    let text = printed(diff().arg(&program));
    for word in ["step time", "peak memory", "sent per device", "bubble", "cost/step"] {
        assert!(text.contains(word), "{text}");
    }
    let same = printed(roundelay("plan --diff").arg(&one).arg(&one));
    assert_eq!(same, "the plans are the same\n");
}

#[test]
fn plans_that_cannot_be_compared_are_refused_with_the_place() {
    let scratch = Scratch::new("diff-mistakes");
    let program = scratch.file("line.rdl", PROGRAM);
    let plan = scratch.path("a.yaml");
    printed(roundelay("plan --set stages=2 -o").arg(&plan).arg(&program));
    let text = std::fs::read_to_string(&plan).expect("it was written");
    let broken = scratch.file("b.yaml", &text.replace("rule: ", "rule: x"));
    let diff = |other: &Path| {
        let mut command = roundelay("plan --diff");
        command.arg(&plan).arg(other);
        command
    };
    assert_eq!(refused(&mut diff(&broken), &["b.yaml:1"]).code, 1);
    refused(&mut diff(&scratch.path("none.yaml")), &["none.yaml", "No such file"]);
    assert_eq!(refused(roundelay("plan --diff").arg(&plan), &["2 values"]).code, 2);
    assert_eq!(refused(&mut roundelay("plan"), &["<FILE>"]).code, 2);
    let set = refused(diff(&plan).args(["--set", "stages=2"]), &["needs a program"]);
    assert_eq!(set.code, 2);
    for file in [None, Some(&program)] {
        let mut twice = diff(&plan);
        twice.arg("--diff").args([&plan, &plan]).args(file);
        assert_eq!(refused(&mut twice, &["cannot be used multiple times"]).code, 2);
    }
    let mut decided = diff(&plan);
    decided.arg(&program).args(["--set", "rule = cyclic_v2"]);
    let words = ["`--set \"rule = cyclic_v2\"` is for a search", "plans of `--diff`"];
    assert_eq!(refused(&mut decided, &words).code, 2);
    let allowed = ["--set", "memory <= 1 GB", "--set", "exactness = local"];
    printed(diff(&plan).arg(&program).args(allowed));
    let top = refused(diff(&plan).args(["--top", "3"]), &["cannot be used with"]);
    assert_eq!(top.code, 2);
    let tight = ["--set", "memory <= 1 kB"];
    let words = ["a.yaml", "cannot be costed", "are missing"];
    assert_eq!(refused(diff(&plan).arg(&program).args(tight), &words).code, 1);
    let odd = scratch.file("odd.yaml", &text.replace("stages: 2", "stages: 3"));
    refused(diff(&odd).arg(&program), &["odd.yaml"]);
}

#[test]
fn every_change_that_makes_a_plan_fit_does() {
    let scratch = Scratch::new("repairs");
    let program = scratch.file("line.rdl", PROGRAM);
    let tight = ["--set", "memory <= 4 kB", "--set", "states = replicated"];
    let ended = refused(
        roundelay("plan --json").arg(&program).args(tight),
        &["each of these makes one fit", "- memory <= "],
    );
    assert_eq!(ended.code, 1);
    let told: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    schema::hold("diagnostics", &told);
    let repairs = told["diagnostics"][0]["repairs"].as_array().expect("there are some");
    for repair in repairs {
        let lines = repair["lines"].as_array().expect("the schema holds");
        let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
        let set = with(&["memory <= 4 kB", "states = replicated"], &lines);
        let found = planned(&program, &set);
        assert_eq!(found["plans"][0]["step_time_s"], repair["step_time_s"], "{lines:?}");
    }
}

#[test]
fn a_shared_memory_that_grows_gives_devices_what_they_may_take() {
    let scratch = Scratch::new("shared");
    let text = PROGRAM.replace("memory 1 GB", "memory 60 kB");
    let text = text.replace("joined by bus }", "joined by bus sharing 8 kB }");
    let program = scratch.file("line.rdl", &text);
    let words = ["no plan fits", "two.sharing = "];
    let ended = refused(roundelay("plan --json").arg(&program), &words);
    assert!(!ended.err.contains("core.memory"), "{}", ended.err);
    let roomy = scratch.file("roomy.rdl", &text.replace("sharing 8", "sharing 90"));
    let found = planned(&program, &["two.sharing = 90 kB"]);
    assert_eq!(found["plans"], planned(&roomy, &[])["plans"]);
}

#[test]
fn every_number_of_explain_is_found_again_with_set() {
    let scratch = Scratch::new("explain");
    let program = scratch.file("line.rdl", PROGRAM);
    let own = ["--set", "memory <= 18 kB"];
    let text = printed(roundelay("plan --explain").arg(&program).args(own));
    let lines = text.lines().filter_map(|line| line.split_once(" <- --set "));
    let mut found = 0;
    for (said, set) in lines {
        let set: Vec<&str> = set.trim_matches('"').split("\" --set \"").collect();
        let set = with(&["memory <= 18 kB"], &set);
        let mut command = roundelay("plan --top 1");
        command.arg(&program);
        command.args(set.iter().flat_map(|line| ["--set", line]));
        if said.ends_with(": no plan") {
            refused(&mut command, &["no plan fits"]);
            continue;
        }
        let table = printed(&mut command);
        let (_, rest) = said.split_once("step time ").expect("answers have a time");
        let (time, rest) = rest.split_once(" (").expect("and a share");
        let (_, rest) = rest.split_once("peak memory ").expect("and memory");
        let (peak, _) = rest.split_once(" (").expect("and its share");
        let row = table.lines().nth(1).expect("a plan is first");
        assert!(row.contains(&format!("  {time}  ")), "{said}\n{set:?}\n{table}");
        assert!(row.contains(&format!("  {peak}  ")), "{said}\n{set:?}\n{table}");
        found += 1;
    }
    assert!(found > 6, "{text}");
    for asked in ["4 GB more", "link bus twice as fast", "one device fewer", "runner-up"]
    {
        assert!(text.contains(asked), "{text}");
    }
    let told = document(roundelay("plan --explain").arg(&program).args(own), "plan");
    let rows = |part: &str| told["explain"][part].as_array().map_or(0, Vec::len);
    assert!(rows("what_if") + rows("turns") >= found);
}

/// Where all families are open, table and document have the best plan of each, and say when each
/// comes first.
#[test]
fn families_stand_side_by_side_with_their_exactness() {
    let scratch = Scratch::new("families");
    let program = scratch.file("line.rdl", &PROGRAM.replace("2 x core", "4 x core"));
    let grids = ["--set", "tensor.columns = 1 | 2"];
    let open = ["--set", "exactness = local", "--top", "1", "--explain"];
    let open: Vec<&str> = open.into_iter().chain(grids).collect();
    let text = printed(roundelay("plan").arg(&program).args(&open));
    for told in [
        "  exactness  ",
        "Best plan of each approach:\n   1  ",
        "      # synchronous\n",
        "      # cyclic, tensors in rows\n",
        "      # synchronous, tensors on a grid\n",
        "when each approach comes first, by planning again:\n",
        "link bus 16 times slower: ",
        "1/2 of the memory of each device: ",
    ] {
        assert!(text.contains(told), "{told}:\n{text}");
    }
    let told = document(roundelay("plan").arg(&program).args(&open), "plan");
    let rows = told["approaches"].as_array().expect("the schema holds");
    let times = rows.iter().filter_map(|row| row["plan"]["step_time_s"].as_f64());
    assert!(rows.len() > 2 && times.is_sorted(), "{rows:?}");
    assert_eq!(rows[0]["plan"]["cuts"], told["plans"][0]["cuts"]);
    let turns = told["explain"]["turns"].as_array().expect("the schema holds");
    assert_eq!(turns.len(), 6, "four rates of the bus and two parts of the memory");
    let strict = roundelay("plan --set exactness=reordered --json")
        .arg(&program)
        .output()
        .expect("the binary starts");
    let strict = String::from_utf8_lossy(&strict.stdout).into_owned();
    assert!(strict.contains("\"plans\"") && !strict.contains("approaches"), "{strict}");
}

/// A grid is pinned by `--set`, stands in the document, the plan file and the schedule, and is
/// refused with what would do instead.
#[test]
fn a_grid_is_pinned_written_and_read_again() {
    let scratch = Scratch::new("grid");
    let four = PROGRAM.replace("2 x core", "4 x core");
    let program = scratch.file("line.rdl", &four);
    let grid = ["tensor.rows=2", "tensor.columns=2", "placement=accumulate"];
    let found = planned(&program, &grid);
    let tensor = &found["plans"][0]["tensor"];
    assert_eq!(
        (&tensor["rows"], &tensor["columns"], &tensor["depth"]),
        (&Value::from(2), &Value::from(2), &Value::from(1))
    );
    let notes = found["notes"].to_string();
    assert!(notes.contains("local rules were not searched"), "{notes}");
    let [plan, schedule] = ["plan.yaml", "line.schedule"].map(|name| scratch.path(name));
    let mut command = roundelay("plan");
    command.arg(&program).args(grid.iter().flat_map(|line| ["--set", line]));
    let _ = printed(command.arg("-o").arg(&plan));
    let text = std::fs::read_to_string(&plan).expect("it was written");
    assert!(text.contains("tensor:\n  rows: 2\n  columns: 2\n"), "{text}");
    let mut command = roundelay("compile");
    command.arg(&program).arg("--plan").arg(&plan).arg("-o").arg(&schedule);
    let _ = printed(&mut command);
    let _ = printed(roundelay("check").arg(&schedule));
    let wide = text.replace("columns: 2", "columns: 3");
    let other = scratch.file("wide.yaml", &wide);
    let mut command = roundelay("compile");
    let six = scratch.file("six.rdl", &four.replace("4 x core", "6 x core"));
    command.arg(&six).arg("--plan").arg(&other).arg("-o").arg(&schedule);
    let words = ["32 input features do not divide among 3 tensor columns", "what fits: "];
    refused(&mut command, &words);
    let huge = text.replace("columns: 2", "columns: 4000000000");
    let other = scratch.file("huge.yaml", &huge);
    let mut command = roundelay("compile");
    command.arg(&program).arg("--plan").arg(&other).arg("-o").arg(&schedule);
    refused(&mut command, &["it needs 4294967295 devices, the cluster has 4"]);
    let chosen = four.replace("input x: real[batch, 32]", "input i: real[batch, 4, 32]");
    let chosen = chosen.replace("relu(linear(x, 32))", "select(i, 0)");
    let chosen = scratch.file("chosen.rdl", &chosen);
    let mut command = roundelay("compile");
    command.arg(&chosen).arg("--plan").arg(&plan).arg("-o").arg(&schedule);
    let words = ["tensor columns do not split the choice of a position"];
    refused(&mut command, &words);
    let mut command = roundelay("plan --set tensor.rows=2 --set tensor.columns=2");
    refused(command.arg(&chosen), &words);
}

/// Columns gather where that is asked for, and shares of the tokens stand beside columns.
#[test]
fn ways_to_multiply_are_pinned_written_and_read_again() {
    let scratch = Scratch::new("ways");
    let program = scratch.file("line.rdl", &PROGRAM.replace("2 x core", "4 x core"));
    let grid = |more: &'static str| {
        ["tensor.rows=1", "tensor.columns=2", "placement=accumulate", more]
    };
    let said = [
        ("contraction: gather", "gather", "tensor.contraction=gather"),
        ("sequence: split", "each", "sequence=split"),
    ];
    for (written, contraction, line) in said {
        let found = planned(&program, &grid(line));
        assert_eq!(found["plans"][0]["tensor"]["contraction"], Value::from(contraction));
        let [plan, schedule] =
            ["plan.yaml", "line.schedule"].map(|name| scratch.path(name));
        let mut command = roundelay("plan");
        command.arg(&program).args(grid(line).iter().flat_map(|line| ["--set", line]));
        let _ = printed(command.arg("-o").arg(&plan));
        let text = std::fs::read_to_string(&plan).expect("it was written");
        assert!(text.contains(written), "{text}");
        let mut command = roundelay("compile");
        command.arg(&program).arg("--plan").arg(&plan).arg("-o").arg(&schedule);
        let _ = printed(&mut command);
        let _ = printed(roundelay("check").arg(&schedule));
        sends_maps_as_written((&program, &plan), &scratch, &text);
    }
    let mut command = roundelay("plan --set tensor.contraction=gather");
    command.args(["--set", "tensor.rows=2", "--set", "tensor.columns=2"]);
    let words = ["contraction gather is not for a grid of 2 x 2 with sequences whole"];
    refused(command.arg(&program), &words);
    let open = planned(&program, &[]);
    let tried = &open["space"]["tensor.contraction"]["values"];
    assert_eq!(*tried, Value::from(vec!["alternate"]));
}

/// A plan file sends maps ways by name; those that it lists are taken and no others, and a way that
/// does not fit is refused with what would.
fn sends_maps_as_written((program, plan): (&Path, &Path), scratch: &Scratch, text: &str) {
    let (before, maps) = text.split_once("\nmaps:\n").expect("its maps go some ways");
    let (way, sites) =
        maps.lines().next().and_then(|line| line.split_once(": ")).expect("a way");
    let schedule = scratch.path("maps.schedule");
    let compiled = |maps: &str| {
        let file = scratch.file("maps.yaml", &format!("{before}\nmaps:\n{maps}"));
        let mut command = roundelay("compile");
        command.arg(program).arg("--plan").arg(&file).arg("-o").arg(&schedule);
        command
    };
    let first = sites.split_whitespace().next().expect("a map");
    let _ = printed(&mut compiled(&format!("{way}: {first}\n")));
    let written = std::fs::read_to_string(&schedule).expect("it was written");
    let listed = written.lines().find(|line| line.trim_start().starts_with("maps:"));
    let listed = listed.unwrap_or_else(|| panic!("{plan:?} lists its maps"));
    assert!(listed.contains(way.trim()) && listed.contains(first), "{listed}");
    assert_eq!(listed.matches(": ").count(), 2, "{listed} has one way");
    let mut wrong = compiled("  rows_to_whole: o1\n");
    refused(
        &mut wrong,
        &["maps", "send o1 by rows_to_whole", "delete the operation from"],
    );
    let mut twice = compiled(&format!("{way}: {first}\n  whole_to_all: {first}\n"));
    refused(&mut twice, &[first, "goes two ways"]);
    let mut unfit = compiled(&format!("  rows_to_whole: {first}\n"));
    refused(&mut unfit, &["what fits: ", "no way, so that every part does all of it"]);
}

/// Rows split images where that is asked for, alone or beside whole ones, the plan file and the document say
/// so, it runs on the CPU, and what cannot be split is refused with what would do.
#[test]
fn split_images_are_pinned_written_read_again_and_run() {
    let scratch = Scratch::new("pixels");
    let two = "    input x: real[batch, 32]
    input y: real[batch, 32]
    loss mse(linear(relu(linear(x, 32)), 32), y)";
    let images = "    input x: real[batch, 12, 8, 3]
    input y: real[batch, 6, 4, 3]
    loss mse(conv2d(relu(batch_norm(conv2d(x, 4))), 3, stride = 2), y)";
    let four = PROGRAM.replace("2 x core", "4 x core").replace(two, images);
    let four = four.replace("sgd(lr = 0.1)", "sgd(lr = 0.1), steps 2");
    let program = scratch.file("images.rdl", &four);
    let split =
        ["images=split", "tensor.rows=2", "tensor.columns=1", "placement=accumulate"];
    let found = planned(&program, &split);
    assert_eq!(found["plans"][0]["images"], Value::from("split"));
    let both = ["images=whole | split", "tensor.rows=2", "placement=accumulate"];
    let both = planned(&program, &both);
    assert_eq!(both["space"]["images"]["values"], Value::from(vec!["whole", "split"]));
    let text = planned(&scratch.file("line.rdl", PROGRAM), &[]);
    assert_eq!(text["space"]["images"]["values"], Value::from(vec!["whole"]));
    let [plan, schedule] = ["plan.yaml", "line.schedule"].map(|name| scratch.path(name));
    let with = |lines: &[&'static str]| {
        let mut command = roundelay("plan");
        command.arg(&program).args(lines.iter().flat_map(|line| ["--set", line]));
        command
    };
    let table = printed(with(&split).arg("-o").arg(&plan));
    assert!(table.contains("2/px"), "{table}");
    let text = std::fs::read_to_string(&plan).expect("it was written");
    assert!(text.contains("tensor:\n  rows: 2\n  images: split\n"), "{text}");
    let mut command = roundelay("compile");
    command.arg(&program).arg("--plan").arg(&plan).arg("-o").arg(&schedule);
    let _ = printed(&mut command);
    let _ = printed(roundelay("check").arg(&schedule));
    let _ = printed(roundelay("run --device cpu").arg(&schedule));
    let columns = ["images=split", "tensor.rows=2", "tensor.columns=2"];
    let words = ["channels that columns divide beside pixels are not built"];
    refused(&mut with(&columns), &words);
    let odd = ["images=split", "tensor.rows=4", "tensor.columns=1"];
    let words = ["4 tensor rows do not divide images of 6 rows of pixels", "1, 2, 3, 6"];
    refused(&mut with(&odd), &words);
}

/// Depth is `states` and `shards`, said otherwise: the document has both, and what contradicts is
/// refused with what would do.
#[test]
fn depth_is_pinned_and_follows_from_states() {
    let scratch = Scratch::new("depth");
    let program = scratch.file("line.rdl", &PROGRAM.replace("2 x core", "8 x core"));
    let deep = ["tensor.rows=2", "tensor.columns=1", "tensor.depth=2", "devices=8"];
    let found = planned(&program, &deep);
    let first = &found["plans"][0];
    assert_eq!(
        (&first["tensor"]["depth"], &first["states"], &first["shards"]),
        (&Value::from(2), &Value::from("hsdp"), &Value::from(2))
    );
    let whole = ["states=zero3", "placement=accumulate", "tensor.rows=2", "devices=8"];
    let found = planned(&program, &whole);
    assert_eq!(found["plans"][0]["tensor"]["depth"], Value::from(4));
    assert_eq!(found["space"]["tensor.depth"]["values"], Value::from(vec!["4"]));
    let mut command = roundelay("plan --set states=replicated --set tensor.depth=2");
    let words = ["a depth of 1, which the program does not allow", "tensor { depth 1 }"];
    refused(command.arg(&program), &words);
    let plan = scratch.path("plan.yaml");
    let mut command = roundelay("plan");
    command.arg(&program).args(deep.iter().flat_map(|line| ["--set", line]));
    let _ = printed(command.arg("-o").arg(&plan));
    let text = std::fs::read_to_string(&plan).expect("it was written");
    assert!(text.contains("states: hsdp") && text.contains("shards: 2"), "{text}");
    let other =
        scratch.file("deep.yaml", &text.replace("  rows: 2", "  rows: 2\n  depth: 2"));
    let mut command = roundelay("compile");
    command.arg(&program).arg("--plan").arg(&other).arg("-o").arg(scratch.path("s"));
    refused(&mut command, &["unknown field `depth`", "as many `shards`"]);
}

/// Halves of a micro-batch are pinned by `--set`, stand in the document, the table, the plan file and
/// the schedule, train, and are refused with what would do instead.
#[test]
fn halves_of_a_micro_batch_are_pinned_written_and_trained() {
    let scratch = Scratch::new("overdecompose");
    let program = scratch.file("line.rdl", PROGRAM);
    let halves = ["tensor.rows=2", "tensor.overdecompose=2", "placement=accumulate"];
    let found = planned(&program, &halves);
    assert_eq!(found["plans"][0]["tensor"]["overdecompose"], Value::from(2));
    let tried = &found["space"]["tensor.overdecompose"]["values"];
    assert_eq!(*tried, Value::from(vec!["2"]));
    let [plan, schedule] = ["plan.yaml", "line.schedule"].map(|name| scratch.path(name));
    let mut command = roundelay("plan");
    command.arg(&program).args(halves.iter().flat_map(|line| ["--set", line]));
    let _ = printed(command.arg("-o").arg(&plan));
    let text = std::fs::read_to_string(&plan).expect("it was written");
    assert!(text.contains("overdecompose: 2"), "{text}");
    let mut command = roundelay("compile");
    command.arg(&program).arg("--plan").arg(&plan).arg("-o").arg(&schedule);
    let _ = printed(&mut command);
    let _ = printed(roundelay("check").arg(&schedule));
    let _ = printed(roundelay("run --device cpu --steps 2").arg(&schedule));
    for (wrong, words) in
        [("overdecompose: 3", "not in 3 parts"), ("overdecompose: 0", "not in 0 parts")]
    {
        let other = scratch.file("wrong.yaml", &text.replace("overdecompose: 2", wrong));
        let mut command = roundelay("compile");
        command.arg(&program).arg("--plan").arg(&other).arg("-o").arg(&schedule);
        refused(&mut command, &[words, "overdecompose 1"]);
    }
    let mut command = roundelay("plan --set tensor.overdecompose=2 --set tensor.rows=1");
    refused(
        command.arg(&program).args(["--set", "tensor.columns=1"]),
        &["let there be rows"],
    );
    let normed = PROGRAM.replace("relu(linear(x, 32))", "batch_norm(linear(x, 32))");
    let normed = scratch.file("normed.rdl", &normed);
    refused(
        roundelay("plan --set tensor.overdecompose=2").arg(&normed),
        &[
            "no plan fits: the model: ",
            "batch norm takes its statistics over all examples",
        ],
    );
}

/// What keeps a plan from being lowered is told on the line of the decision that it is about.
#[test]
fn a_decision_that_cannot_be_lowered_is_told_on_its_line() {
    let scratch = Scratch::new("unlowered");
    let program = scratch.file("line.rdl", PROGRAM);
    let plan = scratch.path("plan.yaml");
    let _ = printed(roundelay("plan").arg(&program).arg("-o").arg(&plan));
    let text = std::fs::read_to_string(&plan).expect("it was written");
    let at = text.find("rewrites:").expect("a map and its activation are one call");
    let line = text[..at].lines().count() + 1;
    let wrong = format!("{}rewrites:\n  affine_gelu: o1\n", &text[..at]);
    let wrong = scratch.file("wrong.yaml", &wrong);
    let mut command = roundelay("compile");
    command.arg(&program).arg("--plan").arg(&wrong).arg("-o").arg(scratch.path("s"));
    let place = format!("wrong.yaml:{line}");
    refused(&mut command, &["the plan rewrites o1 by affine_gelu", &place]);
}

/// Other cuts may be in its space; the first plan keeps its own where it is better with them.
#[test]
fn no_faster_link_makes_the_first_plan_slower() {
    let program = format!("{}/examples/pipeline.rdl", env!("CARGO_MANIFEST_DIR"));
    let text = printed(roundelay("plan --explain").arg(&program));
    let faster: Vec<&str> =
        text.lines().filter(|line| line.contains(" as fast: ")).collect();
    assert!(!faster.is_empty(), "{text}");
    for line in faster {
        let time = line.split(", peak memory").next().unwrap_or(line);
        assert!(!time.contains("(+") || time.contains("(+0.0 %"), "{line}");
    }
}
