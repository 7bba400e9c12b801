//! Which of some ways makes a product or a convolution fastest on this GPU: each is tried where nobody
//! has tried yet, and the best one is kept on disk.
//!
//! How long a way takes on the device is found out by `tuning/timing.rs`.
//!
//! Ways differ in bits, so what is chosen must be the same in the next run: only what can be
//! kept is tried, whoever keeps a choice first decides, and without one the first way stands.
//! A trial that fails would fail again, so the first way is kept for what was tried. Nothing more is tried in
//! that run, and nothing is kept for the rest: a GPU that was in trouble once must not be slow for ever, and
//! the next run tries what is left.
//! Each rank tries on its own GPU what it has not kept, and all agree afterwards.

mod timing;

use super::{
    super::{
        bounce::{Bounce, Unreached},
        driver::{
            Address, Device, DeviceFacts, DeviceMemory, DriverError, Event, Stream,
        },
    },
    cache::{cache_folder, can_keep},
    choices::{Choices, Words},
    products::WORKSPACE,
};
use crate::{
    digest::Digest,
    ranks::{Control, Trouble},
};
use roundelay_schedule::{Bytes, Nanos};
use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};
use timing::Found;

/// Whether ways are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum Trials {
    /// Where nothing is kept yet.
    Made,
    /// Never: what was kept is taken, for a training beside may have the memory.
    Left,
    /// Never: libraries make what they can, for whoever asks looks at all that they make.
    Skipped,
}

/// How times were found, in the names of what is kept: times that are found otherwise say nothing of these.
const TIMED: &str = "replayed, of what is drawn";

/// Of how many hundredths of the time a way may take less without being noticed.
const NOTICED: u64 = 2;

/// How long what is tried may take between two moments.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// A byte of which numbers of every type have an ordinary size.
const ORDINARY: u8 = 0x3c;

/// Something that is made in one of several ways.
pub(super) trait Tried {
    /// What says which way each is, for the same GPU and libraries; the first one stands unless
    /// another is known to be faster.
    fn ways(&self) -> Vec<Vec<u8>>;
    /// How far each of the arrays reaches in which it is tried.
    fn extents(&self) -> Vec<Bytes>;
    /// The most memory that a library takes beside them.
    fn workspace(&self) -> Bytes {
        WORKSPACE
    }
    /// Gets the arrays ready, in which every number is of an ordinary size. Says of each way whether
    /// it may be taken.
    ///
    /// # Errors
    /// When something is not done in time, or the device fails.
    fn prepare(&mut self, bench: &mut Bench) -> Result<Vec<bool>, Unreached>;
    /// Gives it to the stream in one of the ways.
    ///
    /// # Errors
    /// When that way is refused.
    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError>;
}

/// A way, and why it is that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Somebody tried.
    Kept(usize),
    /// The first one: nobody did.
    First,
}

/// What is known of the ways of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// What says which one somebody kept.
    Kept(Vec<u8>),
    /// Nothing: they may be tried.
    Open,
    /// Nothing, and nothing is tried.
    Closed,
}

/// Whether what is not known is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// And kept.
    Kept,
    /// It could not be kept.
    Unkept,
    /// Others decide, or a trial was not done in time or failed: then nothing more is tried.
    Left,
}

/// Why a trial says nothing.
enum Missed {
    /// There is none, and nothing is to be said of it.
    Left,
    /// There is none, for a reason in words.
    Untried(String),
    /// It was not done to its end.
    Unreached(Unreached),
}

impl<T: Into<Unreached>> From<T> for Missed {
    fn from(error: T) -> Self {
        Self::Unreached(error.into())
    }
}

/// Chooses ways for one GPU.
pub(super) struct Tuner {
    facts: DeviceFacts,
    pub(super) trials: Trials,
    choices: Choices,
    finding: Finding,
    /// When the last trial ended.
    before: Option<Instant>,
    /// In words the first way that was left out because it cannot be recorded.
    unrecorded: Option<String>,
    /// In words the first thing of which nobody knows the best way, and why.
    untried: Option<String>,
    /// Of the ranks of which this is one; where one of them fails, the others try nothing more.
    control: Option<Arc<Control>>,
}

/// Says what has gone wrong on another rank.
type Watch<'a> = dyn FnMut() -> Result<(), Trouble> + 'a;

/// Memory in which something is tried.
pub(super) struct Bench {
    pub(super) stream: Stream,
    pub(super) bounce: Bounce,
    events: [Event; 2],
    /// Where each of its arrays starts.
    pub(super) arrays: Vec<Address>,
    /// For a library, as long as what is tried may take.
    pub(super) workspace: Address,
    _memory: DeviceMemory,
    _device: Device,
}

impl Tuner {
    /// For a GPU, with what is kept in the user's folder for such things.
    pub(super) fn new(facts: &DeviceFacts, trials: Trials) -> Self {
        let folder = cache_folder();
        let finding = match trials {
            Trials::Made if folder.as_deref().is_some_and(can_keep) => Finding::Kept,
            Trials::Made => Finding::Unkept,
            Trials::Left | Trials::Skipped => Finding::Left,
        };
        Self {
            facts: facts.clone(),
            trials,
            choices: Choices::new(folder),
            finding,
            before: None,
            unrecorded: None,
            untried: None,
            control: None,
        }
    }

    /// For one rank of several.
    pub(super) fn among(&mut self, control: &Arc<Control>) {
        self.control = Some(Arc::clone(control));
    }

    /// What ranks agree on is taken from now on, and nothing tried.
    pub(super) fn agree(&mut self, agreed: Words) {
        self.finding = Finding::Left;
        self.choices.agree(agreed);
    }

    /// Which ways were taken.
    pub(super) fn choices(&self) -> &Choices {
        &self.choices
    }

    /// In words the first way that was left out because it cannot be part of a graph, and why.
    pub(super) fn unrecorded(&self) -> Option<&str> {
        self.unrecorded.as_deref()
    }

    /// In words the first thing that is made in the way that comes first, because its ways were not compared,
    /// and why.
    pub(super) fn untried(&self) -> Option<&str> {
        self.untried.as_deref()
    }

    /// The way in which something is made: a `kind` of thing which `text` says in words, by
    /// libraries of these versions.
    pub(super) fn choose(
        &mut self,
        tried: &mut dyn Tried,
        kind: &str,
        words: [&str; 2],
    ) -> Choice {
        let ((name, known), ways) = (self.standing(kind, words), tried.ways());
        let place = match known {
            Some(kept) => find(&ways, &kept).or_else(|| self.lost(kind, &name)),
            None => self.found(kind, &name, &ways, tried),
        };
        self.choices.note(name, place.map(|place| ways[place].clone()));
        place.map_or(Choice::First, Choice::Kept)
    }

    /// The first way stands where the one that is kept is not there: that of a trial would not be kept, for
    /// whoever kept one first decides.
    fn lost(&mut self, kind: &str, name: &str) -> Option<usize> {
        if let Some(file) = self.choices.file(name) {
            self.untried.get_or_insert_with(|| {
                format!(
                    "{kind}: `{}` keeps a way that is not there; remove it to have all tried again",
                    file.display()
                )
            });
        }
        None
    }

    /// The place of the way that is found now; none where the first one stands unkept.
    fn found(
        &mut self,
        kind: &str,
        name: &str,
        ways: &[Vec<u8>],
        tried: &mut dyn Tried,
    ) -> Option<usize> {
        if ways.len() < 2 {
            return None;
        }
        let best = match self.try_all(tried) {
            Ok(Found { best, unrecorded }) => {
                if let Some((way, reason)) = unrecorded {
                    let (place, all) = (way + 1, ways.len());
                    self.unrecorded.get_or_insert_with(|| {
                        format!("{kind}, way {place} of {all}: {reason}")
                    });
                }
                best
            }
            Err(missed) => self.miss(kind, missed),
        };
        find(ways, &self.choices.keep(name, &ways[best?])?)
    }

    /// What is known of something, as [`Tuner::choose`] takes it, before its ways are.
    pub(super) fn known(&mut self, kind: &str, words: [&str; 2]) -> Known {
        let (name, known) = self.standing(kind, words);
        self.choices.note(name, known.clone());
        match known {
            Some(way) => Known::Kept(way),
            None if self.finding == Finding::Kept => Known::Open,
            None => Known::Closed,
        }
    }

    /// Something is not made in the way that was known or chosen after all.
    pub(super) fn withdraw(&mut self, kind: &str, words: [&str; 2]) {
        let (name, _) = self.standing(kind, words);
        self.choices.note(name, None);
    }

    /// The name under which something is kept, and what is.
    fn standing(&self, kind: &str, words: [&str; 2]) -> (String, Option<Vec<u8>>) {
        let name = self.name(kind, words);
        let known = self.choices.known(&name);
        (name, known)
    }

    fn name(&self, kind: &str, [versions, text]: [&str; 2]) -> String {
        let DeviceFacts { name, capability, multiprocessors, .. } = &self.facts;
        let device = format!("{name} {capability:?} {multiprocessors}");
        let mut digest = Digest::new();
        for part in [device.as_str(), TIMED, versions, text] {
            digest.add(part.as_bytes());
        }
        format!("{kind}-{:016x}.algorithm", digest.value())
    }

    /// The way that is kept of a `kind` of thing whose trial says nothing, of which the reason is told.
    fn miss(&mut self, kind: &str, missed: Missed) -> Option<usize> {
        let (kept, reason) = match missed {
            Missed::Left | Missed::Unreached(Unreached::Called(_)) => return None,
            Missed::Untried(reason) => (None, reason),
            Missed::Unreached(unreached @ (Unreached::Broken(_) | Unreached::Late)) => {
                (Some(0), unreached.reason("the trial", DEADLINE).to_string())
            }
        };
        self.untried.get_or_insert_with(|| format!("{kind}: {reason}"));
        kept
    }

    /// The best way that a trial finds.
    fn try_all(&mut self, tried: &mut dyn Tried) -> Result<Found, Missed> {
        match self.finding {
            Finding::Kept => {}
            Finding::Left => return Err(Missed::Left),
            Finding::Unkept => return Err(Missed::Untried(self.choices.unkept())),
        }
        let Self { control, finding, before, .. } = self;
        let mut watch = || {
            let trouble = control.as_ref().and_then(|control| control.trouble());
            trouble.map_or(Ok(()), Err)
        };
        watch()?;
        let memory = (&tried.extents()[..], tried.workspace());
        let bench = Bench::new(self.facts.ordinal, memory);
        let mut bench = bench.map_err(|reason| Missed::Untried(reason.to_string()))?;
        let found = bench.compare(tried, *before, &mut watch);
        *before = Some(Instant::now());
        if found.is_err() {
            // What is not done may still use the memory.
            mem::forget(bench);
            *finding = Finding::Left;
        }
        Ok(found?)
    }
}

/// The place of what is kept among ways; none where it is no longer one of them.
fn find(ways: &[Vec<u8>], kept: &[u8]) -> Option<usize> {
    ways.iter().position(|way| way == kept)
}

/// The place of the least time; the first one's unless another takes noticeably less; none where
/// there are no times.
fn best(times: &[Option<Nanos>]) -> Option<usize> {
    let known =
        times.iter().enumerate().filter_map(|(place, time)| Some(((*time)?, place)));
    let (least, place) = known.min()?;
    match times.first() {
        Some(Some(first)) if least.0 * 100 >= first.0 * (100 - NOTICED) => Some(0),
        Some(_) | None => Some(place),
    }
}

impl Bench {
    fn new(
        ordinal: u32,
        (extents, workspace): (&[Bytes], Bytes),
    ) -> Result<Self, DriverError> {
        let device = Device::open(ordinal).map_err(|absent| DriverError {
            call: "cuDevicePrimaryCtxRetain",
            reason: absent.to_string(),
            code: 0,
        })?;
        let rounded =
            |Bytes(size): Bytes| size.next_multiple_of(crate::cuda::arena::ALIGNMENT);
        let sizes = extents.iter().copied().map(rounded);
        let bytes = sizes.clone().sum::<u64>() + rounded(workspace);
        let memory = DeviceMemory::new(&device, bytes)?;
        let stream = Stream::new()?;
        stream.fill(memory.start(), ORDINARY, bytes)?;
        let mut next = memory.start();
        let arrays = sizes.map(|size| {
            let start = next;
            next = start.plus(size);
            start
        });
        let arrays = arrays.collect();
        let (events, bounce) = ([Event::timed()?, Event::timed()?], Bounce::new()?);
        let (workspace, _memory, _device) = (next, memory, device);
        Ok(Self { stream, bounce, events, arrays, workspace, _memory, _device })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_choice_stands_unless_another_is_noticeably_faster() {
        let times = |of: &[u64]| of.iter().map(|time| Some(Nanos(*time))).collect();
        let best = |of: &[u64]| {
            let times: Vec<Option<Nanos>> = times(of);
            super::best(&times)
        };
        assert_eq!(best(&[100, 99, 98]), Some(0));
        assert_eq!(best(&[100, 99, 97]), Some(2));
        assert_eq!(best(&[100, 90, 90]), Some(1), "the earlier of two");
        assert_eq!(super::best(&[None, Some(Nanos(5)), Some(Nanos(4))]), Some(2));
        assert_eq!(super::best(&[None, None]), None);
    }
}
