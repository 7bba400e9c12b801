//! Images whose rows several devices divide equally: `halo` makes of own rows all that a window
//! reads which moves over the whole image to make the own rows of its result, `halo_add` hands the
//! gradients of these rows back to those who have them (DistDL, arXiv 2006.03108). Where the whole
//! image ends, and beside its columns, stands padding, so the window pads nothing itself.
//!
//! The part at place r gets `rows` rows of the whole image from row r · `step` − `before` on; rows
//! that no window reads go nowhere, and such that several read go to each of them.

use crate::{Real, signature::Signature, store::Store};
use roundelay_schedule::{Access, Strips};
use std::ops::Range;

/// Which rows of the whole image each part gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halo {
    /// Rows of the image that each part has.
    height: usize,
    /// Elements of a row of it.
    width: usize,
    /// Rows that each part gets.
    rows: usize,
    /// Rows that the first part gets in front of the image.
    before: usize,
    /// From the first row that a part gets to the first one that the next part gets.
    step: usize,
    /// Elements of padding at both ends of a row.
    side: usize,
    padding: Padding,
}

/// What stands where there is no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Zero,
    /// Less than every number.
    Lowest,
}

/// Larger numbers mean nothing, and might overflow.
const MOST: i64 = 1 << 20;

impl Halo {
    /// Reads the attributes; a part has `own` and gets `got`, as (b, h, w, c).
    pub(crate) fn parse(
        call: &mut Signature<'_>,
        own: [usize; 4],
        got: [usize; 4],
    ) -> Result<Self, String> {
        let rule = "from 0 to 1048576";
        let mut number = |name| {
            let number = call.integer(name, rule, |number| (0..=MOST).contains(&number));
            number.map(|number| number as usize)
        };
        let (before, step, side) = (number("before")?, number("step")?, number("side")?);
        let lowest = call.flag("lowest")?;
        let [images, height, width, channels] = own;
        if (got[0], got[2], got[3]) != (images, width + 2 * side, channels) {
            return Err(format!(
                "{got:?} are not rows of {own:?} with {side} at both ends"
            ));
        }
        Ok(Self {
            height,
            width: width * channels,
            rows: got[1],
            before,
            step,
            side: side * channels,
            padding: if lowest { Padding::Lowest } else { Padding::Zero },
        })
    }

    /// Elements of a row that a part has.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Elements of padding at both ends of a row.
    pub(crate) fn side(&self) -> usize {
        self.side
    }

    /// Whether padding is less than every number.
    pub(crate) fn is_lowest(&self) -> bool {
        self.padding == Padding::Lowest
    }

    /// Elements of the rows that a part has of one image.
    pub(crate) fn had(&self) -> usize {
        self.height * self.width
    }

    /// Elements of the rows that a part gets of one image.
    pub(crate) fn got(&self) -> usize {
        self.rows * (self.width + 2 * self.side)
    }

    /// Numbers of the rows that the part at a place has. They count from the first row that the first
    /// part gets, which may stand in the padding.
    pub(crate) fn has(&self, part: usize) -> Range<usize> {
        let first = self.before + part * self.height;
        first..first + self.height
    }

    /// Numbers of the rows that it gets.
    pub(crate) fn gets(&self, part: usize) -> Range<usize> {
        let first = part * self.step;
        first..first + self.rows
    }

    /// Numbers of the rows that one part has and another one gets.
    pub(crate) fn shared(&self, [has, gets]: [usize; 2]) -> Range<usize> {
        let (has, gets) = (self.has(has), self.gets(gets));
        let start = has.start.max(gets.start);
        start..has.end.min(gets.end).max(start)
    }

    /// How the rows lie that the part at a place has.
    pub(crate) fn rows_had(&self, part: usize) -> LyingRows {
        LyingRows { numbers: self.has(part), start: 0, pitch: self.width }
    }

    /// How those lie that it gets.
    pub(crate) fn rows_got(&self, part: usize) -> LyingRows {
        let pitch = self.width + 2 * self.side;
        LyingRows { numbers: self.gets(part), start: self.side, pitch }
    }

    /// Rows of what one part has that another one gets.
    pub(crate) fn fetched(&self, ends: [usize; 2]) -> RowStrip {
        self.rows_had(ends[0]).strip(self.shared(ends), self.width)
    }

    /// Rows of what one part got whose gradients go back to another one, which has them.
    pub(crate) fn brought_back(&self, [from, to]: [usize; 2]) -> RowStrip {
        self.rows_got(from).strip(self.shared([to, from]), self.width)
    }

    /// Rows of the whole image that a part gets, in it.
    fn window(&self, part: usize, parts: usize) -> Range<usize> {
        let first = part * self.step;
        let end = (first + self.rows).saturating_sub(self.before);
        let start = first.saturating_sub(self.before);
        start.min(self.height * parts)..end.min(self.height * parts).max(start)
    }

    /// Rows that the part at a place sends to others.
    pub(crate) fn sent_by(&self, place: usize, parts: usize) -> usize {
        let to = (0..parts).filter(|other| *other != place);
        to.map(|other| self.shared([place, other]).len()).sum()
    }

    /// Rows whose gradients it sends to others.
    pub(crate) fn sent_back_by(&self, place: usize, parts: usize) -> usize {
        let to = (0..parts).filter(|other| *other != place);
        to.map(|other| self.shared([other, place]).len()).sum()
    }

    /// What parts send each other so that each gets its rows.
    pub(crate) fn strips(&self, parts: usize) -> Strips {
        self.counted(parts, |place| self.sent_by(place, parts))
    }

    /// What they send on the way back.
    pub(crate) fn strips_back(&self, parts: usize) -> Strips {
        self.counted(parts, |place| self.sent_back_by(place, parts))
    }

    fn counted(&self, parts: usize, sent: impl Fn(usize) -> usize) -> Strips {
        let most = (0..parts).map(&sent).max().unwrap_or(0);
        let all: usize = (0..parts).map(sent).sum();
        let [height, most, all] = [self.height * parts, most, all].map(|n| n as u64);
        Strips { height, most, all }
    }

    /// The rows that the part at a place gets, from what each part has.
    pub(crate) fn fetch<R: Real>(&self, brought: &[&[R]], part: usize, out: &mut [R]) {
        let padding = match self.padding {
            Padding::Zero => R::ZERO,
            Padding::Lowest => R::NEGATIVE_INFINITY,
        };
        let window = self.window(part, brought.len());
        let image = self.rows * (self.width + 2 * self.side);
        for (number, out) in out.chunks_mut(image).enumerate() {
            for (place, out) in out.chunks_mut(self.width + 2 * self.side).enumerate() {
                let at = (part * self.step + place).checked_sub(self.before);
                let Some(at) = at.filter(|at| window.contains(at)) else {
                    out.fill(padding);
                    continue;
                };
                let (left, others) = out.split_at_mut(self.side);
                let (inside, right) = others.split_at_mut(self.width);
                left.fill(padding);
                inside.copy_from_slice(self.row(brought[at / self.height], number, at));
                right.fill(padding);
            }
        }
    }

    /// A row of the whole image in the images of the part that has it.
    fn row<'a, R>(&self, own: &'a [R], image: usize, at: usize) -> &'a [R] {
        let first = (image * self.height + at % self.height) * self.width;
        &own[first..first + self.width]
    }

    /// The gradients of the rows that the part at a place has, from those of the rows that each part
    /// got: a row that several got is summed over them, in their order.
    pub(crate) fn add<R: Real>(
        &self,
        brought: &[&[R]],
        part: usize,
        out: &mut [R],
        store: Store,
    ) {
        store.clear(out);
        let got = self.width + 2 * self.side;
        for (number, out) in out.chunks_mut(self.height * self.width).enumerate() {
            for (row, out) in out.chunks_mut(self.width).enumerate() {
                let at = part * self.height + row + self.before;
                let places = brought.iter().enumerate().filter_map(|(other, brought)| {
                    let place = at.checked_sub(other * self.step)?;
                    (place < self.rows).then_some((place, *brought))
                });
                for (place, brought) in places {
                    let first = (number * self.rows + place) * got + self.side;
                    let from = &brought[first..first + self.width];
                    out.iter_mut().zip(from).for_each(|(out, x)| *out += *x);
                }
            }
        }
    }
}

/// How all rows of every image of an array lie.
#[derive(Clone, Debug)]
pub(crate) struct LyingRows {
    pub(crate) numbers: Range<usize>,
    /// The element at which the first row begins, behind its padding.
    pub(crate) start: usize,
    /// Elements from one row to the next.
    pub(crate) pitch: usize,
}

impl LyingRows {
    /// Elements from one image to the next.
    pub(crate) fn image(&self) -> usize {
        self.numbers.len() * self.pitch
    }

    /// Those of these numbers, which it has, without their padding: this many elements of each.
    fn strip(self, numbers: Range<usize>, width: usize) -> RowStrip {
        RowStrip { all: self, numbers, width }
    }
}

/// Neighbouring rows of every image of an array.
#[derive(Clone, Debug)]
pub(crate) struct RowStrip {
    all: LyingRows,
    numbers: Range<usize>,
    /// Elements of a row.
    width: usize,
}

impl RowStrip {
    /// Elements of its rows in an image.
    pub(crate) fn rows_of(self, image: usize) -> impl Iterator<Item = Range<usize>> {
        let Self { all, numbers, width } = self;
        let first = image * all.image() + all.start;
        numbers.map(move |number| {
            let start = first + (number - all.numbers.start) * all.pitch;
            start..start + width
        })
    }
}

/// The next two operands, both of images.
pub(crate) fn images(
    call: &mut Signature<'_>,
    [first, second]: [(&'static str, Access); 2],
) -> Result<[[usize; 4]; 2], String> {
    Ok([call.images(first.0, first.1)?, call.images(second.0, second.1)?])
}
