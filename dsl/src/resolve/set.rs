//! A text of `--set`, which is read once, whoever asks what it says.

use crate::{
    Diagnostic, SourceFile,
    parse::{self, Misread},
    report::{Known, Report},
    syntax::Entry,
    token::in_word,
};

/// One text.
pub(crate) struct Set<'a> {
    /// As it was given.
    pub(crate) text: &'a str,
    /// As an entry is written.
    pub(crate) written: SourceFile,
    /// What it says, or where it leaves the grammar.
    pub(crate) entry: Result<Entry, Misread>,
}

impl<'a> Set<'a> {
    /// Reads a text.
    pub(crate) fn new(text: &'a str) -> Self {
        let written = as_entry(text);
        let entry = parse::entry(&written);
        Self { text, written: SourceFile::new("--set", written), entry }
    }

    /// Does what the entry says.
    ///
    /// # Errors
    /// The first mistake of the text, or of what it says.
    pub(super) fn said<T>(
        &self,
        body: impl FnOnce(&Entry, &mut Report) -> Known<T>,
    ) -> Result<T, Diagnostic> {
        let mut report = Report::default();
        report.add_file(self.written.clone());
        let done = match &self.entry {
            Ok(entry) => body(entry, &mut report),
            Err(mistake) => Err(report.syntax_error(mistake.clone())),
        };
        let finished = report.finish(done);
        finished.map(|(value, _)| value).map_err(|all| all.first().clone())
    }
}

/// `key=value` as `key value`, and `outer.inner=value` as `outer { inner value }`, with the sign or
/// without. A sign is one only right behind the key; `rule cyclic(slack = 1)` is an entry as it
/// stands.
fn as_entry(text: &str) -> String {
    let key = text.trim_start().split([' ', '\t', '=', '<', '>']).next().unwrap_or("");
    let behind = text.trim_start()[key.len()..].trim_start();
    let has_sign = !key.is_empty() && behind.starts_with(['=', '<', '>']);
    let (key, value) = text.split_at(text.len() - behind.len());
    let value = match value.strip_prefix('=').filter(|_| has_sign) {
        Some(value) => format!(" {value}"),
        None => value.to_owned(),
    };
    match key.split_once('.') {
        Some((outer, inner)) if outer.trim_start().chars().all(in_word) => {
            format!("{outer} {{ {inner}{value} }}")
        }
        _ => format!("{key}{value}"),
    }
}
