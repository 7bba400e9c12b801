//! Batch and group normalisation of images whose pixels several devices divide.

use super::{
    Argument,
    columns::{Columns, Partial, THREADS, joining, joining_by},
    draft::{Draft, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    source::PIXEL_NORM,
};
use crate::{
    group_norm::Groups,
    pixel_norm::{
        Outside, PixelNorm, PixelNormBackward, PixelNormMoments, PixelNormParameters,
        PixelNormSlopes, PixelNormStatistics,
    },
};
use Role::{Either, Narrow, Wide};

/// Rows in stretches, none of which has rows of two examples; how they are cut follows from the
/// extents alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretches {
    extents: Groups,
    /// Rows of a stretch.
    rows: usize,
    /// Stretches of an example.
    each: usize,
}

impl Stretches {
    pub(super) fn of(draft: &Draft, extents: Groups) -> Self {
        let Groups { examples, positions, columns, .. } = extents;
        let one = Columns { rows: positions, columns };
        let rows = one.per_segment_of_each(draft, examples);
        Self { extents, rows, each: positions.div_ceil(rows) }
    }
    /// All of them.
    fn all(self) -> usize {
        self.extents.examples * self.each
    }
    fn shape(self, draft: &Draft) -> Shape {
        let Groups { positions, columns, .. } = self.extents;
        Columns { rows: positions, columns }.each_piece(draft, self.all())
    }
    /// Threads that join the terms of every statistic: neighbours along x have neighbouring
    /// statistics, those along y neighbouring columns where a statistic has several.
    fn joining(self) -> Shape {
        let (statistics, terms) =
            (self.extents.statistics(), self.each * self.extents.width);
        match self.extents.width {
            1 => joining(statistics, terms),
            _ => joining_by(THREADS, statistics, terms),
        }
    }
    /// Launches a function that goes through all of them.
    pub(super) fn each(
        self,
        draft: &mut Draft,
        name: &str,
        [operands, last]: [&[Argument]; 2],
    ) {
        let (shape, arguments) = (self.shape(draft), self.arguments(operands, last));
        draft.narrow((PIXEL_NORM, name), shape, arguments);
    }
    /// Means and squares around them of every column over each stretch.
    fn moments(self, draft: &mut Draft, x: Argument) -> Partial {
        let partial = Partial::terms(draft, self.all(), self.extents.columns, 2);
        self.each(draft, "pixel_moments_of_stretches", [&[x, partial.sums()], &[]]);
        partial
    }
    /// What a function makes of these for every statistic.
    pub(super) fn statistics(
        self,
        draft: &mut Draft,
        (name, x): (&str, Argument),
        out: &[Argument],
    ) {
        let moments = self.moments(draft, x).sums();
        let arguments = self.arguments(&[&[moments], out].concat(), &[]);
        draft.wide((PIXEL_NORM, name), self.joining(), arguments);
    }
    /// Σ g · x̂ and Σ g for every statistic, of the slopes of stretches.
    pub(super) fn join_slopes(
        self,
        draft: &mut Draft,
        partial: Partial,
        [gain, slopes]: [Argument; 2],
    ) {
        let arguments = self.arguments(&[partial.sums(), gain, slopes], &[]);
        draft.narrow((PIXEL_NORM, "pixel_slopes"), self.joining(), arguments);
    }
    /// `operands`, the extents, and `last`.
    fn arguments(self, operands: &[Argument], last: &[Argument]) -> Vec<Argument> {
        let Groups { examples, positions, columns, width } = self.extents;
        let extents =
            [examples, positions, columns, width, self.rows, self.each].map(count);
        [operands, &extents, last].concat()
    }
    /// dy · x̂ and dy of every column over each stretch.
    pub(super) fn slopes(
        self,
        draft: &mut Draft,
        (name, [x, mean, given, dy]): (&str, [Argument; 4]),
    ) -> Partial {
        let partial = Partial::terms(draft, self.all(), self.extents.columns, 2);
        self.each(draft, name, [&[x, mean, given, dy, partial.sums()], &[]]);
        partial
    }
}

/// What makes slopes of stretches by variances.
const SLOPES: &str = "pixel_slopes_of_stretches";

impl Form for PixelNormMoments {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, moments] = draft.operands(0);
        let all = Stretches::of(draft, self.extents);
        all.statistics(draft, ("pixel_moments", x), &[moments]);
        Ok(())
    }
}

impl Form for PixelNormStatistics {
    fn roles(&self) -> Vec<Role> {
        match self.outside {
            Outside::Own => vec![Wide, Wide, Wide],
            Outside::Running => vec![Wide, Narrow, Narrow, Wide, Wide],
        }
    }
    /// Whether the running ones are taken is known when the step is served.
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let moments = draft.operand(0);
        let ([mean, variance], next) = match self.outside {
            Outside::Own => ([NOWHERE; 2], 1),
            Outside::Running => (draft.operands(1), 3),
        };
        let mut arguments = vec![moments, mean, variance];
        arguments.extend(draft.operands::<2>(next));
        arguments.extend([self.parts, self.statistics, self.count].map(count));
        arguments.push(Argument::Scalars);
        let shape = Shape::each(self.statistics, 1);
        draft.narrow((PIXEL_NORM, "pixel_statistics"), shape, arguments);
        Ok(())
    }
}

impl Form for PixelNorm {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Wide, Wide, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands: [Argument; 6] = draft.operands(0);
        let all = Stretches::of(draft, self.extents);
        all.each(draft, "pixel_norm", [&operands, &[]]);
        Ok(())
    }
}

impl Form for PixelNormSlopes {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Wide, Narrow, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, mean, variance, dy, slopes] = draft.operands(0);
        let all = Stretches::of(draft, self.extents);
        let partial = all.slopes(draft, (SLOPES, [x, mean, variance, dy]));
        all.join_slopes(draft, partial, [gain, slopes]);
        Ok(())
    }
}

impl Form for PixelNormBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Wide, Narrow, Wide, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands: [Argument; 7] = draft.operands(0);
        let all = Stretches::of(draft, self.extents);
        let last = [count(self.count), adding(self.store)];
        all.each(draft, "pixel_norm_backward", [&operands, &last]);
        Ok(())
    }
}

impl Form for PixelNormParameters {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Wide, Wide, Narrow, Either, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, mean, variance, dy, dgain, dbias] = draft.operands(0);
        let all = Stretches::of(draft, self.extents);
        let partial = all.slopes(draft, (SLOPES, [x, mean, variance, dy]));
        partial.join_both(draft, [dgain, dbias], self.store);
        Ok(())
    }
}
