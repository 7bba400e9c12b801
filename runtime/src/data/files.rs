//! The files that the data of a job is read from.

use super::{DataError, demand_relative, glob, images};
use roundelay_schedule::Data;
use std::path::{Path, PathBuf};

/// All files that a run reads its data from, as they lie there now; `root` takes the place of the root that the
/// data names. Drawn data has none.
///
/// # Errors
/// A pattern without a match, a folder that cannot be read, a `root` that would change nothing.
pub fn data_files(data: &Data, root: Option<&Path>) -> Result<Vec<PathBuf>, DataError> {
    if let Some(root) = root {
        demand_relative(data, root)?;
    }
    let at = |own| root.unwrap_or(Path::new(own));
    Ok(match data {
        Data::Text { root, globs } => {
            glob::find(at(root), globs)?.into_values().collect()
        }
        Data::Tokens { root, file, .. } => vec![at(root).join(file)],
        Data::Cifar10 { root, folder, .. } => {
            images::cifar10_files(&at(root).join(folder))
        }
        Data::Images { root, folder } => images::folder_files(&at(root).join(folder))?,
        Data::Shapes { .. } | Data::Synthetic => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use roundelay_schedule::{Augmentation, TokenWidth};

    #[test]
    fn all_that_is_read_is_named() {
        let scratch = Scratch::new("data-files");
        for name in ["a.txt", "b.txt", "im/cat/1.png", "im/dog/2.png", "im/note"] {
            scratch.write(name, b"anything");
        }
        let (root, folder) = (String::from("nowhere"), String::from("im"));
        let augment = Augmentation::None;
        let text = Data::Text { root: root.clone(), globs: vec!["*.txt".into()] };
        let tokens = Data::Tokens {
            root: root.clone(),
            file: "t.bin".into(),
            width: TokenWidth::U8,
        };
        let images = Data::Images { root: root.clone(), folder: folder.clone() };
        let cifar = Data::Cifar10 { root, folder, augment };
        let batches = ["1", "2", "3", "4", "5"].map(|n| format!("im/data_batch_{n}.bin"));
        let batches = [&batches[..], &["im/test_batch.bin".to_owned()]].concat();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        for (data, expected) in [
            (text, names(&["a.txt", "b.txt"])),
            (tokens, names(&["t.bin"])),
            (images, names(&["im/cat/1.png", "im/dog/2.png"])),
            (cifar, batches),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|name| scratch.path().join(name)).collect();
            assert_eq!(data_files(&data, Some(scratch.path())).unwrap(), expected);
        }
        assert!(data_files(&Data::Synthetic, None).unwrap().is_empty());
    }
}
