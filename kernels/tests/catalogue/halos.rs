//! Halos of images whose rows several parts divide: windows over them make the rows that they make
//! over the whole image, the way back is the adjoint, and what parts send is counted row by row.

use crate::common::{Array, Body, Build, CONTEXT, call, run, sample::Draw};
use roundelay_kernels::{Exchange, Kernel};
use roundelay_schedule::{Bytes, Call, Exchanging, Float};

const IMAGES: usize = 2;
const WIDTH: usize = 5;
const CHANNELS: usize = 3;

/// A window that moves over images of this many rows.
#[derive(Clone, Copy, Debug)]
struct Window {
    height: usize,
    parts: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Window {
    fn outputs(self) -> usize {
        (self.height + 2 * self.padding - self.kernel) / self.stride + 1
    }
    fn columns(self) -> usize {
        (WIDTH + 2 * self.padding - self.kernel) / self.stride + 1
    }
    /// Rows that a part has, makes and reads.
    fn own(self) -> [usize; 3] {
        let made = self.outputs() / self.parts;
        [self.height / self.parts, made, (made - 1) * self.stride + self.kernel]
    }
    fn own_shape(self) -> [u64; 4] {
        [IMAGES, self.own()[0], WIDTH, CHANNELS].map(|extent| extent as u64)
    }
    fn got_shape(self) -> [u64; 4] {
        let width = WIDTH + 2 * self.padding;
        [IMAGES, self.own()[2], width, CHANNELS].map(|extent| extent as u64)
    }
    fn with(self, call: Call) -> Call {
        let call = call.integer("parts", self.parts as i64);
        let call = call.integer("before", self.padding as i64);
        let call = call.integer("step", (self.own()[1] * self.stride) as i64);
        call.integer("side", self.padding as i64)
    }
    fn forward(self) -> Exchange {
        exchange(self.with(call("halo")).reals(&[&self.own_shape(), &self.got_shape()]))
    }
    fn back(self) -> Exchange {
        let call = self.with(call("halo_add"));
        let back = exchange(call.reals(&[&self.got_shape(), &self.own_shape()]));
        assert_eq!(back, self.forward().adjoint(), "it is what is declared");
        back
    }
    /// What an exchange makes for every part.
    fn all(
        self,
        exchange: Exchange,
        brought: &[Vec<f64>],
        shape: [u64; 4],
    ) -> Vec<Vec<f64>> {
        let brought: Vec<&[f64]> = brought.iter().map(Vec::as_slice).collect();
        let one = |part| {
            let mut out = vec![f64::NAN; length(shape)];
            exchange.join(&brought, part, &mut out);
            out
        };
        (0..self.parts).map(one).collect()
    }
}

fn exchange(call: Call) -> Exchange {
    let kernel = Kernel::parse(&call).unwrap_or_else(|wrong| panic!("{wrong}"));
    kernel.exchange().expect("it is one")
}

fn length(shape: [u64; 4]) -> usize {
    shape.iter().product::<u64>() as usize
}

/// Kernels of one, two, three and five rows; halos of two neighbours, of unequal and of
/// negative size; rows that nobody reads.
fn windows() -> Vec<Window> {
    let mut all = Vec::new();
    for height in [4, 6, 8, 12, 16, 20] {
        for parts in [1, 2, 3, 4] {
            for kernel in [1, 2, 3, 5] {
                for (stride, padding) in [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (1, 2)]
                {
                    let own = Window { height, parts, kernel, stride, padding };
                    let fits = height + 2 * padding >= kernel && padding < kernel;
                    let made = if fits { own.outputs() } else { 1 };
                    if fits && height % parts == 0 && made.is_multiple_of(parts) {
                        all.push(own);
                    }
                }
            }
        }
    }
    assert!(all.len() > 80, "{}", all.len());
    all
}

/// The rows of a part of images of this many rows.
fn part_of(whole: &[f64], height: usize, parts: usize, part: usize) -> Vec<f64> {
    let image = whole.len() / IMAGES;
    let own = image / height * (height / parts);
    let images = whole.chunks(image);
    images.flat_map(|image| image[part * own..(part + 1) * own].to_vec()).collect()
}

#[test]
fn windows_over_halos_make_what_they_make_over_whole_images() {
    for (seed, window) in (0..).zip(windows()) {
        let Window { height, parts, kernel, stride, padding } = window;
        let draw = &mut Draw::new(seed);
        let x: Vec<f64> = draw.normals(IMAGES * height * WIDTH * CHANNELS);
        let weight: Vec<f64> = draw.normals(4 * kernel * kernel * CHANNELS);
        if window.columns() == 0 || WIDTH + 2 * padding < kernel {
            continue;
        }
        let made = |x: &[f64], shape: [u64; 4], rows: usize, padding: usize| {
            let y = [IMAGES, rows, window.columns(), 4].map(|extent| extent as u64);
            let filters = [4, kernel, kernel, CHANNELS].map(|extent| extent as u64);
            let call = call("conv2d").integer("stride", stride as i64);
            let call = call.integer("padding", padding as i64).integer("groups", 1);
            let mut arrays =
                [x.to_vec(), weight.clone(), vec![f64::NAN; length(y)]].map(Array::Real);
            run(&call.reals(&[&shape, &filters, &y]), &mut arrays, Body::Plain, &CONTEXT);
            arrays[2].values().to_vec()
        };
        let shape = [IMAGES, height, WIDTH, CHANNELS].map(|extent| extent as u64);
        let expected = made(&x, shape, window.outputs(), padding);
        let own: Vec<Vec<f64>> =
            (0..parts).map(|part| part_of(&x, height, parts, part)).collect();
        let got = window.all(window.forward(), &own, window.got_shape());
        for (part, got) in got.iter().enumerate() {
            let found = made(got, window.got_shape(), window.own()[1], 0);
            let expected = part_of(&expected, window.outputs(), parts, part);
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
            assert!(found.iter().zip(&expected).all(near), "{window:?} {part}");
        }
    }
}

/// ⟨F x, y⟩ = ⟨x, F* y⟩, and with no other F*.
#[test]
fn the_way_back_is_the_adjoint_and_no_other() {
    for (seed, window) in (100..).zip(windows()) {
        let draw = &mut Draw::new(seed);
        let mut random = |shape| -> Vec<Vec<f64>> {
            (0..window.parts).map(|_| draw.normals(length(shape))).collect()
        };
        let (x, y) = (random(window.own_shape()), random(window.got_shape()));
        let ahead = window.all(window.forward(), &x, window.got_shape());
        let back = window.all(window.back(), &y, window.own_shape());
        let product = |one: &[Vec<f64>], other: &[Vec<f64>]| -> f64 {
            let both = one.iter().flatten().zip(other.iter().flatten());
            both.map(|(one, other)| one * other).sum()
        };
        let norm = |one: &[Vec<f64>]| product(one, one).sqrt();
        let error = |scale: f64| {
            let difference = product(&ahead, &y) - scale * product(&x, &back);
            let size = (norm(&ahead) * norm(&y)).max(norm(&x) * norm(&back));
            difference.abs() / size
        };
        assert!(error(1.0) < 1e-14, "{window:?}: {}", error(1.0));
        assert!(error(1.001) > 1e-9, "{window:?}: {}", error(1.001));
    }
}

/// Every row that a window reads of another part is sent once, and no other.
#[test]
fn parts_send_the_rows_that_others_read() {
    for window in windows() {
        let Window { height, parts, stride, padding, .. } = window;
        let [own, made, read] = window.own();
        let mut ahead = vec![0; parts];
        let mut back = vec![0; parts];
        for (part, back) in back.iter_mut().enumerate() {
            for row in (0..read).map(|row| (part * made * stride + row) as i64) {
                let at = row - padding as i64;
                let Ok(at) = usize::try_from(at) else { continue };
                if at < height && at / own != part {
                    ahead[at / own] += 1;
                    *back += 1;
                }
            }
        }
        let row = IMAGES * WIDTH * CHANNELS * 4;
        for (exchange, rows) in [(window.forward(), ahead), (window.back(), back)] {
            let sent = |part| exchange.sent_by(part, Float::F32).0 as usize;
            let found: Vec<usize> = (0..parts).map(sent).collect();
            assert_eq!(found, rows.iter().map(|rows| rows * row).collect::<Vec<_>>());
            let exchanged = exchange.exchanged(Float::F32);
            let most = rows.iter().max().map_or(0, |most| most * row) as u64;
            let all = (rows.iter().sum::<usize>() * row) as u64;
            assert!(matches!(exchanged.kind, Exchanging::Strips(_)));
            assert_eq!(
                (exchanged.sent(), exchanged.sent_by_all()),
                (Bytes(most), Bytes(all))
            );
        }
    }
}

/// Around images stands zero, or what is never the greatest.
#[test]
fn padding_is_what_the_call_says() {
    for (lowest, expected) in [(false, 0.0), (true, f64::NEG_INFINITY)] {
        let shapes: [&[u64]; 2] = [&[1, 1, 1, 1], &[1, 3, 3, 1]];
        let call = call("halo").integer("parts", 1).integer("before", 1);
        let call = call.integer("step", 1).integer("side", 1).flag("lowest", lowest);
        let mut out = [f64::NAN; 9];
        exchange(call.reals(&shapes)).join(&[&[7.0]], 0, &mut out);
        let mut around = [expected; 9];
        around[4] = 7.0;
        assert_eq!(out, around);
    }
}
