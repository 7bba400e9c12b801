//! Whatever is done to the text of a schedule, reading it ends in a schedule or in mistakes
//! with places, never in a panic.

use crate::{random::Random, sample};
use roundelay_schedule::{FileErrors, Lines, read, seal, write};

const MUTANTS: usize = 20_000;

const HUGE: [&str; 6] =
    ["4294967295", "4294967296", "18446744073709551616", "-1", "1e999", "999999999999"];
const PIECES: [&str; 12] =
    ["{", "[", "]", "\"", ":", "\n", "#", "&a ", "*a", "- ", "\u{1F3B6}", "hash x\n"];

fn mutated(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let [one, other] = [random.below(lines.len()), random.below(lines.len())];
    match random.below(8) {
        0 => drop(lines.remove(one)),
        1 => lines.insert(other, lines[one].clone()),
        2 => lines.swap(one, other),
        3 => {
            lines[one] = with_number(&lines[one], HUGE[random.below(HUGE.len())], random);
        }
        4 => {
            let number = random.below(20).to_string();
            lines[one] = with_number(&lines[one], &number, random);
        }
        5 => {
            let piece = PIECES[random.below(PIECES.len())];
            let at = boundary(&lines[one], random);
            lines[one].insert_str(at, piece);
        }
        6 => {
            let at = boundary(&lines[one], random);
            lines[one].truncate(at);
        }
        _ => return flipped(text, random),
    }
    lines.join("\n") + "\n"
}

fn boundary(line: &str, random: &mut Random) -> usize {
    let at = random.below(line.len() + 1);
    (at..).find(|at| line.is_char_boundary(*at)).expect("the end is a boundary")
}

fn with_number(line: &str, number: &str, random: &mut Random) -> String {
    let digit = |c: char| c.is_ascii_digit();
    let starts: Vec<usize> = line.match_indices(digit).map(|(at, _)| at).collect();
    if starts.is_empty() {
        return line.to_owned();
    }
    let at = starts[random.below(starts.len())];
    let rest = line[at..].trim_start_matches(digit);
    format!("{}{number}{rest}", &line[..at])
}

fn flipped(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn says_where(text: &str, errors: &FileErrors) {
    let lines = text.lines().count();
    assert!(errors.iter().count() > 0);
    for error in errors {
        assert!((1..=lines.max(1)).contains(&error.line), "{error}\n{text}");
        assert!(error.column >= 1 && !error.message.is_empty(), "{error}\n{text}");
        assert!(!error.hint.is_empty(), "{error}\n{text}");
    }
    assert!(errors.iter().is_sorted_by_key(|error| error.line), "{errors}");
}

/// A short header, and an action of every kind.
fn original() -> String {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/schedule/whole.schedule");
    let whole = std::fs::read_to_string(path).expect("the fixture is there");
    let (header, _) = whole.split_once("actions\n").expect("a whole file");
    let sample = sample::small();
    let (_, actions) = sample.split_once("actions\n").expect("a whole file");
    seal(&format!("{header}actions\n{actions}")).expect("a whole file")
}

fn mutants(original: &str, seed: u64) -> impl Iterator<Item = String> {
    let mut random = Random::new(seed);
    (0..MUTANTS / 2).map(move |_| {
        let first = mutated(original, &mut random);
        (0..random.below(3)).fold(first, |text, _| mutated(&text, &mut random))
    })
}

#[test]
fn a_sealed_mutant_is_a_schedule_or_has_mistakes() {
    let mut accepted = 0;
    for mutant in mutants(&original(), 7) {
        let text = seal(&mutant).unwrap_or(mutant);
        match read(&text) {
            Ok(schedule) => {
                let written = write(&schedule);
                assert_eq!(read(&written), Ok(schedule), "{text}");
                accepted += 1;
            }
            Err(errors) => says_where(&text, &errors),
        }
    }
    assert!(accepted > 500, "only {accepted} mutants were schedules");
}

#[test]
fn a_mutant_with_the_old_hash_is_the_old_schedule_or_has_mistakes() {
    let original = original();
    let schedule = read(&original).unwrap();
    for text in mutants(&original, 11) {
        match read(&text) {
            Ok(same) => assert_eq!(same, schedule, "{text}"),
            Err(errors) => says_where(&text, &errors),
        }
    }
}

#[test]
fn texts_that_are_no_schedule_are_refused() {
    for text in ["", "\n", "roundelay", "roundelay schedule", "a\0b", "\u{feff}roundelay"]
    {
        says_where(text, &read(text).unwrap_err());
        says_where(text, &seal(text).unwrap_err());
    }
}

/// Some editors write a mark before a text, which is no part of it.
#[test]
fn a_mark_before_a_schedule_is_passed_over() {
    let text = original();
    let marked = format!("\u{feff}{text}");
    assert_eq!(read(&marked), read(&text));
    assert_eq!(Lines::of(&marked), Lines::of(&text));
    assert_eq!(seal(&marked), Ok(text));
}

/// Some programs write every line with an end of their own.
#[test]
fn other_ends_of_lines_change_no_schedule() {
    let text = original();
    let ended = text.replace('\n', "\r\n");
    assert_eq!(read(&ended), read(&text));
    assert_eq!(Lines::of(&ended), Lines::of(&text));
    assert!(read(&seal(&ended).unwrap()).is_ok());
    let edited = ended.replacen("seed", "\rseed", 1);
    says_where(&edited, &read(&edited).unwrap_err());
}

#[test]
fn limits_hold() {
    let deep = "[".repeat(100_000);
    let wide = " b0.0".repeat(300_000);
    let many = "a0 lag 0 nothing\n".repeat(100_000);
    for (header, actions) in
        [(deep.as_str(), ""), ("", wide.as_str()), ("", many.as_str())]
    {
        let text = format!("roundelay schedule 1\naxes: {header}\nactions\n{actions}");
        let errors = read(&text).unwrap_err();
        says_where(&text, &errors);
        assert!(errors.iter().count() <= 1001);
    }
}
