//! One figure on its background: what is drawn where, in which colour. Colours are from about
//! −2 to 2.

use super::figure::Class;
use crate::data::pictures::Colour;
use roundelay_kernels::random::Stream;

/// The radius of a figure, as shares of the canvas.
const RADIUS: (f32, f32) = (0.27, 0.42);

/// The least width of an outline in pixels of a canvas of 32, and as a share of the radius.
const STROKE: (f32, f32) = (1.75 / 32.0, 0.14);

/// The largest turn to either side, in radians.
const TURN: f32 = 0.5;

/// The background's middle, in every channel.
const BACKGROUND: (f32, f32) = (-0.9, 0.3);

/// How much lighter a figure is, in every channel.
const CONTRAST: (f32, f32) = (0.5, 1.4);

/// The largest change of the background from its middle to its edge.
const SHADE: f32 = 0.3;

/// The largest noise, up or down.
const NOISE: f32 = 0.2;

/// A canvas; every number of it is a function of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Canvas {
    size: u64,
    chance: Stream,
    class: Class,
    /// Of the figure, in pixels.
    centre: [f32; 2],
    radius: f32,
    /// Width of an outline as a share of the radius.
    stroke: f32,
    /// Cosine and sine of the figure's turn.
    turn: [f32; 2],
    colour: Colour,
    background: Colour,
    /// By how much the background changes from the middle to the right edge and to the lower one.
    slopes: [Colour; 2],
    noise: f32,
}

/// Indices of a stream; each decision has its own.
mod place {
    pub(super) const RADIUS: u64 = 1;
    pub(super) const CENTRE: u64 = 2;
    pub(super) const TURN: u64 = 4;
    pub(super) const NOISE: u64 = 5;
    pub(super) const CONTRAST: u64 = 8;
    pub(super) const BACKGROUND: u64 = 11;
    pub(super) const SLOPES: u64 = 14;
    pub(super) const PIXELS: u64 = 32;
}

/// A number of a stream between two others.
fn between(chance: &Stream, index: u64, (least, most): (f32, f32)) -> f32 {
    least + (most - least) * chance.uniform(index) as f32
}

/// Three numbers of a stream between two others.
fn colour(chance: &Stream, index: u64, range: (f32, f32)) -> Colour {
    [0, 1, 2].map(|channel| between(chance, index + channel, range))
}

impl Canvas {
    /// The canvas of a class and a stream.
    pub(super) fn drawn(class: Class, size: u64, chance: Stream) -> Self {
        let extent = size as f32;
        let radius = extent * between(&chance, place::RADIUS, RADIUS);
        let within = (radius, extent - radius);
        let angle = between(&chance, place::TURN, (-TURN, TURN));
        let background = colour(&chance, place::BACKGROUND, BACKGROUND);
        let contrast = colour(&chance, place::CONTRAST, CONTRAST);
        let slope = |k| colour(&chance, place::SLOPES + k, (-SHADE, SHADE));
        Self {
            size,
            chance,
            class,
            centre: [0, 1].map(|k| between(&chance, place::CENTRE + k, within)),
            radius,
            stroke: (STROKE.0 * extent / radius).max(STROKE.1),
            turn: [libm::cosf(angle), libm::sinf(angle)],
            colour: std::array::from_fn(|k| background[k] + contrast[k]),
            background,
            slopes: [slope(0), slope(3)],
            noise: between(&chance, place::NOISE, (0.0, NOISE)),
        }
    }

    /// The colour at a row and a column.
    pub(super) fn pixel(&self, y: usize, x: usize) -> Colour {
        let place = y as u64 * self.size + x as u64;
        let bits = self.chance.bits(place::PIXELS + place);
        let middle = [x, y].map(|k| k as f32 + 0.5);
        let share = self.coverage(middle);
        let [right, down] = middle.map(|k| 2.0 * k / self.size as f32 - 1.0);
        std::array::from_fn(|channel| {
            let [across, along] = self.slopes.map(|slope| slope[channel]);
            let behind = self.background[channel] + across * right + along * down;
            // 21 bits of the 64 for each channel.
            let grain = (bits >> (21 * channel) & 0x1f_ffff) as f32 / (1 << 20) as f32;
            behind + share * (self.colour[channel] - behind) + self.noise * (grain - 1.0)
        })
    }

    /// The share of a pixel that the figure covers, taken as its edge were straight there.
    fn coverage(&self, [x, y]: [f32; 2]) -> f32 {
        let [x, y] =
            [(x - self.centre[0]) / self.radius, (y - self.centre[1]) / self.radius];
        let [cosine, sine] = self.turn;
        let (figure, style) = self.class;
        let to_edge = figure.distance(cosine * x + sine * y, cosine * y - sine * x);
        (0.5 - self.radius * style.distance(to_edge, self.stroke)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::shapes::figure::{Figure, Style};

    #[test]
    fn a_circle_is_drawn_where_its_stream_says_and_smoothly() {
        let chance = Stream::new(4, &[]);
        let quiet = Canvas {
            noise: 0.0,
            slopes: [[0.0; 3]; 2],
            ..Canvas::drawn((Figure::Circle, Style::Filled), 64, chance)
        };
        let far = |x: f32, y: f32| {
            ((x - quiet.centre[0]).powi(2) + (y - quiet.centre[1]).powi(2)).sqrt()
        };
        let mut edge = 0;
        for (y, x) in (0..64).flat_map(|y| (0..64).map(move |x| (y, x))) {
            let pixel = quiet.pixel(y, x);
            let distance = far(x as f32 + 0.5, y as f32 + 0.5);
            let is_near = |wanted: [f32; 3]| {
                pixel.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5)
            };
            match distance - quiet.radius {
                d if d < -0.51 => assert!(is_near(quiet.colour), "{y} {x}"),
                d if d > 0.51 => assert!(is_near(quiet.background), "{y} {x}"),
                _ => edge += 1,
            }
        }
        let around = std::f32::consts::TAU * quiet.radius;
        assert!((edge as f32 / around - 1.0).abs() < 0.2, "{edge} pixels of {around}");
    }
}
