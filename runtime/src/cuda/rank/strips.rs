//! Where the strips lie that a part of an exchange of rows of images gets of others, and those that it
//! packs for them.

use super::super::arena::ALIGNMENT;
use roundelay_kernels::cuda::Halos;

/// A strip in the memory for what others bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strip {
    /// Its first byte.
    pub(super) start: u64,
    /// Its bytes; none where nothing is needed.
    pub(super) bytes: u64,
}

/// All strips of one part, by the places of the others.
#[derive(Debug)]
pub(super) struct Strips {
    /// What comes from them.
    pub(super) received: Vec<Strip>,
    /// What goes to them.
    pub(super) sent: Vec<Strip>,
}

impl Strips {
    /// Those of the part at a place of this many, of elements of so many bytes.
    pub(super) fn of(halos: &Halos, (own, parts): (usize, usize), element: u64) -> Self {
        let mut end = 0;
        let mut place = |ends: [usize; 2]| {
            let [from, to] = ends;
            let elements = if from == to { 0 } else { halos.needed(ends) };
            let strip = Strip { start: end, bytes: elements as u64 * element };
            end += strip.bytes.next_multiple_of(ALIGNMENT);
            strip
        };
        Self {
            received: (0..parts).map(|from| place([from, own])).collect(),
            sent: (0..parts).map(|to| place([own, to])).collect(),
        }
    }

    /// What they take together.
    pub(super) fn bytes(&self) -> u64 {
        let all = self.received.iter().chain(&self.sent);
        let ends = all.map(|strip| strip.start + strip.bytes);
        ends.max().unwrap_or(0).next_multiple_of(ALIGNMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_kernels::{
        Kernel,
        cuda::Number,
        samples::{Build, call},
    };
    use roundelay_schedule::Float;

    /// Windows of three rows over images of 16 rows, which four parts divide.
    fn halos(name: &str) -> (Halos, u64) {
        let call = call(name).integer("parts", 4).integer("before", 1);
        let call = call.integer("step", 4).integer("side", 1);
        let (own, got): (&[u64], &[u64]) = (&[2, 4, 8, 3], &[2, 6, 10, 3]);
        let call = call.reals(&if name == "halo" { [own, got] } else { [got, own] });
        let kernel = Kernel::parse(&call).expect("the call is well formed");
        let exchange = kernel.exchange().expect("it is one");
        let all = (0..4).map(|place| exchange.sent_by(place, Float::F32).0).sum();
        (Halos::of(&exchange, Number::F32).expect("of rows"), all)
    }

    #[test]
    fn strips_lie_apart_and_are_what_is_counted() {
        for name in ["halo", "halo_add"] {
            let (halos, counted) = halos(name);
            let all: Vec<Strips> =
                (0..4).map(|own| Strips::of(&halos, (own, 4), 4)).collect();
            let (mut sent, row) = (0, 2 * 8 * 3 * 4);
            for (own, strips) in all.iter().enumerate() {
                let used = strips.received.iter().chain(&strips.sent);
                let mut used: Vec<_> = used.filter(|strip| strip.bytes > 0).collect();
                used.sort_by_key(|strip| strip.start);
                for pair in used.windows(2) {
                    assert!(pair[0].start + pair[0].bytes <= pair[1].start, "{strips:?}");
                }
                let end = used.last().map_or(0, |strip| strip.start + strip.bytes);
                assert!(end <= strips.bytes() && strips.bytes() < end + ALIGNMENT);
                for (other, theirs) in all.iter().enumerate() {
                    let near = own.abs_diff(other) == 1;
                    assert_eq!(strips.sent[other].bytes, if near { row } else { 0 });
                    assert_eq!(strips.sent[other].bytes, theirs.received[own].bytes);
                    sent += strips.sent[other].bytes;
                }
            }
            assert_eq!(sent, counted, "{name}");
        }
    }
}
