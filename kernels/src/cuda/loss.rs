//! Losses, their gradients, and what is measured.

use super::{
    Argument, CallPlace, Matrix, Number, Product,
    columns::further,
    draft::{Draft, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    product::between,
    source::LOSS,
};
use crate::{
    classes::All,
    linear_loss::{LinearCrossEntropy, Wanted},
    loss::{CrossEntropy, CrossEntropyBackward, Mse, MseBackward},
    metric::Accuracy,
    part_loss::{CrossEntropyJoin, CrossEntropyPart, CrossEntropyPartBackward},
    store::Store,
};
use Role::{Either, Index, Narrow, Wide};
use std::ops::Range;

/// What rows count: the same number this many neighbours.
#[derive(Clone, Copy)]
struct Shares {
    numbers: Argument,
    alike: usize,
}

impl Shares {
    /// For the rows from number `first` on.
    fn from(self, first: usize) -> [Argument; 3] {
        [self.numbers, count(first), count(self.alike)]
    }
}

/// Which classes there are, and which of them are here.
#[derive(Clone, Copy)]
struct Classes {
    whole: usize,
    /// Elements of a row, of which those behind the last class are none.
    each: usize,
    part: Argument,
    masked: bool,
}

impl Classes {
    /// All are here.
    fn of(All { classes, masked }: All) -> Self {
        Self { whole: classes, each: classes, part: count(0), masked }
    }
    fn arguments(self) -> [Argument; 4] {
        let masked = Argument::Unsigned(self.masked.into());
        [count(self.whole), count(self.each), self.part, masked]
    }
    /// lse and the target's logit of every row.
    fn sum(self, draft: &mut Draft, operands: [Argument; 4], rows: usize) {
        let arguments = operands.into_iter().chain([count(rows)]);
        let arguments = arguments.chain(self.arguments()).collect();
        draft.narrow((LOSS, "class_sums"), long_rows(rows, self.each), arguments);
    }
    /// The mean over all rows, from lse, the targets' logits, and targets; where some do not count,
    /// the sum of what others count.
    fn mean(
        self,
        draft: &mut Draft,
        [lse, picked, targets, loss]: [Argument; 4],
        (shares, rows): (Shares, usize),
    ) {
        let arguments = [lse, picked, targets].into_iter().chain(shares.from(0));
        let arguments = arguments.chain([loss, count(rows)]);
        let arguments = arguments.chain(self.arguments()).collect();
        draft.pair((LOSS, "class_loss"), Shape::block(1024), arguments);
    }
    /// Two operands, what rows count where that is one of them, and the two behind.
    fn operands(self, draft: &Draft, alike: usize) -> ([Argument; 4], Shares) {
        let [first, targets] = draft.operands(0);
        let (numbers, behind) = match self.masked {
            true => (draft.operand(2), 3),
            false => (NOWHERE, 2),
        };
        let [lse, made] = draft.operands(behind);
        ([first, targets, lse, made], Shares { numbers, alike })
    }
    /// What rows count for slopes: where all do, one over their number.
    fn for_slopes(self, draft: &mut Draft, shares: Shares) -> Shares {
        if self.masked {
            return shares;
        }
        let numbers = draft.wide_scratch(1);
        let arguments = vec![numbers, count(shares.alike)];
        draft.wide((LOSS, "class_share"), Shape::block(32), arguments);
        Shares { numbers, ..shares }
    }
    /// Forward, from logits and targets to lse and the loss.
    fn forward(self, draft: &mut Draft, rows: usize, alike: usize) {
        let ([logits, targets, lse, loss], shares) = self.operands(draft, alike);
        let picked = draft.wide_scratch(rows);
        self.sum(draft, [logits, targets, lse, picked], rows);
        self.mean(draft, [lse, picked, targets, loss], (shares, rows));
    }
    /// Backward, from logits, targets and lse to the logits' gradient.
    fn backward(self, draft: &mut Draft, (rows, alike): (usize, usize), store: Store) {
        let ([logits, targets, lse, dlogits], shares) = self.operands(draft, alike);
        let shares = self.for_slopes(draft, shares).from(0);
        let arguments = [logits, targets, lse].into_iter().chain(shares);
        let arguments = arguments.chain([dlogits, count(rows)]);
        let arguments = arguments.chain(self.arguments());
        let arguments = arguments.chain([adding(store)]).collect();
        draft.pair((LOSS, "class_slopes"), Shape::rows(rows, self.each), arguments);
    }
}

/// Threads for rows that are read more than once: long ones have the largest blocks, so that few are
/// under way at a time and all of them find place in a cache.
fn long_rows(rows: usize, columns: usize) -> Shape {
    match Shape::rows(rows, columns) {
        Shape { grid, block: [512, 1, 1], shared } => {
            Shape { grid, block: [1024, 1, 1], shared }
        }
        other => other,
    }
}

/// Two operands, the shares of rows where some do not count, and what is behind.
fn roles(first: Role, all: All, behind: [Role; 2]) -> Vec<Role> {
    let shares: &[Role] = if all.masked { &[Wide] } else { &[] };
    [&[first, Index], shares, &behind].concat()
}

impl<const MASKED: bool> Form for CrossEntropy<MASKED> {
    fn roles(&self) -> Vec<Role> {
        roles(Narrow, self.all, [Wide, Either])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        Classes::of(self.all).forward(draft, self.rows, self.alike);
        Ok(())
    }
}

impl<const MASKED: bool> Form for CrossEntropyBackward<MASKED> {
    fn roles(&self) -> Vec<Role> {
        roles(Narrow, self.all, [Wide, Either])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let rows = (self.rows, self.alike);
        Classes::of(self.all).backward(draft, rows, self.store);
        Ok(())
    }
}

impl Form for CrossEntropyPart {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Index, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let (whole, masked) = (self.all.classes, self.all.masked);
        let classes = Classes { whole, each: self.each, part: Argument::Part, masked };
        let [logits, targets, sums] = draft.operands(0);
        let size = draft.types.narrow.wide().size();
        let picked = Argument::Address(further(draft.place(2), self.rows * size));
        classes.sum(draft, [logits, targets, sums, picked], self.rows);
        Ok(())
    }
}

impl Form for CrossEntropyJoin {
    fn roles(&self) -> Vec<Role> {
        roles(Wide, self.all, [Wide, Either])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let classes = Classes::of(self.all);
        let ([sums, targets, lse, loss], shares) = classes.operands(draft, self.alike);
        let picked = draft.wide_scratch(self.rows);
        let arguments = vec![sums, lse, picked, count(self.rows), count(self.parts)];
        draft.wide((LOSS, "join_sums"), Shape::each(self.rows, 1), arguments);
        classes.mean(draft, [lse, picked, targets, loss], (shares, self.rows));
        Ok(())
    }
}

impl Form for CrossEntropyPartBackward {
    fn roles(&self) -> Vec<Role> {
        roles(Narrow, self.all, [Wide, Either])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let (whole, masked) = (self.all.classes, self.all.masked);
        let classes = Classes { whole, each: self.each, part: Argument::Part, masked };
        classes.backward(draft, (self.rows, self.alike), self.store);
        Ok(())
    }
}

impl Form for LinearCrossEntropy {
    fn roles(&self) -> Vec<Role> {
        let gradients: &[Role] = match self.slopes {
            Wanted::Gradients => &[Narrow, Wide],
            Wanted::Loss => &[],
        };
        let shares: &[Role] = if self.all.masked { &[Wide] } else { &[] };
        [&[Narrow, Narrow, Index], shares, &[Narrow, Wide, Either], gradients].concat()
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let classes = Classes { each: self.room, ..Classes::of(self.all) };
        let wide = draft.types.narrow.wide().size();
        let targets = draft.operand(2);
        let numbers = if self.all.masked { draft.operand(3) } else { NOWHERE };
        let shares = Shares { numbers, alike: self.alike };
        let [lse, loss] = draft.operands(self.behind() + 1);
        let picked = draft.scratch(self.rows.saturating_mul(wide));
        let for_slopes = match self.slopes {
            Wanted::Gradients => Some(classes.for_slopes(draft, shares)),
            Wanted::Loss => None,
        };
        for rows in self.chunks() {
            Chunk { all: self, classes, rows, picked }.write(draft, for_slopes);
        }
        let picked = Argument::Address(picked);
        classes.mean(draft, [lse, picked, targets, loss], (shares, self.rows));
        Ok(())
    }
}

/// The rows of a linear classifier whose logits are there together.
struct Chunk<'a> {
    all: &'a LinearCrossEntropy,
    classes: Classes,
    rows: Range<usize>,
    /// The targets' logits of all rows.
    picked: CallPlace,
}

impl Chunk<'_> {
    /// Its logits and what they say, then what their slopes add to the gradients, where there is a
    /// share for every row. What a row has room for besides is no factor of any product.
    fn write(&self, draft: &mut Draft, shares: Option<Shares>) {
        let (all, rows, narrow) = (self.all, &self.rows, draft.types.narrow);
        let (number, wide) = (narrow.size(), narrow.wide().size());
        let [x, weight, targets] = [0, 1, 2].map(|operand| draft.place(operand));
        let behind = all.behind();
        let [logits, lse] = [behind, behind + 1].map(|operand| draft.place(operand));
        let own = |place, size| further(place, rows.start * size);
        let x = own(x, all.depth * number);
        let roomy = |matrix: Matrix| Matrix { row: all.room, ..matrix };
        let made = all.product(rows.len());
        let made = between(&made, narrow, [x, weight], (logits, narrow));
        draft.product(Product { out: roomy(made.out), ..made });
        let arrays = [logits, own(targets, 4), own(lse, wide), own(self.picked, wide)];
        let shares = shares.map(|shares| shares.from(rows.start));
        let arguments = arrays.map(Argument::Address).into_iter();
        let arguments = arguments.chain(shares.iter().flatten().copied());
        let arguments = arguments.chain([count(rows.len())]);
        let arguments = arguments.chain(self.classes.arguments()).collect();
        let shape = long_rows(rows.len(), all.room);
        let Some(_) = shares else {
            return draft.narrow((LOSS, "class_sums"), shape, arguments);
        };
        draft.narrow((LOSS, "class_both"), shape, arguments);
        let [dx, dweight] = [behind + 3, behind + 4].map(|made| draft.place(made));
        let dx = own(dx, all.depth * number);
        // Rows of x may lie where their gradient goes.
        let back = [
            (all.towards_weight(rows), x, (dweight, narrow.wide())),
            (all.towards_x(rows.len()), weight, (dx, narrow)),
        ];
        for (map, other, out) in back {
            let product = between(&map, narrow, [logits, other], out);
            draft.product(Product { a: roomy(product.a), ..product });
        }
    }
}

impl Form for Accuracy {
    fn roles(&self) -> Vec<Role> {
        let shares: &[Role] = if self.all.masked { &[Wide] } else { &[] };
        [&[Narrow, Index], shares, &[Either]].concat()
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [logits, targets, next] = draft.operands(0);
        let right = Argument::Address(draft.scratch(self.rows.saturating_mul(4)));
        let classes = Classes::of(self.all).arguments();
        let arguments = [logits, targets, right, count(self.rows)].into_iter();
        let arguments = arguments.chain(classes).collect();
        let shape = Shape::rows(self.rows, self.all.classes);
        draft.narrow((LOSS, "largest"), shape, arguments);
        if self.all.masked {
            let shares = Shares { numbers: next, alike: self.alike }.from(0);
            let arguments = [right].into_iter().chain(shares);
            let arguments = arguments.chain([draft.operand(3), count(self.rows)]);
            let arguments = arguments.collect();
            draft.pair((LOSS, "sum_of_shares"), Shape::block(1024), arguments);
            return Ok(());
        }
        let factor = 1.0 / self.rows as f64;
        mean(draft, (Number::F32, right), next, self.rows, factor);
        Ok(())
    }
}

/// out = factor · Σ of this many numbers.
fn mean(
    draft: &mut Draft,
    (number, numbers): (Number, Argument),
    out: Argument,
    length: usize,
    factor: f64,
) {
    let symbol = format!("mean_{}_{}", number.name(), draft.types.either.name());
    let arguments = vec![numbers, out, count(length), Argument::Double(factor)];
    draft.launch(LOSS, symbol, Shape::block(1024), arguments);
}

impl Form for Mse {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [a, b, loss] = draft.operands(0);
        let shape = Shape::each(self.count, 8);
        let blocks = shape.grid[0] as usize;
        let partial = Argument::Address(draft.scratch(blocks * 8));
        let arguments = vec![a, b, partial, count(self.count)];
        draft.narrow((LOSS, "square_distance"), shape, arguments);
        let factor = 1.0 / self.count as f64;
        mean(draft, (Number::F64, partial), loss, blocks, factor);
        Ok(())
    }
}

impl Form for MseBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [a, b, da] = draft.operands(0);
        let factor = Argument::Double(self.factor);
        let arguments = vec![a, b, da, count(self.count), factor, adding(self.store)];
        let shape = Shape::each(self.count, draft.at_once());
        draft.pair((LOSS, "difference"), shape, arguments);
        Ok(())
    }
}
