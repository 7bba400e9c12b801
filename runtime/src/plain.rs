//! Stages as plain functions: routines on memory of their own, one block per role, one call after
//! another; where rows split tensors, each has its own blocks, and every call runs on all rows
//! before the next. No slots, places or queues.
#![expect(unsafe_code, reason = "blocks of one owner are claimed here")]

use crate::{
    code::{Code, CodeError},
    memory::{Arguments, Claim, Memory},
};
use roundelay_kernels::Context;
use roundelay_schedule::{
    Access, Argument, Bytes, InputId, Job, Pass, Role, Routine, RoutineId, Schedule,
    Stage, Table,
};
use std::collections::BTreeMap;

/// All routines of a schedule that serve certain passes, and the memory that they share.
pub(crate) struct Plain {
    routines: Table<RoutineId, Routine>,
    code: Table<RoutineId, Code>,
    /// The blocks of every row.
    blocks: Vec<BTreeMap<Key, Memory>>,
    arguments: Vec<Arguments>,
    operands: Vec<*mut u8>,
}

/// Bytes that stand for a block, on every row.
pub(crate) type Lent<'a> = Vec<&'a mut [u8]>;

/// A block: what has the same key is the same thing, whichever routine names it.
pub(crate) type Key = (Role, Option<Stage>);

impl Plain {
    /// Blocks for everything that routines of `passes` work on, but not for roles that are `bound`.
    pub(crate) fn new(
        schedule: &Schedule,
        passes: &[Pass],
        bound: fn(Role) -> bool,
    ) -> Result<Self, CodeError> {
        let code = Code::parse(schedule)?;
        let sizes = sizes(schedule, passes, bound);
        let widest = schedule.routines.values().map(|r| r.arguments.len()).max();
        let operands = code.values().map(Code::widest).max();
        let rows = 0..schedule.tensor_parts();
        let block = |(key, size): (&Key, &u64)| (*key, Memory::new(*size));
        Ok(Self {
            routines: schedule.routines.clone(),
            code,
            blocks: rows.clone().map(|_| sizes.iter().map(block).collect()).collect(),
            arguments: rows.map(|_| Arguments::new(widest.unwrap_or(0))).collect(),
            operands: Vec::with_capacity(operands.unwrap_or(0)),
        })
    }

    /// Bytes of these blocks, on all rows together.
    pub(crate) fn bytes(
        schedule: &Schedule,
        passes: &[Pass],
        bound: fn(Role) -> bool,
    ) -> Bytes {
        let sizes = sizes(schedule, passes, bound);
        let row: Bytes = sizes.into_values().map(Bytes).sum();
        row * u64::from(schedule.tensor_parts())
    }

    /// The first routine of a pass of a stage whose gradient is accessed in one of these ways.
    pub(crate) fn find(
        &self,
        pass: Pass,
        stage: Stage,
        gradient: &[Access],
    ) -> Option<RoutineId> {
        let fits = |argument: &Argument| {
            !argument.role.is_sum() || gradient.contains(&argument.access)
        };
        let found = self.routines.iter().find(|(_, routine)| {
            (routine.pass, routine.stage) == (pass, stage)
                && routine.arguments.iter().all(fits)
        });
        found.map(|(id, _)| id)
    }

    /// What a routine does with an argument of a role, if it has one.
    pub(crate) fn access(&self, routine: RoutineId, role: Role) -> Option<Access> {
        let arguments = &self.routines[routine].arguments;
        arguments.iter().find(|argument| argument.role == role).map(|a| a.access)
    }

    /// Fills every input that a stage reads.
    pub(crate) fn feed(&mut self, job: &Job, mut fill: impl FnMut(InputId, &mut [u8])) {
        for (id, input) in job.inputs.iter() {
            let size = input.bytes(job.dtype);
            for blocks in &mut self.blocks {
                if let Some(block) = blocks.get_mut(&(Role::Input(id), None)) {
                    fill(id, &mut block.bytes_mut()[..size.0 as usize]);
                }
            }
        }
    }

    /// The numbers that the last stage left, equal on all rows: the loss, then one for each
    /// metric.
    pub(crate) fn measured(&mut self, job: &Job) -> impl Iterator<Item = f64> {
        let first = self.blocks.first_mut().expect("there is at least one row");
        let block = first.get_mut(&(Role::Metric, None));
        let block = block.expect("the forward pass of the last stage writes a loss");
        let (dtype, size) = (job.dtype, job.dtype.size() as usize);
        let bytes = &block.bytes_mut()[..job.measured().0 as usize];
        bytes
            .chunks_exact(size)
            .map(move |number| crate::native::number_of(dtype, number))
    }

    /// The loss that the last stage left.
    pub(crate) fn loss(&mut self, job: &Job) -> f64 {
        self.measured(job).next().expect("the loss comes first")
    }

    /// Runs a routine on all rows; `bound` roles are found in these bytes instead of blocks.
    pub(crate) fn run(
        &mut self,
        routine: RoutineId,
        context: &Context,
        bound: &mut [(Role, Lent<'_>)],
    ) {
        let Routine { stage, arguments, .. } = &self.routines[routine];
        // SAFETY: blocks belong to `self` and bound bytes are borrowed, both exclusively; roles
        // have a block each and stand once among a routine's arguments.
        let mut claim = unsafe { Claim::new() };
        for (row, own) in self.arguments.iter_mut().enumerate() {
            own.clear();
            for argument in arguments {
                match bound.iter_mut().find(|(role, _)| *role == argument.role) {
                    Some((_, lent)) => own.push_bytes(&mut claim, lent[row]),
                    None => {
                        let block = &self.blocks[row][&key(argument.role, *stage)];
                        own.push(&mut claim, block, 0..block.len());
                    }
                }
            }
        }
        let Self { code, arguments, operands, .. } = self;
        code[routine].run_rows(&mut claim, arguments, operands, context);
    }
}

/// Bytes of the blocks of one row, by what they are, for everything that routines of `passes` work on, but not for
/// roles that are `bound`.
pub(crate) fn sizes(
    schedule: &Schedule,
    passes: &[Pass],
    bound: fn(Role) -> bool,
) -> BTreeMap<Key, u64> {
    let mut sizes: BTreeMap<Key, u64> = BTreeMap::new();
    let served = |routine: &&Routine| passes.contains(&routine.pass);
    for routine in schedule.routines.values().filter(served) {
        for argument in routine.arguments.iter().filter(|a| !bound(a.role)) {
            let size = sizes.entry(key(argument.role, routine.stage)).or_default();
            *size = argument.size.0.max(*size);
        }
    }
    sizes
}

/// The block of an argument of a stage.
pub(crate) fn key(role: Role, stage: Stage) -> Key {
    match role {
        Role::Parameter
        | Role::NextParameter
        | Role::Gradient
        | Role::Received
        | Role::Optimizer
        | Role::Squares
        | Role::Activation
        | Role::Retained
        | Role::Adjoint => (role, Some(stage)),
        Role::Tied(_)
        | Role::TiedGradient(_)
        | Role::Value(_)
        | Role::ValueGradient(_)
        | Role::Input(_)
        | Role::Metric
        | Role::Workspace => (role, None),
    }
}
