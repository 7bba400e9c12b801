//! Which rows of an image a part reads for the rows that it makes, where rows are divided among
//! several: its own, without those that it does not need, and halos from its neighbours
//! (DistDL, arXiv 2006.03108).

use std::ops::Range;

/// A window that moves over one extent of an image, whose outputs several parts divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sliding {
    /// Rows of the whole image.
    pub(crate) extent: u64,
    /// Parts that divide them, and the rows that the window makes.
    pub(crate) parts: u64,
    /// Rows of the window.
    pub(crate) kernel: u64,
    /// Rows from one place of the window to the next.
    pub(crate) stride: u64,
    /// Rows in front of the image and behind it that are no image.
    pub(crate) padding: u64,
}

impl Sliding {
    /// Rows that the window makes: (extent + 2 padding − kernel) / stride + 1, rounded down.
    pub(crate) fn outputs(&self) -> u64 {
        let room = (self.extent + 2 * self.padding).saturating_sub(self.kernel);
        room / self.stride + 1
    }

    /// Whether parts have equally many rows, and make equally many.
    pub(crate) fn is_even(&self) -> bool {
        let even = |extent: u64| extent.is_multiple_of(self.parts);
        even(self.extent) && even(self.outputs())
    }

    /// Rows that the window reads for the outputs of a part, where the image begins at zero: s · o − p
    /// .. s · (e − 1) − p + k for outputs o .. e.
    fn window(&self, part: u64) -> Range<i64> {
        let outputs = balanced(self.outputs(), self.parts, part);
        let at = |output: u64| (output * self.stride) as i64 - self.padding as i64;
        let end = match outputs.end.checked_sub(1) {
            Some(last) if outputs.start <= last => at(last) + self.kernel as i64,
            _ => at(outputs.start),
        };
        at(outputs.start)..end
    }

    /// For each part, the rows before its own and behind them that it reads of the image; negative
    /// where it does not read as many of its own.
    pub(crate) fn halos(&self) -> Vec<[i64; 2]> {
        let inside = |row: i64| row.clamp(0, self.extent as i64);
        let of = |part| {
            let own = balanced(self.extent, self.parts, part);
            let window = self.window(part);
            [own.start as i64 - inside(window.start), inside(window.end) - own.end as i64]
        };
        (0..self.parts).map(of).collect()
    }

    /// Whether a window over the own rows of each part alone makes its outputs: no part reads rows of
    /// others, or stands in padding.
    pub(crate) fn is_local(&self) -> bool {
        let alone = |halo: &[i64; 2]| halo[0] == 0 && halo[1] <= 0;
        self.padding == 0 && self.halos().iter().all(alone)
    }

    /// Rows from the window of one part to that of the next, where they make equally many.
    pub(crate) fn step(&self) -> u64 {
        self.outputs() / self.parts * self.stride
    }

    /// Rows that the window of each part reads, padding with them, where they make equally many.
    pub(crate) fn rows(&self) -> u64 {
        let window = self.window(0);
        (window.end - window.start).unsigned_abs()
    }
}

/// What a part has of an extent: the first ones have one more where parts do not divide it.
fn balanced(extent: u64, parts: u64, part: u64) -> Range<u64> {
    let (each, more) = (extent / parts, extent % parts);
    let first = |part: u64| part * each + part.min(more);
    first(part)..first(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliding([extent, parts, kernel, stride, padding]: [u64; 5]) -> Sliding {
        Sliding { extent, parts, kernel, stride, padding }
    }

    /// The table of the paper's repository, unequal parts and negative halos with it.
    #[test]
    fn halos_are_those_of_the_published_table() {
        let table: [([u64; 5], &[[i64; 2]]); 5] = [
            ([11, 3, 5, 1, 2], &[[0, 2], [2, 2], [2, 0]]),
            ([11, 3, 5, 1, 0], &[[0, 3], [1, 1], [3, 0]]),
            ([11, 3, 2, 2, 0], &[[0, 0], [0, 0], [0, -1]]),
            ([20, 6, 2, 2, 0], &[[0, 0], [0, 0], [0, 1], [-1, 2], [-2, 1], [-1, 0]]),
            ([16, 4, 3, 1, 1], &[[0, 1], [1, 1], [1, 1], [1, 0]]),
        ];
        for (numbers, expected) in table {
            assert_eq!(sliding(numbers).halos(), expected, "{numbers:?}");
        }
    }

    /// Law: of equal parts the windows are as long, begin a step apart, and read every tap of every
    /// output.
    #[test]
    fn windows_of_equal_parts_are_alike() {
        let mut seen = 0;
        for extent in 1..20 {
            for (parts, kernel) in [(1, 3), (2, 1), (2, 7), (4, 3), (4, 2), (3, 5)] {
                for (stride, padding) in [(1, 0), (1, 1), (2, 0), (2, 3), (3, 1)] {
                    let own = sliding([extent, parts, kernel, stride, padding]);
                    if extent + 2 * padding < kernel || !own.is_even() {
                        continue;
                    }
                    seen += 1;
                    for part in 0..parts {
                        let window = own.window(part);
                        let first = (part * own.step()) as i64 - padding as i64;
                        assert_eq!(window, first..first + own.rows() as i64);
                    }
                    let local = (extent / parts).checked_sub(kernel);
                    let made = local.map_or(0, |room| room / stride + 1) * parts;
                    assert!(!own.is_local() || made == own.outputs(), "{own:?}");
                }
            }
        }
        assert!(seen > 50, "{seen}");
    }
}
