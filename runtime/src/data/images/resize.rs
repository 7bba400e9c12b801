//! Scaling an image to a size that it covers, and cutting off what stands out.

use super::decode::Image;

/// The pixels of an image at another size: its shorter side, in relation to the size, is scaled to
/// fit and its middle is kept. Bilinear; where the image shrinks the triangle widens with it, so
/// that every pixel of the source counts (as Pillow's `BILINEAR`).
pub(super) fn fitted(image: &Image, [height, width]: [usize; 2]) -> Vec<u8> {
    let from = [image.height, image.width];
    let scale = (height as f64 / from[0] as f64).max(width as f64 / from[1] as f64);
    let across = taps(from[1], width, scale);
    let down = taps(from[0], height, scale);
    // Rows that are cut off are not scaled: a very long image must not take more memory.
    let top = down.first().map_or(0, |tap| tap.first);
    let end = down.last().map_or(0, |tap| tap.first + tap.weights.len());
    let narrow: Vec<f32> = image.pixels[3 * image.width * top..3 * image.width * end]
        .chunks_exact(3 * image.width)
        .flat_map(|row| across.iter().flat_map(move |tap| tap.pixel(row)))
        .collect();
    let line = 3 * width;
    let mut pixels = Vec::with_capacity(height * line);
    for tap in &down {
        pixels.extend((0..line).map(|column| {
            let rows = (tap.first - top..).zip(&tap.weights);
            let sum: f32 = rows.map(|(row, w)| w * narrow[row * line + column]).sum();
            (sum + 0.5).clamp(0.0, 255.0) as u8
        }));
    }
    pixels
}

/// Which pixels of a line one pixel is made of, and their shares, which sum to one.
struct Tap {
    first: usize,
    weights: Vec<f32>,
}

impl Tap {
    /// The pixel of a row of pixels.
    fn pixel(&self, row: &[u8]) -> [f32; 3] {
        let mut sum = [0.0; 3];
        let (pixels, _) = row[3 * self.first..].as_chunks::<3>();
        for (weight, pixel) in self.weights.iter().zip(pixels) {
            for (sum, byte) in sum.iter_mut().zip(pixel) {
                *sum += weight * f32::from(*byte);
            }
        }
        sum
    }
}

/// The taps of `to` pixels in the middle of `from` pixels that are scaled by `scale`.
fn taps(from: usize, to: usize, scale: f64) -> Vec<Tap> {
    let reach = (1.0 / scale).max(1.0);
    let tap = |x: usize| {
        let centre = (x as f64 + 0.5 - to as f64 / 2.0) / scale + from as f64 / 2.0;
        let first = (centre - reach).floor().clamp(0.0, from as f64 - 1.0) as usize;
        let end = ((centre + reach).ceil() as usize).clamp(first + 1, from);
        let weight = |k: usize| 1.0 - ((k as f64 + 0.5 - centre) / reach).abs();
        let weights: Vec<f64> = (first..end).map(|k| weight(k).max(0.0)).collect();
        let sum: f64 = weights.iter().sum();
        let weights = weights.into_iter().map(|weight| (weight / sum) as f32);
        Tap { first, weights: weights.collect() }
    };
    (0..to).map(tap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(height: usize, width: usize, of: impl Fn(usize, usize) -> u8) -> Image {
        let all = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        let pixels = all.flat_map(|(y, x)| [of(y, x); 3]).collect();
        Image { height, width, pixels }
    }

    fn fit(image: &Image, extent: [usize; 2]) -> Vec<u8> {
        let pixels = fitted(image, extent);
        assert_eq!(pixels.len(), 3 * extent[0] * extent[1]);
        pixels.into_iter().step_by(3).collect()
    }

    #[test]
    fn an_image_of_the_size_stays_as_it_is() {
        let image = grey(3, 4, |y, x| (50 * y + 7 * x) as u8);
        assert_eq!(fitted(&image, [3, 4]), image.pixels);
    }

    #[test]
    fn the_middle_of_the_longer_side_is_kept() {
        let image = grey(2, 6, |_, x| [0, 0, 100, 200, 0, 0][x]);
        assert_eq!(fit(&image, [2, 2]), [100, 200, 100, 200]);
        let image = grey(6, 2, |y, _| [0, 0, 100, 200, 0, 0][y]);
        assert_eq!(fit(&image, [2, 2]), [100, 100, 200, 200]);
    }

    #[test]
    fn shrinking_takes_every_pixel_into_account() {
        let image = grey(64, 64, |y, x| if (x + y) % 2 == 0 { 0 } else { 200 });
        let small = fit(&image, [4, 4]);
        assert!(small.iter().all(|byte| (99..=101).contains(byte)), "{small:?}");
    }

    #[test]
    fn enlarging_is_linear_between_centres() {
        let image = grey(1, 2, |_, x| [0, 80][x]);
        assert_eq!(fit(&image, [2, 4])[..4], [0, 20, 60, 80]);
    }

    #[test]
    fn one_pixel_fills_everything() {
        let image = grey(1, 1, |_, _| 77);
        assert_eq!(fit(&image, [3, 5]), [77; 15]);
        let image = grey(1, 1000, |_, _| 9);
        assert_eq!(fit(&image, [7, 3]), [9; 21]);
    }
}
