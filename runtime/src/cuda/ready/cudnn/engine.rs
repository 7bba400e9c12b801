//! The engines of the library that make a graph, and plans by these.

use super::{
    Done, Handle, Refused, attribute, check,
    descriptor::{Descriptor, Kind, Note, Search},
    graph::{Draft, FIRST_VALUE, Parts},
};
use crate::cuda::{
    driver::{Address, DriverError, Stream, cudnn},
    ready::code::Binding,
};
use roundelay_kernels::cuda::{CallPlace, Number};
use roundelay_schedule::Bytes;
use std::{ffi::c_void, fmt, ptr};

#[cfg(test)]
pub(in crate::cuda::ready) mod described;

/// The most configurations of engines that the library is asked for; and that are tried of those of which
/// there are plans, which are those that it holds best.
const OFFERED: usize = 64;
const TRIED: usize = 12;

/// `CUDNN_HEUR_MODE_A`, which takes the library's word.
const BEST_FIRST: Search = Search(3);
/// What engines say of their numbers: `CUDNN_NUMERICAL_NOTE_...`. Tensor cores shorten numbers of 32 bits.
const TENSOR_CORE: Note = Note(0);
/// Inputs or sums are shortened, other bits are made in another run, or tiles are transformed as Winograd
/// has it (Lavin and Gray, arXiv 1509.09308), in which numbers lose digits.
const REFUSED: [Note; 7] =
    [Note(1), Note(2), Note(4), Note(5), Note(6), Note(7), Note(8)];
/// More than there are kinds of notes.
const NOTES: usize = 32;

/// For what a graph is planned.
#[derive(Clone, Copy)]
pub(in crate::cuda::ready) enum Target<'a> {
    /// The device that the library was started on.
    Started(&'a Handle),
    /// A device that is described and need not be here.
    #[cfg(test)]
    Described(&'a Descriptor),
}

/// One of the library's engines, set up for a graph.
pub(in crate::cuda::ready) struct Configuration {
    descriptor: Descriptor,
    /// Which one it is, for the same graph and version of the library: its place among those that are
    /// offered, and the number of its engine.
    name: [i64; 2],
}

impl Configuration {
    /// What says which one it is.
    pub(in crate::cuda::ready) fn bytes(&self) -> Vec<u8> {
        self.name.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [place, engine] = self.name;
        write!(f, "engine {engine}, offered in place {place}")
    }
}

/// A graph of operations, and the engines that may make it.
pub(in crate::cuda::ready) struct Graph {
    configurations: Vec<Configuration>,
    parts: Parts,
    /// The most memory that an engine may take beside its arrays.
    workspace: Bytes,
}

impl Graph {
    /// Asks by which engines a graph on arrays of a type may be made, within a workspace, that make the
    /// same bits every time and shorten no numbers, the one first that the library holds best.
    ///
    /// # Errors
    /// When there is none.
    pub(in crate::cuda::ready) fn new(
        draft: Draft,
        (number, workspace): (Number, Bytes),
        target: Target<'_>,
    ) -> Done<Self> {
        let graph = Descriptor::new(Kind::Graph)?
            .with_parts(attribute::OPERATIONGRAPH_OPS, &draft.operations())?;
        let graph = match target {
            Target::Started(handle) => {
                graph.for_library(attribute::OPERATIONGRAPH_HANDLE, handle)?
            }
            #[cfg(test)]
            Target::Described(_) => graph,
        };
        let graph = graph.finish()?;
        let configurations = configurations(&graph, number, target)?;
        match configurations.is_empty() {
            true => Err(Refused::Offerless),
            false => Ok(Self { configurations, parts: draft.finish(graph), workspace }),
        }
    }

    /// The engines that may make it.
    pub(in crate::cuda::ready) fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// The most memory that one of them may take beside its arrays.
    pub(in crate::cuda::ready) fn workspace(&self) -> Bytes {
        self.workspace
    }

    /// Its plan by one of them.
    ///
    /// # Errors
    /// When that engine does not make it after all, or takes more than the workspace.
    pub(in crate::cuda::ready) fn plan(
        &self,
        configuration: usize,
        target: Target<'_>,
    ) -> Done<Plan> {
        let engine = &self.configurations[configuration].descriptor;
        let plan = Descriptor::new(Kind::Plan)?
            .with_parts(attribute::EXECUTION_PLAN_ENGINE_CONFIG, &[engine])?;
        let plan = match target {
            Target::Started(handle) => {
                plan.for_library(attribute::EXECUTION_PLAN_HANDLE, handle)?
            }
            #[cfg(test)]
            Target::Described(device) => {
                plan.with_parts(attribute::EXECUTION_PLAN_DEVICEPROP, &[device])?
            }
        };
        let plan = plan.finish()?;
        let size = plan.values(attribute::EXECUTION_PLAN_WORKSPACE_SIZE, 0, 1)?;
        let size = size.first().and_then(|size| u64::try_from(*size).ok());
        match size.map(Bytes).filter(|size| *size <= self.workspace) {
            Some(workspace) => {
                let Parts { given, ref values, .. } = self.parts;
                let values = values.clone();
                Ok(Plan { plan, workspace, given, values })
            }
            None => Err(Refused::Offerless),
        }
    }
}

/// What the library offers for a graph, without what may make other bits in another run or loses digits.
fn configurations(
    graph: &Descriptor,
    number: Number,
    target: Target<'_>,
) -> Done<Vec<Configuration>> {
    let heuristics = Descriptor::new(Kind::Heuristics)?
        .with_parts(attribute::ENGINEHEUR_OPERATION_GRAPH, &[graph])?
        .with(attribute::ENGINEHEUR_MODE, &[BEST_FIRST])?;
    let heuristics = match target {
        Target::Started(_) => heuristics,
        #[cfg(test)]
        Target::Described(device) => {
            heuristics.with_parts(attribute::ENGINEHEUR_DEVICEPROP, &[device])?
        }
    };
    let results = heuristics.finish()?.parts(
        attribute::ENGINEHEUR_RESULTS,
        Kind::Configuration,
        OFFERED,
    )?;
    let mut configurations = Vec::new();
    for (place, descriptor) in (0..).zip(results) {
        let engine = descriptor.part(attribute::ENGINECFG_ENGINE, Kind::Engine)?;
        let notes = engine.values(attribute::ENGINE_NUMERICAL_NOTE, Note(0), NOTES)?;
        if may_take(&notes, number) {
            let index = engine.values(attribute::ENGINE_GLOBAL_INDEX, 0, 1)?;
            let index = index.first().copied().unwrap_or(-1);
            configurations.push(Configuration { descriptor, name: [place, index] });
        }
    }
    Ok(configurations)
}

/// Whether an engine of such notes makes the same bits every time, of numbers that keep their digits.
fn may_take(notes: &[Note], number: Number) -> bool {
    let shortens = match number {
        Number::Bf16 | Number::F16 => false,
        Number::F32 | Number::F64 => notes.contains(&TENSOR_CORE),
    };
    !shortens && !notes.iter().any(|note| REFUSED.contains(note))
}

/// How the library makes a graph.
pub(in crate::cuda::ready) struct Plan {
    plan: Descriptor,
    workspace: Bytes,
    given: i64,
    values: Vec<f32>,
}

impl Plan {
    /// What it takes beside its arrays.
    pub(in crate::cuda::ready) fn workspace(&self) -> Bytes {
        self.workspace
    }

    /// Gives it to a stream, with its arrays in the order in which the graph said them; `workspace` has the
    /// bytes that the plan wants.
    #[expect(unsafe_code, reason = "cuDNN is called here")]
    pub(in crate::cuda::ready) fn run(
        &self,
        handle: &Handle,
        arrays: &[Address],
        workspace: Address,
        stream: &Stream,
    ) -> Done {
        handle.work_on(stream)?;
        let of_device = |address: &Address| address.0 as *const c_void;
        let of_host = |value: &f32| ptr::from_ref(value).cast();
        let pointers =
            arrays.iter().map(of_device).chain(self.values.iter().map(of_host));
        let pointers: Vec<*const c_void> = pointers.collect();
        let values = (FIRST_VALUE..).take(self.values.len());
        let names: Vec<i64> = (0..self.given).chain(values).collect();
        let pack = Descriptor::new(Kind::VariantPack)?
            .with(attribute::VARIANT_PACK_UNIQUE_IDS, &names)?
            .with(attribute::VARIANT_PACK_DATA_POINTERS, &pointers)?
            .with(attribute::VARIANT_PACK_WORKSPACE, &[of_device(&workspace)])?
            .finish()?;
        // SAFETY: all three are live; numbers of the host are read before the call returns; addresses are
        // the device's matter.
        check(unsafe {
            cudnn::cudnnBackendExecute(handle.raw(), self.plan.raw(), pack.raw())
        })
    }
}

/// The plans of a graph by its engines, each made once it is wanted.
pub(in crate::cuda::ready) struct Engines<'a> {
    graph: Graph,
    handle: &'a Handle,
    plans: Vec<Option<Done<Plan>>>,
}

impl<'a> Engines<'a> {
    pub(in crate::cuda::ready) fn new(graph: Graph, handle: &'a Handle) -> Self {
        let plans = graph.configurations().iter().map(|_| None).collect();
        Self { graph, handle, plans }
    }

    /// The engines, by the order of which the others know them.
    pub(in crate::cuda::ready) fn configurations(&self) -> &[Configuration] {
        self.graph.configurations()
    }

    /// The most memory that one of them may take beside its arrays.
    pub(in crate::cuda::ready) fn workspace(&self) -> Bytes {
        self.graph.workspace()
    }

    /// Gives what an engine makes to a stream, if it is one of the first that have plans.
    pub(in crate::cuda::ready) fn run(
        &mut self,
        engine: usize,
        arrays: &[Address],
        workspace: Address,
        stream: &Stream,
    ) -> Done {
        let Self { graph, handle, plans } = self;
        let planned = plans.iter().filter(|plan| matches!(plan, Some(Ok(_)))).count();
        if plans[engine].is_none() && planned == TRIED {
            return Err(Refused::Offerless);
        }
        let plan = plans[engine]
            .get_or_insert_with(|| graph.plan(engine, Target::Started(handle)));
        plan.as_ref().map_err(|refused| *refused)?.run(handle, arrays, workspace, stream)
    }

    /// The plan of an engine, and that engine.
    pub(in crate::cuda::ready) fn take(mut self, engine: usize) -> Done<Chosen> {
        let (graph, known) = (self.graph, self.plans.swap_remove(engine));
        let plan = match known {
            Some(plan) => plan?,
            None => graph.plan(engine, Target::Started(self.handle))?,
        };
        Ok(Chosen { plan, name: graph.configurations()[engine].bytes(), _graph: graph })
    }

    /// The first one of which there is a plan.
    pub(in crate::cuda::ready) fn first(self) -> Done<Chosen> {
        let target = Target::Started(self.handle);
        let planned = |engine| Some((engine, self.graph.plan(engine, target).ok()?));
        let found = (0..self.plans.len()).find_map(planned);
        let (engine, plan) = found.ok_or(Refused::Offerless)?;
        let name = self.graph.configurations()[engine].bytes();
        Ok(Chosen { plan, name, _graph: self.graph })
    }
}

/// A plan that was chosen, with what it is made of.
pub(in crate::cuda::ready) struct Chosen {
    pub(in crate::cuda::ready) plan: Plan,
    /// What says by which engine it is.
    pub(in crate::cuda::ready) name: Vec<u8>,
    _graph: Graph,
}

impl Chosen {
    /// Gives what it makes, of arrays at these places of a call, to a stream.
    ///
    /// # Errors
    /// When the library refuses it.
    pub(in crate::cuda::ready) fn run<const N: usize>(
        &self,
        places: [CallPlace; N],
        binding: &Binding<'_>,
        (handle, stream): (&Handle, &Stream),
    ) -> Result<(), DriverError> {
        let arrays = places.map(|place| binding.address(place));
        let done = self.plan.run(handle, &arrays, binding.workspace, stream);
        done.map_err(Refused::of_run)
    }
}
