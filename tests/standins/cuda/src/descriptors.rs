//! `libcudnn`: the calls that make graphs of operations, their plans, and what plans run on.

use crate::{
    convolutions::{Convolution, Motion, Pass, workspace_of},
    cudnn::{BAD_PARAM, EXECUTION_FAILED, Handle, NOT_SUPPORTED, SUCCESS, number},
    forbid,
    graphs::{Array, Graph, Held, Kind, Mode, Operation, Operator},
    numbers::Number,
    settings::Offered,
    work::Work,
    world::{World, world},
};
use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    ptr, slice,
};

/// Kinds of descriptors.
const POINTWISE: c_int = 0;
const WINDOW: c_int = 1;
const ENGINE: c_int = 2;
const CONFIGURATION: c_int = 3;
const HEURISTICS: c_int = 4;
const PLAN: c_int = 5;
const CONVOLUTION: c_int = 10;
const FILTER_GRADIENTS: c_int = 11;
const IMAGE_GRADIENTS: c_int = 12;
const POINTWISE_OPERATION: c_int = 13;
const GRAPH: c_int = 15;
const VARIANT_PACK: c_int = 16;
const TENSOR: c_int = 17;
const MATMUL: c_int = 18;
const MATMUL_OPERATION: c_int = 19;
const REDUCTION: c_int = 21;
const REDUCTION_OPERATION: c_int = 22;

/// Attributes that a descriptor of a kind must have, and those that it may have.
const ATTRIBUTES: &[(c_int, &[c_int], &[c_int])] = &[
    (POINTWISE, &[0, 1], &[9]),
    (WINDOW, &[100, 101, 102, 103, 104, 105, 106], &[]),
    (CONVOLUTION, &[700, 701, 702, 703, 704, 705], &[]),
    (IMAGE_GRADIENTS, &[706, 707, 708, 709, 710, 711], &[]),
    (FILTER_GRADIENTS, &[712, 713, 714, 715, 716, 717], &[]),
    (HEURISTICS, &[200, 201], &[]),
    (PLAN, &[400, 401], &[]),
    (POINTWISE_OPERATION, &[750, 751, 753], &[752, 758]),
    (GRAPH, &[800, 801], &[]),
    (VARIANT_PACK, &[1000, 1001, 1003], &[]),
    (TENSOR, &[900, 901, 902, 903, 906], &[907, 908]),
    (MATMUL, &[1500], &[]),
    (MATMUL_OPERATION, &[1520, 1521, 1522, 1523], &[]),
    (REDUCTION, &[1600, 1601], &[]),
    (REDUCTION_OPERATION, &[1610, 1611, 1612], &[]),
];

/// Filters that are not turned.
const CROSS_CORRELATION: i64 = 1;

/// Types of attributes.
const HANDLES: c_int = 0;
const TRUTHS: c_int = 2;
const WHOLES: c_int = 3;
const POINTERS: c_int = 6;
const DESCRIPTORS: c_int = 15;
/// Those that are enumerations.
const ENUMERATIONS: [c_int; 6] = [1, 7, 8, 11, 14, 18];
/// Numbers of 32 bits.
const REALS: c_int = 4;

/// A part of a graph or of its plan.
pub(crate) struct Descriptor {
    kind: c_int,
    finished: bool,
    /// All values as whole numbers: addresses of descriptors and of memory too.
    values: BTreeMap<c_int, Vec<i64>>,
    /// What an engine, a configuration or a plan is.
    offered: Option<Offered>,
}

impl Descriptor {
    fn of(address: i64) -> &'static Self {
        // SAFETY: whoever sets a descriptor keeps it, and all calls come from one thread at a time.
        unsafe { &*(address as *const Self) }
    }

    /// The only value of an attribute.
    fn one(&self, name: c_int) -> Option<i64> {
        self.values.get(&name).and_then(|values| values.first().copied())
    }

    fn part(&self, name: c_int) -> Option<&'static Self> {
        self.one(name).map(Self::of)
    }

    fn four(&self, name: c_int) -> Option<[i64; 4]> {
        self.values.get(&name)?.as_slice().try_into().ok()
    }

    fn array(&self) -> Option<Array> {
        let kind = match self.one(901)? {
            4 => Kind::Whole,
            11 => Kind::Truth,
            real => Kind::Real(number(real as c_int)?),
        };
        let held = match (self.one(907).unwrap_or(0), self.one(908).unwrap_or(0)) {
            (0, 0) => Held::Given,
            (0, _) => Held::Value,
            (_, 0) => Held::Between,
            (_, _) => return None,
        };
        let (name, extents, strides) = (self.one(906)?, self.four(902)?, self.four(903)?);
        Some(Array { name, kind, extents, strides, held })
    }

    fn array_of(&self, name: c_int) -> Option<Array> {
        self.part(name)?.array()
    }

    fn mode(&self) -> Option<Mode> {
        Some(match self.one(0)? {
            0 => Mode::Sum,
            1 => Mode::Product,
            6 => Mode::Quotient,
            9 => Mode::Difference,
            13 => Mode::Exponential,
            15 => Mode::Logarithm,
            303 => Mode::IsNotLess,
            501 => {
                Mode::Index(usize::try_from(self.one(9)?).ok().filter(|axis| *axis < 4)?)
            }
            601 => Mode::Selection,
            _ => return None,
        })
    }

    fn operation(&self) -> Option<Operation> {
        Some(match self.kind {
            MATMUL_OPERATION => Operation::Product([
                self.array_of(1520)?,
                self.array_of(1521)?,
                self.array_of(1522)?,
            ]),
            REDUCTION_OPERATION => {
                let operator = match self.part(1612)?.one(1600)? {
                    0 => Operator::Total,
                    3 => Operator::Most,
                    _ => return None,
                };
                Operation::Reduction(
                    operator,
                    [self.array_of(1610)?, self.array_of(1611)?],
                )
            }
            POINTWISE_OPERATION => Operation::Pointwise {
                mode: self.part(750)?.mode()?,
                x: self.array_of(751)?,
                b: self.array_of(752),
                t: self.array_of(758),
                y: self.array_of(753)?,
            },
            _ => return None,
        })
    }

    /// Both values of an attribute, which are alike here.
    fn pair(&self, name: c_int) -> Option<[u64; 2]> {
        let values = self.values.get(&name)?.iter();
        let values: Option<Vec<u64>> =
            values.map(|own| u64::try_from(*own).ok()).collect();
        values?.try_into().ok()
    }

    /// How a window moves, over images of channels in groups.
    fn motion(&self, groups: u64) -> Option<Motion> {
        let plain = [(100, 0), (101, CROSS_CORRELATION), (106, 2)];
        let is_plain = plain.iter().all(|(name, value)| self.one(*name) == Some(*value));
        let padding = self.pair(104).filter(|own| self.pair(105) == Some(*own))?;
        let stride = self.pair(103).filter(|_| self.pair(102) == Some([1, 1]))?;
        is_plain.then_some(Motion { padding, stride, groups })
    }

    /// What a convolution makes, and its first attribute.
    fn pass(&self) -> Option<(Pass, c_int)> {
        match self.kind {
            CONVOLUTION => Some((Pass::Results, 700)),
            IMAGE_GRADIENTS => Some((Pass::Images, 706)),
            FILTER_GRADIENTS => Some((Pass::Filters, 712)),
            _ => None,
        }
    }

    /// The convolution that an operation is, which has no places yet.
    fn convolution(&self) -> Option<Convolution> {
        let (pass, first) = self.pass()?;
        let real = |name| self.one(name).map(|bits| f32::from_bits(bits as u32));
        let (scale, accumulate) = (real(first)?, real(first + 1)?);
        let array = |behind: c_int| self.array_of(first + behind)?.of_images();
        let [weight, x, y] = [array(3)?, array(4)?, array(5)?];
        let groups = x.extents[1] / weight.extents[1].max(1);
        let motion = self.part(first + 2)?.motion(groups)?;
        let fits = scale == 1.0 && [0.0, 1.0].contains(&accumulate);
        fits.then_some(Convolution {
            pass,
            motion,
            x: (x, 0),
            weight: (weight, 0),
            y: (y, 0),
            accumulate,
            workspace: 0,
            offered: Offered::Fast,
            is_slow: false,
        })
    }

    /// The names of the arrays of a convolution.
    fn names(&self) -> Option<[i64; 3]> {
        let (_, first) = self.pass()?;
        let name = |behind: c_int| Some(self.array_of(first + behind)?.name);
        Some([name(4)?, name(3)?, name(5)?])
    }

    /// The only operation of a graph that is a convolution.
    fn fold(&self) -> Option<&'static Self> {
        match self.values.get(&801)?.as_slice() {
            [only] => Some(Self::of(*only)).filter(|own| own.convolution().is_some()),
            _ => None,
        }
    }

    /// The type of the first array of a graph.
    fn number(&self) -> Option<Number> {
        if let Some(fold) = self.fold() {
            return Some(fold.convolution()?.x.0.number);
        }
        match self.operations()?.first()?.arrays().first()?.kind {
            Kind::Real(number) => Some(number),
            Kind::Whole | Kind::Truth => None,
        }
    }

    /// The operations of a graph.
    fn operations(&self) -> Option<Vec<Operation>> {
        let operations = self.values.get(&801)?.iter();
        let operations: Option<Vec<_>> =
            operations.map(|operation| Self::of(*operation).operation()).collect();
        operations.filter(|all| all.iter().all(Operation::fits))
    }

    /// Whether all attributes are there, of this kind, and fit together.
    fn is_whole(&self) -> bool {
        let known = ATTRIBUTES.iter().find(|(kind, ..)| *kind == self.kind);
        let Some((_, needed, allowed)) = known else { return false };
        let has_all = needed.iter().all(|name| self.values.contains_key(name));
        let fits = match self.kind {
            TENSOR => self.array().is_some(),
            GRAPH => self.fold().is_some() || self.operations().is_some(),
            VARIANT_PACK => {
                self.values.get(&1000).map(Vec::len)
                    == self.values.get(&1001).map(Vec::len)
            }
            _ => true,
        };
        let is_known = |name| needed.contains(name) || allowed.contains(name);
        has_all && fits && self.values.keys().all(is_known)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendCreateDescriptor(
    kind: c_int,
    own: *mut *mut Descriptor,
) -> c_int {
    let made =
        Descriptor { kind, finished: false, values: BTreeMap::new(), offered: None };
    // SAFETY: the caller gives room for a descriptor.
    unsafe { *own = Box::into_raw(Box::new(made)) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendDestroyDescriptor(own: *mut Descriptor) -> c_int {
    // SAFETY: the descriptor is one that was made, and is not used again.
    drop(unsafe { Box::from_raw(own) });
    SUCCESS
}

/// Bytes of a value of a type of attributes.
fn size_of(kind: c_int) -> Option<usize> {
    match kind {
        TRUTHS => Some(1),
        HANDLES | WHOLES | POINTERS | DESCRIPTORS => Some(8),
        REALS => Some(4),
        other => ENUMERATIONS.contains(&other).then_some(4),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendSetAttribute(
    own: *mut Descriptor,
    name: c_int,
    kind: c_int,
    count: i64,
    values: *const c_void,
) -> c_int {
    let Some(size) = size_of(kind) else { return BAD_PARAM };
    // SAFETY: the descriptor is live, and this many values of this type are there.
    let (own, bytes) = unsafe {
        (&mut *own, slice::from_raw_parts(values.cast::<u8>(), size * count as usize))
    };
    if own.finished {
        return BAD_PARAM;
    }
    let values: Vec<i64> = bytes
        .chunks_exact(size)
        .map(|value| {
            let mut whole = [0; 8];
            whole[..size].copy_from_slice(value);
            i64::from_le_bytes(whole)
        })
        .collect();
    if kind == DESCRIPTORS && !values.iter().all(|part| Descriptor::of(*part).finished) {
        return BAD_PARAM;
    }
    own.values.insert(name, values);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendFinalize(own: *mut Descriptor) -> c_int {
    // SAFETY: the descriptor is live.
    let own = unsafe { &mut *own };
    if !own.is_whole() {
        return BAD_PARAM;
    }
    if own.kind == PLAN {
        own.offered = own.part(401).and_then(|configuration| configuration.offered);
        if own.offered == Some(Offered::Failing) {
            return NOT_SUPPORTED;
        }
    }
    own.finished = true;
    SUCCESS
}

/// What an engine says of its numbers, which are narrow or have 32 bits: tensor cores shorten these.
fn notes(offered: Offered, number: Number) -> Vec<i32> {
    const TENSOR_CORE: i32 = 0;
    let is_narrow = matches!(number, Number::F16 | Number::Bf16);
    let usual = is_narrow.then_some(TENSOR_CORE);
    let odd = match offered {
        Offered::Drifting => Some(4),
        Offered::Short if is_narrow => Some(1),
        Offered::Short => Some(TENSOR_CORE),
        Offered::Winograd => Some(5),
        Offered::Fast
        | Offered::Slow
        | Offered::Wrong
        | Offered::Torn
        | Offered::Roomy
        | Offered::Large
        | Offered::Failing => None,
    };
    [usual, odd].into_iter().flatten().collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendGetAttribute(
    own: *mut Descriptor,
    name: c_int,
    _: c_int,
    most: i64,
    count: *mut i64,
    places: *mut c_void,
) -> c_int {
    // SAFETY: the descriptor is live.
    let own = unsafe { &mut *own };
    let most = most.max(0) as usize;
    let offered = own.offered;
    let found = match (own.kind, name) {
        (HEURISTICS, 202) => {
            let graph = own.part(201);
            let engines = world().settings.offers.clone();
            // SAFETY: this many configurations are there.
            let parts =
                unsafe { slice::from_raw_parts(places.cast::<*mut Descriptor>(), most) };
            for (part, engine) in parts.iter().zip(&engines) {
                // SAFETY: the configuration is live.
                let part = unsafe { &mut **part };
                (part.offered, part.finished) = (Some(*engine), true);
                let graph = ptr::from_ref(graph.expect("it was checked")) as i64;
                part.values.insert(CONFIGURATION, vec![graph]);
            }
            engines.len().min(most)
        }
        (CONFIGURATION, 300) => {
            // SAFETY: one engine is there.
            let part = unsafe { &mut **places.cast::<*mut Descriptor>() };
            (part.offered, part.finished) = (offered, true);
            part.values.clone_from(&own.values);
            1
        }
        (ENGINE, 1303) => {
            let graph = own.part(CONFIGURATION).and_then(Descriptor::number);
            let notes =
                offered.zip(graph).map(|(offered, number)| notes(offered, number));
            let notes = notes.expect("an engine is one of a graph");
            // SAFETY: this many numbers are there.
            let room = unsafe { slice::from_raw_parts_mut(places.cast::<i32>(), most) };
            room.iter_mut().zip(&notes).for_each(|(place, note)| *place = *note);
            notes.len().min(most)
        }
        (ENGINE, 1301) | (PLAN, 402) => {
            let offered = offered.expect("it is one of a configuration");
            let value =
                if name == 402 { workspace_of(offered) as i64 } else { offered as i64 };
            // SAFETY: one number is there.
            unsafe { *places.cast() = value };
            1
        }
        _ => return NOT_SUPPORTED,
    };
    // SAFETY: the caller gives room for a number.
    unsafe { *count = found as i64 };
    SUCCESS
}

/// What a pack gives under a name.
fn given(pack: &Descriptor, name: i64) -> Option<i64> {
    let names = pack.values.get(&1000)?.iter();
    let mut all = names.zip(pack.values.get(&1001)?);
    all.find(|(own, _)| **own == name).map(|(_, pointer)| *pointer)
}

/// The convolution that a plan runs on what a pack gives.
fn convolution(
    operation: &Descriptor,
    plan: &Descriptor,
    pack: &Descriptor,
) -> Option<Convolution> {
    let mut own = operation.convolution()?;
    let [x, weight, y] = operation.names()?.map(|name| given(pack, name));
    (own.x.1, own.weight.1, own.y.1) = (x? as u64, weight? as u64, y? as u64);
    (own.workspace, own.offered) = (pack.one(1003)? as u64, plan.offered?);
    Some(own)
}

/// The graph of other operations that a plan runs on what a pack gives.
fn graph(
    operations: Vec<Operation>,
    plan: &Descriptor,
    pack: &Descriptor,
) -> Option<Graph> {
    let (mut places, mut values) = (BTreeMap::new(), BTreeMap::new());
    let arrays: Vec<Array> = operations.iter().flat_map(Operation::arrays).collect();
    for name in pack.values.get(&1000)? {
        let pointer = given(pack, *name)?;
        match arrays.iter().find(|array| array.name == *name)?.held {
            Held::Between => return None,
            Held::Given => drop(places.insert(*name, pointer as u64)),
            Held::Value => {
                // SAFETY: the caller gives a number of 32 bits.
                let value = unsafe { ptr::read_unaligned(pointer as *const f32) };
                values.insert(*name, value);
            }
        }
    }
    let (workspace, offered) = (pack.one(1003)? as u64, plan.offered?);
    Some(Graph { operations, places, values, workspace, offered, is_slow: false })
}

/// What a plan runs on what a pack gives, checked and counted.
fn work(plan: &Descriptor, pack: &Descriptor, world: &mut World) -> Option<Work> {
    let whole = Descriptor::of(plan.part(401)?.one(CONFIGURATION)?);
    Some(match whole.fold() {
        Some(operation) => {
            let mut own = convolution(operation, plan, pack)?;
            own.is_slow = world.settings.slow_engines.contains(&own.offered);
            own.check(world);
            own.count(&mut world.counts);
            Work::Convolution(Box::new(own))
        }
        None => {
            let mut own = graph(whole.operations()?, plan, pack)?;
            own.is_slow = world.settings.slow_engines.contains(&own.offered);
            own.check(world);
            own.count(&mut world.counts);
            Work::Graph(Box::new(own))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendExecute(
    handle: *mut Handle,
    plan: *mut Descriptor,
    pack: *mut Descriptor,
) -> c_int {
    // SAFETY: all three are live.
    let (stream, plan, pack) = unsafe { ((*handle).stream, &*plan, &*pack) };
    if !plan.finished || !pack.finished {
        return BAD_PARAM;
    }
    let mut world = world();
    let Some(work) = work(plan, pack, &mut world) else {
        forbid("what is given does not fit a graph")
    };
    match world.give(stream, work) {
        0 => SUCCESS,
        _ => EXECUTION_FAILED,
    }
}
