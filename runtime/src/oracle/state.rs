//! One state of the oracle, of a stage or of a tie: its versions, its optimizer state, its gradient
//! sum.

use super::{OracleError, tree::GradientTree};
use crate::{
    memory::Memory,
    native::native,
    plain::{Lent, Plain},
    state::{State, gather::Gathered, rows::Array},
};
use roundelay_kernels::{Context, Real};
use roundelay_schedule::{
    Access, Checked, Float, Job, Native, Pass, Role, RoutineId, Schedule, Stage, Subject,
};
use std::{collections::VecDeque, mem, ops::Range};

/// The state of a stage or of a tie, and its gradients summed in the plan's tree. Rows of split tensors lie one
/// behind the other in every memory.
pub(super) struct OracleState {
    pub(super) state: Stage,
    /// Of each slice of its sequences; one where these are whole, none of a tie.
    pub(super) routines: Vec<Routines>,
    /// Rows of split tensors.
    rows: u32,
    update: RoutineId,
    /// Finds the square of the norm of a shard, where that of the whole is bounded.
    norm: Option<RoutineId>,
    /// Bytes of the flat parameters on one row.
    size: usize,
    /// Equal shards that update one by one.
    parts: usize,
    /// θ_t, θ_{t−1}, …
    versions: VecDeque<Memory>,
    /// Most versions that are kept.
    depth: usize,
    /// On each row shard by shard, in each shard array by array.
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

/// On each row the squares of the norms of all shards, and behind them that of the whole.
pub(super) struct Squares(Memory);

impl Squares {
    pub(super) fn new(schedule: &Checked) -> Self {
        let parts = schedule.job.states().map(|state| parts(schedule, state)).max();
        let numbers = schedule.tensor_parts() as usize * (parts.unwrap_or(1) + 1);
        Self(Memory::new(numbers as u64 * schedule.job.dtype.size()))
    }

    /// Adds up what shards have, from the first to the last.
    pub(super) fn add_up(&mut self, schedule: &Checked) {
        let each =
            self.0.len() / schedule.job.dtype.size() / u64::from(schedule.tensor_parts());
        match native(schedule.job.dtype) {
            Native::F32 => add_up::<f32>(&mut self.0, each as usize),
            Native::F64 => add_up::<f64>(&mut self.0, each as usize),
        }
    }
}

/// What a stage, or a slice of it, runs.
#[derive(Clone, Copy)]
pub(super) struct Routines {
    pub(super) forward: RoutineId,
    /// I, where the backward pass stands in halves.
    pub(super) input: Option<RoutineId>,
    /// B or W, of the first gradient of a sum; slices that never begin one have none.
    pub(super) first: Option<RoutineId>,
    /// B or W, of later ones.
    pub(super) next: Option<RoutineId>,
}

/// How a pass uses a state.
#[derive(Clone, Copy)]
pub(super) struct Used {
    /// What parameters and gradients are to its routine.
    pub(super) roles: [Role; 2],
    /// Number of its gradient in the sum.
    pub(super) addition: usize,
    /// Of θ that it takes.
    pub(super) age: usize,
}

/// Where a gradient goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Into its sum, which the pass begins or adds to.
    Sum,
    /// Apart, to be added.
    Single,
}

/// Whatever a routine does with a gradient.
const ANY: [Access; 3] = [Access::Read, Access::Write, Access::Update];

impl OracleState {
    /// At rest, as a state of training has it.
    pub(super) fn new(
        schedule: &Checked,
        plain: &Plain,
        trained: &State,
        state: Stage,
    ) -> Result<Self, OracleError> {
        let job = &schedule.job;
        let rows = schedule.tensor_parts();
        let size = job.elements[state] * job.dtype.size();
        let bytes = size * u64::from(rows);
        let plan = &schedule.plan;
        let kept = trained.moment().reach(plan, state);
        let version = |age| -> Result<Memory, OracleError> {
            let part = |row| trained.parameters(job, state, row, age);
            let parts: Vec<Vec<u8>> = (0..rows).map(part).collect::<Result<_, _>>()?;
            Ok(filled(&parts.concat()))
        };
        let each = plan.additions_each(state) as usize;
        let cell = schedule.cell_micro_batches() as usize * each;
        let tree = GradientTree::new(&plan.sum(plan.whole_stage(state)), cell);
        let slices = plan.each_stage().filter(|stage| plan.keeper(*stage) == state);
        let update = plain.find(Pass::Update, state, &ANY);
        let mut own = Self {
            state,
            routines: slices.map(|slice| Routines::find(plain, slice)).collect(),
            rows,
            update: update.expect("every state is updated"),
            norm: plain.find(Pass::Norm, state, &ANY),
            size: size as usize,
            parts: parts(schedule, state),
            versions: (0..=kept).map(version).collect::<Result<_, _>>()?,
            depth: plan.staleness(state) as usize + 1,
            optimizer: Memory::new(bytes * job.optimizer.method.states()),
            runs: (0..tree.runs()).map(|_| Memory::new(bytes)).collect(),
            tree,
            total: Memory::new(bytes),
            single: Memory::new(bytes),
        };
        for row in 0..rows {
            for (array, flat) in trained.optimizer(job, state, row)?.iter().enumerate() {
                own.optimizer_parts(job, (row, array), |part, shard| {
                    part.copy_from_slice(&flat[shard]);
                });
            }
        }
        Ok(own)
    }

    /// The version that a pass takes.
    pub(super) fn theta(&mut self, used: Used) -> (Role, Lent<'_>) {
        let [parameters, _] = used.roles;
        let theta = &mut self.versions[used.age];
        (parameters, lent(theta, self.rows, 0..self.size))
    }

    /// Whether a pass begins a run of the sum.
    pub(super) fn begins(&self, used: Used) -> bool {
        let (_, access) = self.tree.place(used.addition);
        access == Access::Write
    }

    /// What a pass takes, and where it puts its gradient.
    pub(super) fn lend(&mut self, used: Used, target: Target) -> [(Role, Lent<'_>); 2] {
        let Used { roles: [parameters, gradients], addition, age } = used;
        let (run, _) = self.tree.place(addition);
        let sum = match target {
            Target::Sum => &mut self.runs[run],
            Target::Single => &mut self.single,
        };
        let (rows, all) = (self.rows, 0..self.size);
        let theta = lent(&mut self.versions[age], rows, all.clone());
        [(parameters, theta), (gradients, lent(sum, rows, all))]
    }

    /// Adds the gradient of a pass that stands apart.
    pub(super) fn add_single(&mut self, used: Used, dtype: Float) {
        let (run, _) = self.tree.place(used.addition);
        add(dtype, &mut self.single, &mut self.runs[run]);
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

    /// What each shard has of the square of the norm of the total, or that and what the stages behind
    /// have found.
    pub(super) fn measure(
        &mut self,
        plain: &mut Plain,
        job: &Job,
        context: &Context,
        squares: &mut Squares,
    ) {
        let Some(norm) = self.norm else { return };
        let (own, width) = (self.size / self.parts, job.dtype.size() as usize);
        let elements = job.elements[self.state] / self.parts as u64;
        for part in 0..self.parts {
            let shard = part * own..(part + 1) * own;
            let place = part * width..(part + 1) * width;
            let context = Context { slice_offset: part as u64 * elements, ..*context };
            let bound = &mut [
                (Role::Gradient, lent(&mut self.total, self.rows, shard)),
                (Role::Squares, lent(&mut squares.0, self.rows, place)),
            ];
            plain.run(norm, &context, bound);
        }
    }

    /// θ_{t+1} from θ_t, the total and the optimizer's state, shard by shard.
    pub(super) fn update(
        &mut self,
        plain: &mut Plain,
        job: &Job,
        context: &Context,
        squares: &mut Squares,
    ) {
        let mut next = match self.versions.len() > self.depth {
            true => self.versions.pop_back().expect("there are more than enough"),
            false => Memory::new(self.total.len()),
        };
        let newest = self.versions.front_mut().expect("there is a newest version");
        next.bytes_mut().copy_from_slice(newest.bytes_mut());
        let routine = self.update;
        let in_place = plain.access(routine, Role::NextParameter).is_none();
        let elements = job.elements[self.state] / self.parts as u64;
        let states = job.optimizer.method.states() as usize;
        let width = job.dtype.size() as usize;
        let whole = self.parts * width..(self.parts + 1) * width;
        for part in 0..self.parts {
            let context = Context { slice_offset: part as u64 * elements, ..*context };
            let shard = |memory, arrays: usize| {
                let own = self.size * arrays / self.parts;
                lent(memory, self.rows, part * own..(part + 1) * own)
            };
            let (mut old, mut new) = (shard(newest, 1), shard(&mut next, 1));
            if in_place {
                mem::swap(&mut old, &mut new);
            }
            let bound = &mut [
                (Role::Parameter, old),
                (Role::NextParameter, new),
                (Role::Gradient, shard(&mut self.total, 1)),
                (Role::Squares, lent(&mut squares.0, self.rows, whole.clone())),
                (Role::Optimizer, shard(&mut self.optimizer, states)),
            ];
            plain.run(routine, &context, bound);
        }
        self.versions.push_front(next);
    }

    /// Adds all arrays, flat.
    pub(super) fn save(&mut self, schedule: &Schedule, gathered: &mut Gathered) {
        let job = &schedule.job;
        let all = 0..self.size;
        for (age, version) in (0..).zip(self.versions.iter_mut().take(self.depth)) {
            let own = lent(version, self.rows, all.clone());
            let flats: Vec<Vec<u8>> = own.iter().map(|own| own.to_vec()).collect();
            gathered.cut(schedule, Array::Parameter(self.state, age), &flats);
        }
        for array in 0..job.optimizer.method.states() as usize {
            let mut flats = vec![vec![0; self.size]; self.rows as usize];
            for (row, flat) in (0..).zip(&mut flats) {
                self.optimizer_parts(job, (row, array), |part, shard| {
                    flat[shard].copy_from_slice(part);
                });
            }
            gathered.cut(schedule, Array::Optimizer(self.state, array, 0), &flats);
        }
    }

    /// Visits an array of the optimizer's state on one row shard by shard: the shard's bytes, and
    /// where they belong in the flat array.
    fn optimizer_parts(
        &mut self,
        job: &Job,
        (row, array): (u32, usize),
        mut visit: impl FnMut(&mut [u8], Range<usize>),
    ) {
        let states = job.optimizer.method.states() as usize;
        let size = self.size / self.parts;
        let first = row as usize * self.size * states;
        for part in 0..self.parts {
            let start = first + (part * states + array) * size;
            let bytes = &mut self.optimizer.bytes_mut()[start..start + size];
            visit(bytes, part * size..(part + 1) * size);
        }
    }
}

impl Routines {
    fn find(plain: &Plain, stage: Stage) -> Self {
        let input = plain.find(Pass::InputGradient, stage, &ANY);
        let forward = plain.find(Pass::Forward, stage, &ANY);
        let sums = if input.is_some() { Pass::WeightGradient } else { Pass::Backward };
        Self {
            forward: forward.expect("every stage has a forward pass"),
            input,
            first: plain.find(sums, stage, &[Access::Write]),
            next: plain.find(sums, stage, &[Access::Update]),
        }
    }
}

/// In how many shards a state is updated.
fn parts(schedule: &Checked, state: Stage) -> usize {
    let subjects = schedule.buffers.values().map(|buffer| buffer.subject);
    let own = subjects.filter_map(Subject::shard).filter(|(own, _)| *own == state);
    own.map(|(_, axis)| schedule.axes[axis].extent as usize).max().unwrap_or(1)
}

fn filled(bytes: &[u8]) -> Memory {
    let mut memory = Memory::new(bytes.len() as u64);
    memory.bytes_mut().copy_from_slice(bytes);
    memory
}

/// A range of what every row has in a memory.
fn lent(memory: &mut Memory, rows: u32, range: Range<usize>) -> Lent<'_> {
    let mut rest = memory.bytes_mut();
    let size = rest.len() / rows as usize;
    let next = |_| {
        let (row, behind) = mem::take(&mut rest).split_at_mut(size);
        rest = behind;
        &mut row[range.clone()]
    };
    (0..rows).map(next).collect()
}

/// `to += from`, element by element.
fn add(dtype: Float, from: &mut Memory, to: &mut Memory) {
    match native(dtype) {
        Native::F32 => add_numbers::<f32>(from, to),
        Native::F64 => add_numbers::<f64>(from, to),
    }
}

/// On every row, the last of this many numbers becomes the sum of those before it.
fn add_up<R: Real>(memory: &mut Memory, numbers: usize) {
    for row in memory.numbers_of::<R>().chunks_mut(numbers) {
        let (total, parts) = row.split_last_mut().expect("a row has a number");
        *total = parts.iter().copied().reduce(|sum, more| sum + more).unwrap_or(R::ZERO);
    }
}

fn add_numbers<R: Real>(from: &mut Memory, to: &mut Memory) {
    let numbers = to.numbers_of::<R>();
    numbers.iter_mut().zip(from.numbers_of::<R>()).for_each(|(sum, more)| *sum += *more);
}
