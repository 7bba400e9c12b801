//! Attention by cuDNN: a graph of operations per shape, and its plan by one of the library's engines.
//!
//! The library finds the kernel that makes all of a graph by its form, so operations stand as its
//! documentation of scaled dot-product attention has them: scores, mask, a softmax in five operations,
//! their logarithms, and the product with the values. Between them nothing is in memory.

use super::{
    cudnn::{
        Done, Handle, Refused, SINGLE, check, data_type,
        descriptor::{Attribute, Data, Descriptor, Kind, Mode, Note, Operator, Search},
    },
    driver::{Address, Stream, cudnn},
    products::WORKSPACE,
};
use roundelay_kernels::cuda::{Attended, Sight};
use roundelay_schedule::Bytes;
use std::{ffi::c_void, fmt, ptr};

/// The oldest version whose engines make such graphs, for heads that share keys too.
pub(super) const OLDEST: usize = 90_000;

/// The most configurations of engines that the library is asked for.
const CONFIGURATIONS: usize = 8;

/// `CUDNN_DATA_INT32` and `CUDNN_DATA_BOOLEAN`.
const WHOLE: Data = Data(4);
const TRUTH: Data = Data(11);
const REAL: Data = Data(SINGLE);

/// `CUDNN_POINTWISE_…`.
const SUM: Mode = Mode(0);
const PRODUCT: Mode = Mode(1);
const QUOTIENT: Mode = Mode(6);
const DIFFERENCE: Mode = Mode(9);
const EXPONENTIAL: Mode = Mode(13);
const LOGARITHM: Mode = Mode(15);
const IS_NOT_LESS: Mode = Mode(303);
const INDEX: Mode = Mode(501);
const SELECTION: Mode = Mode(601);

/// `CUDNN_REDUCE_TENSOR_ADD` and `CUDNN_REDUCE_TENSOR_MAX`.
const TOTAL: Operator = Operator(0);
const MOST: Operator = Operator(3);

/// `CUDNN_HEUR_MODE_A`, which says its best engine first.
const BEST_FIRST: Search = Search(3);

/// `CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS`, `…_REDUCED_PRECISION_REDUCTION` and `…_NONDETERMINISTIC`:
/// of engines that are not taken.
const REFUSED_NOTES: [Note; 3] = [Note(1), Note(2), Note(4)];
/// More than there are kinds of notes.
const NOTES: usize = 32;

/// Attributes, by the names of the library without what all have before them.
mod attribute {
    use super::super::cudnn::{
        Handle,
        descriptor::{Attribute, Data, Descriptor, Mode, Note, Operator, Search},
    };
    use std::ffi::c_void;

    pub(super) const POINTWISE_MODE: Attribute<Mode> = Attribute::new(0);
    pub(super) const POINTWISE_MATH_PREC: Attribute<Data> = Attribute::new(1);
    pub(super) const POINTWISE_AXIS: Attribute<i64> = Attribute::new(9);
    pub(super) const ENGINEHEUR_MODE: Attribute<Search> = Attribute::new(200);
    pub(super) const ENGINEHEUR_OPERATION_GRAPH: Attribute<Descriptor> =
        Attribute::new(201);
    pub(super) const ENGINEHEUR_RESULTS: Attribute<Descriptor> = Attribute::new(202);
    pub(super) const ENGINECFG_ENGINE: Attribute<Descriptor> = Attribute::new(300);
    pub(super) const EXECUTION_PLAN_HANDLE: Attribute<Handle> = Attribute::new(400);
    pub(super) const EXECUTION_PLAN_ENGINE_CONFIG: Attribute<Descriptor> =
        Attribute::new(401);
    pub(super) const EXECUTION_PLAN_WORKSPACE_SIZE: Attribute<i64> = Attribute::new(402);
    pub(super) const OPERATION_POINTWISE_PW_DESCRIPTOR: Attribute<Descriptor> =
        Attribute::new(750);
    pub(super) const OPERATION_POINTWISE_XDESC: Attribute<Descriptor> =
        Attribute::new(751);
    pub(super) const OPERATION_POINTWISE_BDESC: Attribute<Descriptor> =
        Attribute::new(752);
    pub(super) const OPERATION_POINTWISE_YDESC: Attribute<Descriptor> =
        Attribute::new(753);
    pub(super) const OPERATION_POINTWISE_TDESC: Attribute<Descriptor> =
        Attribute::new(758);
    pub(super) const OPERATIONGRAPH_HANDLE: Attribute<Handle> = Attribute::new(800);
    pub(super) const OPERATIONGRAPH_OPS: Attribute<Descriptor> = Attribute::new(801);
    pub(super) const TENSOR_BYTE_ALIGNMENT: Attribute<i64> = Attribute::new(900);
    pub(super) const TENSOR_DATA_TYPE: Attribute<Data> = Attribute::new(901);
    pub(super) const TENSOR_DIMENSIONS: Attribute<i64> = Attribute::new(902);
    pub(super) const TENSOR_STRIDES: Attribute<i64> = Attribute::new(903);
    pub(super) const TENSOR_UNIQUE_ID: Attribute<i64> = Attribute::new(906);
    pub(super) const TENSOR_IS_VIRTUAL: Attribute<bool> = Attribute::new(907);
    pub(super) const TENSOR_IS_BY_VALUE: Attribute<bool> = Attribute::new(908);
    pub(super) const VARIANT_PACK_UNIQUE_IDS: Attribute<i64> = Attribute::new(1000);
    pub(super) const VARIANT_PACK_DATA_POINTERS: Attribute<*const c_void> =
        Attribute::new(1001);
    pub(super) const VARIANT_PACK_WORKSPACE: Attribute<*const c_void> =
        Attribute::new(1003);
    pub(super) const ENGINE_GLOBAL_INDEX: Attribute<i64> = Attribute::new(1301);
    pub(super) const ENGINE_NUMERICAL_NOTE: Attribute<Note> = Attribute::new(1303);
    pub(super) const MATMUL_COMP_TYPE: Attribute<Data> = Attribute::new(1500);
    pub(super) const OPERATION_MATMUL_ADESC: Attribute<Descriptor> = Attribute::new(1520);
    pub(super) const OPERATION_MATMUL_BDESC: Attribute<Descriptor> = Attribute::new(1521);
    pub(super) const OPERATION_MATMUL_CDESC: Attribute<Descriptor> = Attribute::new(1522);
    pub(super) const OPERATION_MATMUL_DESC: Attribute<Descriptor> = Attribute::new(1523);
    pub(super) const REDUCTION_OPERATOR: Attribute<Operator> = Attribute::new(1600);
    pub(super) const REDUCTION_COMP_TYPE: Attribute<Data> = Attribute::new(1601);
    pub(super) const OPERATION_REDUCTION_XDESC: Attribute<Descriptor> =
        Attribute::new(1610);
    pub(super) const OPERATION_REDUCTION_YDESC: Attribute<Descriptor> =
        Attribute::new(1611);
    pub(super) const OPERATION_REDUCTION_DESC: Attribute<Descriptor> =
        Attribute::new(1612);
}

/// The numbers in a graph of what is given when a plan runs.
const Q: i64 = 0;
const K: i64 = 1;
const V: i64 = 2;
const O: i64 = 3;
const LOGARITHMS: i64 = 4;
const SCALE: i64 = 5;
const LEAST: i64 = 6;

/// All of them, the last one where there is a mask.
const GIVEN: [i64; 7] = [Q, K, V, O, LOGARITHMS, SCALE, LEAST];

/// Where an array of a graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// In memory, under a number of [`GIVEN`].
    Given(i64),
    /// Given as a number of the host.
    Value(i64),
    /// Nowhere: one operation makes it and others take it.
    Between,
}

/// Extents and steps from one number to the next: examples, heads, rows, columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    extents: [i64; 4],
    strides: [i64; 4],
}

impl Layout {
    /// Without gaps.
    fn dense(extents: [i64; 4]) -> Self {
        let [_, heads, rows, columns] = extents;
        Self { extents, strides: [heads * rows * columns, rows * columns, columns, 1] }
    }

    /// Of tokens whose numbers lie side by side, head by head.
    fn of_tokens(batch: i64, rows: i64, heads: i64, depth: i64) -> Self {
        let extents = [batch, heads, rows, depth];
        Self { extents, strides: [rows * heads * depth, depth, heads * depth, 1] }
    }

    /// With rows and columns exchanged.
    fn transposed(self) -> Self {
        let turned =
            |[batch, heads, rows, columns]: [i64; 4]| [batch, heads, columns, rows];
        Self { extents: turned(self.extents), strides: turned(self.strides) }
    }
}

/// The place of a descriptor among those of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(usize);

/// An array of a graph.
#[derive(Clone, Copy, Debug)]
struct Tensor {
    place: Place,
    layout: Layout,
}

/// A graph under construction. What is made of others keeps no hold of them, so all are kept.
#[derive(Default)]
struct Draft {
    all: Vec<Descriptor>,
    operations: Vec<Place>,
}

impl Draft {
    fn keep(&mut self, descriptor: Descriptor) -> Place {
        self.all.push(descriptor);
        Place(self.all.len() - 1)
    }

    fn get(&self, place: Place) -> &Descriptor {
        &self.all[place.0]
    }

    fn operation(&mut self, descriptor: Descriptor) {
        let place = self.keep(descriptor);
        self.operations.push(place);
    }

    fn tensor(&mut self, number: Data, layout: Layout, held: Held) -> Done<Tensor> {
        let between = GIVEN.len() + self.all.len();
        let (own, is_virtual, is_value) = match held {
            Held::Given(own) => (own, false, false),
            Held::Value(own) => (own, false, true),
            Held::Between => (between as i64, true, false),
        };
        let descriptor = Descriptor::new(Kind::Tensor)?
            .with(attribute::TENSOR_DATA_TYPE, &[number])?
            .with(attribute::TENSOR_DIMENSIONS, &layout.extents)?
            .with(attribute::TENSOR_STRIDES, &layout.strides)?
            .with(attribute::TENSOR_UNIQUE_ID, &[own])?
            .with(attribute::TENSOR_BYTE_ALIGNMENT, &[super::cudnn::ALIGNMENT as i64])?
            .with(attribute::TENSOR_IS_VIRTUAL, &[is_virtual])?
            .with(attribute::TENSOR_IS_BY_VALUE, &[is_value])?
            .finish()?;
        Ok(Tensor { place: self.keep(descriptor), layout })
    }

    fn between(&mut self, number: Data, layout: Layout) -> Done<Tensor> {
        self.tensor(number, layout, Held::Between)
    }

    /// A number of the host.
    fn value(&mut self, own: i64) -> Done<Tensor> {
        self.tensor(REAL, Layout::dense([1; 4]), Held::Value(own))
    }

    fn product(&mut self, [a, b, into]: [Tensor; 3]) -> Done {
        let how = Descriptor::new(Kind::Matmul)?
            .with(attribute::MATMUL_COMP_TYPE, &[REAL])?
            .finish()?;
        let how = self.keep(how);
        let operation = Descriptor::new(Kind::MatmulOperation)?
            .with_parts(attribute::OPERATION_MATMUL_ADESC, &[self.get(a.place)])?
            .with_parts(attribute::OPERATION_MATMUL_BDESC, &[self.get(b.place)])?
            .with_parts(attribute::OPERATION_MATMUL_CDESC, &[self.get(into.place)])?
            .with_parts(attribute::OPERATION_MATMUL_DESC, &[self.get(how)])?
            .finish()?;
        self.operation(operation);
        Ok(())
    }

    fn reduction(&mut self, operator: Operator, x: Tensor) -> Done<Tensor> {
        let [batch, heads, rows, _] = x.layout.extents;
        let y = self.between(REAL, Layout::dense([batch, heads, rows, 1]))?;
        let how = Descriptor::new(Kind::Reduction)?
            .with(attribute::REDUCTION_OPERATOR, &[operator])?
            .with(attribute::REDUCTION_COMP_TYPE, &[REAL])?
            .finish()?;
        let how = self.keep(how);
        let operation = Descriptor::new(Kind::ReductionOperation)?
            .with_parts(attribute::OPERATION_REDUCTION_XDESC, &[self.get(x.place)])?
            .with_parts(attribute::OPERATION_REDUCTION_YDESC, &[self.get(y.place)])?
            .with_parts(attribute::OPERATION_REDUCTION_DESC, &[self.get(how)])?
            .finish()?;
        self.operation(operation);
        Ok(y)
    }

    /// What is done number by number, in numbers of a type, to `x` and to others besides.
    fn by_number(
        &mut self,
        (mode, precision): (Mode, Data),
        [x, y]: [Tensor; 2],
        others: &[(Attribute<Descriptor>, Tensor)],
    ) -> Done {
        let how = Descriptor::new(Kind::Pointwise)?
            .with(attribute::POINTWISE_MODE, &[mode])?
            .with(attribute::POINTWISE_MATH_PREC, &[precision])?;
        self.pointwise(how, [x, y], others)
    }

    fn pointwise(
        &mut self,
        how: Descriptor,
        [x, y]: [Tensor; 2],
        others: &[(Attribute<Descriptor>, Tensor)],
    ) -> Done {
        let how = self.keep(how.finish()?);
        let mut operation = Descriptor::new(Kind::PointwiseOperation)?
            .with_parts(attribute::OPERATION_POINTWISE_PW_DESCRIPTOR, &[self.get(how)])?
            .with_parts(attribute::OPERATION_POINTWISE_XDESC, &[self.get(x.place)])?
            .with_parts(attribute::OPERATION_POINTWISE_YDESC, &[self.get(y.place)])?;
        for (name, other) in others {
            operation = operation.with_parts(*name, &[self.get(other.place)])?;
        }
        self.operation(operation.finish()?);
        Ok(())
    }

    /// A result that lies as `x` does, of it and of another.
    fn of_two(&mut self, mode: Mode, x: Tensor, other: Tensor) -> Done<Tensor> {
        let y = self.between(REAL, x.layout)?;
        let others = [(attribute::OPERATION_POINTWISE_BDESC, other)];
        self.by_number((mode, REAL), [x, y], &others)?;
        Ok(y)
    }

    fn of_one(&mut self, mode: Mode, x: Tensor) -> Done<Tensor> {
        let y = self.between(REAL, x.layout)?;
        self.by_number((mode, REAL), [x, y], &[])?;
        Ok(y)
    }

    /// Of every number of `x`, where it stands along an axis.
    fn index(&mut self, axis: i64, x: Tensor) -> Done<Tensor> {
        let y = self.between(WHOLE, x.layout)?;
        let how = Descriptor::new(Kind::Pointwise)?
            .with(attribute::POINTWISE_MODE, &[INDEX])?
            .with(attribute::POINTWISE_MATH_PREC, &[REAL])?
            .with(attribute::POINTWISE_AXIS, &[axis])?;
        self.pointwise(how, [x, y], &[])?;
        Ok(y)
    }

    /// Scores, and the least number where a row stands before its column.
    fn masked(&mut self, scores: Tensor) -> Done<Tensor> {
        let [row, column] = [self.index(2, scores)?, self.index(3, scores)?];
        let seen = self.between(TRUTH, scores.layout)?;
        let others = [(attribute::OPERATION_POINTWISE_BDESC, column)];
        self.by_number((IS_NOT_LESS, TRUTH), [row, seen], &others)?;
        let (least, masked) = (self.value(LEAST)?, self.between(REAL, scores.layout)?);
        let others = [
            (attribute::OPERATION_POINTWISE_BDESC, least),
            (attribute::OPERATION_POINTWISE_TDESC, seen),
        ];
        self.by_number((SELECTION, REAL), [scores, masked], &others)?;
        Ok(masked)
    }

    /// The softmax of scores, in numbers of a type, and the logarithms of the sums below it.
    fn softmax(&mut self, scores: Tensor, number: Data) -> Done<Tensor> {
        let most = self.reduction(MOST, scores)?;
        let shifted = self.of_two(DIFFERENCE, scores, most)?;
        let weights = self.of_one(EXPONENTIAL, shifted)?;
        let total = self.reduction(TOTAL, weights)?;
        let logarithm = self.of_one(LOGARITHM, total)?;
        let kept = self.tensor(REAL, most.layout, Held::Given(LOGARITHMS))?;
        let others = [(attribute::OPERATION_POINTWISE_BDESC, logarithm)];
        self.by_number((SUM, REAL), [most, kept], &others)?;
        let shares = self.between(number, scores.layout)?;
        let others = [(attribute::OPERATION_POINTWISE_BDESC, total)];
        self.by_number((QUOTIENT, REAL), [weights, shares], &others)?;
        Ok(shares)
    }

    /// All of attention.
    fn attention(&mut self, of: &Attended) -> Done {
        let number = data_type(of.tokens[0].number).ok_or(Refused::Offerless)?;
        let number = Data(number);
        let [batch, rows, heads, key_heads, depth] =
            [of.batch, of.sequence, of.heads, of.key_heads, of.depth]
                .map(|extent| extent as i64);
        let queries = Layout::of_tokens(batch, rows, heads, depth);
        let keys = Layout::of_tokens(batch, rows, key_heads, depth);
        let q = self.tensor(number, queries, Held::Given(Q))?;
        let k = self.tensor(number, keys.transposed(), Held::Given(K))?;
        let products = self.between(REAL, Layout::dense([batch, heads, rows, rows]))?;
        self.product([q, k, products])?;
        let scale = self.value(SCALE)?;
        let scores = self.of_two(PRODUCT, products, scale)?;
        let scores = match of.sight {
            Sight::All => scores,
            Sight::Before => self.masked(scores)?,
        };
        let shares = self.softmax(scores, number)?;
        let v = self.tensor(number, keys, Held::Given(V))?;
        let o = self.tensor(number, queries, Held::Given(O))?;
        self.product([shares, v, o])
    }
}

/// For what a graph is planned.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// The device that the library was started on.
    Started(&'a Handle),
    /// A device that is described and need not be here.
    #[cfg(test)]
    Described(&'a Descriptor),
}

/// One of the library's engines, set up for a graph.
pub(super) struct Configuration {
    descriptor: Descriptor,
    /// Which one it is, for the same graph and version of the library: its place among those that are
    /// offered, and the number of its engine.
    name: [i64; 2],
}

impl Configuration {
    /// What says which one it is.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.name.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [place, engine] = self.name;
        write!(f, "engine {engine}, offered in place {place}")
    }
}

/// A call of attention as the library has it.
pub(super) struct Graph {
    of: Attended,
    configurations: Vec<Configuration>,
    /// What those are made of.
    _parts: Vec<Descriptor>,
}

impl Graph {
    /// Describes a call, and asks by which engines that make the same bits every time it may be made,
    /// the one first that the library holds best.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn new(of: &Attended, target: Target<'_>) -> Done<Self> {
        let mut draft = Draft::default();
        draft.attention(of)?;
        let operations = draft.operations.iter().map(|place| draft.get(*place));
        let operations: Vec<&Descriptor> = operations.collect();
        let graph = Descriptor::new(Kind::Graph)?
            .with_parts(attribute::OPERATIONGRAPH_OPS, &operations)?;
        let graph = match target {
            Target::Started(handle) => {
                graph.for_library(attribute::OPERATIONGRAPH_HANDLE, handle)?
            }
            #[cfg(test)]
            Target::Described(_) => graph,
        };
        let graph = graph.finish()?;
        let configurations = configurations(&graph, target)?;
        match configurations.is_empty() {
            true => Err(Refused::Offerless),
            false => {
                draft.keep(graph);
                Ok(Self { of: *of, configurations, _parts: draft.all })
            }
        }
    }

    /// The engines that may make it.
    pub(super) fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// Its plan by one of them.
    ///
    /// # Errors
    /// When that engine does not make it after all, or takes more than the workspace.
    pub(super) fn plan(&self, configuration: usize, target: Target<'_>) -> Done<Plan> {
        let engine = &self.configurations[configuration].descriptor;
        let plan = Descriptor::new(Kind::Plan)?
            .with_parts(attribute::EXECUTION_PLAN_ENGINE_CONFIG, &[engine])?;
        let plan = match target {
            Target::Started(handle) => {
                plan.for_library(attribute::EXECUTION_PLAN_HANDLE, handle)?
            }
            #[cfg(test)]
            Target::Described(device) => {
                plan.with_parts(tests::EXECUTION_PLAN_DEVICEPROP, &[device])?
            }
        };
        let plan = plan.finish()?;
        let size = plan.values(attribute::EXECUTION_PLAN_WORKSPACE_SIZE, 0, 1)?;
        let size = size.first().and_then(|size| u64::try_from(*size).ok());
        match size.map(Bytes).filter(|size| *size <= WORKSPACE) {
            Some(workspace) => {
                let Attended { scale, sight, .. } = self.of;
                let given = match sight {
                    Sight::All => GIVEN.len() - 1,
                    Sight::Before => GIVEN.len(),
                };
                Ok(Plan { plan, workspace, scale, given })
            }
            None => Err(Refused::Offerless),
        }
    }
}

/// What the library's heuristics offer for a graph, without what may make other bits in another run or
/// loses digits.
fn configurations(graph: &Descriptor, target: Target<'_>) -> Done<Vec<Configuration>> {
    let heuristics = Descriptor::new(Kind::Heuristics)?
        .with_parts(attribute::ENGINEHEUR_OPERATION_GRAPH, &[graph])?
        .with(attribute::ENGINEHEUR_MODE, &[BEST_FIRST])?;
    let heuristics = match target {
        Target::Started(_) => heuristics,
        #[cfg(test)]
        Target::Described(device) => {
            heuristics.with_parts(tests::ENGINEHEUR_DEVICEPROP, &[device])?
        }
    };
    let heuristics = heuristics.finish()?;
    let found = heuristics.parts(
        attribute::ENGINEHEUR_RESULTS,
        Kind::Configuration,
        CONFIGURATIONS,
    )?;
    let mut configurations = Vec::new();
    for (place, descriptor) in (0..).zip(found) {
        let engine = descriptor.part(attribute::ENGINECFG_ENGINE, Kind::Engine)?;
        let notes = engine.values(attribute::ENGINE_NUMERICAL_NOTE, Note(0), NOTES)?;
        if notes.iter().any(|note| REFUSED_NOTES.contains(note)) {
            continue;
        }
        let index = engine.values(attribute::ENGINE_GLOBAL_INDEX, 0, 1)?;
        let index = index.first().copied().unwrap_or(-1);
        configurations.push(Configuration { descriptor, name: [place, index] });
    }
    Ok(configurations)
}

/// How the library makes one call of attention.
pub(super) struct Plan {
    plan: Descriptor,
    workspace: Bytes,
    scale: f32,
    /// How many of [`GIVEN`] it takes.
    given: usize,
}

impl Plan {
    /// What it takes beside its arrays.
    pub(super) fn workspace(&self) -> Bytes {
        self.workspace
    }

    /// Gives the call to a stream: q, k, v, o and the logarithms are here, and `workspace` has the bytes
    /// that the plan wants.
    #[expect(unsafe_code, reason = "cuDNN is called here")]
    pub(super) fn run(
        &self,
        handle: &Handle,
        arrays: [Address; 5],
        workspace: Address,
        stream: &Stream,
    ) -> Done {
        handle.work_on(stream)?;
        let of_device = |address: Address| address.0 as *const c_void;
        let [q, k, v, o, logarithms] = arrays.map(of_device);
        let least = f32::MIN;
        let of_host = |value: &f32| ptr::from_ref(value).cast();
        let pointers = [q, k, v, o, logarithms, of_host(&self.scale), of_host(&least)];
        let pack = Descriptor::new(Kind::VariantPack)?
            .with(attribute::VARIANT_PACK_UNIQUE_IDS, &GIVEN[..self.given])?
            .with(attribute::VARIANT_PACK_DATA_POINTERS, &pointers[..self.given])?
            .with(attribute::VARIANT_PACK_WORKSPACE, &[of_device(workspace)])?
            .finish()?;
        // SAFETY: all three are live; numbers of the host are read before the call returns; addresses are
        // the device's matter.
        check(unsafe {
            cudnn::cudnnBackendExecute(handle.raw(), self.plan.raw(), pack.raw())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::driver::convolutions_version;
    use roundelay_kernels::cuda::{Array, CallPlace, Number};
    use std::env;

    pub(super) const ENGINEHEUR_DEVICEPROP: Attribute<Descriptor> = Attribute::new(204);
    pub(super) const EXECUTION_PLAN_DEVICEPROP: Attribute<Descriptor> =
        Attribute::new(407);
    const DEVICEPROP_JSON_REPRESENTATION: Attribute<u8> = Attribute::new(2702);

    /// What the library asks of a device, as an H200 answers.
    const H200: &str = r#"{
        "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000,
        "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
        "multiProcessorCount": 132, "warpSize": 32, "regsPerBlock": 65536,
        "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
        "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
        "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": 2048, "totalGlobalMem": 150000000000, "l2CacheSize": 62914560,
        "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "memoryBusWidth": 6144,
        "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1
    }"#;

    /// Whether cuDNN is here, which needs no device to plan for one that is described.
    fn has_library() -> bool {
        let is_here = convolutions_version().is_some() && cudnn::has_engines();
        let is_wanted = env::var_os("ROUNDELAY_REQUIRE_CUDNN").is_some();
        assert!(is_here || !is_wanted, "there is no cuDNN here with all its parts");
        is_here
    }

    fn attended(
        number: Number,
        [batch, sequence, heads, key_heads, depth]: [usize; 5],
    ) -> Attended {
        let array = |number| Array { place: CallPlace::Operand(0, Bytes(0)), number };
        Attended {
            batch,
            sequence,
            heads,
            key_heads,
            depth,
            sight: Sight::Before,
            scale: 0.125,
            tokens: [array(number); 4],
            logarithms: array(Number::F32),
        }
    }

    /// The graph is one that the library's engines know: each of these shapes has an engine that takes no
    /// more than the workspace.
    #[test]
    fn the_library_has_plans_for_a_device_that_is_described() {
        if !has_library() {
            return;
        }
        let device = Descriptor::new(Kind::Device)
            .and_then(|device| {
                device.with(DEVICEPROP_JSON_REPRESENTATION, H200.as_bytes())
            })
            .and_then(Descriptor::finish)
            .expect("all that is asked of a device is said");
        let target = Target::Described(&device);
        for number in [Number::Bf16, Number::F16] {
            for shape in [
                [32, 1024, 12, 12, 64],
                [2, 2048, 32, 8, 128],
                [64, 197, 12, 12, 64],
                [1, 20, 2, 1, 64],
            ] {
                for sight in [Sight::Before, Sight::All] {
                    let of = Attended { sight, ..attended(number, shape) };
                    let graph = Graph::new(&of, target);
                    let graph = graph.unwrap_or_else(|why| panic!("of {of:?} it {why}"));
                    let plan = graph.plan(0, target);
                    let plan = plan.unwrap_or_else(|why| panic!("of {of:?} it {why}"));
                    assert!(plan.workspace() <= WORKSPACE);
                }
            }
        }
    }

    #[test]
    fn tokens_lie_head_by_head() {
        let layout = Layout::of_tokens(2, 5, 3, 4);
        assert_eq!(layout.extents, [2, 3, 5, 4]);
        // The third number of head 1 at position 2 of example 1.
        let [batch, head, row, column] = layout.strides;
        assert_eq!(batch + head + 2 * row + 2 * column, ((5 + 2) * 3 + 1) * 4 + 2);
        let turned = layout.transposed();
        assert_eq!((turned.extents, turned.strides), ([2, 3, 4, 5], [60, 4, 1, 12]));
    }
}
