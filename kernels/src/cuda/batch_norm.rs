//! Batch normalisation.

use super::{
    Argument,
    columns::{Columns, Partial, joining},
    draft::{Draft, NOWHERE, adding, count},
    form::{Form, Role},
    source::BATCH_NORM,
};
use crate::{
    batch_norm::{BatchNorm, BatchNormBackward, Counted, SAID, Tail},
    norm_again::BatchNormAgain,
    rectified::ReluBackwardAgain,
};
use Role::{Either, Narrow, Wide};

impl Form for BatchNorm {
    fn roles(&self) -> Vec<Role> {
        let mut roles = vec![Narrow; if self.tail.adds() { 7 } else { 6 }];
        roles.extend([Wide, Wide]);
        roles
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x] = draft.operands(0);
        let [_, mean, variance] = draft.operands(made(self.tail));
        self.write_moments(draft, [x, mean, variance]);
        let columns = Columns { rows: self.rows, columns: self.columns };
        write_norm(draft, columns, self.tail, [mean, variance]);
        Ok(())
    }
}

impl Form for BatchNormAgain {
    fn roles(&self) -> Vec<Role> {
        let rest = 1 + usize::from(self.tail.adds());
        let first = [Narrow, Narrow, Narrow, Wide, Wide].into_iter();
        first.chain(std::iter::repeat_n(Narrow, rest)).collect()
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let columns = Columns { rows: self.rows, columns: self.columns };
        let statistics = draft.operands(3);
        write_norm(draft, columns, self.tail, statistics);
        Ok(())
    }
}

/// The operand y: behind x, gain, bias, two statistics, and the residual.
fn made(tail: Tail) -> usize {
    5 + usize::from(tail.adds())
}

/// y from mean and variance.
fn write_norm(
    draft: &mut Draft,
    columns: Columns,
    tail: Tail,
    [mean, variance]: [Argument; 2],
) {
    let [x, gain, bias] = draft.operands(0);
    let residual = if tail.adds() { draft.operand(5) } else { NOWHERE };
    let y = draft.operand(made(tail));
    let mut arguments = vec![x, gain, bias, mean, variance, residual, y];
    arguments.extend(columns.extents(draft));
    arguments.push(Argument::Unsigned(tail.cuts().into()));
    let shape = columns.each_row(draft);
    draft.narrow((BATCH_NORM, "batch_norm"), shape, arguments);
}

impl BatchNorm {
    /// Mean and variance: whether they are the running ones is known when the step is served.
    fn write_moments(&self, draft: &mut Draft, [x, mean, variance]: [Argument; 3]) {
        let columns = Columns { rows: self.rows, columns: self.columns };
        let function = (BATCH_NORM, "moments_of_segments");
        let partial = columns.sum(draft, function, [&[x], &[Argument::Scalars]], 2);
        let [running_mean, running_variance] = draft.operands(3);
        let extents = columns.extents(draft);
        let mut arguments =
            vec![partial.sums(), running_mean, running_variance, mean, variance];
        arguments.extend(extents);
        arguments.push(Argument::Scalars);
        let shape = joining(self.columns, partial.segments);
        draft.narrow((BATCH_NORM, "moments"), shape, arguments);
    }
}

impl Form for BatchNormBackward {
    fn roles(&self) -> Vec<Role> {
        let slopes = std::iter::repeat_n(Narrow, self.made() - 3);
        let roles = [Narrow, Narrow, Wide, Wide].into_iter().chain(slopes);
        roles.chain([Either; 4]).collect()
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, mean, variance] = draft.operands(0);
        let columns = Columns { rows: self.rows, columns: self.columns };
        let Passes { sums, summed, spread, given } = self.passes(draft);
        let partial = columns.sum(draft, (BATCH_NORM, sums), [&summed, &[]], 2);
        let (dx, sums) = (draft.operand(self.made()), draft.operands(self.made() + 1));
        let rest = self.write_joined(draft, partial, ([mean, variance], sums));
        let mut arguments = vec![x, gain, mean, variance];
        arguments.extend(given.into_iter().chain(rest));
        arguments.push(dx);
        arguments.extend(columns.extents(draft));
        arguments.push(adding(self.store));
        let shape = columns.each_row(draft);
        draft.narrow((BATCH_NORM, spread), shape, arguments);
        Ok(())
    }
}

/// The functions that sum slopes and spread what they sum to.
struct Passes {
    sums: &'static str,
    /// What the former reads and makes besides sums.
    summed: Vec<Argument>,
    spread: &'static str,
    /// What says for the latter which elements of dy count, and dy.
    given: [Argument; 2],
}

impl BatchNormBackward {
    fn passes(&self, draft: &Draft) -> Passes {
        let [x, gain, mean, variance] = draft.operands(0);
        let [one, two] = draft.operands(SAID);
        let of_segments = |said, dy| Passes {
            sums: "batch_slopes_of_segments",
            summed: vec![x, mean, said, dy],
            spread: "batch_norm_backward",
            given: [said, dy],
        };
        match self.counted {
            Counted::All => of_segments(NOWHERE, one),
            Counted::Open => of_segments(one, two),
            Counted::Opened => {
                let dt = draft.operand(SAID + 2);
                Passes {
                    sums: "batch_slopes_opened",
                    summed: vec![x, mean, one, two, dt],
                    spread: "batch_norm_backward",
                    given: [NOWHERE, dt],
                }
            }
            Counted::OpenAgain => Passes {
                sums: "batch_slopes_again",
                summed: vec![x, mean, gain, variance, one, two],
                spread: "batch_norm_backward_again",
                given: [one, two],
            },
        }
    }

    /// dgain, dbias, dmean and dvariance, and what of the former two every row of dx takes off.
    fn write_joined(
        &self,
        draft: &mut Draft,
        partial: Partial,
        (statistics, sums): ([Argument; 2], [Argument; 4]),
    ) -> [Argument; 2] {
        let rest = [(); 2].map(|()| draft.wide_scratch(self.columns));
        let mut arguments = vec![partial.sums()];
        arguments.extend(statistics.into_iter().chain(sums).chain(rest));
        arguments.extend([self.rows, self.columns, partial.segments].map(count));
        arguments.extend([Argument::Double(self.unbiased()), adding(self.sums)]);
        let (wide, either) = (draft.types.narrow.wide(), draft.types.either);
        let symbol = format!("batch_slopes_{}_{}", wide.name(), either.name());
        let shape = joining(self.columns, partial.segments);
        draft.launch(BATCH_NORM, symbol, shape, arguments);
        rest
    }
}

impl Form for ReluBackwardAgain {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Wide, Wide, Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let columns = Columns { rows: self.rows, columns: self.columns };
        let mut arguments: Vec<Argument> = draft.operands::<7>(0).into();
        arguments.extend(columns.extents(draft));
        arguments.push(adding(self.store));
        let shape = columns.each_row(draft);
        draft.narrow((BATCH_NORM, "relu_backward_again"), shape, arguments);
        Ok(())
    }
}
