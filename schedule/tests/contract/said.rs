//! What holds of all mistakes of a schedule file.

use roundelay_schedule::FileErrors;

/// Every mistake has a place in the text, words and a hint.
pub(crate) fn says_where(text: &str, errors: &FileErrors) {
    let lines = text.lines().count();
    assert!(errors.iter().count() > 0);
    for error in errors {
        assert!((1..=lines.max(1)).contains(&error.line), "{error}\n{text}");
        assert!(error.column >= 1 && !error.message.is_empty(), "{error}\n{text}");
        assert!(!error.hint.is_empty(), "{error}\n{text}");
    }
    assert!(errors.iter().is_sorted_by_key(|error| error.line), "{errors}");
}
