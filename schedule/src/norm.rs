//! Norms of gradients: which stages have one together, and which elements of a stage count how often.

use crate::{Id, Parameter, Plan, Rule, Stage, Tensor, Treatment};

impl Plan {
    /// The first and the last of the stages whose gradients are bounded by one norm, where a stage is
    /// among them; those that have a state are counted.
    ///
    /// Under `sync` that is the whole model, and so it is in one unit of a local rule. Under delays the
    /// last stage is updated before the first one has a gradient of the same step, and several units
    /// have losses of their own: there each stage is bounded alone.
    pub fn normed_with(&self, stage: Stage) -> [Stage; 2] {
        let own = self.keeper(stage);
        match self.rule {
            Rule::Sync | Rule::Local { units: 0 | 1, hop: _ } => {
                let last = match self.tied().next_back() {
                    Some((last, _)) => last,
                    None => Stage::numbered(
                        self.stages.saturating_sub(1).saturating_mul(self.slices),
                    ),
                };
                [Stage::new(0), last]
            }
            Rule::CyclicV1
            | Rule::CyclicV2
            | Rule::CyclicSlack(_)
            | Rule::Local { .. } => [own, own],
        }
    }

    /// The stage behind a stage, of those that have one norm with it.
    pub fn normed_behind(&self, stage: Stage) -> Option<Stage> {
        let own = self.keeper(stage);
        let [_, last] = self.normed_with(own);
        (own < last).then(|| Stage::new(own.index() + self.slices.max(1) as usize))
    }

    /// Whether several stages have one norm.
    pub fn has_joint_norm(&self) -> bool {
        self.normed_behind(Stage::new(0)).is_some()
    }
}

/// Begin, end and holders of what does not count in full in the norm of a stage: what several parts of
/// the grid hold alike; averages, which are no gradients, have none. `parameters` are those of one
/// stage, in order of offset; neighbours that only padding parts are one range.
pub fn uncounted<'a>(
    parameters: impl Iterator<Item = &'a Parameter>,
    grid: Tensor,
) -> Vec<i64> {
    let mut ranges: Vec<[u64; 3]> = Vec::new();
    let mut before = 1;
    for parameter in parameters {
        let copies = match parameter.treatment {
            Treatment::Averaged { .. } => 0,
            Treatment::Decayed | Treatment::Spared => holders(parameter, grid),
        };
        let end = parameter.offset.saturating_add(parameter.elements());
        match ranges.last_mut().filter(|_| before == copies) {
            Some([_, last, _]) if copies != 1 => *last = end,
            _ if copies != 1 => ranges.push([parameter.offset, end, copies]),
            _ => {}
        }
        before = copies;
    }
    let numbers = ranges.as_flattened().iter();
    numbers.map(|number| i64::try_from(*number).unwrap_or(i64::MAX)).collect()
}

/// How many parts of the grid have the same elements of a parameter.
fn holders(parameter: &Parameter, grid: Tensor) -> u64 {
    let splits = parameter.split.splits().iter();
    let lines = splits.map(|split| split.line.map_or(grid.parts(), |line| line.parts));
    // Files may say anything.
    let apart = lines.map(u64::from).fold(1, u64::saturating_mul);
    u64::from(grid.parts()) / apart.max(1)
}
