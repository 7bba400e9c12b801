//! docs/language.md is the language: its programs are programs, its tables have every operator and
//! every key, each as the compiler reads it, and name every word of a decision.

use roundelay::parts::{
    dsl::{
        Fallback, Formal, METRICS, NoFiles, OPERATORS, Operator, Program, SECTIONS,
        SourceFile, Tables, format, parse_with,
    },
    schedule::{
        Contraction, Exactness, Images, Order, Placement, Recompute, Sequence, States,
    },
};
use std::{fs, path::Path};

const MODEL: &str = "model line { input x: real[batch, 4], loss mse(linear(x, 4), x) }";
/// A model that takes the data of a document's example.
const BYTES: &str = "model bytes {
    input tokens: i32[batch, 8]
    input targets: i32[batch, 8]
    loss cross_entropy(linear(embedding(tokens, 256, 4), 256), targets)
}";

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    fs::read_to_string(path).expect("the document is there")
}

/// The program of a text that is read without a word.
fn program(text: &str) -> Program {
    let source = SourceFile::new("language.md", text);
    match parse_with(&source, &NoFiles, Tables::Leave) {
        Ok((program, warnings)) if warnings.is_empty() => program,
        Ok((_, warnings)) => panic!("{text}\n{}", warnings[0]),
        Err(mistakes) => panic!("{text}\n{mistakes}"),
    }
}

/// Whole programs, or what a program has besides its model.
fn examples(document: &str) -> Vec<(&str, &str)> {
    let fenced = document.split("```").skip(1).step_by(2);
    let found = fenced.filter_map(|block| block.split_once('\n'));
    found.filter(|(kind, _)| kind.starts_with("rdl")).collect()
}

#[test]
fn examples_are_programs_in_their_one_form() {
    let document = document("language.md");
    let examples = examples(&document);
    for (kind, text) in &examples {
        assert_eq!(format(text).as_deref(), Ok(*text), "{kind}");
        match *kind {
            "rdl" => program(text),
            "rdl train" => program(&format!("{BYTES}\n{text}")),
            "rdl cluster" | "rdl plan" => program(&format!("{MODEL}\n{text}")),
            other => panic!("nobody knows what `{other}` is"),
        };
    }
    assert_eq!(examples.len(), 4);
}

#[test]
fn parameters_of_the_first_example_have_the_names_that_are_told() {
    let document = document("language.md");
    let (_, text) = examples(&document)[0];
    let model = program(text).model;
    let (_, told) = document.split_once("The program above has ").expect("it is told");
    let (told, _) = told.split_once(';').expect("the names end");
    let told: Vec<&str> = told.split('`').skip(1).step_by(2).collect();
    for name in &told {
        let known = model.parameters.values().any(|parameter| parameter.name == *name);
        assert!(known, "{name}");
    }
    assert_eq!(told.len(), 3);
}

/// `linear(x, bias = true, [width])`.
fn spelled<T>(operator: &Operator<T>) -> String {
    let argument = |Formal { name, default }: &Formal| match default {
        None => (*name).to_owned(),
        Some(Fallback::Number(number)) if number.fract() == 0.0 => {
            format!("{name} = {number}")
        }
        Some(Fallback::Number(number)) => format!("{name} = {number:?}"),
        Some(Fallback::Truth(truth)) => format!("{name} = {truth}"),
        Some(Fallback::Empty | Fallback::Absent) => format!("[{name}]"),
    };
    let arguments: Vec<String> = operator.formals.iter().map(argument).collect();
    format!("{}({})", operator.name, arguments.join(", "))
}

/// A row for each.
fn table<T>(operators: &[&Operator<T>]) -> String {
    let row = |operator: &&Operator<T>| {
        format!("| `{}` | {} |\n", spelled(operator), operator.summary)
    };
    operators.iter().map(row).collect()
}

#[test]
fn operators_and_metrics_are_those_of_the_compiler() {
    let document = document("language.md");
    let tables = [("operators", table(&OPERATORS)), ("metrics", table(&METRICS))];
    for (name, rows) in tables {
        let mark = format!("<!-- {name}: written by the compiler's own table -->\n");
        let (_, behind) = document.split_once(&mark).expect("the table is marked");
        let (found, _) = behind.split_once("<!-- end -->").expect("and it ends");
        let wanted = format!("| {} | |\n| --- | --- |\n{rows}", &name[..name.len() - 1]);
        assert!(found == wanted, "write into docs/language.md:\n{wanted}");
    }
}

/// The first and the second cells of the table behind a heading.
fn rows(document: &str, heading: &str) -> Vec<(String, String)> {
    let mark = format!("\n### `{heading}`\n");
    let (_, behind) = document.split_once(&mark).expect("every section has a heading");
    let behind = behind.trim_start().lines().skip(2);
    let table = behind.take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let line = line.replace("\\|", "\u{1}");
        let mut cells = line.split('|').skip(1);
        let mut next = || cells.next().unwrap_or("").trim().replace('\u{1}', "|");
        (next().trim_matches('`').to_owned(), next())
    };
    table.map(cells).collect()
}

/// A program that says one thing of a section, and of others what it must.
fn saying(section: &str, entry: &str) -> String {
    let key = entry.split(' ').next().unwrap_or(entry);
    let with = |needed: &[&str]| {
        let others = needed.iter().filter(|other| !other.starts_with(&format!("{key} ")));
        let all: Vec<&str> = others.copied().chain([entry]).collect();
        all.join(", ")
    };
    let device =
        ["memory 80 GB", "compute 1 TFLOP/s", "bandwidth 1 TB/s", "price 1 USD/h"];
    let link = ["bandwidth 25 GB/s", "latency 5 us"];
    let link = if key == "measured" { &[][..] } else { &link };
    let rate = ["bandwidth 8 GB/s"];
    let result = ["least_steps 1", "critical_batch 1", "staleness 1"];
    let [bare_device, bare_link] = ["memory 80 GB, ", "latency 5 us, "];
    let parts = match section {
        "device" => format!("device d {{ {} }}", with(&device)),
        "device.compute" => format!(
            "device d {{ {bare_device}compute 1 TFLOP/s {{ {entry} }}, bandwidth 1 TB/s }}"
        ),
        "device.bandwidth" => format!(
            "device d {{ {bare_device}compute 1 TFLOP/s, bandwidth 1 TB/s {{ {entry} }} }}"
        ),
        "link" => format!("link l {{ {} }}", with(link)),
        "link.bandwidth" => {
            format!("link l {{ {bare_link}bandwidth 8 GB/s {{ {entry} }} }}")
        }
        "link.short" | "link.nvls" => {
            let protocol = section.trim_start_matches("link.");
            let said = with(&rate);
            format!("link l {{ {bare_link}bandwidth 8 GB/s, {protocol} {{ {said} }} }}")
        }
        "train" => format!("train {{ {entry} }}"),
        "train.evaluate" => format!("train {{ evaluate {{ {entry} }} }}"),
        "train.dtype" => format!("train {{ dtype bf16 {{ {entry} }} }}"),
        "plan" => format!("plan {{ {entry} }}"),
        "plan.tensor" => format!("plan {{ tensor {{ {entry} }} }}"),
        "plan.stage" => format!("plan {{ stage 0 {{ {entry} }} }}"),
        "plan.result" => {
            let said = with(&result);
            format!("plan {{ minimize time_to_result, result {{ {said} }} }}")
        }
        other => panic!("`{other}` is a section that no example is made of"),
    };
    let cluster = match section.split('.').next() {
        Some("device") => "cluster c { 1 x d }",
        Some("link") => {
            "device d { memory 80 GB, compute 1 TFLOP/s, bandwidth 1 TB/s }
             cluster c { 2 x d joined by l }"
        }
        _ => "",
    };
    let model = if entry.starts_with("data text") { BYTES } else { LAYERS };
    format!("{model}\n{parts}\n{cluster}")
}

/// A model with operations to cut at.
const LAYERS: &str = "model layers {
    input x: real[batch, 4]
    y = x
    repeat 12 as layer { y = linear(y, 4) }
    loss mse(y, x)
}";

#[test]
fn every_key_has_a_row_and_every_row_is_read() {
    let document = document("language.md");
    for (section, keys) in SECTIONS {
        let rows = rows(&document, section);
        let named = rows.iter().map(|(entry, _)| entry.split(' ').next().unwrap_or(""));
        let mut named: Vec<&str> = named.collect();
        let mut known = keys.to_vec();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known, "keys of `{section}`");
        for (entry, _) in &rows {
            program(&saying(section, entry));
        }
    }
}

/// The text of a decision's row.
fn decision(document: &str, section: &str, key: &str) -> String {
    let row = rows(document, section)
        .into_iter()
        .find(|(entry, _)| entry.split(' ').next() == Some(key));
    row.map(|(entry, values)| format!("`{entry}` {values}")).expect("the key has a row")
}

fn names_all<T: ToString>(text: &str, words: &[T]) {
    for word in words {
        let word = format!("`{}`", word.to_string());
        assert!(text.contains(&word), "{word} is missing in: {text}");
    }
}

#[test]
fn decisions_name_all_their_words() {
    let document = document("language.md");
    let plan = |key| decision(&document, "plan", key);
    let classes = [
        Exactness::Exact,
        Exactness::Reordered,
        Exactness::Delayed,
        Exactness::Truncated,
        Exactness::Local,
    ];
    names_all(&plan("exactness"), &classes);
    names_all(&plan("placement"), Placement::ALL);
    names_all(&plan("states"), States::ALL);
    names_all(&plan("sequence"), Sequence::ALL);
    names_all(&plan("images"), Images::ALL);
    names_all(&plan("recompute"), Recompute::ALL);
    let tensor = decision(&document, "plan.tensor", "contraction");
    names_all(&tensor, Contraction::ALL);
    let own = plan("order");
    let orders = self::document("orders.md");
    for order in Order::ALL {
        let word = format!("`{order}`");
        let listed = *order == Order::Listed && orders.contains("`listed(");
        assert!(own.contains(&word) || orders.contains(&word) || listed, "{word}");
    }
}

/// Lines for `--set` go with the cluster of the document.
#[test]
fn settings_are_taken() {
    let document = document("language.md");
    let (_, behind) =
        document.split_once("\n### `--set`\n").expect("the section is there");
    let lines: Vec<&str> = behind
        .split("`--set \"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap_or(""))
        .collect();
    let all = examples(&document);
    let (_, cluster) =
        all.iter().find(|(kind, _)| *kind == "rdl cluster").expect("there is a cluster");
    for line in &lines {
        let mut program = program(&format!("{MODEL}\n{cluster}"));
        program.set_all(&[line]).unwrap_or_else(|why| panic!("{line}: {why}"));
    }
    assert!(lines.len() >= 7, "{lines:?}");
}
