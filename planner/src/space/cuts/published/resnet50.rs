//! ResNet-50 as the authors of PipeDream measured it: times as they are in their profile, sizes
//! from the shapes, which are those of the profile (128 images of 224 x 224, four bytes a number).

use super::Layer;

/// Forward plus backward in microseconds, in the order of the layers.
const TIMES: [u64; 176] = [
    14257, 6059, 2891, 3702, 2779, 2599, 1660, 7280, 2519, 897, 4799, 5133, 4520, 5109,
    0, 5648, 5308, 1765, 913, 7049, 1784, 907, 4556, 5162, 0, 5647, 5596, 1782, 938,
    7823, 1808, 918, 5835, 5246, 0, 5649, 8093, 2676, 1530, 11084, 960, 629, 3969, 2690,
    9065, 2670, 0, 2905, 3925, 970, 659, 3827, 959, 574, 3790, 2721, 0, 2899, 3714, 939,
    574, 3610, 922, 567, 3800, 2677, 0, 3002, 4881, 932, 582, 3964, 951, 575, 4114, 2678,
    0, 2896, 7482, 1550, 904, 10785, 725, 449, 3876, 1658, 9445, 1676, 0, 1520, 3878,
    754, 442, 3631, 718, 441, 3675, 2318, 0, 1526, 3728, 718, 459, 3427, 712, 422, 3695,
    1631, 0, 1548, 3696, 689, 417, 3545, 683, 424, 3675, 1625, 0, 1525, 3687, 684, 416,
    3419, 689, 443, 3680, 1631, 0, 1535, 4005, 757, 451, 3808, 701, 465, 3962, 1628, 0,
    1548, 7827, 1006, 592, 9525, 533, 359, 4114, 954, 8694, 975, 0, 854, 4913, 526, 370,
    4712, 531, 379, 3751, 965, 0, 854, 5799, 527, 375, 4788, 550, 355, 5192, 962, 0, 702,
    1039, 0, 0, 607,
];

/// Bytes of 64 channels at 56 x 56 pixels.
const UNIT: u64 = 128 * 56 * 56 * 64 * 4;

/// Bytes of the output and of the weights.
type Sizes = (u64, u64);

/// What crosses a cut behind each layer is its output, and what the shortcut still reads.
pub(super) fn layers() -> Vec<Layer> {
    let stem = [(4 * UNIT, 37632), (4 * UNIT, 512), (4 * UNIT, 0), (UNIT, 0)];
    let mut sizes = stem.to_vec();
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        for block in 0..blocks {
            let entry = sizes[sizes.len() - 1].0;
            sizes.extend(bottleneck(1 << stage, block == 0, entry));
        }
    }
    sizes.extend([(1_048_576, 0), (4, 0), (1_048_576, 0), (512_000, 8_196_000)]);
    let times = TIMES.into_iter().zip(sizes);
    times.map(|(time, (crossing, weights))| (time, crossing, weights)).collect()
}

/// A block of 64 · `widening` channels inside; the first one of a stage has a convolution in its
/// shortcut, which strides in all stages but the first.
fn bottleneck(widening: u64, first: bool, entry: u64) -> Vec<Sizes> {
    let (width, inside, result) = (64 * widening, UNIT / widening, 4 * UNIT / widening);
    let strided = first && widening > 1;
    let (before, channels) = match (first, strided) {
        (true, true) => (2 * inside, 2 * width),
        (true, false) => (inside, width),
        (false, _) => (inside, 4 * width),
    };
    let convolution =
        |output, taps| [(output, taps * 4), (output, 8 * width), (output, 0)];
    let mut sizes = convolution(before, channels * width).to_vec();
    sizes.extend(convolution(inside, 9 * width * width));
    sizes.extend([(result, 16 * width * width), (result, 32 * width)]);
    for (output, _) in &mut sizes {
        *output += entry;
    }
    if first {
        let main = result;
        sizes.extend([
            (main + result, 16 * channels * width),
            (main + result, 32 * width),
        ]);
    }
    sizes.extend([(result, 0), (result, 0)]);
    sizes
}

#[test]
fn the_weights_are_those_of_the_model() {
    let bytes = layers().iter().map(|layer| layer.2).sum::<u64>();
    assert_eq!(bytes, 4 * 25_557_032);
}
