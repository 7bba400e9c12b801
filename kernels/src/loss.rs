//! Losses and their gradients.

use crate::{
    Context, Real,
    activation::each_slope,
    fast::loss as fast,
    kernel::Define,
    operand::{Current, Operands},
    plain::loss as plain,
    signature::{Signature, product},
    store::Store,
    team::{for_each_part, rows_per_part},
};
use roundelay_schedule::Access;

/// loss = mean of lse − logit of the target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropy {
    pub(crate) rows: usize,
    pub(crate) classes: usize,
}

/// dlogits = (softmax − one-hot) / m.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropyBackward {
    pub(crate) rows: usize,
    pub(crate) classes: usize,
    pub(crate) store: Store,
}

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

impl Define for CrossEntropy {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rows, classes) = loss_of_rows(call)?;
        Ok(Self { rows, classes })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.classes])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let (lse, loss) = (operands.write(), operands.write());
        log_sums(logits, lse, self.classes, context);
        let rows = logits.chunks(self.classes).zip(targets).zip(&*lse);
        let each = rows.map(|((row, target), lse)| {
            (*lse - row[class_of(*target, self.classes)]).widen()
        });
        loss[0] = R::of(each.sum::<f64>() / self.rows as f64);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let (lse, loss) = (operands.write(), operands.write());
        plain::cross_entropy(logits, targets, lse, &mut loss[0]);
    }
}

impl Define for CrossEntropyBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, classes) = slope_of_rows(call, store)?;
        Ok(Self { rows, classes, store })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.classes])
    }
    fn replaces(&self) -> Option<[usize; 2]> {
        self.store.replaces([0, 3])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let mean = R::of(1.0 / self.rows as f64);
        Slopes::new(operands).each_row(context, |row, lse, target, out| {
            row.replace(out, |_, row, out| {
                fast::softmax_share(row, out, lse, mean, self.store);
            });
            out[class_of(target, self.classes)] -= mean;
        });
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        plain::cross_entropy_backward(Slopes::new(operands), self.store);
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
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        let total = fast::square_distance(a, b);
        operands.write()[0] = total / R::of(self.count as f64);
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
    fn replaces(&self) -> Option<[usize; 2]> {
        self.store.replaces([0, 2])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        each_slope(operands, self.count, |a, b, da| {
            fast::mse_backward(a, b, da, R::of(self.factor), self.store);
        });
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        each_slope(operands, self.count, |a, b, da| {
            plain::mse_backward(a, b, da, R::of(self.factor), self.store);
        });
    }
}

/// What the gradient of a loss is made of, and where it goes, row by row.
pub(crate) struct Slopes<'a, R> {
    pub(crate) logits: Current<'a, R>,
    pub(crate) targets: &'a [i32],
    pub(crate) lse: &'a [R],
    pub(crate) dlogits: &'a mut [R],
}

impl<'a, R: Real> Slopes<'a, R> {
    /// The operands that [`slope_of_rows`] takes.
    pub(crate) fn new(mut operands: Operands<'a, R>) -> Self {
        let (logits, targets) = (operands.current(3), operands.integers());
        Self { logits, targets, lse: operands.read(), dlogits: operands.write() }
    }

    /// Calls `make` for every row, on all threads: with its logits, its lse, its target, and where
    /// the gradient goes.
    pub(crate) fn each_row(
        self,
        context: &Context,
        make: impl Fn(Current<'_, R>, R, i32, &mut [R]) + Sync,
    ) {
        let Self { logits, targets, lse, dlogits } = self;
        let classes = dlogits.len() / targets.len();
        let rows = rows_per_part(context.threads, targets.len(), 11 * classes);
        let share = rows * classes;
        let statistics = targets.chunks(rows).zip(lse.chunks(rows));
        let parts = dlogits.chunks_mut(share).zip(statistics).enumerate();
        for_each_part(parts, |(part, (dlogits, (targets, lse)))| {
            let rows = dlogits.chunks_mut(classes).zip(targets.iter().zip(lse));
            for (row, (out, (target, lse))) in rows.enumerate() {
                let first = part * share + row * classes;
                make(logits.part(first..first + classes), *lse, *target, out);
            }
        });
    }
}

/// The operands of a loss: logits, targets, lse and the loss itself. Gives m and v.
pub(crate) fn loss_of_rows(call: &mut Signature<'_>) -> Result<(usize, usize), String> {
    let (rows, classes) = logits_and_targets(call)?;
    call.vector("lse", Access::Write, rows)?;
    call.vector("loss", Access::Write, 1)?;
    Ok((rows, classes))
}

/// The operands of its gradient: logits, targets, lse and what is made of them. Gives m and v.
pub(crate) fn slope_of_rows(
    call: &mut Signature<'_>,
    store: Store,
) -> Result<(usize, usize), String> {
    let (rows, classes) = logits_and_targets(call)?;
    call.vector("lse", Access::Read, rows)?;
    call.shaped("dlogits", store.access(), (rows, classes))?;
    Ok((rows, classes))
}

/// lse of every row of logits, on all threads.
pub(crate) fn log_sums<R: Real>(
    logits: &[R],
    lse: &mut [R],
    classes: usize,
    context: &Context,
) {
    let rows = rows_per_part(context.threads, lse.len(), 11 * classes);
    let parts = logits.chunks(rows * classes).zip(lse.chunks_mut(rows));
    for_each_part(parts, |(logits, lse)| fast::log_sums(logits, lse));
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

/// The class as an index.
pub(crate) fn class_of(target: i32, classes: usize) -> usize {
    let class = usize::try_from(target).unwrap_or(usize::MAX);
    assert!(class < classes, "target {target} is outside of {classes} classes");
    class
}
