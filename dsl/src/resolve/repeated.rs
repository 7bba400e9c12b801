//! Settings of one command line: each sets what no other one sets, for whoever says a thing twice
//! means one of the two.

use super::plan::as_entry;
use crate::{
    Code, Diagnostic, Mistake, SourceFile, parse,
    report::Report,
    syntax::{Entry, Setting},
};
use std::collections::BTreeMap;

/// Refuses two settings of one key.
///
/// # Errors
/// The second of the first two.
pub(super) fn refuse_repeated(settings: &[impl AsRef<str>]) -> Result<(), Diagnostic> {
    let mut first: BTreeMap<String, &str> = BTreeMap::new();
    for setting in settings.iter().map(AsRef::as_ref) {
        let text = as_entry(setting);
        // What cannot be read is refused where it is set.
        let Ok(entry) = parse::entry(&text) else { continue };
        let keys = keys(&entry);
        if let Some((key, earlier)) = keys.iter().find_map(|key| first.get_key_value(key))
        {
            let message = format!("`{key}` is set twice, by `{earlier}` and `{setting}`");
            let mistake =
                Mistake::new(Code::Duplicate, message).hint("drop one of the two");
            let mut report = Report::default();
            report.add_file(SourceFile::new("--set", text.as_str()));
            report.error(entry.key.span, mistake);
            return report.finish::<()>(Ok(())).map(|_| ()).map_err(super::first);
        }
        first.extend(keys.into_iter().map(|key| (key, setting)));
    }
    Ok(())
}

/// What an entry sets, each in full; stages are pinned one after another, a later pin in an earlier
/// one.
fn keys(entry: &Entry) -> Vec<String> {
    let outer = &entry.key.text;
    if outer == "stage" {
        return Vec::new();
    }
    let own = match (&entry.value, &entry.entries[..]) {
        (Setting::Nothing, [_, ..]) => None,
        _ => Some(outer.clone()),
    };
    let inner = entry.entries.iter().map(|inner| format!("{outer}.{}", inner.key.text));
    own.into_iter().chain(inner).collect()
}
