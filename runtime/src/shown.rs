//! Paths in messages. Others may have named what lies there, so no letter of a name moves a cursor.

use roundelay_schedule::printable;
use std::path::Path;

/// A path that a message names.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// A folder under a name that can be read: that of a program in the working folder is empty.
pub(crate) fn shown_folder(folder: &Path) -> String {
    if folder.as_os_str().is_empty() { ".".to_owned() } else { shown(folder) }
}
