//! Every law on random arrays: both sides are the same on every part of every grid; and laws that
//! are almost right are found out.

use super::{
    arrays::{Machine, SUM},
    region::Grid,
    rules::{Fits, LAWS, Law, MAP, MOVES, On, all},
};
use egg::{Id, PatternAst, SymbolLang};
use roundelay_schedule::{Contraction, MapWay, Tensor};
use std::collections::BTreeMap;

/// Whether a law holds on a grid, with names for its directions and extents.
fn holds(law: &Law, tensor: Tensor, names: &[(&str, &str)]) -> bool {
    let [left, right] = law.sides(grid(tensor));
    let names = names.iter().copied().collect();
    let mut machine = Machine { tensor, names, arrays: BTreeMap::new() };
    machine.fill(&left);
    let root = |ast: &PatternAst<SymbolLang>| Id::from(ast.as_ref().len() - 1);
    let [one, other] = [&left, &right].map(|side| machine.value(side, root(side)));
    one.iter().zip(&other).all(|(one, other)| one.is_near(other))
}

fn grid(tensor: Tensor) -> Grid {
    let (rows, columns) = (tensor.rows.into(), tensor.columns.into());
    Grid { rows, columns, contraction: tensor.contraction }
}

/// The names under which a law is tried.
fn namings(law: &Law, tensor: Tensor) -> Vec<Vec<(&'static str, &'static str)>> {
    let directions = match tensor {
        Tensor { columns: 1, .. } => vec!["r"],
        Tensor { rows: 1, .. } => vec!["c"],
        _ => vec!["r", "c"],
    };
    let mut all = Vec::new();
    for direction in directions {
        let extents: &[(&str, &str)] = match law.fits {
            Fits::OtherExtent => &[("e2", "e1")],
            Fits::All if law.left.contains("?d") => &[("e1", "e1"), ("e2", "e2")],
            _ => &[("e2", "e2")],
        };
        let operations: &[&str] = match law.fits {
            Fits::Way(_) => &["o0", "o1"],
            Fits::Groups => &["o0", "o1", "o2", "o3", "o4"],
            Fits::Joins | Fits::JoinsOfParts => &[SUM],
            _ => &["o0"],
        };
        for (e, f) in extents {
            all.extend(operations.iter().map(|own| named(own, direction, [*e, *f])));
        }
    }
    all
}

fn named(
    operation: &'static str,
    direction: &'static str,
    [e, f]: [&'static str; 2],
) -> Vec<(&'static str, &'static str)> {
    let crossing = if direction == "r" { "c" } else { "r" };
    let places = [("?d", direction), ("?t", crossing), ("?e", e), ("?f", f)];
    let operations = [("?o", operation), ("?m", "o1"), ("?n", "o2")];
    operations.into_iter().chain(places).collect()
}

fn grids() -> Vec<Tensor> {
    let each = |rows, columns| {
        let contraction =
            if columns == 1 { Contraction::Alternate } else { Contraction::Each };
        Tensor { contraction, ..Tensor::grid(rows, columns) }
    };
    let turns = [Tensor::grid(2, 2), Tensor::grid(1, 2)];
    let ways = [(2, 1), (3, 1), (1, 2), (1, 4), (2, 2), (3, 2), (2, 4)];
    turns.into_iter().chain(ways.map(|(rows, columns)| each(rows, columns))).collect()
}

#[test]
fn every_law_holds_on_every_grid() {
    for law in all() {
        let mut tried = 0;
        for tensor in grids().into_iter().filter(|own| law.on.is_on(grid(*own))) {
            for names in namings(law, tensor) {
                assert!(
                    holds(law, tensor, &names),
                    "{} on {tensor:?} {names:?}",
                    law.name
                );
                tried += 1;
            }
        }
        assert!(tried >= 2, "{} was tried {tried} times", law.name);
    }
}

#[test]
fn laws_that_are_almost_right_are_found_out() {
    let wrong = [
        (MAP, "(gather r ?e (sum r (split c r ?o (vary r (cut c ?e ?x)))))"),
        (MAP, "(gather c ?e (split w r ?o (vary r ?x)))"),
        ("(norm ?o ?e (gather ?d ?e ?x))", "(gather ?d ?e (norm ?o ?e ?x))"),
        ("(cut ?d ?e (gather ?d ?e ?x))", "(sum ?d ?x)"),
        ("(loss ?o ?e (gather r ?e ?x))", "(loss_own c ?o ?x)"),
        (MAP, "(gather c ?e (cut c ?e (split c w ?o (cut c ?e ?x))))"),
        ("(channels ?o ?e (gather ?d e1 ?x))", "(gather ?d e1 (channels_own ?d ?o ?x))"),
        ("(pool ?o ?e (gather ?d ?e ?x))", "(gather ?d ?e (pool_own ?d ?o ?x))"),
        // What has met is added by every part.
        (
            "(pair o5 (sum ?d (split ?d ?t ?m ?x)) (sum ?d (split ?d ?t ?n ?y)))",
            "(sum ?d (pair o5 (split ?d ?t ?m ?x) (sum ?d (split ?d ?t ?n ?y))))",
        ),
        // What is no sum is none of shares.
        (
            "(pair ?o (sum ?d (split ?d ?t ?m ?x)) (sum ?d (split ?d ?t ?n ?y)))",
            "(sum ?d (pair ?o (split ?d ?t ?m ?x) (split ?d ?t ?n ?y)))",
        ),
    ];
    let tensor = Tensor { contraction: Contraction::Each, ..Tensor::grid(2, 2) };
    for (left, right) in wrong {
        let law = Law { name: "wrong", left, right, fits: Fits::All, on: On::All };
        let names = named("o0", "c", ["e2", "e2"]);
        let outcome = std::panic::catch_unwind(|| holds(&law, tensor, &names));
        assert!(!matches!(outcome, Ok(true)), "{left} is no {right}");
    }
}

/// Names are told apart, and every way has a law.
#[test]
fn laws_have_names_of_their_own() {
    let names: std::collections::BTreeSet<&str> = all().map(|law| law.name).collect();
    assert_eq!(names.len(), LAWS.len() + MOVES.len());
    for way in MapWay::ALL {
        assert!(all().any(|law| law.fits == Fits::Way(*way)), "{way}");
    }
}

/// The table in the documentation has every law, as it is.
#[test]
fn the_documentation_has_all_laws() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tensor.md");
    let text = std::fs::read_to_string(path).expect("it is there");
    for law in all() {
        let row = format!("| `{}` | `{} = {}` |", law.name, law.left, law.right);
        assert!(text.contains(&row), "no row {row}");
    }
}
