//! Settings of one command line: each sets what no other one sets, for whoever says a thing twice
//! means one of the two.

use super::set::Set;
use crate::{
    Code, Diagnostic, Mistake,
    syntax::{Entry, Setting},
};
use std::collections::BTreeMap;

/// Refuses two settings of one key.
///
/// # Errors
/// The second of the first two.
pub(super) fn refuse_repeated(sets: &[Set<'_>]) -> Result<(), Diagnostic> {
    let mut first: BTreeMap<String, &str> = BTreeMap::new();
    for set in sets {
        // What cannot be read is refused where it is set.
        let Ok(entry) = &set.entry else { continue };
        let keys = keys(entry);
        if let Some((key, earlier)) = keys.iter().find_map(|key| first.get_key_value(key))
        {
            let message =
                format!("`{key}` is set twice, by `{earlier}` and `{}`", set.text);
            let mistake =
                Mistake::new(Code::Duplicate, message).hint("drop one of the two");
            return set.said(|entry, report| Err(report.error(entry.key.span, mistake)));
        }
        first.extend(keys.into_iter().map(|key| (key, set.text)));
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
