//! `linear_cross_entropy`: the loss of a linear classifier with its gradients, for some rows after
//! others, so that the logits of all rows are never there together (Hsu et al., arXiv 2410.10989).
//!
//! Sums run over rows and classes in the order in which they would without the cut, so what comes
//! out has the bits of `matmul`, `cross_entropy`, its gradient and that of the product.

use crate::{
    Context, Real,
    classes::{All, Classes, Weights},
    kernel::Define,
    loss::{Slopes, log_sums},
    matmul::Matmul,
    operand::{Current, Operands},
    plain::linear_loss as plain,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::{Access, Attribute, Call};
use std::ops::Range;

/// loss = mean of lse − logit of the target, where logits = x Wᵀ; where some rows do not count,
/// Σ share · (lse − logit).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinearCrossEntropy {
    pub(crate) rows: usize,
    /// Elements of a row of x and of the weights.
    pub(crate) depth: usize,
    /// Rows whose logits are there together.
    pub(crate) together: usize,
    /// Elements that a row of logits has room for, at least one for each class.
    pub(crate) room: usize,
    pub(crate) all: All,
    /// Rows that have a share in common.
    pub(crate) alike: usize,
    pub(crate) slopes: Wanted,
}

/// Whether the gradients of x and of the weights are made too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// They are.
    Gradients,
    /// The loss alone.
    Loss,
}

/// The arrays of a call.
pub(crate) struct Arrays<'a, R> {
    pub(crate) x: Current<'a, R>,
    pub(crate) weight: &'a [R],
    pub(crate) targets: &'a [i32],
    pub(crate) weights: Weights<'a, R>,
    /// Room for the rows that are together, which lie side by side in it.
    pub(crate) logits: &'a mut [R],
    pub(crate) lse: &'a mut [R],
    pub(crate) loss: &'a mut R,
    pub(crate) gradients: Option<Gradients<'a, R>>,
}

/// Where gradients go.
pub(crate) struct Gradients<'a, R> {
    pub(crate) x: &'a mut [R],
    pub(crate) weight: &'a mut [R],
}

impl<R> Gradients<'_, R> {
    /// Those of a range of x, and of the weights.
    fn part(&mut self, range: Range<usize>) -> Gradients<'_, R> {
        Gradients { x: &mut self.x[range], weight: self.weight }
    }
}

impl<'a, R: Real> Arrays<'a, R> {
    fn new(call: &LinearCrossEntropy, mut operands: Operands<'a, R>) -> Self {
        let x = match call.slopes {
            Wanted::Gradients => operands.current(call.behind() + 3),
            Wanted::Loss => Current::Separate(operands.read()),
        };
        let (weight, targets) = (operands.read(), operands.integers());
        let weights = Weights::new(call.all, call.rows, &mut operands);
        let (logits, lse) = (operands.write(), operands.write());
        let loss = &mut operands.write()[0];
        let gradients = match call.slopes {
            Wanted::Gradients => {
                Some(Gradients { x: operands.write(), weight: operands.write() })
            }
            Wanted::Loss => None,
        };
        Self { x, weight, targets, weights, logits, lse, loss, gradients }
    }
}

/// Leaves out the gradients that a call makes beside a loss, which nobody reads out of training.
/// Other calls stay as they are.
pub fn leave_out_gradients(call: &mut Call) {
    let is_loss = &*call.kernel == "linear_cross_entropy";
    if is_loss && call.attributes.remove("gradients") == Some(Attribute::Flag(true)) {
        call.operands.truncate(call.operands.len().saturating_sub(2));
    }
}

impl LinearCrossEntropy {
    /// Which operand is the room for logits, behind which are all that it makes.
    pub(crate) fn behind(&self) -> usize {
        3 + usize::from(self.all.masked)
    }
    /// The rows that are together, one range after another.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, together) = (self.rows, self.together);
        (0..rows)
            .step_by(together)
            .map(move |first| first..rows.min(first.saturating_add(together)))
    }
    /// logits (rows, classes) = x Wᵀ.
    pub(crate) fn product(&self, rows: usize) -> Matmul {
        Matmul::affine([rows, self.all.classes, self.depth])
    }
    /// dx (rows, depth) = dlogits W.
    pub(crate) fn towards_x(&self, rows: usize) -> Matmul {
        let (n, k) = (self.depth, self.all.classes);
        let store = Store::Write;
        Matmul { m: rows, n, k, transpose_a: false, transpose_b: false, store }
    }
    /// dW (classes, depth) = dlogitsᵀ x, added to what the rows before made.
    pub(crate) fn towards_weight(&self, rows: &Range<usize>) -> Matmul {
        let (m, n) = (self.all.classes, self.depth);
        let store = if rows.start == 0 { Store::Write } else { Store::Add };
        Matmul { m, n, k: rows.len(), transpose_a: true, transpose_b: false, store }
    }
}

impl Define for LinearCrossEntropy {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let masked = call.flag("masked")?;
        let slopes = match call.flag("gradients")? {
            true => Wanted::Gradients,
            false => Wanted::Loss,
        };
        let (rows, depth) = call.matrix("x", Access::Read)?;
        let (classes, columns) = call.matrix("weight", Access::Read)?;
        if columns != depth {
            return Err(format!(
                "`x` has inner extent {depth}, but `weight` has {columns}"
            ));
        }
        let targets = call.integers("targets")?;
        if targets != rows {
            return Err(format!("`x` has {rows} rows, but there are {targets} targets"));
        }
        let all = All { classes, masked };
        call.index_classes(all);
        let alike = all.shares(call, rows)?;
        let (together, room) = call.roomy("logits", Access::Write, classes)?;
        if together > rows {
            return Err(format!("`logits` has {together} rows, but `x` has {rows}"));
        }
        call.vector("lse", Access::Write, rows)?;
        call.vector("loss", Access::Write, 1)?;
        if slopes == Wanted::Gradients {
            call.shaped("dx", Access::Write, (rows, depth))?;
            call.shaped("dweight", Access::Write, (classes, depth))?;
        }
        Ok(Self { rows, depth, together, room, all, alike, slopes })
    }
    fn flops(&self) -> u64 {
        let Self { rows, depth, all: All { classes, .. }, .. } = *self;
        let (products, passes) = match self.slopes {
            Wanted::Gradients => (3, 2),
            Wanted::Loss => (1, 1),
        };
        let multiplied = product([2 * products, rows, classes, depth]);
        multiplied.saturating_add(product([11 * passes, rows, classes]))
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        match self.slopes {
            Wanted::Gradients => vec![[0, self.behind() + 3]],
            Wanted::Loss => Vec::new(),
        }
    }
    fn packed<R: Real>(&self) -> usize {
        let rows = self.together;
        let own =
            [self.product(rows), self.towards_x(rows), self.towards_weight(&(0..rows))];
        own.iter().map(Matmul::packed::<R>).max().unwrap_or(0)
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let arrays = Arrays::new(self, operands);
        let Arrays { x, weight, targets, weights, logits, lse, loss, mut gradients } =
            arrays;
        let (classes, threads) = (Classes::whole(self.all), context.threads);
        let mut sum = 0.0;
        for rows in self.chunks() {
            let own = rows.start * self.depth..rows.end * self.depth;
            let x = x.part(own.clone());
            let gradients = gradients.as_mut().map(|all| all.part(own));
            let dx = gradients.as_ref().map_or(&[][..], |gradients| &*gradients.x);
            let logits = &mut logits[..rows.len() * self.all.classes];
            let (targets, lse) = (&targets[rows.clone()], &mut lse[rows.clone()]);
            let weights = weights.behind(rows.start);
            self.product(rows.len()).multiply(x.all(dx), weight, logits, threads);
            log_sums(logits, lse, self.all.classes, context);
            sum = classes.add_losses(sum, (logits, targets, lse), weights);
            let Some(Gradients { x: dx, weight: dweight }) = gradients else { continue };
            let current = Current::InPlace;
            let slopes =
                Slopes { logits: current, targets, weights, lse, dlogits: logits };
            classes.slopes(slopes, Store::Write, context);
            // Rows of x may lie where their gradient goes.
            self.towards_weight(&rows).multiply(logits, x.all(dx), dweight, threads);
            self.towards_x(rows.len()).multiply(logits, weight, dx, threads);
        }
        *loss = weights.mean(sum);
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        plain::linear_cross_entropy(self, Arrays::new(self, operands));
    }
}
