//! Broken schedule files: the expected mistake stands behind `# error: ` on the bad line.

use roundelay_schedule::{read, seal, write};
use std::{fs, path::PathBuf};

const MARK: &str = "  # error: ";

fn fixtures() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/schedule");
    let entries = fs::read_dir(folder).expect("the fixtures are there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// The hash that is replaced by the right one.
const UNSEALED: &str = "hash 0000000000000000\n";

/// The text without marks, sealed, and the marked lines.
fn prepared(marked: &str) -> (String, Vec<(usize, &str)>) {
    let mut text = String::new();
    let mut expected = Vec::new();
    for (k, line) in marked.lines().enumerate() {
        let (plain, message) = line.split_once(MARK).unwrap_or((line, ""));
        if line != plain {
            expected.push((k + 1, message));
        }
        text += plain;
        text.push('\n');
    }
    match seal(&text) {
        Ok(sealed) if text.contains(UNSEALED) => (sealed, expected),
        _ => (text, expected),
    }
}

#[test]
fn every_mistake_is_found_on_its_line_and_no_other() {
    let mut wrong = Vec::new();
    for path in fixtures() {
        let marked = fs::read_to_string(&path).unwrap();
        let (text, expected) = prepared(&marked);
        let errors = match read(&text) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().cloned().collect(),
        };
        let fits = errors.len() == expected.len()
            && errors.iter().zip(&expected).all(|(error, (line, message))| {
                error.line == *line
                    && error.message.contains(message)
                    && !error.hint.is_empty()
            });
        if !fits {
            let name = path.file_name().unwrap().to_string_lossy();
            let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
            wrong.push(format!("{name}: expected {expected:?}\n{}", found.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn there_are_broken_files_and_whole_ones() {
    let texts: Vec<String> =
        fixtures().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let broken = texts.iter().filter(|text| text.contains(MARK)).count();
    assert!(broken >= 15 && broken < texts.len(), "{broken} of {}", texts.len());
}

#[test]
fn whole_files_are_written_as_they_are() {
    for path in fixtures() {
        let text = fs::read_to_string(&path).unwrap();
        if !text.contains(MARK) {
            let (sealed, _) = prepared(&text);
            assert_eq!(write(&read(&sealed).unwrap()), sealed, "{}", path.display());
        }
    }
}
