//! A machine with a row of plain memory for every argument. What a routine writes is poisoned
//! before, so a read of what it has not written shows as NaN.

use super::build::Numbers;
use roundelay_codegen::{Portion, StageCode, Stages, UpdateForm, combine, update};
use roundelay_kernels::{Context, Kernel, Mode, Real};
use roundelay_schedule::{
    Access, Argument, Bytes, Call, Element, Float, Id, Operand, Optimizer, Role, Routine,
    Stage,
};
use std::collections::BTreeMap;

const POISON: u64 = u64::MAX;

/// A row, in 8-byte words so that every element type is aligned.
type Row = Vec<u64>;

/// The memory of one device that has all stages.
pub(crate) struct Machine<'a> {
    pub(crate) stages: &'a Stages,
    pub(crate) dtype: Float,
    rows: BTreeMap<(Stage, Role), Row>,
}

/// What a training run leaves behind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trace {
    pub(crate) losses: Vec<u64>,
    pub(crate) metrics: Vec<u64>,
    pub(crate) gradients: BTreeMap<String, Vec<u64>>,
    pub(crate) parameters: BTreeMap<String, Vec<u64>>,
}

/// What a run trains with.
pub(crate) struct Run<'a> {
    pub(crate) optimizer: &'a Optimizer,
    pub(crate) micro_batches: u32,
    pub(crate) steps: u64,
    pub(crate) form: UpdateForm,
    pub(crate) parts: u64,
}

impl<'a> Machine<'a> {
    /// Parameters drawn by name, optimizer state and padding zero.
    pub(crate) fn new<R: Real>(stages: &'a Stages, states: u64) -> Self {
        let dtype = R::DTYPE;
        let mut machine = Self { stages, dtype, rows: BTreeMap::new() };
        for (stage, elements) in stages.elements.iter() {
            let size = Bytes(*elements) * dtype.size();
            machine.rows.insert((stage, Role::Parameter), row(size, 0));
            machine.rows.insert((stage, Role::Optimizer), row(size * states, 0));
        }
        for parameter in &stages.parameters {
            let mix = |seed: u64, byte| seed.wrapping_mul(31) ^ u64::from(byte);
            let seed = parameter.name.bytes().fold(7, mix);
            let mut numbers = Numbers(seed);
            for k in 0..parameter.elements() {
                let value = 0.8 * numbers.real();
                machine.set::<R>(parameter.stage, parameter.offset + k, value);
            }
        }
        machine
    }

    /// Sets one element of a stage's flat parameters.
    pub(crate) fn set<R: Real>(&mut self, stage: Stage, element: u64, value: f64) {
        let row = self.row_mut(stage, Role::Parameter);
        store::<R>(row, element, R::of(value));
    }
    /// One element of a flat row.
    pub(crate) fn get<R: Real>(&self, stage: Stage, role: Role, element: u64) -> R {
        read::<R>(&self.rows[&key(stage, role)], element)
    }

    /// Sets a whole flat row.
    pub(crate) fn put<R: Real>(&mut self, stage: Stage, role: Role, values: &[R]) {
        let mut flat = row(Bytes(values.len() as u64) * self.dtype.size(), POISON);
        (0..).zip(values).for_each(|(k, value)| store::<R>(&mut flat, k, *value));
        self.rows.insert(key(stage, role), flat);
    }

    /// Draws the inputs of one micro-batch.
    pub(crate) fn feed<R: Real>(&mut self, seed: u64) {
        let mut numbers = Numbers(seed);
        for (id, input) in self.stages.inputs.iter() {
            let elements: u64 = input.shape.iter().product();
            let size = Bytes(elements) * input.element.size(self.dtype);
            let mut fed = row(size, POISON);
            for k in 0..elements {
                match input.element {
                    Element::Real | Element::Wide => {
                        store::<R>(&mut fed, k, R::of(numbers.real()));
                    }
                    Element::I32 => {
                        store::<i32>(&mut fed, k, numbers.below(input.bound) as i32);
                    }
                }
            }
            self.rows.insert(key(Stage::new(0), Role::Input(id)), fed);
        }
    }

    /// The loss of the micro-batch that went forward last.
    pub(crate) fn loss<R: Real>(&self) -> R {
        self.get::<R>(self.last(), Role::Metric, 0)
    }

    /// The stage that has the loss.
    fn last(&self) -> Stage {
        self.stages.stages.ids().next_back().expect("there are stages")
    }

    /// The bits of the metrics of the micro-batch that went forward last.
    fn metrics<R: Real>(&self) -> Vec<u64> {
        let last = &self.stages.stages[self.last()];
        let arguments = last.forward.arguments.iter();
        let mut sizes = arguments.filter(|a| a.role == Role::Metric).map(|a| a.size);
        let numbers = sizes.next().map_or(0, |size| size.0 / self.dtype.size());
        let measuring = || {
            let stages = self.stages.stages.ids();
            stages.filter(|stage| self.rows.contains_key(&key(*stage, Role::Metric)))
        };
        // A number that a stage does not measure is poison there, which is no number.
        let number = |k| {
            let found = measuring().map(|stage| self.get::<R>(stage, Role::Metric, k));
            found.map(Real::widen).find(|number| !number.is_nan())
        };
        let numbers = (1..numbers).map(|k| number(k).expect("some stage measures it"));
        numbers.map(f64::to_bits).collect()
    }

    /// All stages forward.
    pub(crate) fn forward<R: Real>(&mut self, context: &Context) {
        let stages = self.stages;
        for code in stages.stages.values() {
            self.launch::<R>(&code.forward, context);
        }
    }
    /// All stages backward.
    pub(crate) fn backward<R: Real>(&mut self, context: &Context) {
        let stages = self.stages;
        for StageCode { backward, .. } in stages.stages.values().rev() {
            let first = context.micro_batch == 0;
            let routines = if first { backward.first() } else { backward.next() };
            routines.iter().for_each(|routine| self.launch::<R>(routine, context));
        }
        self.add_up::<R>(context);
    }

    /// The gradients of ties, from what each of their stages has so far.
    fn add_up<R: Real>(&mut self, context: &Context) {
        let stages = self.stages;
        let first = stages.stages.len();
        for (number, tie) in stages.ties.iter().enumerate() {
            let state = Stage::new(first + number);
            let routine = combine(stages, state, self.dtype);
            for (place, stage) in tie.users() {
                let role = if place == 0 { Role::Gradient } else { Role::Received };
                let own = self.rows[&key(stage, Role::TiedGradient(state))].clone();
                self.rows.insert(key(state, role), own);
                if place > 0 {
                    self.launch::<R>(&routine, context);
                }
            }
        }
    }

    /// Trains, and says every bit of what came out.
    pub(crate) fn train<R: Real>(&mut self, run: &Run<'_>) -> Trace {
        let (mut losses, mut metrics) = (Vec::new(), Vec::new());
        for step in 0..run.steps {
            for micro_batch in 0..u64::from(run.micro_batches) {
                let context = context(step, micro_batch);
                self.feed::<R>(step * 1000 + micro_batch);
                self.forward::<R>(&context);
                losses.push(self.loss::<R>().widen().to_bits());
                metrics.extend(self.metrics::<R>());
                self.backward::<R>(&context);
            }
            self.update::<R>(run, &context(step, 0));
        }
        let [gradients, parameters] =
            [Role::Gradient, Role::Parameter].map(|role| self.named::<R>(role));
        Trace { losses, metrics, gradients, parameters }
    }

    /// Updates all stages, shard by shard.
    fn update<R: Real>(&mut self, run: &Run<'_>, context: &Context) {
        let Run { optimizer, micro_batches, form, parts, .. } = *run;
        for stage in self.stages.elements.ids() {
            let routine = update(
                self.stages,
                stage,
                optimizer,
                micro_batches,
                self.dtype,
                form,
                Portion { shards: parts, ..Portion::WHOLE },
            );
            let count = self.stages.elements[stage] / parts;
            let whole = self.shards(stage, parts, optimizer.method.states());
            let mut done = Vec::new();
            for (part, shard) in (0..parts).zip(whole) {
                self.rows.extend(shard);
                let context = Context { slice_offset: part * count, ..*context };
                self.launch::<R>(&routine, &context);
                done.push(self.take_updated(stage, form));
            }
            self.join(stage, done);
        }
    }

    /// The rows of an update, cut into equal parts; state after state within a part.
    fn shards(
        &self,
        stage: Stage,
        parts: u64,
        states: u64,
    ) -> Vec<Vec<((Stage, Role), Row)>> {
        let cut = |role, arrays: u64, part: u64| {
            let whole = &self.rows[&key(stage, role)];
            let length = whole.len() / (arrays * parts).max(1) as usize;
            let array = |k: u64| {
                let from = length * (k * parts + part) as usize;
                whole[from..from + length].to_vec()
            };
            (key(stage, role), (0..arrays).flat_map(array).collect::<Row>())
        };
        let roles =
            [(Role::Parameter, 1), (Role::Gradient, 1), (Role::Optimizer, states)];
        let part = |part| roles.map(|(role, arrays)| cut(role, arrays, part)).into();
        (0..parts).map(part).collect()
    }

    fn take_updated(&mut self, stage: Stage, form: UpdateForm) -> [Row; 3] {
        let written = match form {
            UpdateForm::InPlace => Role::Parameter,
            UpdateForm::Next => Role::NextParameter,
        };
        [written, Role::Gradient, Role::Optimizer]
            .map(|role| self.rows[&key(stage, role)].clone())
    }

    fn join(&mut self, stage: Stage, done: Vec<[Row; 3]>) {
        let of = |index: usize| done.iter().map(move |rows| &rows[index]);
        let parameter = of(0).flatten().copied().collect();
        let gradient = of(1).flatten().copied().collect();
        let own = done[0][0].len();
        let states = done[0][2].len().checked_div(own).unwrap_or(0);
        let array =
            |k: usize| of(2).flat_map(move |row| &row[k * own..(k + 1) * own]).copied();
        let optimizer = (0..states).flat_map(array).collect();
        self.rows.insert(key(stage, Role::Parameter), parameter);
        self.rows.insert(key(stage, Role::Gradient), gradient);
        self.rows.insert(key(stage, Role::Optimizer), optimizer);
    }

    /// The bits of every parameter's part of a flat row, by name.
    pub(crate) fn named<R: Real>(&self, role: Role) -> BTreeMap<String, Vec<u64>> {
        let bits = |stage, k| self.get::<R>(stage, role, k).widen().to_bits();
        let one = |p: &roundelay_schedule::Parameter| {
            let range = p.offset..p.offset + p.elements();
            (p.name.clone(), range.map(|k| bits(p.stage, k)).collect())
        };
        self.stages.parameters.iter().map(one).collect()
    }

    /// Runs a routine, as strictly as its signature reads.
    pub(crate) fn launch<R: Real>(&mut self, routine: &Routine, context: &Context) {
        self.bind_all(routine);
        routine.calls.iter().for_each(|call| self.call::<R>(routine, call, context));
    }

    /// Poisons what a routine writes, and looks for what it reads.
    pub(crate) fn bind_all(&mut self, routine: &Routine) {
        routine.arguments.iter().for_each(|argument| self.bind(routine, argument));
    }

    /// Makes one call of a routine whose arguments are bound.
    #[allow(unsafe_code, reason = "kernels take addresses")]
    pub(crate) fn call<R: Real>(
        &mut self,
        routine: &Routine,
        call: &Call,
        context: &Context,
    ) {
        let kernel = Kernel::parse(call).expect("stages admits calls");
        self.hold(routine, call, &kernel);
        let operands = call.operands.iter();
        let pointers: Vec<*mut u8> =
            operands.map(|operand| self.pointer(routine, operand)).collect();
        // SAFETY: `hold` has checked that the operands lie inside their rows, which are
        // aligned, and that what is written overlaps nothing but what it may replace.
        unsafe { kernel.run_plain::<R>(&pointers, context) };
    }

    /// What an operand of a call holds.
    pub(crate) fn operand<R: Real>(
        &mut self,
        routine: &Routine,
        call: &Call,
        number: usize,
    ) -> Vec<R> {
        let Operand { argument, offset, .. } = call.operands[number];
        let role = routine.arguments[argument as usize].role;
        let count = call.operands[number].elements().expect("operands are small");
        let first = offset.0 / R::DTYPE.size();
        let bound = self.row_mut(routine.stage, role);
        (first..first + count).map(|element| read::<R>(bound, element)).collect()
    }

    /// Writes an operand of a call.
    pub(crate) fn put_operand<R: Real>(
        &mut self,
        routine: &Routine,
        call: &Call,
        number: usize,
        values: &[R],
    ) {
        let Operand { argument, offset, .. } = call.operands[number];
        let role = routine.arguments[argument as usize].role;
        let first = offset.0 / R::DTYPE.size();
        let bound = self.row_mut(routine.stage, role);
        (first..).zip(values).for_each(|(place, value)| store::<R>(bound, place, *value));
    }

    fn bind(&mut self, routine: &Routine, argument: &Argument) {
        let key = key(routine.stage, argument.role);
        match argument.access {
            Access::Write => drop(self.rows.insert(key, row(argument.size, POISON))),
            Access::Read | Access::Update => {
                let bound = self.rows.get(&key).unwrap_or_else(|| {
                    panic!("{}: nothing wrote {:?}", routine.name, argument.role)
                });
                let size = Bytes(bound.len() as u64 * 8);
                assert!(argument.size <= size, "{}: {argument:?}", routine.name);
            }
        }
    }

    fn hold(&self, routine: &Routine, call: &Call, kernel: &Kernel) {
        let sizes: Vec<Bytes> = kernel.sizes(self.dtype).collect();
        let range = |index: usize| {
            let Operand { argument, offset, .. } = call.operands[index];
            (argument, offset, offset + sizes[index])
        };
        for (index, operand) in call.operands.iter().enumerate() {
            let argument = &routine.arguments[operand.argument as usize];
            let (_, start, end) = range(index);
            assert!(end <= argument.size, "{}: {call:?}", routine.name);
            let aligned = start.0.is_multiple_of(operand.element.size(self.dtype));
            assert!(aligned, "{}: {call:?}", routine.name);
            if kernel.accesses()[index] == Access::Read {
                continue;
            }
            assert_ne!(argument.access, Access::Read, "{}: {call:?}", routine.name);
            let replaced = |other| kernel.replaces().contains(&[other, index]);
            for other in (0..sizes.len()).filter(|other| *other != index) {
                let (a, b) = (range(index), range(other));
                let apart = a.0 != b.0 || a.2 <= b.1 || b.2 <= a.1;
                let allowed = replaced(other) && a == b;
                assert!(apart || allowed, "{}: {call:?}", routine.name);
            }
        }
    }

    fn pointer(&mut self, routine: &Routine, operand: &Operand) -> *mut u8 {
        let argument = &routine.arguments[operand.argument as usize];
        let row = self.row_mut(routine.stage, argument.role);
        row.as_mut_ptr().cast::<u8>().wrapping_add(operand.offset.0 as usize)
    }

    fn row_mut(&mut self, stage: Stage, role: Role) -> &mut Row {
        self.rows.get_mut(&key(stage, role)).expect("a launch binds its rows first")
    }
}

/// What a launch of step t and micro-batch i knows.
pub(crate) fn context(step: u64, micro_batch: u64) -> Context {
    Context {
        step,
        updates: step + 1,
        micro_batch,
        seed: 7,
        mode: Mode::Training,
        rate: 0.05,
        slice_offset: 0,
        part: 0,
        threads: 1,
    }
}

/// Rows of a state are its own; values, inputs and workspace belong to all.
fn key(stage: Stage, role: Role) -> (Stage, Role) {
    match role {
        Role::Parameter
        | Role::NextParameter
        | Role::Gradient
        | Role::Received
        | Role::Optimizer
        | Role::Squares
        | Role::Activation
        | Role::TiedGradient(_)
        | Role::Retained
        | Role::Adjoint
        | Role::Metric => (stage, role),
        Role::Tied(state) => (state, Role::Parameter),
        Role::Value(_) | Role::ValueGradient(_) | Role::Input(_) | Role::Workspace => {
            (Stage::new(0), role)
        }
    }
}

fn row(size: Bytes, word: u64) -> Row {
    vec![word; size.0.div_ceil(8) as usize]
}

#[allow(unsafe_code, reason = "rows hold any element type")]
fn read<R: Real>(row: &Row, element: u64) -> R {
    assert!((element + 1) * R::DTYPE.size() <= row.len() as u64 * 8);
    // SAFETY: the element lies inside the row.
    unsafe { row.as_ptr().cast::<R>().add(element as usize).read() }
}

#[allow(unsafe_code, reason = "rows hold any element type")]
fn store<T: Copy>(row: &mut Row, element: u64, value: T) {
    assert!((element + 1) * size_of::<T>() as u64 <= row.len() as u64 * 8);
    // SAFETY: the element lies inside the row.
    unsafe { row.as_mut_ptr().cast::<T>().add(element as usize).write(value) };
}
