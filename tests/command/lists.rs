//! Lists of passes as a user meets them: what `check` says of a file, what `show --as csv` writes,
//! and lists that a program names.

use crate::support::{
    self, PROGRAM, Scratch, diagnostics, document, ended, lines, printed, roundelay,
    schema,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Two devices, two stages, four micro-batches.
const FIRST: &str = "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n";
const SECOND: &str = "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";

/// A device with three stages and one with one.
const UNEVEN: &str = "\
0F0,1F0,2F0,0F1,1F1,2F1,2B0,1B0,0B0,2B1,1B1,0B1
3F0,3I0,3W0,3F1,3I1,3W1
";

/// Two devices with two stages each, three micro-batches; whole and split backward passes beside
/// forward passes.
const PAIRED: &str = "\
0F0,0F1,2F0,(0F2;2B0)OVERLAP_F_B,2F1,2B1,(2F2;0I0;0W0)OVERLAP_F_B,2B2,0I1,0W1,0I2,0W2
1F0,1F1,3F0,3B0,(1F2;1B0)OVERLAP_F_B,3F1,3B1,(3F2;1B1)OVERLAP_F_B,3B2,1B2
";

/// What pipelines with a flush have on each device, with the shape that each is tried in.
const LISTABLE: [(&str, u32); 14] = [
    ("gpipe", 1),
    ("1f1b", 1),
    ("eager_1f1b", 1),
    ("zb_h1", 1),
    ("zb_h2", 1),
    ("zb_1p", 1),
    ("zb_2p", 1),
    ("zb_auto", 1),
    ("interleaved", 2),
    ("breadth_first", 2),
    ("zb_v", 2),
    ("v_half", 2),
    ("v_min", 2),
    ("wave", 2),
];

fn good() -> String {
    format!("{FIRST}{SECOND}")
}

/// The second line with its backward passes in halves.
fn halves() -> String {
    (0..4)
        .fold(good(), |text, i| text.replace(&format!("1B{i}"), &format!("1I{i},1W{i}")))
}

/// A program for two devices, with further words in its plan.
fn program(scratch: &Scratch, plan: &str) -> PathBuf {
    let text = format!(
        "model line {{
             input x: real[batch, 8]
             input y: real[batch, 8]
             repeat 4 as layer {{ x = x + linear(relu(linear(x, 8)), 8) }}
             loss mse(x, y)
         }}
         device core {{ memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }}
         link bus {{ bandwidth 8 GB/s, latency 2 us }}
         cluster two {{ 2 x core joined by bus }}
         train {{ data synthetic, batch 8, steps 4, seed 3, optimizer sgd(lr = 0.1) }}
         plan {{ exactness delayed, placement pipeline, {plan} }}"
    );
    scratch.file("line.rdl", &text)
}

fn compiled(scratch: &Scratch, program: &Path, settings: &[String]) -> PathBuf {
    let schedule = scratch.path("line.schedule");
    let mut command = roundelay("compile");
    command.arg(program).arg("-o").arg(&schedule);
    for setting in settings {
        command.args(["--set", setting]);
    }
    printed(&mut command);
    schedule
}

fn shown(schedule: &Path) -> String {
    printed(roundelay("show --as csv").arg(schedule))
}

/// The first diagnostic of a command that ends with 1.
fn refused(words: &str, file: &Path) -> Value {
    let ended = ended(roundelay(words).arg(file).arg("--json"));
    assert_eq!(ended.code, 1, "{words}: {}{}", ended.out, ended.err);
    let document: Value = serde_json::from_str(&ended.out).expect("refusals are JSON");
    schema::hold("diagnostics", &document);
    document["diagnostics"][0].clone()
}

fn assert_at(problem: &Value, place: (u64, u64), told: &str) {
    let (line, column) = (problem["line"].as_u64(), problem["column"].as_u64());
    assert_eq!((line, column), (Some(place.0), Some(place.1)), "{problem}");
    let message = problem["message"].as_str().expect("the schema holds");
    assert!(message.contains(told), "`{told}` is not in {problem}");
}

#[test]
fn check_prints_facts_of_good_lists() {
    let scratch = Scratch::new("lists-facts");
    let file = scratch.file("good.csv", &good());
    let facts = document(roundelay("check").arg(&file), "lists");
    let numbers = ["devices", "stages", "micro_batches", "passes", "span"];
    let numbers = numbers.map(|name| facts[name].as_u64().expect("the schema holds"));
    // The last device works without a pause from 1 to 13; the first one ends with a backward pass.
    assert_eq!(numbers, [2, 2, 4, 16, 15]);
    assert_eq!(facts["bubble"].as_f64(), Some(6.0 / 30.0));
    assert_eq!(facts["kept"], serde_json::json!([2, 1]));
    let text = printed(roundelay("check").arg(&file));
    for words in ["16 passes of 2 stages and 4 micro-batches", "20.0 % idle", "2, 1"] {
        assert!(text.contains(words), "`{words}` is not in {text}");
    }
}

/// Whatever stands in a file that is called one of lists.
#[test]
fn what_is_no_lists_at_all_is_refused_in_few_words() {
    let scratch = Scratch::new("lists-none");
    let words = "these,are,no,passes\n".repeat(1_000);
    let told = diagnostics(roundelay("check").arg(scratch.file("words.csv", &words)), 1);
    assert_eq!(told.len(), 1_001);
    let last = told[1_000]["message"].as_str().expect("the schema holds");
    assert!(last.ends_with(" further mistakes are not listed"), "{last}");
    let program = scratch.file("line.rdl", PROGRAM);
    let schedule = support::compiled(&scratch, &program, "s.csv");
    let told = diagnostics(roundelay("check").arg(schedule), 1);
    assert_eq!(told[0]["message"], "this is a schedule file, not lists of passes");
}

#[test]
fn check_refuses_each_fault_at_its_place() {
    let scratch = Scratch::new("lists-faults");
    let (good, halves) = (good(), halves());
    let alone = SECOND.replace(",1F3,1B3", "");
    for (text, place, told) in [
        (good.replace("1F0,1B0", "1B0,1F0"), (2, 1), "1B0 stands above 1F0"),
        (good.replace(",1B3", ""), (2, 1), "1B3 is missing"),
        (good.replace(",1F3,1B3", ""), (2, 1), "and one more pass of its stage"),
        (halves.replace("1I0,1W0", "1W0,1I0"), (2, 5), "1W0 stands above 1I0"),
        (halves.replace(",1W2", ""), (2, 1), "1W2 is missing"),
        (halves.replace("1I2,1W2", "1B2"), (2, 29), "whole and split"),
        (good.replace(",0B3", ""), (1, 1), "0B3 is missing"),
        (format!("{},1F3,1B3\n{alone}", FIRST.trim()), (2, 1), "on device 0 too"),
        (
            format!("{FIRST}1F3,1B3,1F2,1B2,1F1,1B1,1F0,1B0\n"),
            (1, 9),
            "0B0 waits for 1B0",
        ),
        (good.replace("1F1", "9F1"), (2, 9), "9F1 names stage 9"),
        (good.replace("1F3,1B3", "1F7,1B7"), (2, 25), "1F7 names micro-batch 7"),
        (good.replace("1F0", "1F0xyz"), (2, 1), "`1F0xyz`"),
        (good.replace("1F0", "1FOO"), (2, 1), "`1FOO`"),
        (good.replace("1F1", "1F-1"), (2, 9), "`1F-1`"),
        (good.replace("1B3", "1BATCH3"), (2, 29), "`1BATCH3`"),
        (good.replace("1F1", "1F1,1F1"), (2, 13), "1F1 stands twice"),
        (format!("{good}{SECOND}"), (3, 1), "stage 1 is on device 1 too"),
        (format!("{FIRST}\n{SECOND}"), (2, 1), "an empty line"),
        (format!("# by hand\n{good}"), (1, 1), "`# by hand`"),
        (format!("device 0,device 1\n{good}"), (1, 1), "`device 0`"),
        (good.replace("0F0,", "0F0,0SEND_F0,"), (1, 5), "`0SEND_F0` is communication"),
        (good.replace("1F0", "(1F0;1B0"), (2, 1), "`(1F0;1B0`"),
        (String::new(), (1, 1), "the file lists no pass"),
    ] {
        let file = scratch.file("fault.csv", &text);
        assert_at(&refused("check", &file), place, told);
        let said = ended(roundelay("check").arg(&file)).err;
        let at = format!("fault.csv:{}:{}", place.0, place.1);
        assert!(said.contains(&at), "`{at}` is not in {said}");
    }
}

/// Whoever has lists from elsewhere does not know that their name counts.
#[test]
fn lists_that_are_named_otherwise_are_told_how_they_are_named() {
    let scratch = Scratch::new("lists-named");
    for text in [good(), format!(",, {PAIRED}"), UNEVEN.replace("1F0", "1F0x")] {
        let file = scratch.file("lists.txt", &text);
        let problem = refused("check", &file);
        assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("`.csv`")));
        assert_eq!(problem["message"], "these are lists of passes, not a schedule file");
    }
}

#[test]
fn shown_lists_read_back() {
    let scratch = Scratch::new("lists-shown");
    let program = program(&scratch, "rule sync");
    for (order, chunks) in LISTABLE {
        let settings = [
            format!("order={order}"),
            format!("chunks={chunks}"),
            format!("stages={}", 2 * chunks),
            "micro_batches=4".to_owned(),
        ];
        let text = shown(&compiled(&scratch, &program, &settings));
        let file = scratch.file("shown.csv", &text);
        let facts = document(roundelay("check").arg(&file), "lists");
        let numbers = ["devices", "stages", "micro_batches"].map(|n| facts[n].as_u64());
        let expected = [2, 2 * u64::from(chunks), 4].map(Some);
        assert_eq!(numbers, expected, "{order}: {text}");
    }
}

#[test]
fn listed_orders_compile_and_replay() {
    let scratch = Scratch::new("lists-replay");
    for (text, same) in [(good(), Some("1f1b")), (UNEVEN.to_owned(), None)] {
        scratch.file("mine.csv", &text);
        let program = program(&scratch, "rule sync, order listed(\"mine.csv\")");
        let schedule = compiled(&scratch, &program, &[]);
        assert_eq!(shown(&schedule), text);
        let run = || printed(roundelay("run --json --steps 2").arg(&schedule));
        let losses = |text: &str| -> Vec<Value> {
            let lines = lines(text).into_iter().filter(|line| line["event"] == "step");
            lines.map(|line| line["loss"].clone()).collect()
        };
        let ours = losses(&run());
        assert_eq!(ours.len(), 2, "{ours:?}");
        let Some(order) = same else { continue };
        let settings =
            [format!("order={order}"), "stages=2".into(), "micro_batches=4".into()];
        let program = self::program(&scratch, "rule sync");
        compiled(&scratch, &program, &settings);
        assert_eq!(losses(&run()), ours, "the same passes give the same bits");
    }
}

/// Paths of the command line start where the command was called.
#[test]
fn lists_are_named_on_the_command_line() {
    let scratch = Scratch::new("lists-set");
    let program = program(&scratch, "rule sync");
    let lists = scratch.file("lists/mine.csv", UNEVEN);
    let folder = lists.parent().expect("it lies in one");
    let schedule = scratch.path("line.schedule");
    let set = |command: &str| {
        let mut command = roundelay(command);
        command.current_dir(folder).arg(&program);
        command.args(["--set", "order = listed(\"mine.csv\")"]);
        command
    };
    printed(set("compile").arg("-o").arg(&schedule));
    assert_eq!(shown(&schedule), UNEVEN);
    scratch.file("lists/mine.csv", &good().replace("1F2", "1F2x"));
    let found = ended(&mut set("plan"));
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.err.contains("mine.csv:2:17"), "{}", found.err);
    std::fs::remove_file(&lists).expect("it is there");
    let found = ended(&mut set("plan"));
    assert_eq!(found.code, 1, "{found:?}");
    assert!(
        found.err.contains("those of `--set` to the working folder"),
        "{}",
        found.err
    );
}

/// What lists say of stages and micro-batches goes where another order stands in their place.
#[test]
fn an_order_that_is_set_takes_the_place_of_lists() {
    let scratch = Scratch::new("lists-replaced");
    scratch.file("good.csv", &good());
    let other = scratch.file("other.csv", UNEVEN);
    let ranked = |file: &Path, settings: &[&str]| {
        let mut command = roundelay("plan");
        command.arg(file).current_dir(other.parent().expect("it lies in a folder"));
        settings.iter().for_each(|setting| _ = command.args(["--set", setting]));
        document(&mut command, "plan")["plans"].clone()
    };
    for order in ["gpipe", "gpipe | listed(\"good.csv\")", "listed(\"other.csv\")"] {
        let written = ranked(&program(&scratch, &format!("order {order}")), &[]);
        let listed = program(&scratch, "order listed(\"good.csv\")");
        let set = ranked(&listed, &[&format!("order = {order}")]);
        assert_eq!(set, written, "{order}");
        assert!(set.as_array().is_some_and(|plans| !plans.is_empty()), "{set}");
    }
}

/// Lists and cuts that are pinned must make as many stages.
#[test]
fn lists_of_other_stages_than_cuts_are_refused() {
    let scratch = Scratch::new("lists-cuts");
    scratch.file("good.csv", &good());
    let told = "the lists of `order` do not have 3 stages";
    let text = "cuts [2, 4], order listed(\"good.csv\")";
    let problem = refused("plan", &program(&scratch, text));
    assert!(problem["message"].as_str().is_some_and(|m| m.contains(told)), "{problem}");
    let open = program(&scratch, "order listed(\"good.csv\")");
    let found = ended(roundelay("plan").arg(&open).args(["--set", "cuts = [2, 4]"]));
    assert!(found.code == 1 && found.err.contains(told), "{}", found.err);
}

#[test]
fn lists_of_two_files_are_refused() {
    let scratch = Scratch::new("lists-two");
    scratch.file("good.csv", &good());
    let both = "order listed(\"good.csv\") | 1f1b | listed(\"good.csv\")";
    let problem = refused("plan", &program(&scratch, both));
    assert_eq!(problem["message"], "a plan takes the lists of one file");
    let text = problem["source"].as_str().unwrap_or_default();
    let column = problem["column"].as_u64().expect("the schema holds") as usize;
    assert!(text.is_empty() || text[column - 1..].starts_with("listed"), "{problem}");
}

/// Lists say which stages a device has, so no number of chunks makes another plan of them.
#[test]
fn a_listed_plan_stands_in_the_table_once() {
    let scratch = Scratch::new("listed-once");
    scratch.file("good.csv", &good());
    let program = program(&scratch, "order listed(\"good.csv\")");
    let found = document(roundelay("plan").arg(&program), "plan");
    let mut plans = found["plans"].as_array().expect("the schema holds").clone();
    assert!(!plans.is_empty(), "{found}");
    for plan in &mut plans {
        let fields = plan.as_object_mut().expect("the schema holds");
        for own in ["rank", "chunks"] {
            fields.remove(own);
        }
    }
    for (number, plan) in plans.iter().enumerate() {
        assert!(!plans[..number].contains(plan), "{plan}");
    }
}

/// Spreadsheets write a mark before the first cell, and names in capitals.
#[test]
fn lists_of_a_spreadsheet_are_read() {
    let scratch = Scratch::new("lists-marked");
    let marked = format!("\u{feff}{}", good());
    let capitals = scratch.file("T.CSV", &marked);
    assert_eq!(document(roundelay("check").arg(&capitals), "lists")["passes"], 16);
    let program = program(&scratch, "rule sync, order listed(\"T.CSV\")");
    let schedule = compiled(&scratch, &program, &[]);
    assert_eq!(shown(&schedule), good());
    scratch.file("T.CSV", &marked.replace("0F1", "0F1x"));
    for found in [refused("plan", &program), refused("check", &capitals)] {
        assert_at(&found, (1, 5), "`0F1x`");
    }
}

#[test]
fn a_wrong_list_of_a_program_is_reported_at_its_cell() {
    let scratch = Scratch::new("lists-program");
    let program = program(&scratch, "rule sync, order listed(\"mine.csv\")");
    scratch.file("mine.csv", &good().replace("1F2", "1F2x"));
    let problem = refused("plan", &program);
    assert_at(&problem, (2, 17), "`1F2x`");
    assert!(
        problem["file"].as_str().is_some_and(|f| f.ends_with("mine.csv")),
        "{problem}"
    );
    let said = ended(roundelay("plan").arg(&program)).err;
    for words in ["mine.csv:2:17", "line.rdl:"] {
        assert!(said.contains(words), "`{words}` is not in {said}");
    }
}

#[test]
fn schedules_that_no_lists_say_are_refused() {
    let scratch = Scratch::new("lists-refused");
    for (settings, why) in [
        (&["rule=cyclic_v2", "order=cyclic"], "passes of several training steps"),
        (&["rule=sync", "order=chimera"], "stage 0 is on several devices"),
        (&["rule=sync", "order=dualpipe"], "stage 0 is on several devices"),
        (&["rule=sync", "order=dualpipe_paired"], "stage 0 is on several devices"),
        (&["exactness=local", "rule=local(units = 2)"], "units of `local(units = 2)`"),
        (&["exactness=local", "rule=pairwise(units = 2)"], "units of `pairwise(units"),
    ] {
        let program = program(&scratch, "stages 2, micro_batches 4");
        let settings = settings.map(str::to_owned);
        let schedule = compiled(&scratch, &program, &settings);
        let ended = ended(roundelay("show --as csv").arg(&schedule));
        assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{settings:?}");
        assert!(ended.err.contains(why), "{settings:?}: {}", ended.err);
    }
}

/// Pairs that a program names are planned, proved, and written again as they were; a wrong one is
/// told at its cell.
#[test]
fn pairs_of_a_program_come_back_and_wrong_ones_are_told() {
    let scratch = Scratch::new("lists-pairs");
    scratch.file("mine.csv", PAIRED);
    let named = program(&scratch, "rule sync, order listed(\"mine.csv\")");
    let batch = std::fs::read_to_string(&named).expect("it was written");
    let named = scratch.file("line.rdl", &batch.replace("batch 8, ", "batch 6, "));
    let schedule = compiled(&scratch, &named, &[]);
    assert_eq!(shown(&schedule), PAIRED);
    let text = std::fs::read_to_string(&schedule).expect("it was written");
    assert_eq!(text.matches(" beside a").count(), 5);
    printed(roundelay("check").arg(&schedule));
    for (from, to, told) in [
        ("(0F2;2B0)", "(0F2;2B2)", "2B2 needs 0F2, which stands beside it"),
        ("(0F2;2B0)", "(0F2;2F1)", "a pair is a forward pass and a backward pass"),
    ] {
        scratch.file("mine.csv", &PAIRED.replace(from, to));
        let problem = refused("plan", &named);
        assert_eq!(problem["line"], 1, "{problem}");
        let message = problem["message"].as_str().expect("the schema holds");
        assert!(message.contains(told), "`{told}` is not in {problem}");
    }
}

/// A plan file carries its lists: the program need not name them.
#[test]
fn a_plan_file_brings_its_own_lists() {
    let scratch = Scratch::new("lists-plan");
    scratch.file("mine.csv", UNEVEN);
    let named = program(&scratch, "rule sync, order listed(\"mine.csv\")");
    let plan = scratch.path("line.yaml");
    printed(roundelay("plan").arg(&named).arg("-o").arg(&plan));
    let plain = program(&scratch, "rule sync");
    let schedule = scratch.path("line.schedule");
    let mut compile = roundelay("compile");
    printed(compile.arg(&plain).arg("--plan").arg(&plan).arg("-o").arg(&schedule));
    assert_eq!(shown(&schedule), UNEVEN);
}

#[test]
fn a_file_whose_order_does_not_fit_its_numbers_is_refused() {
    let scratch = Scratch::new("lists-numbers");
    let program = program(&scratch, "rule sync");
    let settings = ["order=chimera".into(), "micro_batches=4".into()];
    let schedule = compiled(&scratch, &program, &settings);
    let text = std::fs::read_to_string(schedule).expect("it was written");
    let wrong = text.replace("  stages: 2\n", "  stages: 2\n  chunks: 9\n");
    assert_ne!(text, wrong);
    let file = scratch.file("wrong.schedule", &wrong);
    let problem = refused("check --seal", &file);
    assert!(
        problem["message"].to_string().contains("one stage on a device"),
        "{problem}"
    );
}
