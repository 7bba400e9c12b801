//! Losses and their gradients.

use crate::{
    Context, Real,
    activation::each_slope,
    classes::{All, Classes, Weights},
    fast::loss as fast,
    kernel::Define,
    operand::{Current, Operands},
    plain::loss as plain,
    segments::Segments,
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

/// loss = mean of lse − logit of the target; of the masked one, where some rows do not count,
/// Σ share · (lse − logit).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropy<const MASKED: bool> {
    pub(crate) rows: usize,
    pub(crate) all: All,
    /// Rows that have a share in common.
    pub(crate) alike: usize,
}

/// dlogits = (softmax − one-hot) · share in the rows that count, zero in the others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropyBackward<const MASKED: bool> {
    pub(crate) rows: usize,
    pub(crate) all: All,
    /// Rows that have a share in common.
    pub(crate) alike: usize,
    pub(crate) store: Store,
}

impl All {
    /// Which operand of the gradient of a loss is that gradient.
    pub(crate) fn slopes_operand(self) -> usize {
        3 + usize::from(self.masked)
    }
}

/// What an element of `mse` costs, in operations: it comes from memory.
const ELEMENT: usize = 4;

/// loss = mean of (a − b)².
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mse {
    pub(crate) count: usize,
}

/// da = ±2 (a − b) / count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MseBackward {
    pub(crate) count: usize,
    pub(crate) factor: f64,
    pub(crate) store: Store,
}

impl<const MASKED: bool> Define for CrossEntropy<MASKED> {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rows, classes) = logits_and_targets(call)?;
        let all = All { classes, masked: MASKED };
        call.index_classes(all);
        let alike = all.shares(call, rows)?;
        call.vector("lse", Access::Write, rows)?;
        call.vector("loss", Access::Write, 1)?;
        Ok(Self { rows, all, alike })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.all.classes])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let weights = Weights::new(self.all, self.rows, &mut operands);
        let (lse, loss) = (operands.write(), operands.write());
        let classes = Classes::whole(self.all);
        log_sums(logits, lse, self.all.classes, context);
        let sum = classes.add_losses(0.0, (logits, targets, lse), weights);
        loss[0] = weights.mean(sum);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let weights = Weights::new(self.all, self.rows, &mut operands);
        let (lse, loss) = (operands.write(), operands.write());
        let classes = Classes::whole(self.all);
        loss[0] = plain::cross_entropy((logits, targets), lse, &classes, weights);
    }
}

impl<const MASKED: bool> Define for CrossEntropyBackward<MASKED> {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, classes) = logits_and_targets(call)?;
        let all = All { classes, masked: MASKED };
        call.index_classes(all);
        let alike = all.shares(call, rows)?;
        call.vector("lse", Access::Read, rows)?;
        call.shaped("dlogits", store.access(), (rows, classes))?;
        Ok(Self { rows, all, alike, store })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.all.classes])
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        self.store.replaces([0, self.all.slopes_operand()])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let slopes = Slopes::new(self.all, operands);
        Classes::whole(self.all).slopes(slopes, self.store, context);
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        let classes = Classes::whole(self.all);
        let slopes = Slopes::new(self.all, operands);
        plain::cross_entropy_backward(slopes, &classes, self.store);
    }
}

impl Define for Mse {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let count = call.any("a", Access::Read)?;
        call.vector("b", Access::Read, count)?;
        call.vector("loss", Access::Write, 1)?;
        Ok(Self { count })
    }
    fn flops(&self) -> u64 {
        product([3, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (a, b) = (operands.read(), operands.read());
        let segments = Segments::new(self.count, ELEMENT);
        let total = segments.sum(context.threads, self.count, |segment| {
            fast::square_distance(&a[segment.clone()], &b[segment])
        });
        operands.write()[0] = R::of(total / self.count as f64);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        plain::mse(a, b, &mut operands.write()[0]);
    }
}

impl Define for MseBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let sign = call.integer("sign", "1 or -1", |sign| sign == 1 || sign == -1)?;
        let count = call.any("a", Access::Read)?;
        call.vector("b", Access::Read, count)?;
        call.vector("da", store.access(), count)?;
        Ok(Self { count, factor: sign as f64 * 2.0 / count as f64, store })
    }
    fn flops(&self) -> u64 {
        product([2, self.count])
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        self.store.replaces([0, 2])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let cut = Cut::of_elements(context.threads, self.count, ELEMENT);
        each_slope(operands, cut, |a, b, da| {
            fast::mse_backward(a, b, da, R::of(self.factor), self.store);
        });
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        each_slope(operands, Cut::none(self.count), |a, b, da| {
            plain::mse_backward(a, b, da, R::of(self.factor), self.store);
        });
    }
}

/// What the gradient of a loss is made of, and where it goes, row by row.
pub(crate) struct Slopes<'a, R> {
    pub(crate) logits: Current<'a, R>,
    pub(crate) targets: &'a [i32],
    pub(crate) weights: Weights<'a, R>,
    pub(crate) lse: &'a [R],
    pub(crate) dlogits: &'a mut [R],
}

impl<'a, R: Real> Slopes<'a, R> {
    /// The operands of the gradient of a loss.
    pub(crate) fn new(all: All, mut operands: Operands<'a, R>) -> Self {
        let logits = operands.current(all.slopes_operand());
        let targets = operands.integers();
        let weights = Weights::new(all, targets.len(), &mut operands);
        let (lse, dlogits) = (operands.read(), operands.write());
        Self { logits, targets, weights, lse, dlogits }
    }

    /// Calls `make` for every row, on all threads: with its logits, its lse, its target and share,
    /// and where the gradient goes.
    pub(crate) fn each_row(
        self,
        context: &Context,
        make: impl Fn(Current<'_, R>, R, (i32, R), &mut [R]) + Sync,
    ) {
        let Self { logits, targets, weights, lse, dlogits } = self;
        let classes = dlogits.len() / targets.len();
        let cut = Cut::new(context.threads, targets.len(), 11 * classes);
        let rows = cut.rows;
        let statistics = targets.chunks(rows).zip(lse.chunks(rows));
        let parts = dlogits.chunks_mut(rows * classes).zip(statistics).enumerate();
        cut.each(parts, |(part, (dlogits, (targets, lse)))| {
            let own = dlogits.chunks_mut(classes).zip(targets.iter().zip(lse));
            for (row, (out, (target, lse))) in (part * rows..).zip(own) {
                let logits = logits.part(row * classes..(row + 1) * classes);
                make(logits, *lse, (*target, weights.share(row)), out);
            }
        });
    }
}

/// lse of every row of logits, on all threads.
pub(crate) fn log_sums<R: Real>(
    logits: &[R],
    lse: &mut [R],
    classes: usize,
    context: &Context,
) {
    let cut = Cut::new(context.threads, lse.len(), 11 * classes);
    let rows = cut.rows;
    let parts = logits.chunks(rows * classes).zip(lse.chunks_mut(rows));
    cut.each(parts, |(logits, lse)| fast::log_sums(logits, lse));
}

/// The next two operands, (m, v) and i32 (m): m and v.
pub(crate) fn logits_and_targets(
    call: &mut Signature<'_>,
) -> Result<(usize, usize), String> {
    let (rows, classes) = call.matrix("logits", Access::Read)?;
    let targets = call.integers("targets")?;
    match targets == rows {
        true => Ok((rows, classes)),
        false => Err(format!("`logits` has {rows} rows for {targets} targets")),
    }
}
