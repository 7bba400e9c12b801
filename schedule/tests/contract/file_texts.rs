//! What reading takes beside what is written: marks, other ends of lines, and texts that are no
//! schedule or more than one can be.

use crate::{said::says_where, sample};
use roundelay_schedule::{Lines, read, seal};

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
    let text = sample::small();
    let marked = format!("\u{feff}{text}");
    assert_eq!(read(&marked), read(&text));
    assert_eq!(Lines::of(&marked), Lines::of(&text));
    assert_eq!(seal(&marked), Ok(text));
}

/// Some programs write every line with an end of their own.
#[test]
fn other_ends_of_lines_change_no_schedule() {
    let text = sample::small();
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
