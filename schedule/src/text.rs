//! Texts of other programs: as they come from files, and as they go into messages.

use std::borrow::Cow;

/// A text without the mark that some editors write before it.
pub fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A text that stays on its line and moves no cursor: control characters as Rust spells them.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::new();
    for letter in text.chars() {
        match letter.is_control() {
            true => spelled.extend(letter.escape_debug()),
            false => spelled.push(letter),
        }
    }
    Cow::Owned(spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelled() {
        assert_eq!(printable("a `b` \"c\" \\ é"), "a `b` \"c\" \\ é");
        assert_eq!(
            printable("x\u{1b}[31mred\nq\t\u{9b}"),
            "x\\u{1b}[31mred\\nq\\t\\u{9b}"
        );
    }
}
