//! Routines whose kernel calls are parsed once, to be run many times.
#![expect(unsafe_code, reason = "kernels take the addresses of their operands")]

use crate::{
    memory::{Arguments, Claim},
    native::{NotNative, check_native, native},
};
use roundelay_kernels::{Context, Kernel};
use roundelay_schedule::{Call, Float, Native, Routine, RoutineId, Schedule, Table};

/// Why the routines of a schedule cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// A kernel call could not be parsed; a checked schedule has none.
    #[error("call {call} of routine {routine} ({kernel}): {message}")]
    Call {
        /// The routine.
        routine: RoutineId,
        /// Index into its calls.
        call: usize,
        /// Name of the kernel.
        kernel: String,
        /// What is wrong.
        message: String,
    },
    /// The CPU does not compute in the job's type.
    #[error(transparent)]
    Element(#[from] NotNative),
}

/// A parsed routine.
pub(crate) struct Code {
    dtype: Native,
    calls: Vec<(Kernel, Vec<Operand>)>,
    widest: usize,
}

/// Where an operand lies.
struct Operand {
    argument: usize,
    offset: u64,
    size: u64,
}

impl Code {
    /// Parses all routines of a schedule.
    pub(crate) fn parse(
        schedule: &Schedule,
    ) -> Result<Table<RoutineId, Code>, CodeError> {
        let dtype = schedule.job.dtype;
        check_native(dtype)?;
        let routines = schedule.routines.iter();
        routines.map(|(id, routine)| Self::routine(id, routine, dtype)).collect()
    }

    fn routine(
        id: RoutineId,
        routine: &Routine,
        dtype: Float,
    ) -> Result<Self, CodeError> {
        let parse = |(call, source): (usize, &Call)| {
            let kernel = Kernel::parse(source).map_err(|message| CodeError::Call {
                routine: id,
                call,
                kernel: source.kernel.clone(),
                message,
            })?;
            let operands = source.operands.iter().zip(kernel.sizes(dtype));
            let operands = operands.map(|(operand, size)| Operand {
                argument: operand.argument as usize,
                offset: operand.offset.0,
                size: size.0,
            });
            let operands = operands.collect();
            Ok((kernel, operands))
        };
        let calls = routine.calls.iter().enumerate().map(parse);
        let calls: Vec<(Kernel, Vec<Operand>)> =
            calls.collect::<Result<_, CodeError>>()?;
        let widest = calls.iter().map(|(_, operands)| operands.len()).max().unwrap_or(0);
        Ok(Self { dtype: native(dtype), calls, widest })
    }

    /// The largest number of operands of one call.
    pub(crate) fn widest(&self) -> usize {
        self.widest
    }

    /// Runs all calls in order on claimed arguments; `operands` is scratch with room for the
    /// widest call.
    ///
    /// # Panics
    /// When an operand does not lie inside its argument.
    pub(crate) fn run(
        &self,
        claim: &mut Claim,
        arguments: &Arguments,
        operands: &mut Vec<*mut u8>,
        context: &Context,
    ) {
        self.run_each(claim, arguments, operands, context, || ());
    }

    /// Runs all calls like [`Code::run`], and says when each is done.
    ///
    /// # Panics
    /// When an operand does not lie inside its argument.
    pub(crate) fn run_each(
        &self,
        _: &mut Claim,
        arguments: &Arguments,
        operands: &mut Vec<*mut u8>,
        context: &Context,
        mut done: impl FnMut(),
    ) {
        for (kernel, places) in &self.calls {
            operands.clear();
            operands.extend(places.iter().map(|operand| {
                arguments.address(operand.argument, operand.offset, operand.size)
            }));
            // SAFETY: `address` has checked that the operands, of the sizes that the kernel
            // gives, lie inside claimed arguments; rows and offsets are aligned to elements, and
            // only operands that the catalogue allows share memory, as the checker says.
            unsafe {
                match self.dtype {
                    Native::F32 => kernel.run::<f32>(operands, context),
                    Native::F64 => kernel.run::<f64>(operands, context),
                }
            }
            done();
        }
    }
}
