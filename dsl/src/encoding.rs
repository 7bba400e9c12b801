//! Files that shall be text.

/// Where the first byte stands that is part of no character, both counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUtf8 {
    /// Line.
    pub line: u64,
    /// Characters before it in the line, plus one.
    pub column: u64,
}

/// The text that the bytes of a file are.
///
/// # Errors
/// Where they are not UTF-8.
pub fn utf8(bytes: Vec<u8>) -> Result<String, NotUtf8> {
    String::from_utf8(bytes).map_err(|error| {
        let whole = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let before = String::from_utf8_lossy(whole);
        let lines = before.matches('\n').count() as u64;
        let last = before.rsplit('\n').next().unwrap_or_default();
        NotUtf8 { line: lines + 1, column: last.chars().count() as u64 + 1 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_is_no_text_has_its_place() {
        for (bytes, line, column) in [
            (&b"\xe9"[..], 1, 1),
            (b"model m\n# caf\xe9\n\xff", 2, 6),
            ("é\né ".as_bytes(), 0, 0),
            (b"a\n\xc3\xa9\xc3", 2, 2),
        ] {
            let found = utf8(bytes.to_vec());
            match line {
                0 => assert_eq!(found.unwrap().as_bytes(), bytes),
                _ => assert_eq!(found, Err(NotUtf8 { line, column })),
            }
        }
    }
}
