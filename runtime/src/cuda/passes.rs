//! Forward passes on a GPU, for whoever looks at held-out data: one call after another on one stream, on
//! memory of their own; where tensors are split, every call runs on all parts before the next.

use super::{
    CudaError,
    arena::{ALIGNMENT, allocate},
    bounce::{Bounce, Unreached},
    driver::{Address, Device, DeviceMemory, DriverError, Stream},
    exchange::{Ends, Meeting},
    ready::{Binding, Code, Ready, ReadyCall, Work},
    staging::{scalars, words},
};
use crate::{
    MachineError,
    evaluate::{ForwardPass, ForwardPasses, OnGpu, PASSES, forward_passes, is_bound},
    native::number_of,
    plain::{Key, key, sizes},
};
use roundelay_kernels::{Context, cuda::Scalars};
use roundelay_schedule::{
    Bytes, Float, Input, InputId, Pass, Role, RoutineId, Schedule, Stage, Table,
};
use std::{collections::BTreeMap, mem, time::Duration};

/// The forward passes of a schedule on one GPU.
pub(crate) struct GpuPasses {
    /// Or why it is gone: what the stream of a GPU that failed may still do with the memory is left to
    /// the end of the process.
    gallery: Result<Gallery, CudaError>,
    bytes: Bytes,
}

/// Everything that passes work with; dropped from first to last.
struct Gallery {
    stream: Stream,
    bounce: Bounce,
    code: Code,
    places: Places,
    _memory: DeviceMemory,
    device: Device,
    passes: Vec<ForwardPass>,
    arguments: Table<RoutineId, Vec<Key>>,
    inputs: Table<InputId, Input>,
    dtype: Float,
    measured: Bytes,
    deadline: Duration,
}

impl Drop for Gallery {
    /// What came last on this thread may have been another GPU's.
    fn drop(&mut self) {
        let _ = self.device.enter();
    }
}

/// Where everything lies.
struct Places {
    /// The blocks of every part.
    blocks: Vec<BTreeMap<Key, Address>>,
    scratch: Address,
    workspace: Address,
    scalars: Address,
    bytes: Bytes,
}

/// Hands out places one behind the other.
struct Shelf {
    next: Address,
    bytes: Bytes,
}

impl Shelf {
    fn place(&mut self, bytes: u64) -> Address {
        let rounded = bytes.next_multiple_of(ALIGNMENT);
        let start = self.next;
        self.next = start.plus(rounded);
        self.bytes += Bytes(rounded);
        start
    }
}

impl Places {
    /// Places from an address on.
    fn new(schedule: &Schedule, code: &Code, start: Address) -> Self {
        let mut shelf = Shelf { next: start, bytes: Bytes(0) };
        let job = &schedule.job;
        let blocks = sizes(schedule, &PASSES, is_bound);
        let flat = |(stage, elements): (Stage, &u64)| {
            (key(Role::Parameter, stage), elements * job.dtype.size())
        };
        let blocks: Vec<(Key, u64)> =
            blocks.into_iter().chain(job.elements.iter().map(flat)).collect();
        let part = |_| {
            let placed = blocks.iter().map(|(key, size)| (*key, shelf.place(*size)));
            placed.collect()
        };
        let blocks = (0..schedule.tensor_parts()).map(part).collect();
        let most = |of: fn(&Ready) -> Bytes| {
            code.routines.values().map(of).max().unwrap_or_default().0
        };
        Self {
            blocks,
            scratch: shelf.place(most(|routine| routine.scratch)),
            workspace: shelf.place(most(|routine| routine.workspace)),
            scalars: shelf.place(size_of::<Scalars>() as u64),
            bytes: shelf.bytes,
        }
    }
}

impl GpuPasses {
    /// Compiles all kernels and allocates all memory.
    ///
    /// # Errors
    /// When CUDA is missing, a kernel call is malformed, a kernel is not compiled, or the GPU has
    /// too little memory.
    pub(crate) fn new(schedule: &Schedule, on: OnGpu) -> Result<Self, CudaError> {
        let device = Device::open(on.ordinal)?;
        let refused = |what: &'static str| {
            let facts = device.facts();
            move |reason| CudaError::refused(facts, what, reason)
        };
        device.enter().map_err(refused("its context"))?;
        let code = Code::of_pass(schedule, &device, Pass::Forward)?;
        let Bytes(bytes) = Places::new(schedule, &code, Address(0)).bytes;
        let memory = allocate(&device, "a look at held-out data", Bytes(bytes))?;
        let made = Stream::new().and_then(|stream| Ok((stream, Bounce::new()?)));
        let (stream, bounce) = made.map_err(refused("a stream and its buffer"))?;
        let (job, stages) = (&schedule.job, schedule.routines.values());
        let keys = stages.map(|routine| {
            let arguments = routine.arguments.iter();
            arguments.map(|argument| key(argument.role, routine.stage)).collect()
        });
        let gallery = Gallery {
            stream,
            bounce,
            places: Places::new(schedule, &code, memory.start()),
            code,
            _memory: memory,
            device,
            passes: forward_passes(schedule),
            arguments: keys.collect(),
            inputs: job.inputs.clone(),
            dtype: job.dtype,
            measured: job.measured(),
            deadline: on.deadline,
        };
        Ok(Self { gallery: Ok(gallery), bytes: Bytes(bytes) })
    }

    /// Does something, unless the GPU failed.
    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Gallery) -> Result<T, Unreached>,
    ) -> Result<T, MachineError> {
        let gallery = self.gallery.as_mut().map_err(|failure| failure.clone())?;
        let entered = gallery.device.enter().map_err(Unreached::from);
        let unreached = match entered.and_then(|()| work(gallery)) {
            Ok(done) => return Ok(done),
            Err(unreached) => unreached,
        };
        let failure = gallery.failed(unreached);
        mem::forget(mem::replace(&mut self.gallery, Err(failure.clone())));
        Err(failure.into())
    }
}

impl ForwardPasses for GpuPasses {
    fn place(
        &mut self,
        stage: Stage,
        part: u32,
        flat: &[u8],
    ) -> Result<(), MachineError> {
        self.attempt(|gallery| {
            let own = key(Role::Parameter, stage);
            let to = gallery.places.blocks[part as usize][&own];
            gallery.bounce.write(&gallery.stream, to, flat, gallery.deadline)
        })
    }

    fn run(
        &mut self,
        fill: &mut dyn FnMut(InputId, &mut [u8]),
        context: &Context,
    ) -> Result<Vec<f64>, MachineError> {
        self.attempt(|gallery| {
            gallery.feed(fill, context)?;
            for pass in gallery.passes.clone() {
                gallery.pass(pass, context)?;
            }
            gallery.read()
        })
    }

    fn device_bytes(&self) -> Bytes {
        self.bytes
    }
}

impl Gallery {
    /// Brings inputs to all parts, and the scalars of a context.
    fn feed(
        &mut self,
        fill: &mut dyn FnMut(InputId, &mut [u8]),
        context: &Context,
    ) -> Result<(), Unreached> {
        let Self { stream, bounce, places, inputs, dtype, deadline, .. } = self;
        let row = words(scalars(context)).concat();
        bounce.write(stream, places.scalars, &row, *deadline)?;
        for (id, input) in inputs.iter() {
            let mut bytes = vec![0; input.bytes(*dtype).0 as usize];
            fill(id, &mut bytes);
            for blocks in &places.blocks {
                if let Some(to) = blocks.get(&(Role::Input(id), None)) {
                    bounce.write(stream, *to, &bytes, *deadline)?;
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, pass: ForwardPass, context: &Context) -> Result<(), DriverError> {
        let blocks = self.places.blocks.iter();
        let parts = blocks.map(|blocks| {
            let own =
                self.arguments[pass.routine].iter().map(|argument| match argument {
                    (Role::Parameter, _) => blocks[&key(Role::Parameter, pass.keeper)],
                    (Role::Tied(state), _) => blocks[&key(Role::Parameter, *state)],
                    other => blocks[other],
                });
            own.collect()
        });
        let parts: Vec<Vec<Address>> = parts.collect();
        // The calls are lent out while the rest of the code runs them.
        let calls = mem::take(&mut self.code.routines[pass.routine].calls);
        let done = calls.iter().try_for_each(|call| self.call(call, &parts, context));
        self.code.routines[pass.routine].calls = calls;
        done
    }

    fn call(
        &mut self,
        call: &ReadyCall,
        parts: &[Vec<Address>],
        context: &Context,
    ) -> Result<(), DriverError> {
        let operands: Vec<Vec<Address>> =
            parts.iter().map(|arguments| call.operands_in(arguments)).collect();
        let steps = match &call.work {
            Work::Together(meeting) => return self.join(meeting, &operands),
            Work::Alone(steps) => steps,
        };
        for (part, operands) in (0..).zip(&operands) {
            let binding = Binding {
                operands,
                scratch: self.places.scratch,
                workspace: self.places.workspace,
                scalars: self.places.scalars,
                micro_batch: context.micro_batch,
                slice_offset: context.slice_offset,
                part,
            };
            for step in steps {
                self.code.run(step, &binding, &self.stream)?;
            }
        }
        Ok(())
    }

    /// What parts make together, part by part: none writes what another one brings.
    fn join(
        &mut self,
        meeting: &Meeting,
        operands: &[Vec<Address>],
    ) -> Result<(), DriverError> {
        for line in meeting.lines(operands.len()) {
            let brought: Vec<Address> =
                line.clone().map(|part| operands[part][0]).collect();
            for (place, part) in line.enumerate() {
                let (got, scratch) = (operands[part][1], self.places.scratch);
                let ends = Ends { brought: &brought, part: place, got, scratch };
                meeting.join(&mut self.code, ends, &self.stream)?;
            }
        }
        Ok(())
    }

    /// What the last stage measured; the same on all parts.
    fn read(&mut self) -> Result<Vec<f64>, Unreached> {
        let mut bytes = vec![0; self.measured.0 as usize];
        let from = self.places.blocks[0][&(Role::Metric, None)];
        self.bounce.read(&self.stream, from, &mut bytes, self.deadline)?;
        let each = bytes.chunks_exact(self.dtype.wide_size() as usize);
        Ok(each.map(|number| number_of(self.dtype, number)).collect())
    }

    fn failed(&self, unreached: Unreached) -> CudaError {
        let reason = unreached.reason("a forward pass", self.deadline);
        CudaError::refused(self.device.facts(), "a look at held-out data", reason)
    }
}
