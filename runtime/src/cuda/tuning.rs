//! Which of the library's algorithms makes a product fastest on this GPU, and whether it is faster with
//! an activation or with a pass of ours behind it: each is tried where nobody has tried yet, and the
//! best one is kept on disk.
//!
//! Algorithms and activations differ in bits, so what is chosen must be the same in the next run: only what can be
//! kept is tried, whoever keeps a choice first decides, and without one the library's own first
//! choice stands; it is kept too where a trial fails.

use super::{
    bounce::{alone, wait},
    cache::{cache_folder, can_keep, keep, read},
    code::Binding,
    driver::{
        Address, Device, DeviceFacts, DeviceMemory, DriverError, Event, Function,
        Parameters, Stream,
    },
    functions::Functions,
    products::{Addresses, Algorithm, Extents, Handle, Plan, WORKSPACE},
};
use crate::digest::Digest;
use roundelay_kernels::cuda::{CallPlace, Epilogue, Launch, Matrix, Product};
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

/// Where the activation behind a product is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// In the product.
    Within,
    /// By a pass of ours.
    Behind,
}

impl Activation {
    const ALL: [Self; 2] = [Self::Within, Self::Behind];

    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Within => b"within",
            Self::Behind => b"behind",
        }
    }

    fn of(kept: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.bytes() == kept)
    }
}

/// A pass of ours behind a product of which it makes the rest.
pub(super) struct OwnPass {
    function: Function,
    launch: Launch,
    parameters: Parameters,
    /// Where the product is made for it.
    made: CallPlace,
}

/// Where trials have what comes out, and what is before an activation.
const OUT: CallPlace = CallPlace::Operand(0, Bytes(0));
const BEFORE: CallPlace = CallPlace::Operand(1, Bytes(0));

impl OwnPass {
    /// Of a product with an activation; none where its function cannot be loaded, which is said by
    /// who needs it.
    pub(super) fn new(product: &Product, functions: &mut Functions) -> Option<Self> {
        let epilogue = match product.epilogue {
            Epilogue::Plain | Epilogue::Bias(_) | Epilogue::BiasRelu(_) => return None,
            Epilogue::BiasGelu { bias, .. } => {
                Epilogue::BiasGelu { bias, before: BEFORE }
            }
            Epilogue::BiasGeluTanh { bias, .. } => {
                Epilogue::BiasGeluTanh { bias, before: BEFORE }
            }
            Epilogue::GeluTanhSlope { .. } => Epilogue::GeluTanhSlope { before: BEFORE },
        };
        let out = Matrix { place: OUT, ..product.out };
        let (part, launch) = Product { out, epilogue, ..*product }.apart()?;
        let function = functions.of(&launch).ok()?;
        let (parameters, made) = (Parameters::default(), part.out.place);
        Some(Self { function, launch, parameters, made })
    }
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
            false => {
                let run = |bench: &Bench, candidate: usize| {
                    plan.take(algorithms[candidate]);
                    bench.product(plan, handle, bench.at)
                };
                let tried = self.least(extents, algorithms.len(), run);
                tried.map_or(0, |times| best(&times))
            }
        };
        Some(kept(&file, algorithms, best).unwrap_or(first))
    }

    /// Where an activation is done: in the first of two plans, or behind the second, by the pass that
    /// `own` makes. The first one stands unless the other is noticeably faster.
    pub(super) fn activation(
        &mut self,
        ([within, behind], handle): ([&mut Plan; 2], &Handle),
        (text, extents): (&str, Extents),
        own: impl FnOnce() -> Option<OwnPass>,
    ) -> Activation {
        let Some(folder) = &self.folder else { return Activation::Within };
        let file = folder.join(self.name(&format!("the activation of {text}")));
        let known = read(&file).and_then(|kept| Activation::of(&kept));
        if known.is_some() || !self.finds {
            return known.unwrap_or(Activation::Within);
        }
        let tried = match self.stalled {
            true => None,
            false => own().and_then(|mut own| {
                let run = |bench: &Bench, candidate| match candidate {
                    0 => bench.product(within, handle, bench.at),
                    _ => bench.passed(behind, handle, &mut own),
                };
                self.least(extents, Activation::ALL.len(), run).ok()
            }),
        };
        let found =
            tried.map_or(Activation::Within, |times| Activation::ALL[best(&times)]);
        let kept = keep(&file, found.bytes()).ok();
        kept.and_then(|kept| Activation::of(&kept)).unwrap_or(Activation::Within)
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

    /// The least that each of some candidates takes, none for those that the library refuses; `run`
    /// gives one to the stream of a bench.
    fn least(
        &mut self,
        extents: Extents,
        candidates: usize,
        mut run: impl FnMut(&Bench, usize) -> Result<(), DriverError>,
    ) -> Result<Vec<Option<Nanos>>, DriverError> {
        let bench = Bench::new(self.facts.ordinal, extents)?;
        let mut least = vec![None; candidates];
        for _ in 0..ROUNDS {
            for (candidate, least) in least.iter_mut().enumerate() {
                let time = match bench.time(|| run(&bench, candidate)) {
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
        Ok(least)
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
        let Extents { a, b, out, bias, before } = extents;
        let sizes = [a, b, out, bias, before, WORKSPACE];
        let sizes =
            sizes.map(|Bytes(size)| size.next_multiple_of(super::arena::ALIGNMENT));
        let bytes: u64 = sizes.iter().sum();
        let memory = DeviceMemory::new(&device, bytes)?;
        let stream = Stream::new()?;
        stream.fill(memory.start(), ORDINARY, bytes)?;
        let mut next = memory.start();
        let [a, b, out, bias, before, workspace] = sizes.map(|size| {
            let start = next;
            next = start.plus(size);
            start
        });
        let (bias, before) = (Some(bias), (extents.before > Bytes(0)).then_some(before));
        let at = Addresses { a, b, out, added: out, bias, before };
        let events = [Event::timed()?, Event::timed()?];
        Ok(Self { stream, events, at, workspace, _memory: memory, _device: device })
    }

    /// Gives a product to the stream.
    fn product(
        &self,
        plan: &mut Plan,
        handle: &Handle,
        at: Addresses,
    ) -> Result<(), DriverError> {
        Ok(plan.run(handle, at, self.workspace, &self.stream)?)
    }

    /// Gives a product to the stream that has no activation, and a pass of ours behind it.
    fn passed(
        &self,
        plan: &mut Plan,
        handle: &Handle,
        own: &mut OwnPass,
    ) -> Result<(), DriverError> {
        let OwnPass { function, launch, parameters, made } = own;
        let operands = [self.at.out, self.at.before.unwrap_or(self.at.out)];
        let binding = Binding::of(&operands, self.workspace);
        let out = binding.address(*made);
        let at = Addresses { out, added: out, before: None, ..self.at };
        self.product(plan, handle, at)?;
        binding.fill(parameters, launch);
        self.stream.launch(function, launch, parameters)
    }

    /// What something takes, after once that is not counted; none where the library refuses it.
    ///
    /// # Errors
    /// When it is not done in time, or the device fails.
    fn time(
        &self,
        mut run: impl FnMut() -> Result<(), DriverError>,
    ) -> Result<Option<Nanos>, DriverError> {
        let Self { stream, events: [start, end], .. } = self;
        if run().is_err() {
            return Ok(None);
        }
        stream.record(start)?;
        for _ in 0..REPEATED {
            run()?;
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
