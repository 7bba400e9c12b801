//! Programs with mistakes: on every bad line stands, as a comment, what is said about it.
//!
//! `# error: text` and `# warning: text` expect a diagnostic on their line whose message holds the
//! text. Nothing else may be said, and everything that is expected must be.

use roundelay_dsl::{Diagnostic, Disk, Severity, SourceFile, parse};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A line, how bad it is, and part of the message.
type Expectation = (u32, Severity, String);

#[test]
fn every_fixture_says_what_is_expected_and_nothing_else() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 40, "fixtures are missing: {}", fixtures.len());
    let wrong: Vec<String> = fixtures.iter().filter_map(|path| complaint(path)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_diagnostic_points_into_its_line() {
    for path in fixtures() {
        for said in diagnostics(&path).1 {
            let width = said.place.text.chars().count();
            assert!(said.place.column as usize <= width + 1, "{said}");
            assert!(said.message.starts_with(|c: char| !c.is_uppercase()), "{said}");
            assert!(!said.message.ends_with('.'), "{said}");
        }
    }
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/program");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    paths
}

fn diagnostics(path: &Path) -> (String, Vec<Diagnostic>) {
    let text = fs::read_to_string(path).expect("it can be read");
    let source = SourceFile::new(path.display().to_string(), text.as_str());
    match parse(&source, &Disk) {
        Ok((_, warnings)) => (text, warnings),
        Err(all) => (text, all.iter().cloned().collect()),
    }
}

/// What differs between what is said and what is expected.
fn complaint(path: &Path) -> Option<String> {
    let (text, said) = diagnostics(path);
    let mut missing = expectations(&text);
    let mut surprising = Vec::new();
    for diagnostic in said {
        let fits = |(line, severity, message): &Expectation| {
            (*line, *severity) == (diagnostic.place.line, diagnostic.severity)
                && diagnostic.message.contains(message)
        };
        match missing.iter().position(fits) {
            Some(index) => _ = missing.remove(index),
            None => surprising.push(diagnostic.to_string()),
        }
    }
    let wrong = !missing.is_empty() || !surprising.is_empty();
    wrong.then(|| {
        format!("{}: missing {missing:?}\n{}", path.display(), surprising.join(""))
    })
}

fn expectations(text: &str) -> Vec<Expectation> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let kinds = [("# error: ", Severity::Error), ("# warning: ", Severity::Warning)];
        for (mark, severity) in kinds {
            if let Some((_, message)) = line.split_once(mark) {
                all.push((number, severity, message.trim().to_owned()));
            }
        }
    }
    all
}
