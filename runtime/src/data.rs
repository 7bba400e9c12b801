//! Where examples come from: text, token files, images, or numbers drawn from the seed.
//!
//! Example e of step t depends on the data, the seed, t and e alone. Micro-batch i of a step
//! holds its examples i·b .. (i + 1)·b, so runs of every plan see the same examples.

mod corpus;
mod entropy;
mod error;
mod files;
mod glob;
mod images;
mod inputs;
mod pictures;
mod shapes;
mod synthetic;
mod windows;

use crate::{Feed, digest::Digest, helpers::share_out};
use corpus::Corpus;
pub use error::DataError;
pub use files::{Written, data_files, refuse_among_data};
use images::Images;
use roundelay_schedule::{Data, Element, Id, InputId, Job, gcd};
use shapes::Shapes;
use std::{
    num::NonZeroUsize,
    panic::{self, AssertUnwindSafe},
    path::Path,
    slice, thread,
};
use synthetic::Synthetic;
use windows::Windows;

/// The data of a job, read and checked.
#[derive(Clone, Debug)]
pub struct Dataset {
    source: Source,
    /// Examples of one micro-batch, b.
    examples: u64,
    rows: Vec<usize>,
    batch: u64,
    /// Threads that fill large inputs.
    threads: usize,
}

/// An input of fewer bytes is filled by one thread.
const LARGE: usize = 4 << 20;

/// Fixed examples that training never sees, the same for every plan. As a [`Feed`] it takes
/// micro-batches 0 .. [`HeldOut::micro_batches`]; the step means nothing.
#[derive(Clone, Debug)]
pub struct HeldOut {
    data: Dataset,
    places: Places,
}

/// Which held-out examples are looked at.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// Windows or images there are to choose from.
    windows: u64,
    /// Examples looked at.
    examples: u64,
    spread: Spread,
}

/// How the examples that are looked at are spread over what is held out.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// At equal distances, in order: neighbours in a text are alike.
    Even,
    /// At this distance round and round, which meets every one before any twice: classes of images
    /// that come in any order, period or blocks, are met as often as they are there, and fewer
    /// examples are the first of more.
    Round(u64),
}

/// How much of what is held out was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Examples looked at.
    pub examples: u64,
    /// Of this many; more are looked at where a batch has more, and some count twice then. None for
    /// drawn data, which has no end.
    pub of: Option<u64>,
}

/// What is known of images before anything is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFacts {
    /// Images to train on, and images that are held out; none where they are drawn without end.
    pub parts: Option<[u64; 2]>,
    /// Their classes.
    pub classes: u64,
    /// Entries of the folders of classes that are no images.
    pub left_out: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Windows(Windows),
    Images(Images),
    Shapes(Shapes),
    Synthetic(Synthetic),
}

/// Which example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Example {
    /// One of a training step's batch.
    Training { step: u64, index: u64 },
    /// One that is held out.
    HeldOut { index: u64 },
}

impl Dataset {
    /// Reads and checks the data of a job. `root` takes the place of the root that the job
    /// names.
    ///
    /// # Errors
    /// Files that are missing, unreadable, too large or too short; tokens above the bound of
    /// an input; inputs that the source cannot serve; a `root` that would change nothing.
    pub fn open(job: &Job, root: Option<&Path>) -> Result<Self, DataError> {
        if let Some(root) = root {
            demand_relative(&job.data, root)?;
        }
        let source = match &job.data {
            Data::Text { root: own, globs } => {
                let corpus = Corpus::text(root.unwrap_or(Path::new(own)), globs)?;
                Source::Windows(Windows::new(corpus, job, "text")?)
            }
            Data::Tokens { root: own, file, width } => {
                let root = root.unwrap_or(Path::new(own));
                let corpus = Corpus::tokens(root, file, *width)?;
                Source::Windows(Windows::new(corpus, job, "tokens")?)
            }
            Data::Cifar10 { root: own, folder, augment } => {
                let folder = root.unwrap_or(Path::new(own)).join(folder);
                Source::Images(Images::cifar10(&folder, *augment, job)?)
            }
            Data::Images { root: own, folder } => {
                let folder = root.unwrap_or(Path::new(own)).join(folder);
                Source::Images(Images::folder(&folder, job)?)
            }
            Data::Shapes { classes, size, seed } => {
                Source::Shapes(Shapes::new(*classes, *size, *seed, job)?)
            }
            Data::Synthetic => Source::Synthetic(Synthetic::new(job)?),
        };
        let row = |element: Element, shape: &[u64]| {
            shape.iter().skip(1).product::<u64>() * element.size(job.dtype)
        };
        let rows = job.inputs.values().map(|i| row(i.element, &i.shape) as usize);
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let batch = u64::from(job.batch).max(1);
        let examples = examples(job);
        Ok(Self { source, examples, rows: rows.collect(), batch, threads })
    }

    /// The same data in the micro-batches of another plan's job.
    pub fn cut_for(self, job: &Job) -> Self {
        Self { examples: examples(job), ..self }
    }

    /// Examples of one micro-batch, b.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// About `limit` held-out examples, spread over the held-out part: whole batches, so
    /// that they do not depend on N, and at least one; where there are fewer than a batch has,
    /// some count twice.
    ///
    /// # Errors
    /// When the held-out part is shorter than one window, or has no image.
    pub fn held_out(&self, limit: u64) -> Result<HeldOut, DataError> {
        let windows = match &self.source {
            Source::Windows(windows) => windows.held_out()?,
            Source::Images(images) => images.held_out()?,
            Source::Shapes(_) | Source::Synthetic(_) => limit.max(self.batch),
        };
        let batches = (windows.min(limit) / self.batch).max(1);
        let spread = match &self.source {
            Source::Images(_) => Spread::Round(golden_distance(windows)),
            Source::Windows(_) | Source::Shapes(_) | Source::Synthetic(_) => Spread::Even,
        };
        let places = Places { windows, examples: batches * self.batch, spread };
        Ok(HeldOut { data: self.clone(), places })
    }

    /// Entropy of the held-out part under a bigram model of the training part, in nats per
    /// token: (c(a, b) + d(a) p(b)) / (c(a) + d(a)) for c(a) pairs that begin with a, d(a) of
    /// them different, and add-one shares p(b) (Witten and Bell 1991). None for drawn data,
    /// vocabularies above 2048, and data that is too large to be kept in memory.
    pub fn bigram_entropy(&self) -> Option<f64> {
        match &self.source {
            Source::Windows(windows) => {
                entropy::bigram(windows.corpus(), windows.bound())
            }
            Source::Images(_) | Source::Shapes(_) | Source::Synthetic(_) => None,
        }
    }

    /// Tokens of the training part and of the held-out part; none for drawn data.
    pub fn tokens(&self) -> Option<(u64, u64)> {
        match &self.source {
            Source::Windows(windows) => {
                let [training, held_out] =
                    [windows.corpus().training(), windows.corpus().held_out()];
                Some((training.end - training.start, held_out.end - held_out.start))
            }
            Source::Images(_) | Source::Shapes(_) | Source::Synthetic(_) => None,
        }
    }

    /// What is known of images; none for other data.
    pub fn images(&self) -> Option<ImageFacts> {
        match &self.source {
            Source::Images(images) => Some(images.facts()),
            Source::Shapes(shapes) => Some(shapes.facts()),
            Source::Windows(_) | Source::Synthetic(_) => None,
        }
    }

    /// A number that tells apart what examples are made of, contents and how they are read; a resumed
    /// run compares it.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        match &self.source {
            Source::Windows(windows) => digest = windows.corpus().digest(),
            Source::Images(images) => images.add_to(&mut digest),
            Source::Shapes(shapes) => {
                digest.add(b"shapes");
                shapes.key().iter().for_each(|key| digest.add(&key.to_le_bytes()));
            }
            Source::Synthetic(_) => digest.add(b"synthetic"),
        }
        digest.value()
    }

    fn fill_rows(
        &mut self,
        input: InputId,
        micro_batch: u64,
        bytes: &mut [u8],
        example: impl Fn(u64) -> Example + Sync,
    ) {
        let examples = self.examples();
        let row = self.rows[input.index()];
        assert_eq!(
            Some(bytes.len() as u64),
            examples.checked_mul(row as u64),
            "a feed fills the whole input of one micro-batch"
        );
        if row == 0 {
            return;
        }
        let first = micro_batch * examples;
        let threads = if bytes.len() < LARGE { 1 } else { self.threads };
        let rows = (first, row, bytes);
        match &mut self.source {
            Source::Windows(windows) => {
                each_row(threads, rows, |e, row| windows.fill(input, example(e), row));
            }
            Source::Images(images) => {
                each_row(threads, rows, |e, row| images.fill(input, example(e), row));
            }
            Source::Shapes(shapes) => {
                each_row(threads, rows, |e, row| shapes.fill(input, example(e), row));
            }
            // It looks an example up before it makes the target, in memory of its own.
            Source::Synthetic(synthetic) => {
                let (first, row, bytes) = rows;
                for (e, row) in (first..).zip(bytes.chunks_exact_mut(row)) {
                    synthetic.fill(input, example(e), row);
                }
            }
        }
    }
}

/// Does work that data is fed to. A feed has no way to say that a file cannot be read any more that was read when
/// the data was opened: it unwinds with the error, without a panic's message.
///
/// # Errors
/// That error, where nobody below has made one of his own of it.
pub fn unless_lost<T>(work: impl FnOnce() -> T) -> Result<T, DataError> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        match panic.downcast::<DataError>() {
            Ok(lost) => *lost,
            Err(panic) => panic::resume_unwind(panic),
        }
    })
}

/// Examples of one micro-batch: what all inputs that data brings begin with; one where there are none.
fn examples(job: &Job) -> u64 {
    let first = job.data_inputs().next();
    first.and_then(|(_, input)| input.shape.first().copied()).unwrap_or(1)
}

/// Another root moves only what lies relative to it, and is a folder.
fn demand_relative(data: &Data, root: &Path) -> Result<(), DataError> {
    let root = root.to_path_buf();
    let paths: &[String] = match data {
        Data::Text { globs, .. } => globs,
        Data::Tokens { file: path, .. }
        | Data::Cifar10 { folder: path, .. }
        | Data::Images { folder: path, .. } => slice::from_ref(path),
        Data::Shapes { .. } | Data::Synthetic => {
            return Err(DataError::Drawn { root });
        }
    };
    match paths.iter().find(|path| Path::new(path).is_absolute()) {
        Some(path) => Err(DataError::Absolute { root, path: path.clone() }),
        None if root.as_os_str().is_empty() || root.is_dir() => Ok(()),
        None => Err(DataError::NoFolder { root }),
    }
}

/// Fills rows of this many bytes, which are examples `first` and following, each by itself: which
/// thread does it changes no number.
fn each_row(
    threads: usize,
    (first, row, bytes): (u64, usize, &mut [u8]),
    fill: impl Fn(u64, &mut [u8]) + Sync,
) {
    let share = (bytes.len() / row).div_ceil(threads.max(1)).max(1);
    let parts = (first..).step_by(share).zip(bytes.chunks_mut(share * row));
    share_out(threads, parts, |(first, part)| {
        (first..).zip(part.chunks_exact_mut(row)).for_each(|(e, row)| fill(e, row));
    });
}

impl Feed for Dataset {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        let example = |index| Example::Training { step: t, index };
        self.fill_rows(input, micro_batch, bytes, example);
    }
}

impl HeldOut {
    /// How many examples are looked at while training, and when nothing else is said.
    pub const EXAMPLES: u64 = 64;

    /// Micro-batches to look at.
    pub fn micro_batches(&self) -> u64 {
        (self.places.examples / self.data.examples()).max(1)
    }

    /// How much of what is held out that is.
    pub fn coverage(&self) -> Coverage {
        let Places { windows, examples, .. } = self.places;
        let of = match &self.data.source {
            Source::Windows(_) | Source::Images(_) => Some(windows),
            Source::Shapes(_) | Source::Synthetic(_) => None,
        };
        Coverage { examples, of }
    }
}

impl Places {
    /// The held-out example that is looked at in some place.
    fn index(self, place: u64) -> u64 {
        let windows = u128::from(self.windows);
        let index = match self.spread {
            Spread::Even => u128::from(place) * windows / u128::from(self.examples),
            Spread::Round(distance) => u128::from(place) * u128::from(distance),
        };
        (index % windows) as u64
    }
}

/// The distance next to the golden section of a whole with which steps round it meet every place
/// before any twice.
fn golden_distance(whole: u64) -> u64 {
    let golden = (whole as f64 * 0.618_033_988_749_895) as u64;
    (golden.max(1)..whole).find(|distance| gcd(*distance, whole) == 1).unwrap_or(1)
}

impl Feed for HeldOut {
    fn fill(&mut self, input: InputId, _: u64, micro_batch: u64, bytes: &mut [u8]) {
        let places = self.places;
        let example = |place| Example::HeldOut { index: places.index(place) };
        self.data.fill_rows(input, micro_batch, bytes, example);
    }
}

#[cfg(test)]
pub(crate) mod tests;
