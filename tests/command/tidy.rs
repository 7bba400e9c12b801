//! House rules as a test: file and function length, module comments, crate edges, banned words.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

/// Which crates of the workspace each crate may use; what is not listed it must not know.
const EDGES: [(&str, &[&str]); 7] = [
    ("schedule", &[]),
    ("kernels", &["schedule"]),
    ("dsl", &["schedule"]),
    ("codegen", &["dsl", "kernels", "schedule"]),
    ("planner", &["codegen", "dsl", "kernels", "schedule"]),
    ("runtime", &["kernels", "schedule"]),
    (".", &["codegen", "dsl", "kernels", "planner", "runtime", "schedule"]),
];

/// Words that do not belong into sources, with what to do instead.
const BANNED: [(&str, &str); 4] = [
    (concat!("todo", "!("), "finish it or refuse it with a reason"),
    (concat!("unimplemented", "!("), "finish it or refuse it with a reason"),
    (concat!("dbg", "!("), "remove it"),
    (concat!("#[ig", "nore"), "a test runs or does not exist"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn all() -> BTreeMap<PathBuf, String> {
    let mut found = Vec::new();
    sources(&root(), &mut found);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("sources are text");
        (path, text)
    };
    found.into_iter().map(read).collect()
}

#[test]
fn every_file_says_what_it_is_for_and_stays_short() {
    let mut wrong = Vec::new();
    for (path, text) in all() {
        if !text.starts_with("//!") {
            wrong.push(format!(
                "{}: open with `//!` and what the file is for",
                path.display()
            ));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES {
            wrong.push(format!("{}: {lines} lines want a seam", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Line and length of each function, from its `fn` line to the closing line of the same
/// indentation.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let starts = |line: &str| {
        let words: Vec<&str> = line.trim_start().split(' ').take(5).collect();
        words.contains(&"fn") && !line.trim_start().starts_with("//")
    };
    let mut found = Vec::new();
    let has_body = |number: usize| {
        let ends = |line: &&&str| line.contains('{') || line.ends_with(';');
        lines[number..].iter().find(ends).is_some_and(|line| line.contains('{'))
    };
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| starts(line)) {
        if !has_body(number) {
            continue;
        }
        let closes = |other: &&str| {
            indentation(other) == indentation(line) && other.trim_start().starts_with('}')
        };
        if let Some(length) = lines[number..].iter().position(closes) {
            found.push((number + 1, length + 1));
        }
    }
    found
}

#[test]
fn functions_stay_short() {
    let mut wrong = Vec::new();
    for (path, text) in all() {
        for (line, length) in functions(&text) {
            if length > FUNCTION_LINES {
                wrong.push(format!(
                    "{}:{line}: a function of {length} lines",
                    path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_length_rule_sees_long_functions() {
    let long = format!("fn f() {{\n{}}}\n", "    a();\n".repeat(80));
    assert_eq!(functions(&long), [(1, 82)]);
    assert_eq!(functions("    pub(crate) fn g() {\n    }\n"), [(1, 2)]);
    assert_eq!(functions("    fn declared(\n    );\n}\n"), []);
    let array = "fn h(\n    pair: [u32; 2],\n) {\n}\n";
    assert_eq!(functions(array), [(1, 4)]);
}

#[test]
fn no_banned_words() {
    let mut wrong = Vec::new();
    for (path, text) in all() {
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
                let place = format!("{}:{}", path.display(), number + 1);
                wrong.push(format!("{place}: `{word}`: {instead}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A system that has no more threads makes these panic; a `Builder` says so.
#[test]
fn threads_that_are_refused_are_errors() {
    const PANICS: [&str; 2] = ["thread::spawn(", "scope.spawn("];
    let mut wrong = Vec::new();
    for (path, text) in all() {
        let in_tests = ["tests", "tests.rs", "benches"];
        if path.iter().any(|part| in_tests.iter().any(|own| part == *own)) {
            continue;
        }
        let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        if PANICS.iter().any(|panics| product.contains(panics)) {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} do not use `thread::Builder`");
}

/// The names that the root of a crate hands out from its own modules.
fn exported(root: &str) -> Vec<&str> {
    let uses = root.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let own = uses.filter(|used| !used.starts_with("roundelay_"));
    let names = own.flat_map(|used| used.split(['{', '}', ',']));
    let names = names.filter(|name| !name.trim_end().ends_with("::"));
    let last =
        names.filter_map(|name| name.split([':', ' ']).rfind(|word| !word.is_empty()));
    last.map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Whoever reads a name of the library need not ask which crate it is from.
#[test]
fn no_two_public_types_share_a_name() {
    let mut homes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (home, _) in EDGES {
        let path = root().join(home).join("src/lib.rs");
        let text = fs::read_to_string(path).expect("every crate has a root");
        let is_type = |name: &&str| {
            name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
        };
        for name in exported(&text).into_iter().filter(is_type) {
            homes.entry(name.to_owned()).or_default().push(home);
        }
    }
    assert!(homes["Checked"] == ["schedule"] && homes["RunOptions"] == ["."]);
    homes.retain(|_, homes| homes.len() > 1);
    assert!(homes.is_empty(), "{homes:?}");
}

#[test]
fn the_rule_of_names_sees_every_export() {
    let root = "mod a;\npub use a::{\n    First, b::Second,\n    third as Fourth,\n};\n\
                pub use roundelay_dsl::Fifth;\npub use a::Sixth;\n";
    assert_eq!(exported(root), ["First", "Second", "Fourth", "Sixth"]);
}

/// The crates of the workspace that a manifest names, in whatever section says what it depends on; tests
/// may know more.
fn used(manifest: &str) -> Vec<&str> {
    let sections = manifest.split("\n[").filter_map(|section| section.split_once("]\n"));
    let sections = sections.filter(|(name, _)| {
        name.ends_with("dependencies") && !name.ends_with("dev-dependencies")
    });
    let lines = sections.flat_map(|(_, lines)| lines.lines());
    let own = lines.filter_map(|line| line.strip_prefix("roundelay-"));
    own.map(|line| line.split(['.', ' ', '=']).next().unwrap_or(line)).collect()
}

#[test]
fn crates_use_only_what_they_may_know() {
    for (name, allowed) in EDGES {
        let manifest = root().join(name).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("every crate has a manifest");
        for other in used(&text) {
            assert!(allowed.contains(&other), "{name} must not know {other}");
        }
    }
}

#[test]
fn the_rule_of_edges_sees_every_section() {
    let manifest = "[package]\n[dependencies]\nroundelay-dsl.workspace = true\n\
                    [target.'cfg(unix)'.dependencies]\nroundelay-planner = \"1\"\n\
                    [build-dependencies]\nroundelay-kernels={ path = \"k\" }\n\
                    [dev-dependencies]\nroundelay-runtime.workspace = true\n";
    assert_eq!(used(manifest), ["dsl", "planner", "kernels"]);
}
