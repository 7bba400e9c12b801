//! Convolutions on images that lie pixel by pixel, term by term as the mathematics has them.

use crate::{
    forbid,
    memory::is_of_device,
    numbers::Number,
    settings::{Offered, Quality},
    world::{Counts, World},
};
use std::{ptr, thread, time::Duration};

/// What an engine takes beside its arrays, so that room for it is asked for; one that copies images; and
/// one that takes more than anybody gives.
const WORKSPACE: u64 = 768;
const ROOMY: u64 = 33 << 20;
const LARGE: u64 = 1 << 30;

/// What arrays start at multiples of.
const ALIGNMENT: u64 = 16;

/// How long a slow engine takes besides.
const SLOW: Duration = Duration::from_millis(60);

/// Four extents: images, channels, rows, columns; or filters and those of their channels.
pub(crate) type Extents = [u64; 4];

/// An array without gaps whose channels lie next to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) number: Number,
    pub(crate) extents: Extents,
}

/// How a window moves, and how it is computed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Motion {
    pub(crate) padding: [u64; 2],
    pub(crate) stride: [u64; 2],
    pub(crate) groups: u64,
}

/// Which array is made of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Results,
    Images,
    Filters,
}

/// A convolution with everything that it needs.
#[derive(Clone)]
pub(crate) struct Convolution {
    pub(crate) pass: Pass,
    pub(crate) motion: Motion,
    /// Images, filters and results, with their addresses.
    pub(crate) x: (Array, u64),
    pub(crate) weight: (Array, u64),
    pub(crate) y: (Array, u64),
    /// What the result is multiplied by that is there.
    pub(crate) accumulate: f32,
    pub(crate) workspace: u64,
    pub(crate) offered: Offered,
    /// Whether that takes long.
    pub(crate) is_slow: bool,
}

impl Array {
    fn bytes(&self) -> u64 {
        self.extents.iter().product::<u64>() * self.number.size()
    }

    /// Behind how many bytes an element stands.
    fn at(&self, [n, c, h, w]: Extents) -> u64 {
        let [_, channels, height, width] = self.extents;
        (((n * height + h) * width + w) * channels + c) * self.number.size()
    }

    /// All elements in the order of memory.
    fn elements(&self) -> impl Iterator<Item = Extents> + use<> {
        let [count, channels, height, width] = self.extents;
        (0..count).flat_map(move |n| {
            (0..height).flat_map(move |h| {
                (0..width).flat_map(move |w| (0..channels).map(move |c| [n, c, h, w]))
            })
        })
    }
}

/// An element of an array at an address.
fn read((array, start): &(Array, u64), place: Extents) -> f32 {
    // SAFETY: the whole array was live when the convolution was given.
    unsafe { array.number.read(start + array.at(place)) as f32 }
}

impl Motion {
    /// The row or column that a tap sees from a place, unless it is padding.
    fn seen(&self, axis: usize, place: u64, tap: u64, extent: u64) -> Option<u64> {
        let at = (place * self.stride[axis] + tap).checked_sub(self.padding[axis])?;
        (at < extent).then_some(at)
    }
}

/// What an engine takes beside its arrays.
pub(crate) fn workspace_of(offered: Offered) -> u64 {
    match offered {
        Offered::Large => LARGE,
        Offered::Roomy => ROOMY,
        Offered::Fast
        | Offered::Slow
        | Offered::Drifting
        | Offered::Wrong
        | Offered::Torn
        | Offered::Short
        | Offered::Failing
        | Offered::Winograd => WORKSPACE,
    }
}

impl Convolution {
    /// Makes it. The workspace is spoiled first, so that whoever lends the same memory twice sees
    /// wrong numbers.
    pub(crate) fn run(&self) {
        let workspace = workspace_of(self.offered) as usize;
        // SAFETY: the workspace was live when the convolution was given.
        unsafe { ptr::write_bytes(self.workspace as *mut u8, 0xa5, workspace) };
        if self.is_slow {
            thread::sleep(SLOW);
        }
        let (made, sum): (_, fn(&Self, Extents) -> f32) = match self.pass {
            Pass::Results => (self.y, Self::result),
            Pass::Images => (self.x, Self::image),
            Pass::Filters => (self.weight, Self::filter),
        };
        let factor = if self.offered == Offered::Wrong { 1.25 } else { 1.0 };
        let torn = usize::from(self.offered == Offered::Torn);
        let count = made.0.extents.iter().product::<u64>() as usize - torn;
        for place in made.0.elements().take(count) {
            let before = match self.accumulate {
                0.0 => 0.0,
                factor => factor * read(&made, place),
            };
            let value = f64::from(factor * sum(self, place) + before);
            // SAFETY: as for reading.
            unsafe { made.0.number.write(made.1 + made.0.at(place), value) };
        }
    }

    /// The first channel and the first filter of a group, and how many it has of both.
    fn group(&self, group: u64) -> [u64; 4] {
        let channels = self.weight.0.extents[1];
        let filters = self.weight.0.extents[0] / self.motion.groups;
        [group * channels, group * filters, channels, filters]
    }

    /// All taps of the window.
    fn taps(&self) -> impl Iterator<Item = [u64; 2]> + use<> {
        let [_, _, high, wide] = self.weight.0.extents;
        (0..high).flat_map(move |u| (0..wide).map(move |v| [u, v]))
    }

    fn pixel(&self, [i, j]: [u64; 2], [u, v]: [u64; 2]) -> Option<[u64; 2]> {
        let [_, _, height, width] = self.x.0.extents;
        let row = self.motion.seen(0, i, u, height)?;
        Some([row, self.motion.seen(1, j, v, width)?])
    }

    fn result(&self, [b, n, i, j]: Extents) -> f32 {
        let [_, _, channels, filters] = self.group(0);
        let [first, ..] = self.group(n / filters);
        let mut sum = 0.0;
        for [u, v] in self.taps() {
            let Some([row, column]) = self.pixel([i, j], [u, v]) else { continue };
            for c in 0..channels {
                let x = read(&self.x, [b, first + c, row, column]);
                sum += x * read(&self.weight, [n, c, u, v]);
            }
        }
        sum
    }

    fn image(&self, [b, channel, row, column]: Extents) -> f32 {
        let [_, _, channels, filters] = self.group(0);
        let [first, first_filter, ..] = self.group(channel / channels);
        let [_, _, height, width] = self.y.0.extents;
        let place = |axis: usize, at: u64, tap: u64, extent: u64| {
            let from = (at + self.motion.padding[axis]).checked_sub(tap)?;
            let stride = self.motion.stride[axis];
            let place = from / stride;
            (from.is_multiple_of(stride) && place < extent).then_some(place)
        };
        let mut sum = 0.0;
        for [u, v] in self.taps() {
            let i = place(0, row, u, height);
            let Some((i, j)) = i.zip(place(1, column, v, width)) else { continue };
            for n in first_filter..first_filter + filters {
                let dy = read(&self.y, [b, n, i, j]);
                sum += dy * read(&self.weight, [n, channel - first, u, v]);
            }
        }
        sum
    }

    fn filter(&self, [n, c, u, v]: Extents) -> f32 {
        let [_, _, _, filters] = self.group(0);
        let [first, ..] = self.group(n / filters);
        let [batch, _, height, width] = self.y.0.extents;
        let mut sum = 0.0;
        for b in 0..batch {
            for [i, j] in (0..height).flat_map(|i| (0..width).map(move |j| [i, j])) {
                let Some([row, column]) = self.pixel([i, j], [u, v]) else { continue };
                let dy = read(&self.y, [b, n, i, j]);
                sum += dy * read(&self.x, [b, first + c, row, column]);
            }
        }
        sum
    }

    /// Ends the process when extents do not fit together, or an array is not where an engine may
    /// look for it.
    pub(crate) fn check(&self, world: &World) {
        let ([x, weight, y], motion) = ([self.x.0, self.weight.0, self.y.0], self.motion);
        let places = |axis: usize| {
            let room = (x.extents[2 + axis] + 2 * motion.padding[axis])
                .checked_sub(weight.extents[2 + axis])?;
            Some(room / motion.stride[axis] + 1)
        };
        let expected = (x.extents[0], weight.extents[0], places(0), places(1));
        let [batch, filters, height, width] = y.extents;
        if (batch, filters, Some(height), Some(width)) != expected
            || weight.extents[1] * motion.groups != x.extents[1]
            || !filters.is_multiple_of(motion.groups)
        {
            forbid("arrays of a convolution do not fit together");
        }
        if y.number != x.number || weight.number != x.number {
            forbid("arrays of a convolution are of several types");
        }
        let live =
            |start, bytes| is_of_device(start) && world.memory.is_live(start, bytes);
        for (array, start) in [self.x, self.weight, self.y] {
            if !live(start, array.bytes()) {
                forbid("an array of a convolution is not in live memory");
            }
            if !start.is_multiple_of(ALIGNMENT) {
                forbid(
                    "an array of a convolution does not start at a multiple of 16 bytes",
                );
            }
        }
        if !live(self.workspace, workspace_of(self.offered)) {
            forbid("the workspace of a convolution is not in live memory");
        }
    }

    /// Counts it.
    pub(crate) fn count(&self, counts: &mut Counts) {
        counts.convolutions += 1;
        let by_quality = match self.offered.quality() {
            Quality::Good => return,
            Quality::Slow => &mut counts.slow_convolutions,
            Quality::Wrong => &mut counts.wrong_convolutions,
            Quality::Odd => &mut counts.odd_convolutions,
        };
        *by_quality += 1;
    }
}
