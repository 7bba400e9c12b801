//! The operands of one call as bytes on the host and on the device, between bytes that nobody may
//! write.
#![expect(unsafe_code, reason = "the reference runs on addresses of own arrays")]

use super::super::{
    CudaError,
    arena::{ALIGNMENT, allocate},
    bounce::{Bounce, Unreached},
    driver::{Address, Device, DeviceMemory, DriverError, Stream},
    exchange::Ends,
    likeness,
    ready::{Binding, Code, ReadyCall, Work, number_of},
    staging::{scalars, words},
};
use crate::native::put;
use roundelay_kernels::{
    Context, Kernel,
    samples::{self, Array, tolerance},
};
use roundelay_schedule::{Access, Bytes, Call, Element, Float};
use std::{ops::Range, time::Duration};

/// Bytes before and behind every operand.
pub(super) const GAP: u64 = ALIGNMENT;

/// What stands there.
const CANARY: u8 = 0xa5;

/// What operands that are only written hold before, and scratch memory: no number in any type.
const POISON: u8 = 0xff;

/// Where operands begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// At multiples of [`GAP`].
    Aligned,
    /// One element behind these.
    Unaligned,
}

/// An operand.
struct Slot {
    element: Element,
    /// Its bytes in the image.
    range: Range<usize>,
}

/// A call with its memory.
pub(super) struct Stage {
    context: Context,
    slots: Vec<Slot>,
    /// The operands that are judged.
    results: Vec<usize>,
    /// The scalars of the step, then all operands.
    image: Vec<u8>,
    /// What the device was given of these, once it was.
    given: Vec<u8>,
    /// The same numbers for the reference, which has not run yet.
    reference: Vec<Array<f64>>,
}

impl Stage {
    /// Operands that hold these numbers, rounded to what stores them; those that are only written
    /// hold none.
    pub(super) fn new(
        call: &Call,
        start: &[Array<f64>],
        (dtype, placement): (Float, Placement),
        context: Context,
    ) -> Self {
        let mut image = vec![CANARY; GAP as usize];
        for (place, word) in image.chunks_exact_mut(8).zip(words(scalars(&context))) {
            place.copy_from_slice(&word);
        }
        let mut slots = Vec::new();
        for (operand, array) in call.operands.iter().zip(start) {
            let size = operand.element.size(dtype) as usize;
            let shift = if placement == Placement::Unaligned { size } else { 0 };
            let first = image.len().next_multiple_of(GAP as usize) + GAP as usize + shift;
            image.resize(first, CANARY);
            store(array, operand.element, dtype, &mut image);
            slots.push(Slot { element: operand.element, range: first..image.len() });
        }
        let end = image.len().next_multiple_of(GAP as usize) + GAP as usize;
        image.resize(end, CANARY);
        let stored = slots.iter().zip(start);
        let reference = stored
            .map(|(slot, array)| match array {
                Array::Real(_) => Array::Real(numbers(&image, slot, dtype)),
                Array::Integer(whole) => Array::Integer(whole.clone()),
            })
            .collect();
        let results = samples::results(call);
        Self { context, slots, results, image, given: Vec::new(), reference }
    }

    /// What the device holds before the call.
    fn poisoned(&self, accesses: &[Access]) -> Vec<u8> {
        let mut image = self.image.clone();
        for (slot, access) in self.slots.iter().zip(accesses) {
            if *access == Access::Write {
                image[slot.range.clone()].fill(POISON);
            }
        }
        image
    }

    /// Runs the reference, and holds what the device has left to it: the largest error, and in
    /// words the first thing that is wrong.
    pub(super) fn judge(
        mut self,
        kernel: &Kernel,
        dtype: Float,
    ) -> (f64, Option<String>) {
        let pointers: Vec<*mut u8> =
            self.reference.iter_mut().map(Array::pointer).collect();
        // SAFETY: the arrays have the operands' lengths, and do not overlap.
        unsafe { kernel.run_plain::<f64>(&pointers, &self.context) };
        let mut error = 0.0f64;
        let mut wrong = self.written_unasked(kernel.accesses());
        for index in self.results {
            let slot = &self.slots[index];
            let found = numbers(&self.image, slot, dtype);
            let expected = self.reference[index].numbers();
            let (own, place) =
                likeness::worst(&found, &in_range(&expected, slot.element, dtype));
            error = error.max(own);
            if own > tolerance(dtype) && wrong.is_none() {
                let expected = expected[place];
                let found = found[place];
                wrong = Some(format!(
                    "operand {index}[{place}] is {found:?} for {expected:?}"
                ));
            }
        }
        (error, wrong)
    }

    /// In words the first byte that the call may not write, and that is another now.
    fn written_unasked(&self, accesses: &[Access]) -> Option<String> {
        let bytes = self.image.iter().zip(&self.given).enumerate();
        let mut others = bytes.filter(|(_, (now, before))| now != before);
        let holder =
            |place: &usize| self.slots.iter().position(|slot| slot.range.contains(place));
        others.find_map(|(place, _)| match holder(&place) {
            None => Some(format!("byte {place} between operands was written")),
            Some(index) if accesses[index] == Access::Read => {
                let byte = place - self.slots[index].range.start;
                Some(format!("byte {byte} of operand {index} was written, which is read"))
            }
            Some(_) => None,
        })
    }
}

/// Adds the bytes of an array.
fn store(array: &Array<f64>, element: Element, dtype: Float, bytes: &mut Vec<u8>) {
    match array {
        Array::Integer(whole) => {
            bytes.extend(whole.iter().flat_map(|number| number.to_ne_bytes()));
        }
        Array::Real(values) => {
            let (own, size) = (stored_as(element, dtype), element.size(dtype) as usize);
            for value in values {
                let first = bytes.len();
                bytes.resize(first + size, 0);
                put(own, *value, &mut bytes[first..]);
            }
        }
    }
}

/// The type of a job whose parameters are stored like this element.
fn stored_as(element: Element, dtype: Float) -> Float {
    match (element, element.size(dtype)) {
        (Element::Wide, 4) => Float::F32,
        (Element::Real | Element::Wide | Element::I32, _) => dtype,
    }
}

fn numbers(image: &[u8], slot: &Slot, dtype: Float) -> Vec<f64> {
    let bytes = &image[slot.range.clone()];
    match slot.element {
        Element::I32 => {
            let words = bytes.as_chunks::<4>().0.iter();
            words.map(|word| i32::from_ne_bytes(*word).into()).collect()
        }
        Element::Real | Element::Wide => {
            likeness::numbers(bytes, number_of(dtype, slot.element))
        }
    }
}

/// What is too large for 16 bits is infinite there.
fn in_range(values: &[f64], element: Element, dtype: Float) -> Vec<f64> {
    let most = match stored_as(element, dtype) {
        Float::F16(_) => 65504.0,
        Float::F32 | Float::F64 | Float::Bf16(_) => f64::MAX,
    };
    let cut = |x: &f64| if x.abs() > most { x.signum() * f64::INFINITY } else { *x };
    values.iter().map(cut).collect()
}

/// What became of a call.
pub(super) enum Ran {
    Done,
    /// Nobody made it, for this reason.
    Refused(DriverError),
}

/// A stream and memory for one call at a time; dropped from first to last.
pub(super) struct Room<'a> {
    stream: Stream,
    bounce: Bounce,
    memory: DeviceMemory,
    capacity: u64,
    device: &'a Device,
    deadline: Duration,
}

impl<'a> Room<'a> {
    pub(super) fn new(device: &'a Device, deadline: Duration) -> Result<Self, CudaError> {
        let refused = |reason| CudaError::refused(device.facts(), "a stream", reason);
        device.enter().map_err(refused)?;
        Ok(Self {
            stream: Stream::new().map_err(refused)?,
            bounce: Bounce::new().map_err(refused)?,
            memory: allocate(device, "operands", Bytes(0))?,
            capacity: 0,
            device,
            deadline,
        })
    }

    /// Runs a call on the device, on poisoned outputs and scratch; the stage then holds what it
    /// left.
    ///
    /// # Errors
    /// When there is too little memory, or the device fails: one that still answers has refused the call
    /// alone, as a library may, and takes others.
    pub(super) fn run(
        &mut self,
        code: &mut Code,
        (ready, scratch): (&ReadyCall, Bytes),
        (kernel, call): (&Kernel, &Call),
        stage: &mut Stage,
    ) -> Result<Ran, CudaError> {
        let image = stage.image.len() as u64;
        let scratch = scratch.0.next_multiple_of(ALIGNMENT);
        self.demand(image + scratch + code.workspace(ready).0)?;
        stage.given = stage.poisoned(kernel.accesses());
        match self.give(code, ready, scratch, stage) {
            Ok(()) => Ok(Ran::Done),
            Err(Unreached::Broken(reason)) if self.bring_back(stage).is_ok() => {
                Ok(Ran::Refused(reason))
            }
            Err(unreached) => Err(self.failed(call, unreached)),
        }
    }

    /// What the device has left.
    fn bring_back(&mut self, stage: &mut Stage) -> Result<(), Unreached> {
        let start = self.memory.start();
        self.bounce.read(&self.stream, start, &mut stage.image, self.deadline)
    }

    fn demand(&mut self, bytes: u64) -> Result<(), CudaError> {
        if bytes > self.capacity {
            self.capacity = bytes.next_power_of_two();
            self.memory = allocate(self.device, "operands", Bytes(self.capacity))?;
        }
        Ok(())
    }

    fn give(
        &mut self,
        code: &mut Code,
        ready: &ReadyCall,
        scratch: u64,
        stage: &mut Stage,
    ) -> Result<(), Unreached> {
        let start = self.memory.start();
        let behind = start.plus(stage.given.len() as u64);
        let operands: Vec<Address> =
            stage.slots.iter().map(|slot| start.plus(slot.range.start as u64)).collect();
        let binding = Binding {
            scalars: start,
            workspace: behind.plus(scratch),
            micro_batch: stage.context.micro_batch,
            slice_offset: stage.context.slice_offset,
            part: stage.context.part.into(),
            ..Binding::of(&operands, behind)
        };
        self.stream.fill(behind, POISON, scratch)?;
        self.bounce.write(&self.stream, start, &stage.given, self.deadline)?;
        match &ready.work {
            Work::Alone(steps) => {
                steps
                    .iter()
                    .try_for_each(|step| code.run(step, &binding, &self.stream))?;
            }
            // Of what several parts make together, one part's share: it reads what it brings itself.
            Work::Together(meeting) => {
                let (brought, got) = operands.split_at(1);
                let ends = Ends { brought, part: 0, got: got[0], scratch: behind };
                meeting.join(code, ends, &self.stream)?;
            }
        }
        self.bring_back(stage)
    }

    fn failed(&self, call: &Call, unreached: Unreached) -> CudaError {
        let reason = unreached.reason("it", self.deadline);
        CudaError::refused(self.device.facts(), format!("`{}`", call.text()), reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_kernels::Mode;
    use roundelay_kernels::samples::{self, Build};

    #[test]
    fn what_may_not_be_written_is_compared() {
        let call = samples::call("relu").reals(&[&[4], &[4]]);
        let start = [Array::Real(vec![1.0; 4]), Array::Real(vec![1.0; 4])];
        let context = Context {
            step: 0,
            updates: 1,
            micro_batch: 0,
            seed: 0,
            mode: Mode::Training,
            rate: 0.1,
            slice_offset: 0,
            part: 0,
            threads: 1,
        };
        let kernel = Kernel::parse(&call).expect("it is well formed");
        let said = |operand: Option<usize>| {
            let setting = (Float::F32, Placement::Aligned);
            let mut stage = Stage::new(&call, &start, setting, context);
            stage.given = stage.poisoned(kernel.accesses());
            let last = stage.slots.iter().map(|slot| slot.range.end).max();
            let place = match operand {
                Some(index) => stage.slots[index].range.start + 2,
                None => last.expect("there are operands"),
            };
            stage.image[place] ^= 1;
            stage.written_unasked(kernel.accesses())
        };
        assert!(said(Some(0)).is_some_and(|it| it.contains("byte 2 of operand 0")));
        assert_eq!(said(Some(1)), None);
        assert!(said(None).is_some_and(|it| it.contains("between operands")));
    }
}
