//! Which of the library's algorithms makes a product fastest on this GPU: each is tried where nobody has
//! tried yet, and the best one is kept on disk.
//!
//! Algorithms differ in bits, so what is chosen must be the same in the next run: only what can be
//! kept is tried, whoever keeps a choice first decides, and without one the library's own first
//! choice stands; it is kept too where a trial fails.

use super::{
    bounce::{alone, wait},
    cache::{cache_folder, can_keep, keep, read},
    driver::{Address, Device, DeviceFacts, DeviceMemory, DriverError, Event, Stream},
    products::{Addresses, Algorithm, Extents, Handle, Plan, WORKSPACE},
};
use crate::digest::Digest;
use roundelay_schedule::{Bytes, Nanos};
use std::{
    mem,
    path::{Path, PathBuf},
    time::Duration,
};

/// Whether algorithms are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trials {
    /// Where nothing is kept yet.
    Made,
    /// Never: what was kept is taken, for other ranks do the same.
    Left,
}

/// Rounds of trials; the best of each algorithm counts.
const ROUNDS: usize = 3;

/// Products between two moments.
const REPEATED: u64 = 8;

/// Of how many hundredths of the time an algorithm may take less without being noticed.
const NOTICED: u64 = 2;

/// How long a trial may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A byte of which numbers of every type have an ordinary size.
const ORDINARY: u8 = 0x3c;

/// Chooses algorithms for one GPU.
pub(super) struct Tuner {
    facts: DeviceFacts,
    folder: Option<PathBuf>,
    /// Whether what is not known is found out and kept.
    finds: bool,
    /// Whether a trial was not done in time, or the device failed: then nothing more is tried.
    stalled: bool,
}

/// Memory in which a product is tried.
struct Bench {
    stream: Stream,
    events: [Event; 2],
    at: Addresses,
    workspace: Address,
    _memory: DeviceMemory,
    _device: Device,
}

impl Tuner {
    /// For a GPU, with what is kept in the user's folder for such things.
    pub(super) fn new(facts: &DeviceFacts, trials: Trials) -> Self {
        let folder = cache_folder();
        let finds = trials == Trials::Made && folder.as_deref().is_some_and(can_keep);
        Self { facts: facts.clone(), folder, finds, stalled: false }
    }

    /// The one of some algorithms that makes a product, which `text` says in words; the library's
    /// first choice is the first of them.
    pub(super) fn choose(
        &mut self,
        (plan, handle): (&mut Plan, &Handle),
        (text, extents): (&str, Extents),
        algorithms: &[Algorithm],
    ) -> Option<Algorithm> {
        let first = algorithms.first().copied()?;
        let Some(folder) = self.folder.as_ref().filter(|_| algorithms.len() > 1) else {
            return Some(first);
        };
        let file = folder.join(self.name(text));
        let known = read(&file).and_then(|kept| find(algorithms, &kept));
        if known.is_some() || !self.finds {
            return known.or(Some(first));
        }
        let best = match self.stalled {
            true => 0,
            false => self.try_all((plan, handle), extents, algorithms).unwrap_or(0),
        };
        Some(kept(&file, algorithms, best).unwrap_or(first))
    }

    fn name(&self, text: &str) -> String {
        let DeviceFacts { name, capability, multiprocessors, driver, products, .. } =
            &self.facts;
        let device = format!("{name} {capability:?} {multiprocessors}");
        let versions = format!("{driver:?} {products}");
        let mut digest = Digest::new();
        for part in [device.as_str(), &versions, text] {
            digest.add(part.as_bytes());
        }
        format!("product-{:016x}.algorithm", digest.value())
    }

    fn try_all(
        &mut self,
        (plan, handle): (&mut Plan, &Handle),
        extents: Extents,
        algorithms: &[Algorithm],
    ) -> Result<usize, DriverError> {
        let bench = Bench::new(self.facts.ordinal, extents)?;
        let mut least = vec![None; algorithms.len()];
        for _ in 0..ROUNDS {
            for (least, algorithm) in least.iter_mut().zip(algorithms) {
                plan.take(*algorithm);
                let time = match bench.time(plan, handle) {
                    Ok(time) => time,
                    Err(late) => {
                        // What is not done may still use the memory.
                        mem::forget(bench);
                        self.stalled = true;
                        return Err(late);
                    }
                };
                *least = [*least, time].into_iter().flatten().min();
            }
        }
        Ok(best(&least))
    }
}

/// The place of what is kept among algorithms; none where the library does not offer it.
fn find(algorithms: &[Algorithm], kept: &[u8]) -> Option<Algorithm> {
    algorithms.iter().copied().find(|algorithm| algorithm.bytes() == kept)
}

/// Keeps the best of some algorithms, or finds what somebody else kept meanwhile; none where nothing
/// can be kept.
fn kept(file: &Path, algorithms: &[Algorithm], best: usize) -> Option<Algorithm> {
    find(algorithms, &keep(file, &algorithms[best].bytes()).ok()?)
}

/// The place of the least time; the first one's unless another takes noticeably less.
fn best(times: &[Option<Nanos>]) -> usize {
    let known =
        times.iter().enumerate().filter_map(|(place, time)| Some(((*time)?, place)));
    let Some((least, place)) = known.min() else { return 0 };
    match times.first() {
        Some(Some(first)) if least.0 * 100 >= first.0 * (100 - NOTICED) => 0,
        Some(_) | None => place,
    }
}

impl Bench {
    fn new(ordinal: u32, extents: Extents) -> Result<Self, DriverError> {
        let device = Device::open(ordinal).map_err(|absent| DriverError {
            call: "cuDevicePrimaryCtxRetain",
            reason: absent.to_string(),
            code: 0,
        })?;
        let sizes = [extents.a, extents.b, extents.out, extents.bias, WORKSPACE];
        let sizes =
            sizes.map(|Bytes(size)| size.next_multiple_of(super::arena::ALIGNMENT));
        let bytes: u64 = sizes.iter().sum();
        let memory = DeviceMemory::new(&device, bytes)?;
        let stream = Stream::new()?;
        stream.fill(memory.start(), ORDINARY, bytes)?;
        let mut next = memory.start();
        let [a, b, out, bias, workspace] = sizes.map(|size| {
            let start = next;
            next = start.plus(size);
            start
        });
        let at = Addresses { a, b, out, added: out, bias: Some(bias) };
        let events = [Event::timed()?, Event::timed()?];
        Ok(Self { stream, events, at, workspace, _memory: memory, _device: device })
    }

    /// What a product takes, after one that is not counted; none where the library refuses it.
    ///
    /// # Errors
    /// When it is not done in time, or the device fails.
    fn time(
        &self,
        plan: &mut Plan,
        handle: &Handle,
    ) -> Result<Option<Nanos>, DriverError> {
        let Self { stream, events: [start, end], at, workspace, .. } = self;
        if plan.run(handle, *at, *workspace, stream).is_err() {
            return Ok(None);
        }
        stream.record(start)?;
        for _ in 0..REPEATED {
            plan.run(handle, *at, *workspace, stream)?;
        }
        stream.record(end)?;
        wait(end, PATIENCE, &mut alone)
            .map_err(|unreached| unreached.reason("a product", PATIENCE))?;
        Ok(Some(Nanos(end.since(start)?.0 / REPEATED)))
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
        assert_eq!(best(&[100, 99, 98]), 0);
        assert_eq!(best(&[100, 99, 97]), 2);
        assert_eq!(best(&[100, 90, 90]), 1, "the earlier of two");
        assert_eq!(super::best(&[None, Some(Nanos(5)), Some(Nanos(4))]), 2);
        assert_eq!(super::best(&[None, None]), 0);
    }
}
