//! Collectives among the parts of a line, each against the adjoint that its kind declares, with parts
//! of equal and of unequal length.

use crate::common::{Build, call, sample::Draw};
use roundelay_kernels::{Exchange, Kernel};
use roundelay_schedule::Element;

const ROWS: usize = 3;

/// One of the collectives of `whole` columns, `inner` of which stay together.
fn exchange(name: &str, parts: usize, whole: usize, inner: usize) -> Exchange {
    let each = (whole / inner).div_ceil(parts) * inner;
    let shape = |columns: usize| [ROWS as u64, columns as u64];
    let [from, to] = match name {
        "all_reduce" => [whole, whole],
        "all_gather" => [each, whole],
        _ => [whole, each],
    };
    let call = call(name).integer("parts", parts as i64);
    let call =
        if name == "all_reduce" { call } else { call.integer("inner", inner as i64) };
    let call = call.reals(&[&shape(from), &shape(to)]);
    let kernel = Kernel::parse(&call).unwrap_or_else(|wrong| panic!("{wrong}"));
    kernel.exchange().expect("it is one")
}

/// What every part has of a matrix: all of it, or its own columns, behind the last of which is nothing.
fn random(draw: &mut Draw, exchange: &Exchange, is_whole: bool) -> Vec<Vec<f64>> {
    let (own, whole) = (exchange.columns(), exchange.whole);
    let one = |part: usize| {
        let mut numbers: Vec<f64> =
            draw.normals(ROWS * if is_whole { whole } else { own });
        if !is_whole {
            for row in numbers.chunks_mut(own) {
                let exists = own.min(whole.saturating_sub(part * own));
                row[exists..].fill(0.0);
            }
        }
        numbers
    };
    (0..exchange.line.parts as usize).map(one).collect()
}

fn all(exchange: &Exchange, brought: &[Vec<f64>], columns: usize) -> Vec<Vec<f64>> {
    let brought: Vec<&[f64]> = brought.iter().map(Vec::as_slice).collect();
    let one = |part| {
        let mut out = vec![f64::NAN; ROWS * columns];
        exchange.join(&brought, part, &mut out);
        out
    };
    (0..brought.len()).map(one).collect()
}

fn product(one: &[Vec<f64>], other: &[Vec<f64>]) -> f64 {
    let both = one.iter().flatten().zip(other.iter().flatten());
    both.map(|(one, other)| one * other).sum()
}

/// ⟨F x, y⟩ = ⟨x, F* y⟩, and with no other F*.
#[test]
fn collectives_have_the_adjoints_that_they_declare_and_no_others() {
    let draw = &mut Draw::new(7);
    for name in ["all_reduce", "all_gather", "reduce_scatter"] {
        for parts in 2..=8 {
            for (whole, inner) in [(8 * 9 * 5 * 7, 1), (19, 1), (22, 2), (parts - 1, 1)] {
                let exchange = exchange(name, parts, whole, inner);
                let (x_is_whole, y_is_whole) =
                    (name != "all_gather", name != "reduce_scatter");
                let x = random(draw, &exchange, x_is_whole);
                let y = random(draw, &exchange, y_is_whole);
                let [from, to] =
                    [&x, &y].map(|held| held.first().map_or(0, |own| own.len() / ROWS));
                let ahead = all(&exchange, &x, to);
                let back = all(&exchange.adjoint(), &y, from);
                let norm = |one: &[Vec<f64>]| product(one, one).sqrt();
                let size = (norm(&ahead) * norm(&y)).max(norm(&x) * norm(&back));
                let error = |scale: f64| {
                    (product(&ahead, &y) - scale * product(&x, &back)).abs() / size
                };
                assert!(error(1.0) < 1e-14, "{exchange:?}: {}", error(1.0));
                assert!(error(1.001) > 1e-9, "{exchange:?}: {}", error(1.001));
                assert_eq!(exchange.adjoint().adjoint(), exchange);
            }
        }
    }
}

/// A machine moves what devices bring, so nothing is converted on the way.
#[test]
fn exchanges_refuse_a_result_in_another_element() {
    for (name, to) in [("all_reduce", 8), ("all_gather", 16), ("reduce_scatter", 4)] {
        let call = call(name).integer("parts", 2).reals(&[&[3, 8], &[3, to]]);
        assert!(Kernel::parse(&call).is_ok(), "{name}");
        let mut wide = call;
        wide.operands[1].element = Element::Wide;
        let refused = Kernel::parse(&wide)
            .map_or_else(|wrong| wrong.to_string(), |_| String::new());
        assert!(refused.contains("as wide as those of its result"), "{name}: {refused}");
    }
}
