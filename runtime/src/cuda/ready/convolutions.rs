//! Convolutions and their gradients as graphs of cuDNN, of one operation each.
//!
//! Images and results lie pixel by pixel with their channels side by side, and filters, which are
//! (filters, kernel height, kernel width, channels), in the same way.

use super::{
    cudnn::{
        Done,
        engine::{Graph, Target},
        graph::{Draft, Layout, Window, data},
    },
    products::WORKSPACE,
};
use roundelay_kernels::{
    Store,
    cuda::{Array, Convolution, Convolved, Operand},
};
use roundelay_schedule::{Access, Bytes};

/// Images, filters and results.
pub(super) fn arrays(of: &Convolution) -> [Operand; 3] {
    let images = |[height, width]: [usize; 2], channels: usize| {
        [of.batch, height, width, channels].into_iter().product::<usize>()
    };
    let weights = of.filters * of.kernel[0] * of.kernel[1] * (of.channels / of.groups);
    let made = of.store.access();
    let array = |array: Array, elements: usize, pass: Convolved| {
        let access = if of.pass == pass { made } else { Access::Read };
        Operand { array, elements, access }
    };
    [
        array(of.x, images(of.input, of.channels), Convolved::Images),
        array(of.weight, weights, Convolved::Filters),
        array(of.y, images(of.output, of.filters), Convolved::Results),
    ]
}

/// The most memory that an engine may take beside the arrays: as a product, or half of what these
/// take. Of images with few channels engines make copies with eight, because their loads are of 16
/// bytes, and have hardly another way to use tensor cores.
pub(super) fn workspace(of: &Convolution) -> Bytes {
    let size = |of: &Operand| (of.elements * of.array.number.size()) as u64;
    WORKSPACE.max(Bytes(arrays(of).iter().map(size).sum::<u64>() / 2))
}

/// A convolution, of images, filters and results.
///
/// # Errors
/// When no engine of the library makes it.
pub(super) fn graph(of: &Convolution, target: Target<'_>) -> Done<Graph> {
    let mut draft = Draft::default();
    let both = |extents: [usize; 2]| extents.map(|extent| extent as i64);
    let [batch, channels, filters, groups] =
        [of.batch, of.channels, of.filters, of.groups].map(|extent| extent as i64);
    let images = Layout::of_images(batch, channels, both(of.input));
    let kernels = Layout::of_images(filters, channels / groups, both(of.kernel));
    let results = Layout::of_images(batch, filters, both(of.output));
    let x = draft.given(data(of.x.number)?, images)?;
    let weight = draft.given(data(of.weight.number)?, kernels)?;
    let y = draft.given(data(of.y.number)?, results)?;
    let [padding, stride] = both([of.padding, of.stride]);
    let kept = match of.store {
        Store::Write => 0.0,
        Store::Add => 1.0,
    };
    draft.convolution(of.pass, Window { padding, stride }, [x, weight, y], kept)?;
    Graph::new(draft, (of.x.number, workspace(of)), target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::ready::cudnn::engine::described;
    use roundelay_kernels::cuda::{CallPlace, Number};

    /// A convolution of square images, filters and windows.
    fn convolution(
        pass: Convolved,
        [batch, size, channels, filters]: [usize; 4],
        [kernel, stride, padding, groups]: [usize; 4],
    ) -> Convolution {
        let number = Number::Bf16;
        let array = Array { place: CallPlace::Operand(0, Bytes(0)), number };
        Convolution {
            pass,
            batch,
            input: [size; 2],
            output: [(size + 2 * padding - kernel) / stride + 1; 2],
            kernel: [kernel; 2],
            channels,
            filters,
            groups,
            stride,
            padding,
            x: array,
            weight: array,
            y: array,
            store: Store::Write,
            own: Vec::new(),
        }
    }

    /// Those of a residual network of 50 layers that are no matrix products, and one of groups: each has an
    /// engine within the workspace, whether its result is written or added. The first one, on three
    /// channels, has several, and its images have no gradient.
    #[test]
    fn the_library_has_plans_for_convolutions() {
        let Some(device) = described::h200() else { return };
        let target = Target::Described(&device);
        for (images, window) in [
            ([256, 224, 3, 64], [7, 2, 3, 1]),
            ([256, 56, 64, 64], [3, 1, 1, 1]),
            ([256, 56, 128, 128], [3, 2, 1, 1]),
            ([256, 28, 128, 128], [3, 1, 1, 1]),
            ([256, 7, 512, 512], [3, 1, 1, 1]),
            ([256, 56, 256, 512], [1, 2, 0, 1]),
            ([32, 28, 128, 128], [3, 1, 1, 32]),
        ] {
            let is_first = images[2] == 3;
            let passes = [Convolved::Results, Convolved::Filters, Convolved::Images];
            for pass in passes.into_iter().take(if is_first { 2 } else { 3 }) {
                for store in [Store::Write, Store::Add] {
                    let of = Convolution { store, ..convolution(pass, images, window) };
                    let found = graph(&of, target);
                    let found = found.unwrap_or_else(|why| panic!("of {of:?} it {why}"));
                    let engines = 0..found.configurations().len();
                    let planned =
                        engines.filter(|engine| found.plan(*engine, target).is_ok());
                    let least = if is_first { 5 } else { 1 };
                    assert!(planned.count() >= least, "of {of:?} engines take too much");
                }
            }
        }
    }

    #[test]
    fn large_images_leave_their_engines_more_memory() {
        let of =
            |images| workspace(&convolution(Convolved::Results, images, [7, 2, 3, 1]));
        let [x, weight, y] = [256 * 224 * 224 * 3, 64 * 7 * 7 * 3, 256 * 112 * 112 * 64];
        assert_eq!(of([256, 224, 3, 64]), Bytes(x + weight + y), "2 bytes each, halved");
        assert!(
            of([256, 224, 3, 64]) > Bytes(2 * x / 3 * 8),
            "a copy with eight channels"
        );
        assert_eq!(of([2, 56, 64, 64]), WORKSPACE);
    }
}
