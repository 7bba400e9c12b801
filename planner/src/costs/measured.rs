//! Times of kernel calls from a table of measured ones.
//!
//! Law, for a call in a plan that keeps m devices busy:
//!
//! 1. A call that stands in the table with m busy devices takes what was measured. Where m was
//!    not measured, the next smaller number counts that was, else the next larger one.
//! 2. Any other call of a kernel that was measured takes f(x), where x is its roofline time. The
//!    measured calls of the kernel are points (x, t); t is raised to the largest t before it, so
//!    that f never falls. Between two points f is the line that joins them; below the first
//!    and above the last it keeps the ratio t / x of that point. So f grows with the work, and
//!    gives a table whose times grow with the work back on its own rows.
//! 3. A call of a kernel that was never measured takes the roofline.

use crate::costs::calls::roofline;
use roundelay_kernels::unit_of;
use roundelay_schedule::{Device, Footprint, Nanos, Profile, kernel_of};
use std::collections::BTreeMap;

/// Where the time of a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The call stands in the table.
    Measured,
    /// Other calls of its kernel do.
    Scaled,
    /// Nothing like it was measured.
    Guessed,
}

/// Number of calls by where their times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// As measured.
    pub measured: usize,
    /// Scaled from measured calls of the same kernel.
    pub scaled: usize,
    /// By the roofline.
    pub guessed: usize,
}

/// A table on one device.
#[derive(Debug)]
pub(crate) struct Measured {
    /// By number of busy devices.
    levels: BTreeMap<u32, Level>,
    /// What a launch takes besides its calls.
    pub(crate) launch: Nanos,
}

/// What was measured with one number of busy devices.
#[derive(Debug, Default)]
struct Level {
    rows: BTreeMap<String, Nanos>,
    curves: BTreeMap<String, Curve>,
}

/// Roofline times and measured times of one kernel, both ascending.
#[derive(Debug, Default)]
struct Curve(Vec<(Nanos, Nanos)>);

impl Measured {
    /// The table of a device.
    pub(crate) fn new(profile: &Profile, device: &Device) -> Self {
        let mut levels: BTreeMap<u32, Level> = BTreeMap::new();
        for row in &profile.calls {
            let level = levels.entry(row.busy).or_default();
            level.rows.insert(row.call.clone(), row.nanos);
            let footprint = Footprint {
                flops: row.flops,
                bytes: row.bytes,
                unit: unit_of(row.kernel()),
            };
            let point = (roofline(footprint, device), row.nanos);
            level.curves.entry(row.kernel().to_owned()).or_default().0.push(point);
        }
        let curves = levels.values_mut().flat_map(|level| level.curves.values_mut());
        curves.for_each(Curve::rise);
        Self { levels, launch: profile.launch }
    }

    /// Numbers of busy devices that were measured.
    pub(crate) fn levels(&self) -> impl Iterator<Item = u32> {
        self.levels.keys().copied()
    }

    /// Time of a call by its text and its roofline time, when its kernel was measured.
    pub(crate) fn time(
        &self,
        text: &str,
        roofline: Nanos,
        busy: u32,
    ) -> Option<(Nanos, Origin)> {
        let below = self.levels.range(..=busy).rev();
        let above = self.levels.range(busy.saturating_add(1)..);
        let mut nearest = below.chain(above).map(|(_, level)| level).peekable();
        let first = nearest.peek()?;
        if let Some(time) = first.rows.get(text) {
            return Some((*time, Origin::Measured));
        }
        let curve = nearest.find_map(|level| level.curves.get(kernel_of(text)))?;
        Some((curve.at(roofline), Origin::Scaled))
    }
}

impl Curve {
    /// Sorts the points and raises every time to the largest before it.
    fn rise(&mut self) {
        self.0.sort();
        let mut highest = Nanos(0);
        for (_, time) in &mut self.0 {
            highest = highest.max(*time);
            *time = highest;
        }
        self.0.reverse();
        self.0.dedup_by_key(|(roofline, _)| *roofline);
        self.0.reverse();
    }

    /// The law's f, rounded up.
    fn at(&self, roofline: Nanos) -> Nanos {
        let next = self.0.partition_point(|(x, _)| *x < roofline);
        let last = self.0.len().saturating_sub(1);
        match (next.checked_sub(1), self.0.get(next)) {
            (None, Some((x, t))) | (Some(_), Some((x, t))) if *x == roofline => *t,
            (Some(before), Some((x, t))) => {
                let (x0, t0) = self.0[before];
                t0 + scaled(*t - t0, roofline - x0, *x - x0)
            }
            (None, Some((x, t))) => scaled(*t, roofline, *x),
            (_, None) => {
                let (x, t) = self.0[last];
                scaled(t, roofline, x)
            }
        }
    }
}

/// `time` · `part` / `whole`, rounded up; `time` where there is no whole.
fn scaled(time: Nanos, part: Nanos, whole: Nanos) -> Nanos {
    if whole.0 == 0 {
        return time;
    }
    let product = u128::from(time.0) * u128::from(part.0);
    Nanos(u64::try_from(product.div_ceil(u128::from(whole.0))).unwrap_or(u64::MAX))
}

impl Origins {
    /// One more call.
    pub(crate) fn count(&mut self, origin: Origin) {
        match origin {
            Origin::Measured => self.measured += 1,
            Origin::Scaled => self.scaled += 1,
            Origin::Guessed => self.guessed += 1,
        }
    }
}

impl std::ops::AddAssign for Origins {
    fn add_assign(&mut self, other: Self) {
        self.measured += other.measured;
        self.scaled += other.scaled;
        self.guessed += other.guessed;
    }
}

impl std::fmt::Display for Origins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { measured, scaled, guessed } = self;
        write!(
            f,
            "{measured} kernel calls as measured, {scaled} scaled from measured calls of \
             their kernel, {guessed} by the roofline"
        )
    }
}

#[cfg(test)]
mod tests;
