//! Who makes each convolution: the library by one of its engines, where a trial found it faster and
//! its numbers those of our functions, or these functions; which is never left unsaid.

use super::{
    super::{
        bounce::Unreached,
        driver::{Device, DeviceFacts, DriverError, Parameters, Stream},
    },
    code::{Binding, Operand},
    convolutions::{arrays, graph},
    cudnn::{
        Handle, Refused, Unusable, data_type,
        engine::{Chosen, Configuration, Engines, Target},
    },
    drawn::{Distance, extents},
    functions::{Loaded, digest_of},
    tools::Tools,
    tuning::{Bench, Choice, Known, Trials, Tried},
};
use crate::{digest::Digest, machine::Makers};
use roundelay_kernels::cuda::{Array, CallPlace, Convolution};
use roundelay_schedule::Bytes;

/// What is tried, in the names of files that keep choices.
const KIND: &str = "convolution";

/// What says that our own functions are best.
const OWN: &[u8] = b"own functions";

/// Why a convolution is made by functions of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    /// The library makes nothing here.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It convolves no such numbers.
    #[error("cuDNN convolves arrays of one type of 16 or 32 bits")]
    Types,
    /// It has no way to make it.
    #[error("of {words} cuDNN {refused}")]
    Refused { refused: Refused, words: String },
    /// Nobody tried what is faster.
    #[error("no trial was kept that says whether cuDNN is faster")]
    Untried,
    /// Ours were faster.
    #[error("our own kernels won the trial")]
    Slower,
}

/// Our functions for a convolution, loaded.
#[derive(Clone, Copy)]
pub(super) struct Own<'a> {
    pub(super) loaded: &'a Loaded,
    /// What the call takes beside its operands.
    pub(super) scratch: Bytes,
}

/// The plans of the library for convolutions.
pub(super) struct Convolver {
    /// By shape, that is the convolution with all arrays at the beginning of something.
    plans: Vec<(Convolution, Result<Chosen, Reason>)>,
    /// Of what times and engines depend on.
    versions: String,
    counts: Makers,
}

impl Convolver {
    /// For a GPU.
    pub(super) fn new(device: &Device) -> Self {
        let facts = device.facts();
        let DeviceFacts { driver, compiler, convolutions, .. } = facts;
        Self {
            plans: Vec::new(),
            versions: format!("{driver:?} {compiler:?} {convolutions:?}"),
            counts: Makers::default(),
        }
    }

    /// Forgets all plans, but not what trials found to be wrong.
    pub(super) fn forget(&mut self) {
        self.plans.clear();
        self.counts.forget();
    }

    /// Who makes the convolutions that were planned so far.
    pub(super) fn counts(&self) -> &Makers {
        &self.counts
    }

    /// How they are made, as for products.
    pub(super) fn ways(&self) -> String {
        let mut digest = Digest::new();
        for (shape, plan) in &self.plans {
            if let Ok(plan) = plan {
                digest.add(format!("{shape:?}").as_bytes());
                digest.add(&plan.name);
            }
        }
        self.counts.ways(digest)
    }

    /// Memory that the library takes for a plan beside the arrays.
    pub(super) fn workspace(&self, plan: usize) -> Bytes {
        let made = self.plans[plan].1.as_ref();
        made.map_or(Bytes(0), |chosen| chosen.plan.workspace())
    }

    /// The plan of a convolution of a call with these operands; none where functions of ours make it.
    pub(super) fn plan(
        &mut self,
        convolution: &Convolution,
        operands: &[Operand],
        own: Own<'_>,
        tools: &mut Tools,
    ) -> Option<usize> {
        let plan = self.planned(convolution, operands, own, tools);
        self.counts.count(plan)
    }

    fn planned(
        &mut self,
        convolution: &Convolution,
        operands: &[Operand],
        own: Own<'_>,
        tools: &mut Tools,
    ) -> Result<usize, Reason> {
        tools.cudnn.version()?;
        let Convolution { x, weight, y, .. } = convolution;
        let one_type = x.number == weight.number && x.number == y.number;
        if !one_type || data_type(x.number).is_none() {
            return Err(Reason::Types);
        }
        tools.cudnn.reaches([x, weight, y].map(|array| array.place), operands)?;
        let shape = shape(convolution);
        let known = self.plans.iter().position(|(other, _)| *other == shape);
        let place = match known {
            Some(place) => place,
            None => {
                let plan = self.made(convolution, &shape, own, tools);
                self.plans.push((shape, plan));
                self.plans.len() - 1
            }
        };
        match &self.plans[place].1 {
            Ok(_) => Ok(place),
            Err(reason) => Err(reason.clone()),
        }
    }

    /// The plan that is known to be best, or found to be now.
    fn made(
        &mut self,
        convolution: &Convolution,
        shape: &Convolution,
        own: Own<'_>,
        tools: &mut Tools,
    ) -> Result<Chosen, Reason> {
        let text = format!("{shape:?} by {:016x}", digest_of(own.loaded.launches()));
        let versions = self.versions.clone();
        let words = [versions.as_str(), &text];
        let made = self.best(convolution, own, words, tools);
        match &made {
            Err(Reason::Unusable(_) | Reason::Refused { .. }) => {
                tools.tuner.withdraw(KIND, words);
            }
            Ok(_) | Err(Reason::Types | Reason::Untried | Reason::Slower) => {}
        }
        made
    }

    /// Where own functions are taken the library is not started, which takes time and memory.
    fn best(
        &mut self,
        convolution: &Convolution,
        own: Own<'_>,
        words: [&str; 2],
        tools: &mut Tools,
    ) -> Result<Chosen, Reason> {
        match tools.tuner.known(KIND, words) {
            Known::Kept(way) if way == OWN => return Err(Reason::Slower),
            Known::Closed if tools.tuner.trials != Trials::Skipped => {
                return Err(Reason::Untried);
            }
            Known::Kept(_) | Known::Open | Known::Closed => {}
        }
        let refused = |refused| Reason::Refused { refused, words: words_of(convolution) };
        let handle = tools.cudnn.start()?;
        let graph = graph(convolution, Target::Started(handle)).map_err(refused)?;
        let engines = Engines::new(graph, handle);
        if tools.tuner.trials == Trials::Skipped {
            return engines.first().map_err(refused);
        }
        let parameters = Parameters::default();
        let mut trial = Trial { engines, convolution, own, parameters, wrong: None };
        let choice = tools.tuner.choose(&mut trial, KIND, words);
        if let Some(wrong) = trial.wrong.take() {
            self.counts.wrong.get_or_insert(wrong);
        }
        match choice {
            Choice::First => Err(Reason::Untried),
            Choice::Kept(way) => {
                let engine = way.checked_sub(1).ok_or(Reason::Slower)?;
                trial.engines.take(engine).map_err(refused)
            }
        }
    }

    /// Gives a convolution, whose arrays are here, to a stream.
    ///
    /// # Errors
    /// When the library refuses it.
    pub(super) fn run(
        &self,
        plan: usize,
        places: [CallPlace; 3],
        binding: &Binding<'_>,
        to: (&Handle, &Stream),
    ) -> Result<(), DriverError> {
        let chosen = self.plans[plan].1.as_ref();
        let chosen = chosen.expect("a step is the library's where it has a plan");
        chosen.run(places, binding, to)
    }
}

/// A convolution without its places, and without the functions that follow from the rest.
fn shape(convolution: &Convolution) -> Convolution {
    let place = CallPlace::Operand(0, Bytes(0));
    let nowhere = |array: Array| Array { place, ..array };
    let Convolution { x, weight, y, .. } = convolution;
    let [x, weight, y] = [*x, *weight, *y].map(nowhere);
    Convolution { x, weight, y, own: Vec::new(), ..convolution.clone() }
}

/// A convolution in words.
fn words_of(convolution: &Convolution) -> String {
    let Convolution { batch, input, kernel, channels, filters, groups, stride, .. } =
        convolution;
    let ([height, width], [high, wide]) = (input, kernel);
    format!(
        "{batch} images of {height} x {width} x {channels} with {filters} filters of {high} x {wide}, \
         stride {stride} and {groups} groups"
    )
}

/// A convolution that is tried by our functions and by every engine of the library.
struct Trial<'a> {
    engines: Engines<'a>,
    convolution: &'a Convolution,
    own: Own<'a>,
    parameters: Parameters,
    /// In words the first engine that makes other numbers than our functions.
    wrong: Option<String>,
}

impl Trial<'_> {
    fn tell(&mut self, engine: usize, error: f64) {
        let (words, configurations) =
            (words_of(self.convolution), self.engines.configurations());
        let engine = &configurations[engine];
        self.wrong.get_or_insert_with(|| {
            format!(
                "{engine}, differs from our own kernels by {error:.1e} of the largest number, for {words}"
            )
        });
    }
}

impl Tried for Trial<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        let library = self.engines.configurations().iter().map(Configuration::bytes);
        [OWN.to_vec()].into_iter().chain(library).collect()
    }

    fn extents(&self) -> Vec<Bytes> {
        extents(&arrays(self.convolution), self.own.scratch)
    }

    fn workspace(&self) -> Bytes {
        self.engines.workspace()
    }

    fn prepare(&mut self, bench: &mut Bench) -> Result<Vec<bool>, Unreached> {
        let arrays = arrays(self.convolution);
        let distances = bench.distances(self, &arrays)?;
        for (way, distance) in distances.iter().enumerate().skip(1) {
            if let Distance::Far(error) = distance {
                self.tell(way - 1, *error);
            }
        }
        let open = distances.iter().map(|distance| *distance == Distance::Near);
        Ok(open.collect())
    }

    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError> {
        let (binding, stream) = (bench.binding(), &bench.stream);
        let Some(engine) = way.checked_sub(1) else {
            return self.own.loaded.give(&binding, &mut self.parameters, stream);
        };
        let Convolution { x, weight, y, .. } = self.convolution;
        let arrays = [x, weight, y].map(|array| binding.address(array.place));
        let done = self.engines.run(engine, &arrays, bench.workspace, stream);
        done.map_err(Refused::of_run)
    }
}
