//! `masked_cross_entropy` and its gradient: rows whose target is no class do not count.

use crate::{
    Context, Real,
    fast::loss::softmax_share,
    kernel::Define,
    loss::{Slopes, class_of, log_sums, loss_of_rows, slope_of_rows},
    operand::Operands,
    plain::masked as plain,
    signature::{Signature, product},
    store::Store,
};

/// loss = mean of lse − logit of the target over the rows that count; zero without any.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MaskedCrossEntropy {
    pub(crate) rows: usize,
    pub(crate) classes: usize,
}

/// dlogits = (softmax − one-hot) / count in the rows that count, zero in the others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MaskedCrossEntropyBackward {
    pub(crate) rows: usize,
    pub(crate) classes: usize,
    pub(crate) store: Store,
}

/// The class of a row that counts; the number of classes itself stands for none.
#[inline(always)]
pub(crate) fn counted(target: i32, classes: usize) -> Option<usize> {
    (target as usize != classes).then(|| class_of(target, classes))
}

/// One over the number of rows that count; zero without any.
pub(crate) fn share<R: Real>(targets: &[i32], classes: usize) -> R {
    let count =
        targets.iter().filter(|target| counted(**target, classes).is_some()).count();
    if count == 0 { R::ZERO } else { R::of(1.0 / count as f64) }
}

impl Define for MaskedCrossEntropy {
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
        let each = rows.filter_map(|((row, target), lse)| {
            counted(*target, self.classes).map(|class| (*lse - row[class]).widen())
        });
        let share: R = share(targets, self.classes);
        loss[0] = R::of(each.sum::<f64>() * share.widen());
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let (lse, loss) = (operands.write(), operands.write());
        plain::masked_cross_entropy(logits, targets, lse, &mut loss[0]);
    }
}

impl Define for MaskedCrossEntropyBackward {
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
        let slopes = Slopes::new(operands);
        let share: R = share(slopes.targets, self.classes);
        slopes.each_row(context, |row, lse, target, out| {
            match counted(target, self.classes) {
                None => self.store.clear(out),
                Some(class) => {
                    row.replace(out, |_, row, out| {
                        softmax_share(row, out, lse, share, self.store);
                    });
                    out[class] -= share;
                }
            }
        });
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        plain::masked_cross_entropy_backward(Slopes::new(operands), self.store);
    }
}
