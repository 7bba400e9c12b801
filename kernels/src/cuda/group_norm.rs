//! Group normalisation, by functions for images whose pixels several devices divide: here one has them all.

use super::{
    draft::{Draft, adding, count},
    form::{Form, Role},
    pixel_norm::Stretches,
};
use crate::group_norm::{GroupNorm, GroupNormBackward};
use Role::{Either, Narrow, Wide};

impl Form for GroupNorm {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Narrow, Wide, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, bias, y, mean, rstd] = draft.operands(0);
        let all = Stretches::of(draft, self.extents);
        all.statistics(draft, ("group_statistics", x), &[mean, rstd]);
        all.each(draft, "group_norm", [&[x, gain, bias, mean, rstd, y], &[]]);
        Ok(())
    }
}

impl Form for GroupNormBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Wide, Narrow, Narrow, Either, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, mean, rstd, dy, dx, dgain, dbias] = draft.operands(0);
        let all = Stretches::of(draft, self.extents);
        let partial =
            all.slopes(draft, ("group_slopes_of_stretches", [x, mean, rstd, dy]));
        let slopes = draft.wide_scratch(2 * self.extents.statistics());
        all.join_slopes(draft, partial, [gain, slopes]);
        let last =
            [count(self.extents.positions * self.extents.width), adding(self.store)];
        all.each(
            draft,
            "group_norm_backward",
            [&[x, gain, mean, rstd, dy, slopes, dx], &last],
        );
        partial.join_both(draft, [dgain, dbias], self.sums);
        Ok(())
    }
}
