//! The ways to split tensors that are tried: grids of rows and columns.

use super::{
    numbers::{Fitting, Known, powers_of_two, sorted},
    one_of,
};
use roundelay_dsl::{Choice, Model, Numbers, Operation, Program, Search, Source};
use roundelay_schedule::{Contraction, Images, Sequence, Target, Tensor};
use std::ops::Range;

/// Parts of tensors that are tried when rows or columns are left open, at most.
const MOST_OPEN_PARTS: u64 = 16;
/// Columns that are left open are tried where a grid has this many parts at least: among fewer, one
/// direction sends no more than two, by the layers of a transformer (Tensor3D's law: the best grid
/// has three times as many rows as columns).
const LEAST_OPEN_GRID: u64 = 8;
/// Where heads are an odd number rows leave attention whole, so that columns do better among fewer parts too.
const LEAST_OPEN_GRID_OF_ODD_HEADS: u64 = 2;
/// The same by residual blocks of images, whose best grid has about as many rows as columns.
const LEAST_OPEN_GRID_OF_IMAGES: u64 = 4;

/// Parts of a micro-batch that may take turns, at most.
const MOST_HALVES: u64 = 2;

/// Ways to split tensors. Open rows and columns are powers of two whose grid fits into the widest
/// innermost link level, or for images into all devices: weights are much of what replicas of these
/// exchange, and a grid shares them out. What they leave over may stay idle, so that one device more
/// makes no plan worse. Columns are tried in larger grids alone. Sequences are split where
/// there are some, and several parts. Each map goes a way of its own unless a program says otherwise,
/// and where there are convolutions all take turns as well; one column leaves them nothing else.
/// Examples are taken in halves where the program says so, and tensors are split.
pub(super) fn tensors(program: &Program, devices: u64) -> Vec<Tensor> {
    let Search { rows, columns, sequence, contraction, overdecompose, .. } =
        &program.search;
    let contractions = match convolves(program) {
        true => one_of(contraction, &[Contraction::Alternate, Contraction::Each]),
        false => one_of(contraction, &[Contraction::Each]),
    };
    let sequences = match has_sequences(&program.model) {
        true => one_of(sequence, Sequence::ALL),
        false => one_of(sequence, &[Sequence::Whole]),
    };
    let pixels = pixels(program);
    let (least, most) = open_parts(program, devices);
    let known = parts(program, devices);
    let open = [rows, columns].map(|numbers| *numbers == Numbers::Open);
    let fits = |rows: u32, columns: u32| {
        let parts = u64::from(rows) * u64::from(columns);
        match open {
            [_, true] => columns == 1 || (least..=most).contains(&parts),
            [true, false] => rows == 1 || parts <= most,
            [false, false] => true,
        }
    };
    let halves = Known { within: 1..=MOST_HALVES, fitting: Fitting::All, open: vec![1] };
    let halves = halves.tried(overdecompose);
    // Where the tokens or the columns are whole there is one way, whatever is said.
    let one = |rows, columns| {
        let grid = Tensor::grid(rows, columns);
        let alone = rows == 1 && columns == 1;
        let sequences = if alone { &[Sequence::Whole] } else { &sequences[..] };
        let contractions =
            if columns == 1 { &[Contraction::Alternate] } else { &contractions[..] };
        let halves = if alone && halves.contains(&1) { &[1] } else { &halves[..] };
        let mut tensors = Vec::new();
        for sequence in sequences.iter().copied() {
            for contraction in contractions.iter().copied() {
                let way = |overdecompose: &u32| Tensor {
                    sequence,
                    contraction,
                    overdecompose: *overdecompose,
                    ..grid
                };
                tensors.extend(halves.iter().map(way));
            }
        }
        let lie = |tensor: &Tensor| pixels(*tensor);
        tensors.iter().flat_map(lie).collect::<Vec<_>>()
    };
    let (rows, columns) = (known.tried(rows), known.tried(columns));
    let grids = rows.into_iter().flat_map(|rows| {
        let columns = columns.iter().copied().filter(move |columns| fits(rows, *columns));
        columns.map(move |columns| (rows, columns)).collect::<Vec<_>>()
    });
    grids.flat_map(|(rows, columns)| one(rows, columns)).collect()
}

/// What is known of numbers of rows, and of columns.
pub(super) fn parts(program: &Program, devices: u64) -> Known {
    let (_, most) = open_parts(program, devices);
    let open = sorted(powers_of_two(most));
    Known { within: 1..=devices.max(1), fitting: Fitting::All, open }
}

/// The fewest parts of a grid in which columns that are left open are tried, and the most parts.
fn open_parts(program: &Program, devices: u64) -> (u64, u64) {
    let level = widest_innermost(&program.target).min(devices).clamp(1, MOST_OPEN_PARTS);
    match (convolves(program), has_odd_heads(&program.model)) {
        (true, _) => (LEAST_OPEN_GRID_OF_IMAGES, devices.clamp(1, MOST_OPEN_PARTS)),
        (false, true) => (LEAST_OPEN_GRID_OF_ODD_HEADS, level),
        (false, false) => (LEAST_OPEN_GRID, level),
    }
}

/// Devices in the widest link level that has none inside it. One that joins nothing, because it is of
/// one device, is no level.
fn widest_innermost(target: &Target) -> u64 {
    let all = target.domains.iter().map(|domain| &domain.devices);
    let all = all.filter(|devices| devices.len() > 1);
    let inside = |one: &Range<u32>, other: &Range<u32>| {
        one.len() < other.len() && other.start <= one.start && one.end <= other.end
    };
    let innermost =
        all.clone().filter(|own| !all.clone().any(|other| inside(other, own)));
    innermost.map(|devices| devices.len() as u64).max().unwrap_or(1)
}

/// The ways in which images may lie where tensors are split like this: whole unless the program
/// says otherwise. Where the program allows both, they are split among rows alone; where it leaves
/// sequences open, these stay whole beside split images.
fn pixels(program: &Program) -> impl Fn(Tensor) -> Vec<Tensor> {
    let Search { images, sequence, .. } = &program.search;
    let any_sequence = *sequence == Choice::Open;
    let tried = one_of(images, &[Images::Whole]);
    move |tensor| {
        let fits = |own: &Tensor| {
            let lies = own.can_lie() || tried == [Images::Split];
            let alone = own.sequence == Sequence::Whole || !any_sequence;
            own.images == Images::Whole || (lies && alone)
        };
        let ways = tried.iter().map(|images| Tensor { images: *images, ..tensor });
        match tensor.parts() {
            1 => vec![tensor],
            _ => ways.filter(fits).collect(),
        }
    }
}

/// Whether a model has convolutions behind others: one that cuts an image in patches is none.
fn convolves(program: &Program) -> bool {
    program.model.nodes.values().any(|node| {
        let is_convolution = matches!(node.operation, Operation::Conv2d { .. });
        is_convolution && matches!(node.operands[0], Source::Node(_))
    })
}

/// Whether rows can share out no heads, not even between two.
fn has_odd_heads(model: &Model) -> bool {
    let is_odd = |operation| {
        use Operation::{Attention, Scores};
        matches!(operation, Attention { heads, .. } | Scores { heads, .. } if heads.all % 2 == 1)
    };
    model.nodes.values().any(|node| is_odd(node.operation))
}

/// Whether a model makes values of sequences; without them there is nothing of theirs to split.
pub(crate) fn has_sequences(model: &Model) -> bool {
    model.nodes.values().any(|node| node.shape.len() == 3)
}

/// Whether a model moves windows over images; without them there are no pixels to split.
pub(crate) fn has_windows(model: &Model) -> bool {
    let is_window = |operation| {
        use Operation::{AvgPool, Conv2d, MaxPool};
        matches!(operation, Conv2d { .. } | MaxPool { .. } | AvgPool { .. })
    };
    model.nodes.values().any(|node| is_window(node.operation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_dsl::{Cap, Heads, Node, Projections, Scale, Sight, Window};
    use roundelay_schedule::{Domain, Id};
    use std::collections::BTreeSet;

    fn with(mut program: Program, operation: Operation) -> Program {
        let operands = vec![Source::Node(Id::new(0))];
        let (name, shape) = ("another".into(), Vec::new());
        program.model.nodes.push(Node { name, operation, operands, shape });
        program
    }

    fn with_images(program: Program) -> Program {
        with(program, Operation::Conv2d { stride: 1, padding: 0, groups: 1 })
    }

    fn with_heads(program: Program, heads: u64) -> Program {
        let attention = Operation::Attention {
            heads: Heads { all: heads, keys: heads },
            projections: Projections::Apart,
            sight: Sight { causal: true, window: Window::Open },
            scale: Scale::Depth,
            cap: Cap::Open,
        };
        with(program, attention)
    }

    #[test]
    fn images_are_split_where_a_program_says_so_among_rows_alone() {
        let plain = sample::program(4, 8);
        let split = |program: &Program| -> Vec<Tensor> {
            let all = tensors(program, 4).into_iter();
            all.filter(|tensor| tensor.images == Images::Split).collect()
        };
        let mut images = with_images(plain);
        assert_eq!(split(&images), []);
        let whole = tensors(&images, 4).len();
        images.search.images = Choice::OneOf(Images::ALL.to_vec());
        assert_eq!(split(&images), [Tensor::pixels(2), Tensor::pixels(4)]);
        assert_eq!(tensors(&images, 4).len(), whole + 2);
        // What was asked for is refused by name where it cannot be.
        images.search.images = Choice::OneOf(vec![Images::Split]);
        let found = tensors(&images, 4);
        let is_split = |own: &Tensor| own.parts() == 1 || own.images == Images::Split;
        assert!(found.iter().all(is_split) && found.iter().any(|own| !own.can_lie()));
    }

    /// Grids that fit on fewer devices are tried on more, and those that fit into one node where
    /// another node is short.
    #[test]
    fn one_device_more_takes_no_grid_away() {
        let forms: [fn(Program) -> Program; 3] =
            [|program| program, with_images, |program| with_heads(program, 9)];
        for form in forms {
            let grids = |devices: usize| -> BTreeSet<(u32, u32)> {
                let program = form(sample::program(devices, 8));
                let all = tensors(&program, devices as u64).into_iter();
                all.map(|tensor| (tensor.rows, tensor.columns)).collect()
            };
            assert!((1..20).all(|devices| grids(devices).is_subset(&grids(devices + 1))));
            assert!(grids(5).contains(&(4, 1)) && !grids(3).contains(&(4, 1)));
        }
        let mut program = sample::program(23, 8);
        let whole = program.target.domains[0].clone();
        program.target.domains = [0..8, 8..16, 16..23, 0..23]
            .map(|devices| Domain { devices, ..whole.clone() })
            .to_vec();
        let most = |program: &Program, devices| {
            tensors(program, devices).into_iter().map(|tensor| tensor.rows).max()
        };
        assert_eq!(most(&program, 23), Some(8));
        // A level of one device joins nothing.
        let single = |device| Domain { devices: device..device + 1, ..whole.clone() };
        program.target.domains = (0..8).map(single).collect();
        program.target.domains.push(Domain { devices: 0..8, ..whole.clone() });
        assert_eq!(most(&program, 8), Some(8));
    }

    #[test]
    fn columns_are_tried_from_the_size_on_at_which_they_send_less() {
        let most = |program: &Program, devices| {
            tensors(program, devices).iter().map(|tensor| tensor.columns).max()
        };
        let plain = [2, 4, 8].map(|devices| sample::program(devices, 8));
        let images = plain.clone().map(with_images);
        let [odd, even] =
            [9, 10].map(|heads| plain.clone().map(|own| with_heads(own, heads)));
        let found = |programs: &[Program; 3]| {
            let devices = programs.iter().zip([2, 4, 8]);
            devices.map(|(program, devices)| most(program, devices)).collect::<Vec<_>>()
        };
        assert_eq!(found(&plain), [Some(1), Some(1), Some(8)]);
        assert_eq!(found(&images), [Some(1), Some(4), Some(8)]);
        assert_eq!(found(&odd), [Some(2), Some(4), Some(8)], "rows share out no 9 heads");
        assert_eq!(found(&even), found(&plain));
    }
}
