//! Convolutions and their gradients as graphs of cuDNN, of one operation each.
//!
//! Images and results lie pixel by pixel with their channels side by side, and filters, which are
//! (filters, kernel height, kernel width, channels), in the same way.

use super::cudnn::{
    Done,
    engine::{Graph, Target},
    graph::{Draft, Layout, Window, data},
};
use roundelay_kernels::cuda::{Accumulation, Convolution};

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
    let kept = match of.accumulation {
        Accumulation::Replace => 0.0,
        Accumulation::Add => 1.0,
    };
    draft.convolution(of.pass, Window { padding, stride }, [x, weight, y], kept)?;
    Graph::new(draft, of.x.number, target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::cudnn::engine::described;
    use roundelay_kernels::cuda::{Array, CallPlace, Convolved, Number};
    use roundelay_schedule::Bytes;

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
            accumulation: Accumulation::Replace,
            own: Vec::new(),
        }
    }

    /// Those of a residual network of 50 layers that are no matrix products, and one of groups: each has an
    /// engine that takes no more than the workspace, whether its result is written or added. Gradients of
    /// the first one, on three channels, are not asked for: nearly all of their engines take more.
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
            let gradients = [Convolved::Images, Convolved::Filters];
            let gradients = gradients.into_iter().filter(|_| !is_first);
            for pass in [Convolved::Results].into_iter().chain(gradients) {
                for accumulation in [Accumulation::Replace, Accumulation::Add] {
                    let of =
                        Convolution { accumulation, ..convolution(pass, images, window) };
                    let found = graph(&of, target);
                    let found = found.unwrap_or_else(|why| panic!("of {of:?} it {why}"));
                    let mut engines = 0..found.configurations().len();
                    let has_plan =
                        engines.any(|engine| found.plan(engine, target).is_ok());
                    assert!(has_plan, "of {of:?} no engine takes little memory");
                }
            }
        }
    }
}
