//! `rotary`: pairs of every head turned by their position (Su et al. 2021).

use crate::{
    Context, Real,
    fast::rotary as fast,
    kernel::Define,
    operand::Operands,
    plain::rotary as plain,
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;
use std::f64::consts::TAU;

/// y (batch, sequence, heads · depth): of the first `turned` elements of every head, pair
/// (i, i + turned/2) of x turned by the angle position · base^(−2i/turned), which `stretch` may make
/// smaller, backwards in the inverse; the others as they are, and so are all elements of heads that
/// stand still. Positions count from `first`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotary {
    pub(crate) rows: usize,
    pub(crate) sequence: usize,
    /// The first position.
    pub(crate) first: usize,
    pub(crate) heads: usize,
    pub(crate) depth: usize,
    pub(crate) turned: usize,
    /// Of every this many heads, in order, the last one stands still; none where it is 0.
    pub(crate) still: usize,
    pub(crate) base: f64,
    pub(crate) stretch: Stretch,
    pub(crate) inverse: bool,
    pub(crate) store: Store,
}

/// How angles are made smaller for texts that are `factor` times as long. A pair that turns less than
/// `low` times within `original` positions turns by its angle divided by `factor`, one that turns more
/// than `high` times as ever, and between them the share of the former falls in a line (Llama 3, arXiv
/// 2407.21783). Without any original positions no pair turns in them, so that all are divided
/// (position interpolation, arXiv 2306.15595).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) factor: f64,
    pub(crate) original: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Stretch {
    /// All angles divided by a factor; by 1 they stay what they are, to the bit.
    fn even(factor: f64) -> Self {
        Self { factor, original: 0.0, low: 1.0, high: 2.0 }
    }
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let factor =
            call.optional_real("factor", "at least 1", |factor| factor >= 1.0)?;
        if !["original", "low", "high"].iter().any(|name| call.has(name)) {
            return Ok(Self::even(factor.unwrap_or(1.0)));
        }
        let factor = factor.ok_or("attribute `factor` is missing")?;
        let original = call.count("original")? as f64;
        let low = call.real("low", "above 0", |low| low > 0.0)?;
        let high = call.real("high", "above 0", |high| high > 0.0)?;
        match low < high {
            true => Ok(Self { factor, original, low, high }),
            false => Err(format!(
                "attribute `low` is {low}, but must be below `high`, which is {high}"
            )),
        }
    }
    /// What becomes of the radians per position of a pair.
    fn of(self, speed: f64) -> f64 {
        let Self { factor, original, low, high } = self;
        let turns = original * speed / TAU;
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 - kept) * speed / factor + kept * speed
    }
}

impl Rotary {
    /// Radians per position of pair `i`; negative in the inverse.
    pub(crate) fn speed(&self, i: usize) -> f64 {
        let speed = libm::pow(self.base, -2.0 * i as f64 / self.turned as f64);
        let speed = self.stretch.of(speed);
        if self.inverse { -speed } else { speed }
    }
    /// Whether a head stands still.
    pub(crate) fn stands(&self, head: usize) -> bool {
        self.still > 0 && head % self.still == self.still - 1
    }
    /// Elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.heads * self.depth
    }
}

impl Define for Rotary {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let heads = call.count("heads")?;
        let base = call.real("base", "at least 1", |base| base >= 1.0)?;
        let stretch = Stretch::parse(call)?;
        let inverse = call.flag("inverse")?;
        let turned =
            call.optional_integer("turned", "at least 2", |turned| turned >= 2)?;
        let still = call.optional_integer("still", "at least 2", |still| still >= 2)?;
        let still = still.map_or(0, |still| still as usize);
        let first = call.optional_integer("first", "at least 0", |first| first >= 0)?;
        let first = first.map_or(0, |first| first as usize);
        let [batch, sequence, width] = call.sequence("x", Access::Read)?;
        let whole = width.is_multiple_of(heads);
        let turned = turned.map_or(width / heads, |turned| turned as usize);
        if !whole || turned > width / heads || !turned.is_multiple_of(2) {
            return Err(format!("a width of {width} has no pairs for {heads} heads"));
        }
        if still > 0 && !heads.is_multiple_of(still) {
            return Err(format!("{heads} heads are not a multiple of {still}"));
        }
        call.shaped("y", store.access(), (batch * sequence, width))?;
        let (rows, depth) = (batch * sequence, width / heads);
        Ok(Self {
            rows,
            sequence,
            first,
            heads,
            depth,
            turned,
            still,
            base,
            stretch,
            inverse,
            store,
        })
    }
    fn flops(&self) -> u64 {
        let angles = product([8, self.rows, self.turned]);
        product([3, self.rows, self.width()]).saturating_add(angles)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        let cost = 3 * self.width() + 8 * self.turned;
        let cut = Cut::new(context.threads, self.rows, cost);
        let share = cut.rows;
        let chunk = share * self.width();
        let parts = x.chunks(chunk).zip(y.chunks_mut(chunk)).enumerate();
        cut.each(parts, |(part, (x, y))| {
            fast::rotary(self, part * share, x, y, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::rotary(self, operands.read(), operands.write(), self.store);
    }
}
