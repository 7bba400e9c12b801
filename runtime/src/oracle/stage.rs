//! One stage of the oracle: its versions, its optimizer state, its gradient sum.

use super::{OracleError, tree::GradientTree};
use crate::{
    memory::Memory,
    native::native,
    plain::Plain,
    state::{State, rows::Array},
};
use roundelay_kernels::{Context, Real};
use roundelay_schedule::{
    Access, Checked, Float, Id, Job, Native, Pass, Role, RoutineId, Slice, Stage, Subject,
};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

/// A stage's state, and its gradients summed in the plan's tree.
pub(super) struct OracleStage {
    stage: Stage,
    pub(super) routines: Routines,
    /// Equal shards that update one by one.
    parts: u64,
    /// θ_t, θ_{t−1}, …
    versions: VecDeque<Memory>,
    /// Most versions that are kept.
    depth: usize,
    /// Shard by shard, in each shard array by array.
    optimizer: Memory,
    /// How gradients become one sum.
    tree: GradientTree,
    /// Sums of the runs that the tree begins with.
    runs: Vec<Memory>,
    /// Sum of all micro-batches.
    total: Memory,
    /// The gradient of one micro-batch, where it is not added by the backward pass itself.
    single: Memory,
}

/// What a stage runs.
pub(super) struct Routines {
    pub(super) forward: RoutineId,
    /// I, where the backward pass stands in halves.
    input: Option<RoutineId>,
    /// B or W, of the first micro-batch of a sum.
    first: RoutineId,
    /// B or W, of later ones.
    next: Option<RoutineId>,
    update: RoutineId,
}

impl OracleStage {
    /// The stage at rest, as the state has it.
    pub(super) fn new(
        schedule: &Checked,
        plain: &Plain,
        state: &State,
        stage: Stage,
    ) -> Result<Self, OracleError> {
        let job = &schedule.job;
        let bytes = job.elements[stage] * job.dtype.size();
        let staleness = schedule.plan.delays.staleness(stage.index());
        let kept = u64::from(staleness).min(state.step - state.origin) as u32;
        let version = |age| -> Result<Memory, OracleError> {
            Ok(filled(&state.parameters(job, stage, age)?))
        };
        let number = u32::try_from(stage.index()).expect("stages are few");
        let tree = GradientTree::new(
            &schedule.plan.sum(number),
            schedule.cell_micro_batches() as usize,
        );
        let mut own = Self {
            stage,
            routines: Routines::find(plain, stage),
            parts: parts(schedule, stage),
            versions: (0..=kept).map(version).collect::<Result<_, _>>()?,
            depth: staleness as usize + 1,
            optimizer: Memory::new(bytes * job.optimizer.method.states()),
            runs: (0..tree.runs()).map(|_| Memory::new(bytes)).collect(),
            tree,
            total: Memory::new(bytes),
            single: Memory::new(bytes),
        };
        for array in 0..job.optimizer.method.states() as usize {
            let flat = state.optimizer(job, stage, array)?;
            own.optimizer_parts(job, array, |part, shard| {
                part.copy_from_slice(&flat[shard]);
            });
        }
        Ok(own)
    }

    /// θ of this age.
    pub(super) fn version(&mut self, age: usize) -> &mut [u8] {
        self.versions[age].bytes_mut()
    }

    /// The backward pass of micro-batch `i` with θ of `age`.
    pub(super) fn backward(
        &mut self,
        plain: &mut Plain,
        context: &Context,
        (i, age): (usize, usize),
        dtype: Float,
    ) {
        let (run, access) = self.tree.place(i);
        let begins = access == Access::Write;
        let routine = if begins { Some(self.routines.first) } else { self.routines.next };
        let target = match routine {
            Some(_) => &mut self.runs[run],
            None => &mut self.single,
        };
        let theta = self.versions[age].bytes_mut();
        if let Some(input) = self.routines.input {
            plain.run(input, context, &mut [(Role::Parameter, &mut *theta)]);
        }
        let bound = &mut [(Role::Parameter, theta), (Role::Gradient, target.bytes_mut())];
        plain.run(routine.unwrap_or(self.routines.first), context, bound);
        if routine.is_none() {
            add(dtype, &mut self.single, &mut self.runs[run]);
        }
    }

    /// Adds the runs up, as the tree says.
    pub(super) fn join(&mut self, dtype: Float) {
        let runs = &mut self.runs;
        let whole = self.tree.fold(&mut |to, from| {
            let [to, from] =
                runs.get_disjoint_mut([to, from]).expect("two runs are not the same");
            add(dtype, from, to);
        });
        self.total.bytes_mut().copy_from_slice(self.runs[whole].bytes_mut());
    }

    /// θ_{t+1} from θ_t, the total and the optimizer's state, shard by shard.
    pub(super) fn update(&mut self, plain: &mut Plain, job: &Job, context: &Context) {
        let mut next = match self.versions.len() > self.depth {
            true => self.versions.pop_back().expect("there are more than enough"),
            false => Memory::new(self.total.len()),
        };
        let newest = self.versions.front_mut().expect("there is a newest version");
        next.bytes_mut().copy_from_slice(newest.bytes_mut());
        let routine = self.routines.update;
        let in_place = plain.access(routine, Role::NextParameter).is_none();
        let elements = job.elements[self.stage] / self.parts;
        for part in 0..self.parts {
            let context = Context { slice_offset: part * elements, ..*context };
            let shard = |memory| shard(memory, part, self.parts);
            let (mut old, mut new) = (shard(newest), shard(&mut next));
            if in_place {
                mem::swap(&mut old, &mut new);
            }
            let bound = &mut [
                (Role::Parameter, old),
                (Role::NextParameter, new),
                (Role::Gradient, shard(&mut self.total)),
                (Role::Optimizer, shard(&mut self.optimizer)),
            ];
            plain.run(routine, &context, bound);
        }
        self.versions.push_front(next);
    }

    /// All arrays, flat.
    pub(super) fn save(&mut self, job: &Job, flats: &mut BTreeMap<Array, Vec<u8>>) {
        for (age, version) in (0..).zip(self.versions.iter_mut().take(self.depth)) {
            let key = Array::Parameter(self.stage, age);
            flats.insert(key, version.bytes_mut().to_vec());
        }
        for array in 0..job.optimizer.method.states() as usize {
            let mut flat = vec![0; self.total.len() as usize];
            self.optimizer_parts(job, array, |part, shard| {
                flat[shard].copy_from_slice(part);
            });
            flats.insert(Array::Optimizer(self.stage, array, 0), flat);
        }
    }

    /// Visits an array of the optimizer's state shard by shard: the shard's bytes, and where
    /// they belong in the flat array.
    fn optimizer_parts(
        &mut self,
        job: &Job,
        array: usize,
        mut visit: impl FnMut(&mut [u8], std::ops::Range<usize>),
    ) {
        let states = job.optimizer.method.states() as usize;
        let size = (self.total.len() / self.parts) as usize;
        for part in 0..self.parts as usize {
            let start = (part * states + array) * size;
            let bytes = &mut self.optimizer.bytes_mut()[start..start + size];
            visit(bytes, part * size..(part + 1) * size);
        }
    }
}

impl Routines {
    fn find(plain: &Plain, stage: Stage) -> Self {
        let any = [Access::Read, Access::Write, Access::Update];
        let find = |pass, gradient: &[Access]| {
            plain.find(pass, stage, gradient).expect("every stage has every pass")
        };
        let input = plain.find(Pass::InputGradient, stage, &any);
        let sums = if input.is_some() { Pass::WeightGradient } else { Pass::Backward };
        Self {
            forward: find(Pass::Forward, &any),
            input,
            first: find(sums, &[Access::Write]),
            next: plain.find(sums, stage, &[Access::Update]),
            update: find(Pass::Update, &any),
        }
    }
}

/// In how many shards a stage is updated.
fn parts(schedule: &Checked, stage: Stage) -> u64 {
    let subjects = schedule.buffers.values().map(|buffer| buffer.subject);
    let axes = subjects.filter_map(|subject| match subject {
        Subject::Parameter(own, Slice::Shard(axis))
        | Subject::Gradient(own, Slice::Shard(axis))
        | Subject::Optimizer(own, Slice::Shard(axis))
            if own == stage =>
        {
            Some(u64::from(schedule.axes[axis].extent))
        }
        _ => None,
    });
    axes.max().unwrap_or(1)
}

fn filled(bytes: &[u8]) -> Memory {
    let mut memory = Memory::new(bytes.len() as u64);
    memory.bytes_mut().copy_from_slice(bytes);
    memory
}

fn shard(memory: &mut Memory, part: u64, parts: u64) -> &mut [u8] {
    let size = (memory.len() / parts) as usize;
    let start = part as usize * size;
    &mut memory.bytes_mut()[start..start + size]
}

/// `to += from`, element by element.
fn add(dtype: Float, from: &mut Memory, to: &mut Memory) {
    match native(dtype) {
        Native::F32 => add_numbers::<f32>(from, to),
        Native::F64 => add_numbers::<f64>(from, to),
    }
}

fn add_numbers<R: Real>(from: &mut Memory, to: &mut Memory) {
    let numbers = to.numbers_of::<R>();
    numbers.iter_mut().zip(from.numbers_of::<R>()).for_each(|(sum, more)| *sum += *more);
}
