//! Routines whose kernel calls are parsed once, to be run many times.
#![expect(unsafe_code, reason = "kernels take the addresses of their operands")]

use crate::{
    exchange::{Ends, Join},
    memory::{Arguments, Claim},
    native::{NotNative, check_native, native},
};
use roundelay_kernels::{Context, Exchange, Kernel};
use roundelay_schedule::{
    Call, Float, Line, Meanwhile, Native, Routine, RoutineId, Schedule, Table, Touching,
    in_turn, most_open, needed_by,
};
use std::ops::ControlFlow;

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

impl CodeError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Call { .. } => "",
            Self::Element(_) => NotNative::HINT,
        }
    }
}

/// The kernel of call `number` of a routine.
///
/// # Errors
/// When the call is malformed.
pub(crate) fn parse_call(
    call: &Call,
    routine: RoutineId,
    number: usize,
) -> Result<Kernel, CodeError> {
    Kernel::parse(call).map_err(|message| CodeError::Call {
        routine,
        call: number,
        kernel: call.kernel.to_string(),
        message,
    })
}

/// A parsed routine.
pub(crate) struct Code {
    dtype: Native,
    calls: Vec<Parsed>,
    widest: usize,
    /// How many of the exchanges that go on must be done before each call, and at the end.
    needed: Vec<usize>,
    /// The most of them that are open at one time.
    open: usize,
}

/// A parsed call.
struct Parsed {
    kernel: Kernel,
    /// What all rows do here together, if it is such a call.
    exchange: Option<Exchange>,
    operands: Vec<Operand>,
}

/// Where an operand lies.
struct Operand {
    argument: usize,
    offset: u64,
    size: u64,
}

/// What a machine does while a routine runs.
pub(crate) trait Watch {
    /// Makes a call together with the other rows; to break ends the routine here.
    fn exchange(&mut self, ends: &Ends) -> ControlFlow<()>;
    /// Begins such a call, which goes on beside those that follow.
    fn begin(&mut self, ends: &Ends) -> ControlFlow<()>;
    /// Ends the calls that were begun since the routine started, up to this many.
    fn finish(&mut self, begun: usize) -> ControlFlow<()>;
    /// A call is done.
    fn done(&mut self);
}

impl Operand {
    /// Where it lies in arguments.
    ///
    /// # Panics
    /// When it does not lie inside its argument.
    fn address(&self, arguments: &Arguments) -> *mut u8 {
        arguments.address(self.argument, self.offset, self.size)
    }
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
            let kernel = parse_call(source, id, call)?;
            let operands = source.operands.iter().zip(kernel.sizes(dtype));
            let operands = operands.map(|(operand, size)| Operand {
                argument: operand.argument as usize,
                offset: operand.offset.0,
                size: size.0,
            });
            let operands = operands.collect();
            let exchange = kernel.exchange();
            Ok(Parsed { kernel, exchange, operands })
        };
        let calls = routine.calls.iter().enumerate().map(parse);
        let calls: Vec<Parsed> = calls.collect::<Result<_, CodeError>>()?;
        let widest = calls.iter().map(|call| call.operands.len()).max();
        let widest = widest.unwrap_or(0);
        let touching = calls.iter().zip(&routine.calls);
        let touching: Vec<Touching> =
            touching.map(|(parsed, call)| parsed.kernel.touching(call, dtype)).collect();
        let needed = in_turn(&needed_by(&touching));
        let open = most_open(&touching, &needed);
        Ok(Self { dtype: native(dtype), calls, widest, needed, open })
    }

    /// The largest number of operands of one call.
    pub(crate) fn widest(&self) -> usize {
        self.widest
    }

    /// The most exchanges that have begun and are not done at one time.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Runs all calls in order on claimed arguments, until the watch breaks; `operands` is scratch
    /// with room for the widest call.
    ///
    /// # Panics
    /// When an operand does not lie inside its argument.
    pub(crate) fn run(
        &self,
        _: &mut Claim,
        arguments: &Arguments,
        operands: &mut Vec<*mut u8>,
        context: &Context,
        watch: &mut impl Watch,
    ) -> ControlFlow<()> {
        for (call, needed) in self.calls.iter().zip(&self.needed) {
            watch.finish(*needed)?;
            match self.ends(call, arguments) {
                Some(ends) => match ends.exchange.meanwhile {
                    Meanwhile::Waits => watch.exchange(&ends)?,
                    Meanwhile::GoesOn => watch.begin(&ends)?,
                },
                None => self.call(call, arguments, operands, context),
            }
            watch.done();
        }
        watch.finish(self.needed.last().copied().unwrap_or(0))
    }

    /// Runs all calls in order on the claimed arguments of all parts of split tensors, each call
    /// on every part before the next.
    ///
    /// # Panics
    /// When an operand does not lie inside its argument, or parts exchange something that do not
    /// fall into such lines.
    pub(crate) fn run_rows(
        &self,
        claim: &mut Claim,
        rows: &[Arguments],
        operands: &mut Vec<*mut u8>,
        context: &Context,
    ) {
        for call in &self.calls {
            if call.exchange.is_some() {
                self.join(claim, call, rows);
                continue;
            }
            for (part, arguments) in (0..).zip(rows) {
                let context = Context { part, ..*context };
                self.call(call, arguments, operands, &context);
            }
        }
    }

    fn call(
        &self,
        call: &Parsed,
        arguments: &Arguments,
        operands: &mut Vec<*mut u8>,
        context: &Context,
    ) {
        operands.clear();
        operands.extend(call.operands.iter().map(|operand| operand.address(arguments)));
        // SAFETY: `address` has checked that the operands, of the sizes that the kernel gives, lie
        // inside claimed arguments; rows and offsets are aligned to elements, and only operands
        // that the catalogue allows share memory, as the checker says.
        unsafe {
            match self.dtype {
                Native::F32 => call.kernel.run::<f32>(operands, context),
                Native::F64 => call.kernel.run::<f64>(operands, context),
            }
        }
    }

    /// What one row brings to a call that all rows make together, and gets there.
    fn ends(&self, call: &Parsed, arguments: &Arguments) -> Option<Ends> {
        let exchange = call.exchange?;
        let [brought, got] = [0, 1]
            .map(|end: usize| &call.operands[end])
            .map(|operand: &Operand| (operand.address(arguments), operand.size));
        Some(Ends { exchange, dtype: self.dtype, brought, got })
    }

    /// An exchange between parts that are all here.
    fn join(&self, _: &mut Claim, call: &Parsed, parts: &[Arguments]) {
        let ends: Vec<Ends> =
            parts.iter().filter_map(|part| self.ends(call, part)).collect();
        let mut join = Join::new(self.dtype, ends.len());
        for (part, own) in (0..).zip(&ends) {
            let line = own.exchange.line;
            let brought =
                line.members(part).map(|member| ends[member as usize].brought.0);
            // SAFETY: as in `call`; the arguments of every part are claimed, nobody else is here,
            // and the two operands of an exchange do not share memory, as the checker says.
            unsafe { join.join(own, line.place(part) as usize, brought) };
        }
    }

    /// Whose parts the calls join that parts make together.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        let exchanges = self.calls.iter().filter_map(|call| call.exchange);
        exchanges.map(|exchange| exchange.line)
    }
}
