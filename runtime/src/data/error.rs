//! What can be wrong with data: files, patterns, tokens, and inputs that a source cannot serve.

use crate::shown::{shown, shown_folder};
use roundelay_schedule::printable;
use std::{
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// Why a job's data cannot be used. Every message ends with what would repair it.
#[derive(Debug, Error)]
pub enum DataError {
    /// A folder for data that is drawn.
    #[error(
        "the program's data is drawn from its seed, so there is nothing to read in `{}`; {}",
        shown_folder(root), self.hint()
    )]
    Drawn {
        /// The folder.
        root: PathBuf,
    },
    /// A folder for data whose path does not start at one.
    #[error(
        "the program names its data by the absolute path `{path}`, so nothing would be read \
         in `{}`; {}",
        shown_folder(root), self.hint(), path = printable(path)
    )]
    Absolute {
        /// The folder.
        root: PathBuf,
        /// The first such path of the program.
        path: String,
    },
    /// Something else than a folder, where the program's data was to be read in one.
    #[error("`{}` is no folder that data is read in; {}", shown_folder(root), self.hint())]
    NoFolder {
        /// What was given.
        root: PathBuf,
    },
    /// A pattern that means nothing.
    #[error(
        "file pattern `{pattern}`: {reason}; {}",
        self.hint(), pattern = printable(pattern)
    )]
    BadPattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A pattern without a file.
    #[error(
        "no file matches `{pattern}` under `{}`; {}",
        shown_folder(root), self.hint(), pattern = printable(pattern)
    )]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// Where the search began.
        root: PathBuf,
    },
    /// A folder where the program names a file.
    #[error(
        "`{pattern}` names the folder `{}`, and data is read from files; {}",
        shown(path), self.hint(), pattern = printable(pattern)
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The pattern or file name of the program.
        pattern: String,
    },
    /// A file or folder that cannot be read.
    #[error(
        "cannot read `{}`{}: {source}; {}",
        shown(path), wanted_for(pattern, path), self.hint()
    )]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The pattern or file name of the program.
        pattern: String,
        /// What the system says.
        source: io::Error,
    },
    /// A pattern that leads through too many folder entries.
    #[error(
        "`{pattern}` leads through more than {limit} entries of folders; {}",
        self.hint(), pattern = printable(pattern)
    )]
    TooManyEntries {
        /// The pattern.
        pattern: String,
        /// The declared limit.
        limit: u64,
    },
    /// More bytes than the declared limit.
    #[error(
        "`{pattern}` holds at least {found} bytes, the limit is {limit}; {}",
        self.hint(), pattern = printable(pattern)
    )]
    TooLarge {
        /// The pattern or file name.
        pattern: String,
        /// Bytes seen so far.
        found: u64,
        /// The declared limit.
        limit: u64,
    },
    /// More files than are read where they lie.
    #[error(
        "`{pattern}` are {found} files of {bytes} bytes, which is too much to be kept in \
         memory, and at most {limit} files are read where they lie; {}",
        self.hint(), pattern = printable(pattern)
    )]
    TooManyFiles {
        /// The patterns or the file name.
        pattern: String,
        /// Files found.
        found: usize,
        /// Bytes of all of them.
        bytes: u64,
        /// The declared limit.
        limit: usize,
    },
    /// More files than the system lets a process have open.
    #[error(
        "`{pattern}` are {found} files of {bytes} bytes, which is too much to be kept in \
         memory, and not all of them can be open: {source}; {}",
        self.hint(), pattern = printable(pattern)
    )]
    OpenFiles {
        /// The patterns or the file name.
        pattern: String,
        /// Files found.
        found: usize,
        /// Bytes of all of them.
        bytes: u64,
        /// What the system says.
        source: io::Error,
    },
    /// Less than one window.
    #[error(
        "the {part} part of `{pattern}` has {found} tokens, one window needs {needed}; {}",
        self.hint(), pattern = printable(pattern)
    )]
    TooShort {
        /// `training` or `held-out`.
        part: &'static str,
        /// The patterns or the file name.
        pattern: String,
        /// Tokens found.
        found: u64,
        /// Tokens of one window.
        needed: u64,
    },
    /// A file that ends within a token.
    #[error(
        "`{}` has {bytes} bytes, not a multiple of {width}; {}",
        shown(path), self.hint()
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// Bytes of one token.
        width: u64,
    },
    /// A token that the model has no row for.
    #[error(
        "`{}`, byte {offset}: token {token} is not below {bound}, the bound of input \
         `{input}`; {}",
        shown(path), self.hint()
    )]
    OutOfBound {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The token.
        token: u64,
        /// The bound.
        bound: u64,
        /// The input whose bound it is.
        input: String,
    },
    /// Inputs that the source cannot serve.
    #[error(
        "data `{data}` serves two i32 inputs of one shape [examples, sequence], `tokens` and \
         `targets`; this model has {found}; {}",
        self.hint()
    )]
    Inputs {
        /// The source's name in the language.
        data: &'static str,
        /// The model's inputs, spelled out.
        found: String,
    },
    /// Inputs that a source of images cannot serve.
    #[error(
        "data `{data}` serves `images: real[examples, height, width, 3]` and `targets: \
         i32[examples]`; this model has {found}; {}",
        self.hint()
    )]
    ImageInputs {
        /// The source's name in the language.
        data: &'static str,
        /// The model's inputs, spelled out.
        found: String,
    },
    /// A model for images of another size.
    #[error(
        "images of `{data}` have {needed:?} pixels, the model takes {found:?}; {}",
        self.hint()
    )]
    ImageSize {
        /// The source's name in the language.
        data: &'static str,
        /// Height and width that the source has.
        needed: [u64; 2],
        /// Height and width that the model takes.
        found: [u64; 2],
    },
    /// More classes than the model tells apart.
    #[error(
        "the data have {classes} classes, but `targets` must be below {bound}; {}",
        self.hint()
    )]
    Classes {
        /// Classes of the data.
        classes: u64,
        /// The bound of the input.
        bound: u64,
    },
    /// A part without images.
    #[error(
        "`{folder}` has no {part} images; {}",
        self.hint(), folder = printable(folder)
    )]
    NoImages {
        /// `training` or `held-out`.
        part: &'static str,
        /// The folder.
        folder: String,
    },
    /// A folder of a class that holds no image.
    #[error("the class folder `{}` has no image; {}", shown(path), self.hint())]
    EmptyClass {
        /// The folder.
        path: PathBuf,
    },
    /// A file that cannot be read as an image.
    #[error("cannot read the image `{}`: {reason}; {}", shown(path), self.hint())]
    Image {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file that is not made of records.
    #[error(
        "`{}` has {bytes} bytes, not one or more records of {record}; {}",
        shown(path), self.hint()
    )]
    Records {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// Bytes of one record.
        record: u64,
    },
    /// A record of a class that does not exist.
    #[error(
        "`{}`, record {index}: class {class} is not below {classes}; {}",
        shown(path), self.hint()
    )]
    Class {
        /// The file.
        path: PathBuf,
        /// The record, counted from zero.
        index: u64,
        /// Its class.
        class: u8,
        /// The number of classes.
        classes: u8,
    },
    /// Figures that are not drawn.
    #[error(
        "shapes of {classes} classes and size {size} are not drawn; there are from {} to {} classes \
         and sizes from {} to {}",
        classes_drawn.start(), classes_drawn.end(), sizes.start(), sizes.end()
    )]
    Shapes {
        /// Classes asked for.
        classes: u64,
        /// Size asked for.
        size: u64,
        /// Classes that there can be.
        classes_drawn: RangeInclusive<u64>,
        /// Sizes that there can be.
        sizes: RangeInclusive<u64>,
    },
    /// An input of a shape that synthetic data do not make.
    #[error(
        "input `{input}` has shape {shape:?}; synthetic data need inputs whose first extent is the \
         number of examples, the same for all, with at most {limit} elements per example"
    )]
    Shape {
        /// The input.
        input: String,
        /// Its extents for one micro-batch.
        shape: Vec<u64>,
        /// The declared limit.
        limit: u64,
    },
}

/// What a program names a file by, unless that is its path.
fn wanted_for(pattern: &str, path: &Path) -> String {
    let (pattern, path) = (printable(pattern), shown(path));
    if *pattern == *path { String::new() } else { format!(" for `{pattern}`") }
}

impl DataError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Drawn { .. } => {
                "drop --data, or name `text`, `tokens`, `cifar10` or `images` in `train`"
            }
            Self::Absolute { .. } => {
                "drop --data, or name the data in `train` by a path that starts at a folder"
            }
            Self::NoFolder { .. } => "name one that is there with --data DIR",
            Self::BadPattern { .. } => "write a path with `*`, `?` or `**`",
            Self::NoMatch { .. } => {
                "patterns start at the folder of the program, another folder is given with --data \
                 DIR (folders `target` and `.name` must be named)"
            }
            Self::Folder { .. } => {
                "name a file in it, or, in `text`, all files below it by a pattern that ends with \
                 `/**`"
            }
            Self::Unreadable { .. } => "check that it exists and may be read",
            Self::TooManyEntries { .. } => "name the folders that hold the data",
            Self::TooLarge { .. } => "take fewer or smaller files",
            Self::TooManyFiles { .. } => "join them into fewer",
            Self::OpenFiles { .. } => {
                "join them into fewer, or raise the limit on open files (`ulimit -n`)"
            }
            Self::TooShort { .. } => "add data or shorten the sequence",
            Self::Torn { .. } => "the file is cut or its tokens have another width",
            Self::OutOfBound { .. } => {
                "enlarge the vocabulary or take other files; where it stands for no target, write \
                 `masked = true` in every loss and metric of these"
            }
            Self::Inputs { .. } => "use `synthetic` or change the inputs",
            Self::ImageInputs { .. } => "change the inputs",
            Self::ImageSize { .. } => "change the input `images`",
            Self::Classes { .. } => "give the model an output for each class",
            Self::NoImages { .. } => {
                "it needs one folder per class, and every tenth image of a class is held out"
            }
            Self::EmptyClass { .. } => {
                "put PNG or JPEG files there, or remove it: classes count in the order of the \
                 folders"
            }
            Self::Image { .. } => "repair or remove it",
            Self::Records { .. } | Self::Class { .. } => {
                "take the binary version of CIFAR-10"
            }
            Self::Shapes { .. } | Self::Shape { .. } => "",
        }
    }

    /// The file or folder that is at fault; none where it is what the program says of data.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::NoFolder { root: path }
            | Self::Unreadable { path, .. }
            | Self::Torn { path, .. }
            | Self::OutOfBound { path, .. }
            | Self::EmptyClass { path }
            | Self::Image { path, .. }
            | Self::Records { path, .. }
            | Self::Class { path, .. } => Some(path),
            Self::Drawn { .. }
            | Self::Absolute { .. }
            | Self::BadPattern { .. }
            | Self::NoMatch { .. }
            | Self::Folder { .. }
            | Self::TooManyEntries { .. }
            | Self::TooLarge { .. }
            | Self::TooManyFiles { .. }
            | Self::OpenFiles { .. }
            | Self::TooShort { .. }
            | Self::Inputs { .. }
            | Self::ImageInputs { .. }
            | Self::ImageSize { .. }
            | Self::Classes { .. }
            | Self::NoImages { .. }
            | Self::Shapes { .. }
            | Self::Shape { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever names a file shall not write on the terminal of whoever reads it.
    #[test]
    fn names_move_no_cursor() {
        let name = || "a\u{1b}[2J\nb".to_owned();
        let path = || PathBuf::from(name());
        let (pattern, root) = (name(), path());
        for error in [
            DataError::Absolute { root: path(), path: name() },
            DataError::NoFolder { root: path() },
            DataError::BadPattern { pattern: name(), reason: "bad" },
            DataError::NoMatch { pattern, root },
            DataError::Folder { path: path(), pattern: name() },
            DataError::Unreadable {
                path: path(),
                pattern: name(),
                source: io::ErrorKind::NotFound.into(),
            },
            DataError::TooLarge { pattern: name(), found: 2, limit: 1 },
            DataError::Torn { path: path(), bytes: 3, width: 2 },
            DataError::NoImages { part: "training", folder: name() },
            DataError::EmptyClass { path: path() },
            DataError::Image { path: path(), reason: "cut".to_owned() },
        ] {
            let told = error.to_string();
            assert!(!told.contains(char::is_control), "{told:?}");
            assert!(told.contains(r"`a\u{1b}[2J\nb`"), "{told}");
        }
    }
}
