//! Dropout and its mask.

use crate::{
    Context, Mode, Real,
    fast::dropout as fast,
    kernel::Define,
    operand::Operands,
    plain,
    random::Stream,
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::{Access, Line};

/// y = x · mask / (1 − rate) in training; a copy elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dropout {
    pub(crate) count: usize,
    pub(crate) rate: f64,
    pub(crate) operator: u64,
    pub(crate) place: Placed,
}

/// Where the operands lie in the tensor that the mask is drawn for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed {
    /// Elements that lie side by side there.
    pub(crate) columns: usize,
    /// The parts of each of its rows.
    pub(crate) line: Line,
    /// Which of them these are, where the call says it.
    pub(crate) own: Option<u64>,
    /// The parts that have as many rows each, one behind the other.
    pub(crate) of_rows: Line,
    /// Rows of the tensor that stand before these.
    pub(crate) before: u64,
}

/// dx = dy · mask / (1 − rate), with the mask of the forward pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DropoutBackward {
    pub(crate) forward: Dropout,
    pub(crate) store: Store,
}

/// Which elements stay: a function of seed, step, micro-batch, operator and element alone.
pub(crate) struct Mask {
    stream: Stream,
    pub(crate) rate: f64,
    /// Elements whose upper 53 bits are below go: uniform < rate, in whole numbers.
    limit: u64,
    /// The number of the first element.
    first: u64,
}

impl Mask {
    fn new(dropout: &Dropout, context: &Context) -> Self {
        let labels = [DROPOUT, context.step, context.micro_batch, dropout.operator];
        let rate = match context.mode {
            Mode::Training => dropout.rate,
            Mode::Evaluation => 0.0,
        };
        let limit = (rate * (1u64 << 53) as f64).ceil() as u64;
        Self { stream: Stream::new(context.seed, &labels), rate, limit, first: 0 }
    }
    /// The same from an element of this number on.
    fn from(&self, first: u64) -> Self {
        Self { first, ..*self }
    }
    /// Whether the element stays.
    #[inline(always)]
    pub(crate) fn keeps(&self, index: u64) -> bool {
        self.stream.bits(self.first + index) >> 11 >= self.limit
    }
    /// What elements that stay are multiplied by, so that the mean stays too.
    pub(crate) fn scale(&self) -> f64 {
        1.0 / (1.0 - self.rate)
    }
}

/// Operations per element, most of them for its random bits, for the split over threads.
const COST: usize = 16;

/// Sets these streams apart from those of other uses.
const DROPOUT: u64 = 0x6472_6f70;

impl Dropout {
    /// Applies the mask to each row of the tensor that has columns here, or to parts of the one that
    /// there is, on all threads.
    fn each_row<R: Real>(
        &self,
        (x, out): (&[R], &mut [R]),
        context: &Context,
        apply: impl Fn(&[R], &mut [R], &Mask) + Sync,
    ) {
        let columns = self.place.columns;
        let cut = Cut::of_units(columns, context.threads, self.count, COST);
        let share = cut.rows;
        let mask = Mask::new(self, context);
        let parts = x.chunks(share).zip(out.chunks_mut(share)).enumerate();
        cut.each(parts, |(part, (x, out))| {
            let rows = x.chunks(columns).zip(out.chunks_mut(columns));
            for (row, (x, out)) in rows.enumerate() {
                let first = self.number(part * share + row * columns, context);
                apply(x, out, &mask.from(first));
            }
        });
    }
    /// The number of an element in the tensor that the mask is drawn for.
    fn number(&self, element: usize, context: &Context) -> u64 {
        let Placed { columns, line, own, of_rows, before } = self.place;
        let own = own.unwrap_or_else(|| line.place(context.part).into());
        let rows = (self.count / columns) as u64;
        let row = u64::from(of_rows.place(context.part)) * rows
            + before
            + (element / columns) as u64;
        (row * u64::from(line.parts) + own) * columns as u64 + (element % columns) as u64
    }
    fn place(call: &mut Signature<'_>, count: usize) -> Result<Placed, String> {
        if !call.has("parts") && !call.has("columns") {
            let (line, of_rows) = (Line::ALONE, Line::ALONE);
            return Ok(Placed { columns: count, line, own: None, of_rows, before: 0 });
        }
        let line = crate::exchange::line(call)?;
        let of_rows = match line.parts > 1
            && ["row_parts", "row_stride"].iter().any(|own| call.has(own))
        {
            true => crate::exchange::line_of(call, ["row_parts", "row_stride"])?,
            false => Line::ALONE,
        };
        let parts = i64::from(line.parts);
        let fits = |own| (0..parts).contains(&own) && of_rows == Line::ALONE;
        let own = call.optional_integer("own", "a part of all rows", fits);
        let own = own?.map(|own| own as u64);
        let rule = "a divisor of the number of elements";
        let columns = call.integer("columns", rule, |columns| {
            usize::try_from(columns)
                .is_ok_and(|columns| columns > 0 && count.is_multiple_of(columns))
        })?;
        // One part alone lies side by side, so it has no rows.
        let counted = |before: i64| before.checked_mul(parts)?.checked_mul(columns);
        let fits = |before: i64| {
            before == 0 || before > 0 && parts > 1 && counted(before).is_some()
        };
        let before = call.optional_integer("before", "rows of several parts", fits)?;
        let before = before.unwrap_or(0) as u64;
        Ok(Placed { columns: columns as usize, line, own, of_rows, before })
    }
    fn attributes(call: &mut Signature<'_>) -> Result<(f64, u64), String> {
        let rate = call.real("rate", "in 0 .. 1", |rate| (0.0..1.0).contains(&rate))?;
        let operator =
            call.integer("operator", "at least 0", |operator| operator >= 0)?;
        Ok((rate, operator as u64))
    }
}

impl Define for Dropout {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rate, operator) = Self::attributes(call)?;
        let count = call.any("x", Access::Read)?;
        call.vector("y", Access::Write, count)?;
        let place = Self::place(call, count)?;
        Ok(Self { count, rate, operator, place })
    }
    fn flops(&self) -> u64 {
        product([8, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        self.each_row((x, y), context, |x, y, mask| {
            fast::apply(x, y, mask, Store::Write);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        let apply = plain::dropout::apply;
        self.each_row((x, y), context, |x, y, mask| apply(x, y, mask, Store::Write));
    }
}

impl Define for DropoutBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rate, operator) = Dropout::attributes(call)?;
        let store = call.store()?;
        let count = call.any("dy", Access::Read)?;
        call.vector("dx", store.access(), count)?;
        let place = Dropout::place(call, count)?;
        Ok(Self { forward: Dropout { count, rate, operator, place }, store })
    }
    fn flops(&self) -> u64 {
        self.forward.flops()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        let apply =
            |dy: &[R], dx: &mut [R], mask: &Mask| fast::apply(dy, dx, mask, self.store);
        self.forward.each_row((dy, dx), context, apply);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        let apply = plain::dropout::apply;
        self.forward
            .each_row((dy, dx), context, |dy, dx, mask| apply(dy, dx, mask, self.store));
    }
}
