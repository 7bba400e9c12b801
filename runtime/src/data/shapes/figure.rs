//! The figures, as distances to their edges: below zero inside, in units of the figure's radius.

/// A class: what is drawn, and how.
pub(super) type Class = (Figure, Style);

/// Which figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// A triangle with equal sides.
    Triangle,
    /// Two bars across each other.
    Cross,
    /// Two triangles that make six points.
    Star,
    /// Half of a circle.
    Half,
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Style {
    /// Within its edge.
    Filled,
    /// Along its edge.
    Outlined,
}

/// What each class is; a source of fewer classes takes the first ones.
pub(super) const CLASSES: [Class; 12] = [
    (Figure::Circle, Style::Filled),
    (Figure::Square, Style::Filled),
    (Figure::Triangle, Style::Filled),
    (Figure::Cross, Style::Filled),
    (Figure::Star, Style::Filled),
    (Figure::Circle, Style::Outlined),
    (Figure::Square, Style::Outlined),
    (Figure::Triangle, Style::Outlined),
    (Figure::Cross, Style::Outlined),
    (Figure::Star, Style::Outlined),
    (Figure::Half, Style::Filled),
    (Figure::Half, Style::Outlined),
];

/// Half of a bar's width.
const BAR: f32 = 0.33;

impl Figure {
    /// Distance of a point to the edge, exact along straight edges; the figure lies within the
    /// circle of radius one.
    pub(super) fn distance(self, x: f32, y: f32) -> f32 {
        match self {
            Figure::Circle => (x * x + y * y).sqrt() - 1.0,
            Figure::Square => x.abs().max(y.abs()) - std::f32::consts::FRAC_1_SQRT_2,
            Figure::Triangle => triangle(x, y),
            Figure::Cross => {
                let (x, y) = (x.abs(), y.abs());
                let bar = |along: f32, across: f32| (along - 0.94).max(across - BAR);
                bar(x, y).min(bar(y, x))
            }
            Figure::Star => triangle(x, y).min(triangle(x, -y)),
            Figure::Half => ((x * x + y * y).sqrt() - 1.0).max(y),
        }
    }
}

/// Distance to a triangle with its corners on the circle of radius one, one of them on top.
fn triangle(x: f32, y: f32) -> f32 {
    const SLOPE: f32 = 0.866_025_4; // √3 / 2
    (SLOPE * x.abs() + 0.5 * y).max(-y) - 0.5
}

impl Style {
    /// Distance to the edge of what is drawn; an outline of width `stroke` lies within the figure.
    pub(super) fn distance(self, to_edge: f32, stroke: f32) -> f32 {
        match self {
            Style::Filled => to_edge,
            Style::Outlined => to_edge.max(-to_edge - stroke),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ALL: [Figure; 6] = [
        Figure::Circle,
        Figure::Square,
        Figure::Triangle,
        Figure::Cross,
        Figure::Star,
        Figure::Half,
    ];

    /// Share of the square around the unit circle that is drawn, from points on a grid.
    fn area(figure: Figure, style: Style, stroke: f32) -> f64 {
        let at = |k: i32| (k as f32 + 0.5) / 200.0;
        let points = (-200..200).flat_map(|y| (-200..200).map(move |x| (at(x), at(y))));
        let inside =
            points.filter(|(x, y)| style.distance(figure.distance(*x, *y), stroke) < 0.0);
        inside.count() as f64 / 40_000.0
    }

    #[test]
    fn areas_are_those_of_geometry() {
        let root = 3f64.sqrt();
        let bar = f64::from(BAR);
        let expected = [
            std::f64::consts::PI,
            2.0,
            0.75 * root,
            4.0 * bar * (2.0 * 0.94 - bar),
            root,
            std::f64::consts::FRAC_PI_2,
        ];
        for (figure, expected) in ALL.into_iter().zip(expected) {
            let found = area(figure, Style::Filled, 0.1);
            assert!(
                (found / expected - 1.0).abs() < 0.01,
                "{figure:?}: {found} {expected}"
            );
        }
    }

    #[test]
    fn figures_stay_within_their_radius() {
        for figure in ALL {
            for k in 0..360 {
                let (y, x) = (k as f32).to_radians().sin_cos();
                let outside = figure.distance(1.01 * x, 1.01 * y);
                assert!(outside > 0.0, "{figure:?} at {k}: {outside}");
            }
        }
    }

    #[test]
    fn an_outline_is_the_figure_without_its_middle() {
        for figure in ALL {
            let [filled, outlined] =
                [Style::Filled, Style::Outlined].map(|style| area(figure, style, 0.12));
            assert!((0.2..0.85).contains(&(outlined / filled)), "{figure:?}");
            assert_eq!(area(figure, Style::Outlined, 2.0), filled);
        }
    }

    #[test]
    fn every_class_is_another() {
        assert_eq!(BTreeSet::from(CLASSES).len(), CLASSES.len());
    }
}
