//! Routines as a stream does them: every call is parsed, every function loaded, every product and
//! every convolution planned before the start.

mod agreed;
mod sums;

use super::{
    super::{
        CudaError,
        arena::ALIGNMENT,
        driver::{Address, Device, DriverError, Function, Parameters, Stream},
        exchange::Meeting,
    },
    attender::{Attender, Chosen},
    convolver::{Convolver, Own},
    library_steps::LibrarySteps,
    multiplier::{Multiplier, Part, Ways, power_of_two_in},
    products::Request,
    tools::Tools,
    tuning::Trials,
};
use crate::{
    code::parse_call,
    machine::{AttentionCounts, Makers},
    ranks::Control,
};
use roundelay_kernels::{
    Exchange,
    cuda::{self, Argument, CallPlace, Convolution, Launch, Number, Steps},
};
use roundelay_schedule::{
    Bytes, Call, Element, Float, Line, Pass, Routine, RoutineId, Schedule, Table,
};
use std::{mem, sync::Arc};

/// All routines of a schedule, on one device.
pub(in crate::cuda) struct Code {
    pub(in crate::cuda) routines: Table<RoutineId, Ready>,
    multiplier: Multiplier,
    convolver: Convolver,
    attender: Attender,
    tools: Tools,
    parameters: Parameters,
}

/// A routine that is ready to be given to a stream.
#[derive(Default)]
pub(in crate::cuda) struct Ready {
    pub(in crate::cuda) calls: Vec<ReadyCall>,
    /// What its calls take beside their operands, one after another.
    pub(in crate::cuda) scratch: Bytes,
    /// What libraries take for them.
    pub(in crate::cuda) workspace: Bytes,
}

/// Where an operand of a call is.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    /// Number of the argument that holds it.
    argument: usize,
    /// Its first byte there.
    pub(super) offset: u64,
}

/// A call of a routine.
pub(in crate::cuda) struct ReadyCall {
    operands: Vec<Operand>,
    pub(in crate::cuda) work: Work,
}

impl ReadyCall {
    /// Its operands in the arguments of a launch.
    pub(in crate::cuda) fn operands_in(&self, arguments: &[Address]) -> Vec<Address> {
        let operands = self.operands.iter();
        operands.map(|own| arguments[own.argument].plus(own.offset)).collect()
    }

    /// Functions, products and convolutions, without what parts exchange.
    pub(in crate::cuda) fn steps(&self) -> u64 {
        match &self.work {
            Work::Alone(steps) => steps.len() as u64,
            Work::Together(_) => 0,
        }
    }

    /// Those of them that libraries make.
    pub(in crate::cuda) fn library_steps(&self) -> LibrarySteps {
        let mut made = LibrarySteps::default();
        let steps = match &self.work {
            Work::Alone(steps) => steps.as_slice(),
            Work::Together(_) => &[],
        };
        for step in steps {
            match step {
                Step::Launch(..) => {}
                Step::Product(..) => made.products += 1,
                Step::Convolution(..) => made.convolutions += 1,
                Step::Attention(..) => made.attentions += 1,
            }
        }
        made
    }
}

/// A call as the kernels say it.
enum Given {
    Alone(Steps),
    Together(Exchange),
}

/// What a call does.
pub(in crate::cuda) enum Work {
    /// Something on its own.
    Alone(Vec<Step>),
    /// Something that all parts of split tensors do together.
    Together(Meeting),
}

/// One thing that a stream does.
pub(in crate::cuda) enum Step {
    /// A function of ours.
    Launch(Function, Launch),
    /// A product that the library does by one of its plans.
    Product(Box<Request>, usize),
    /// A convolution that the library does by one of its plans, of images, weights and results here.
    Convolution([CallPlace; 3], usize),
    /// Attention that it does by one of its plans, of q, k, v, o and the logarithms here.
    Attention([CallPlace; 5], usize),
}

impl Step {
    /// Whether it may take memory beside its operands and the workspace of libraries.
    fn may_take_scratch(&self) -> bool {
        match self {
            Self::Launch(..) | Self::Product(..) => true,
            Self::Convolution(places, _) => places.iter().any(is_scratch),
            Self::Attention(places, _) => places.iter().any(is_scratch),
        }
    }
}

fn is_scratch(place: &CallPlace) -> bool {
    match place {
        CallPlace::Scratch(_) => true,
        CallPlace::Operand(..) => false,
    }
}

/// The memory of a call.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    pub(super) operands: &'a [Operand],
    /// Bytes of each.
    pub(super) sizes: &'a [Bytes],
    /// What it takes beside its operands.
    pub(super) scratch: Bytes,
}

/// What the parameters of a call are bound to.
pub(in crate::cuda) struct Binding<'a> {
    pub(in crate::cuda) operands: &'a [Address],
    pub(in crate::cuda) scratch: Address,
    /// Memory of the lane for libraries.
    pub(in crate::cuda) workspace: Address,
    pub(in crate::cuda) scalars: Address,
    pub(in crate::cuda) micro_batch: u64,
    pub(in crate::cuda) slice_offset: u64,
    pub(in crate::cuda) part: u64,
}

impl Binding<'_> {
    /// Operands alone, for what is no call of a routine.
    pub(in crate::cuda) fn of(operands: &[Address], scratch: Address) -> Binding<'_> {
        let nowhere = Address(0);
        Binding {
            operands,
            scratch,
            workspace: nowhere,
            scalars: nowhere,
            micro_batch: 0,
            slice_offset: 0,
            part: 0,
        }
    }

    pub(in crate::cuda) fn address(&self, place: CallPlace) -> Address {
        match place {
            CallPlace::Operand(operand, Bytes(bytes)) => {
                self.operands[operand].plus(bytes)
            }
            CallPlace::Scratch(Bytes(bytes)) => self.scratch.plus(bytes),
        }
    }

    fn place(&self, line: Line) -> u64 {
        u64::from(line.place(u32::try_from(self.part).unwrap_or(u32::MAX)))
    }

    fn value(&self, argument: Argument) -> u64 {
        match argument {
            Argument::Address(place) => self.address(place).0,
            Argument::Scalars => self.scalars.0,
            Argument::MicroBatch => self.micro_batch,
            Argument::SliceOffset => self.slice_offset,
            Argument::Part => self.part,
            Argument::Place(line) => self.place(line),
            Argument::PlaceInRows { line, of_rows, rows, before } => {
                let row = self.place(of_rows) * rows + before;
                row * u64::from(line.parts) + self.place(line)
            }
            Argument::Unsigned(number) => u64::from(number),
            Argument::Unsigned64(number) => number,
            Argument::Single(number) => u64::from(number.to_bits()),
            Argument::Double(number) => number.to_bits(),
        }
    }
}

impl Code {
    /// Makes all routines ready that a schedule launches, for one process or one rank of several.
    ///
    /// # Errors
    /// When a call is malformed, a source is not compiled, or something goes wrong on another rank.
    pub(in crate::cuda) fn new(
        schedule: &Schedule,
        device: &Device,
        control: Option<&Arc<Control>>,
    ) -> Result<Self, CudaError> {
        let mut code = Self::bare(device, Some(alignment(schedule)), Trials::Made);
        code.tools.functions.compile_for(schedule);
        if let Some(control) = control {
            code.tools.tuner.among(control);
        }
        code.fill(schedule)?;
        if let Some(control) = control {
            code.agree(schedule, control)?;
        }
        Ok(code)
    }

    fn fill(&mut self, schedule: &Schedule) -> Result<(), CudaError> {
        let launched = schedule.launched();
        self.make(schedule, |id| launched.contains(&id))?;
        self.prepare_sums(schedule)?;
        self.tools.functions.of(&cuda::count_words(1, 1, 0)).map(drop)
    }

    /// Makes some routines of a schedule ready; others have no calls.
    fn make(
        &mut self,
        schedule: &Schedule,
        is_wanted: impl Fn(RoutineId) -> bool,
    ) -> Result<(), CudaError> {
        let ready = |(id, routine)| match is_wanted(id) {
            true => self.routine(schedule.job.dtype, id, routine),
            false => Ok(Ready::default()),
        };
        let routines: Result<_, CudaError> =
            schedule.routines.iter().map(ready).collect();
        self.routines = routines?;
        Ok(())
    }

    /// Makes the routines of a pass ready, whose rows start at multiples of the alignment of
    /// scratch.
    ///
    /// # Errors
    /// As [`Code::new`].
    pub(in crate::cuda) fn of_pass(
        schedule: &Schedule,
        device: &Device,
        pass: Pass,
    ) -> Result<Self, CudaError> {
        let mut code = Self::bare(device, Some(ALIGNMENT), Trials::Left);
        code.make(schedule, |id| schedule.routines[id].pass == pass)?;
        Ok(code)
    }

    /// No routines yet. Products and convolutions are libraries', for rows that start at multiples of
    /// `alignment`, or own ones without it.
    pub(in crate::cuda) fn bare(
        device: &Device,
        alignment: Option<u64>,
        trials: Trials,
    ) -> Self {
        Self {
            routines: Table::default(),
            multiplier: Multiplier::new(device, alignment),
            convolver: Convolver::new(device),
            attender: Attender::new(device),
            tools: Tools::new(device, alignment, trials),
            parameters: Parameters::default(),
        }
    }

    /// Takes functions for every device alone, where there are special ones too.
    pub(in crate::cuda) fn usual(mut self) -> Self {
        self.attender.take_usual();
        self
    }

    /// Memory that libraries take for a call.
    pub(in crate::cuda) fn workspace(&self, call: &ReadyCall) -> Bytes {
        let steps = match &call.work {
            Work::Alone(steps) => steps.iter(),
            Work::Together(_) => [].iter(),
        };
        let of_step = |step: &Step| match step {
            Step::Launch(..) => Bytes(0),
            Step::Product(_, plan) => self.multiplier.workspace(*plan),
            Step::Convolution(_, plan) => self.convolver.workspace(*plan),
            Step::Attention(_, plan) => self.attender.workspace(*plan),
        };
        steps.map(of_step).max().unwrap_or_default()
    }

    /// In words the first way of anything that a trial left out because it cannot be part of a graph.
    pub(in crate::cuda) fn unrecorded(&self) -> Option<&str> {
        self.tools.tuner.unrecorded()
    }

    /// In words the first thing whose ways could not be compared, and why.
    pub(in crate::cuda) fn untried(&self) -> Option<&str> {
        self.tools.tuner.untried()
    }

    /// Who makes the products of all calls that are ready.
    pub(in crate::cuda) fn products(&self) -> &Makers {
        self.multiplier.counts()
    }

    /// How they make them.
    pub(in crate::cuda) fn ways(&self) -> String {
        self.multiplier.ways()
    }

    /// Who makes the convolutions of all calls that are ready.
    pub(in crate::cuda) fn convolutions(&self) -> &Makers {
        self.convolver.counts()
    }

    /// How they make them.
    pub(in crate::cuda) fn convolution_ways(&self) -> String {
        self.convolver.ways()
    }

    /// By which functions attention is made in all calls that are ready.
    pub(in crate::cuda) fn attention(&self) -> &AttentionCounts {
        self.attender.counts()
    }

    /// How they make it.
    pub(in crate::cuda) fn attention_ways(&self) -> String {
        self.attender.ways()
    }

    fn routine(
        &mut self,
        dtype: Float,
        id: RoutineId,
        routine: &Routine,
    ) -> Result<Ready, CudaError> {
        let mut scratch = Bytes(0);
        let mut calls = Vec::with_capacity(routine.calls.len());
        for (number, source) in routine.calls.iter().enumerate() {
            let (call, own) = self.prepare(dtype, (id, number), source)?;
            scratch = scratch.max(own);
            calls.push(call);
        }
        let workspace = calls.iter().map(|call| self.workspace(call)).max();
        Ok(Ready { calls, scratch, workspace: workspace.unwrap_or_default() })
    }

    /// Makes one call ready; says also how much memory it takes beside its operands.
    ///
    /// # Errors
    /// As [`Code::new`].
    pub(in crate::cuda) fn prepare(
        &mut self,
        dtype: Float,
        (id, number): (RoutineId, usize),
        source: &Call,
    ) -> Result<(ReadyCall, Bytes), CudaError> {
        let kernel = parse_call(source, id, number)?;
        let refused = |message| CudaError::Kernel {
            routine: id,
            call: number,
            kernel: source.kernel.to_string(),
            message,
        };
        let given = match kernel.exchange() {
            Some(exchange) => Given::Together(exchange),
            None => Given::Alone(kernel.cuda(dtype).map_err(refused)?),
        };
        let sizes: Vec<Bytes> = kernel.sizes(dtype).collect();
        self.call(dtype, given, (source, &sizes))
    }

    fn call(
        &mut self,
        dtype: Float,
        given: Given,
        (source, sizes): (&Call, &[Bytes]),
    ) -> Result<(ReadyCall, Bytes), CudaError> {
        let place = |own: &roundelay_schedule::Operand| Operand {
            argument: own.argument as usize,
            offset: own.offset.0,
        };
        let operands: Vec<Operand> = source.operands.iter().map(place).collect();
        let (work, scratch) = match given {
            Given::Together(exchange) => {
                let meeting = Meeting::new(exchange, dtype);
                self.prepare_meeting(&meeting)?;
                (Work::Together(meeting), meeting.scratch())
            }
            Given::Alone(Steps { steps, scratch }) => {
                let room = Room { operands: &operands, sizes, scratch };
                let ready = steps.into_iter().map(|step| self.ready(step, room));
                let ready: Vec<Vec<Step>> = ready.collect::<Result<_, _>>()?;
                let ready: Vec<Step> = ready.into_iter().flatten().collect();
                let takes = ready.iter().any(Step::may_take_scratch);
                (Work::Alone(ready), if takes { scratch } else { Bytes(0) })
            }
        };
        Ok((ReadyCall { operands, work }, scratch))
    }

    /// Makes a step ready, by a library where it makes it.
    fn ready(
        &mut self,
        step: cuda::Step,
        room: Room<'_>,
    ) -> Result<Vec<Step>, CudaError> {
        match step {
            cuda::Step::Launch(launch) => Ok(vec![self.launch(launch)?]),
            cuda::Step::Product(ref product) => {
                self.product(Ways::from(product), step.launches(), room)
            }
            cuda::Step::Gradients(ref both) => {
                self.product(Ways::from(&**both), step.launches(), room)
            }
            cuda::Step::Convolution(own) => self.convolution(*own, room),
            cuda::Step::Either(either) => {
                Ok(match self.attender.choose(&either, room, &mut self.tools)? {
                    Chosen::Functions(loaded) => loaded.into_steps(),
                    Chosen::Library(places, plan) => vec![Step::Attention(places, plan)],
                })
            }
        }
    }

    /// A product by the library where it does it, else by our functions.
    fn product(
        &mut self,
        ways: Ways,
        own: Vec<Launch>,
        room: Room<'_>,
    ) -> Result<Vec<Step>, CudaError> {
        let mut steps = Vec::new();
        let launches = match self.multiplier.plan(ways, room, &mut self.tools) {
            Some((Part { request, behind, .. }, plan)) => {
                steps.push(Step::Product(Box::new(request), plan));
                behind
            }
            None => own,
        };
        for launch in launches {
            steps.push(self.launch(launch)?);
        }
        Ok(steps)
    }

    /// A convolution by the library where it is known to be better, else by our functions.
    fn convolution(
        &mut self,
        mut convolution: Convolution,
        Room { operands, scratch, .. }: Room<'_>,
    ) -> Result<Vec<Step>, CudaError> {
        let loaded = self.tools.functions.all(&mem::take(&mut convolution.own))?;
        let own = Own { loaded: &loaded, scratch };
        let tools = &mut self.tools;
        if let Some(plan) = self.convolver.plan(&convolution, operands, own, tools) {
            let Convolution { x, weight, y, .. } = convolution;
            return Ok(vec![Step::Convolution([x.place, weight.place, y.place], plan)]);
        }
        Ok(loaded.into_steps())
    }

    fn launch(&mut self, launch: Launch) -> Result<Step, CudaError> {
        Ok(Step::Launch(self.tools.functions.of(&launch)?, launch))
    }

    /// Gives a step to a stream.
    pub(in crate::cuda) fn run(
        &mut self,
        step: &Step,
        binding: &Binding<'_>,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        match step {
            Step::Launch(function, launch) => {
                give((function, launch), binding, &mut self.parameters, stream)
            }
            Step::Product(request, plan) => {
                self.multiplier.run(*plan, request, binding, stream)
            }
            Step::Convolution(places, plan) => {
                let to = (self.tools.cudnn.started(), stream);
                self.convolver.run(*plan, *places, binding, to)
            }
            Step::Attention(places, plan) => {
                let to = (self.tools.cudnn.started(), stream);
                self.attender.run(*plan, *places, binding, to)
            }
        }
    }
}

/// Gives a function to a stream.
pub(super) fn give(
    (function, launch): (&Function, &Launch),
    binding: &Binding<'_>,
    parameters: &mut Parameters,
    stream: &Stream,
) -> Result<(), DriverError> {
    parameters.clear();
    for argument in &launch.arguments {
        parameters.push(binding.value(*argument));
    }
    stream.launch(function, launch, parameters)
}

/// How device memory holds the real numbers of an element type.
pub(in crate::cuda) fn number_of(dtype: Float, element: Element) -> Number {
    match (dtype, element) {
        (Float::F64, _) => Number::F64,
        (Float::F32, _) | (Float::Bf16(_) | Float::F16(_), Element::Wide) => Number::F32,
        (Float::Bf16(_), Element::Real | Element::I32) => Number::Bf16,
        (Float::F16(_), Element::Real | Element::I32) => Number::F16,
    }
}

/// What the first byte of every row is a multiple of.
fn alignment(schedule: &Schedule) -> u64 {
    let all =
        schedule.buffers.values().flat_map(|buffer| [buffer.offset.0, buffer.size.0]);
    power_of_two_in(all)
}
