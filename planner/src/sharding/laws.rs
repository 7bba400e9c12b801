//! Every law on random arrays: both sides are the same on every part of every grid; and laws that
//! are almost right are found out.

use super::{
    arrays::{Array, Held, Machine, Names, SUM},
    region::Grid,
    rules::{Fits, LAWS, Law, MAP, MOVES, On, all},
    term::{Along, Lettered, Place, Term},
};
use egg::{ENodeOrVar, Id, Language, Pattern, PatternAst};
use roundelay_schedule::{Contraction, MapWay, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a law holds on a grid, with names for its directions and extents.
fn holds(law: &Law, tensor: Tensor, names: &Names) -> bool {
    let [left, right] = law.sides(tensor.idle());
    let mut machine = Machine { tensor, names, arrays: BTreeMap::new() };
    machine.fill(&left);
    let root = |ast: &PatternAst<Term>| Id::from(ast.as_ref().len() - 1);
    let [one, other] = [&left, &right].map(|side| machine.value(side, root(side)));
    one.iter().zip(&other).all(|(one, other)| one.is_near(other))
}

fn grid(tensor: Tensor) -> Grid {
    let (rows, columns) = (tensor.rows.into(), tensor.columns.into());
    let idle = tensor.idle();
    Grid { rows, columns, contraction: tensor.contraction, idle }
}

/// The names under which a law is tried.
fn namings(law: &Law, tensor: Tensor) -> Vec<Names> {
    let directions = match tensor {
        Tensor { columns: 1, .. } => vec![Along::Rows],
        Tensor { rows: 1, .. } => vec![Along::Columns],
        _ => vec![Along::Rows, Along::Columns],
    };
    let mut all = Vec::new();
    for direction in directions {
        let extents: &[[u32; 2]] = match law.fits {
            Fits::OtherExtent => &[[2, 1]],
            Fits::All if law.left.contains("?d") => &[[1, 1], [2, 2]],
            _ => &[[2, 2]],
        };
        let operations: &[usize] = match law.fits {
            Fits::Way(_) => &[0, 1],
            Fits::Groups => &[0, 1, 2, 3, 4],
            Fits::Joins | Fits::JoinsOfParts => &[SUM],
            _ => &[0],
        };
        for extents in extents {
            let named = |own: &usize| named(law.fits, *own, direction, *extents);
            all.extend(operations.iter().map(named));
        }
    }
    all
}

fn named(fits: Fits, operation: usize, direction: Along, extents: [u32; 2]) -> Names {
    let crossing = match direction {
        Along::Rows => Along::Columns,
        _ => Along::Rows,
    };
    let [e, f] = extents.map(|own| Term::Extent(Lettered(own)));
    let f = if fits == Fits::Crossing { Term::Along(crossing) } else { f };
    let [o, m, n] = [operation, 1, 2].map(|own| Term::Operation(Lettered(own)));
    let [d, t] = [direction, crossing].map(Term::Along);
    let all =
        [("?o", o), ("?m", m), ("?n", n), ("?d", d), ("?t", t), ("?e", e), ("?f", f)];
    all.into_iter().collect()
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
        ("(pool ?o ?e (gather ?d e1 ?x))", "(gather ?d e1 (pool_own ?d ?o ?x))"),
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
        let names = named(Fits::All, 0, Along::Columns, [2, 2]);
        assert!(!holds(&law, tensor, &names), "{left} is no {right}");
    }
}

/// Groups are divided where no group reaches over several parts, and each part has filters of its own:
/// else only what every channel makes of itself alone is the same.
#[test]
fn groups_belong_to_the_parts_that_have_them() {
    let law = |right| {
        let left = "(channels ?o ?e (gather ?d ?e ?x))";
        Law { name: "groups", left, right, fits: Fits::All, on: On::All }
    };
    let own = law("(gather ?d ?e (channels_own ?d ?o ?x))");
    let alike = law("(gather ?d ?e (channels ?o ?e ?x))");
    for (columns, is_divided) in [(2, true), (4, true), (8, false)] {
        let contraction = Contraction::Each;
        let tensor = Tensor { contraction, ..Tensor::grid(1, columns) };
        for operation in 0..5 {
            let names = named(Fits::Groups, operation, Along::Columns, [2, 2]);
            let is_alone = [1, 2, 3].contains(&operation);
            let on = || format!("o{operation} on {columns} columns");
            assert_eq!(holds(&own, tensor, &names), is_alone || is_divided, "{}", on());
            let has_filters = operation == 4;
            let is_alike = (is_alone || is_divided) && !has_filters;
            assert_eq!(holds(&alike, tensor, &names), is_alike, "{}", on());
        }
    }
}

/// What a gradient becomes on its way back over moves.
fn pulled(
    machine: &Machine<'_>,
    side: &PatternAst<Term>,
    id: Id,
    gradient: Held,
) -> Held {
    let ENodeOrVar::ENode(term) = &side[id] else { return gradient };
    let along = |id: Id| machine.along(side, id);
    let extent = |id: Id| machine.extent(side, id);
    let before = match *term {
        Term::Gather([d, e, _]) => machine.cut(along(d), extent(e), &gradient),
        Term::GatherVary([d, e, _]) => {
            machine.cut(along(d), extent(e), &machine.sum(along(d), &gradient))
        }
        Term::Cut([d, e, _]) | Term::Scatter([d, e, _]) => {
            machine.gather(along(d), extent(e), &gradient)
        }
        Term::Vary([d, _]) => machine.sum(along(d), &gradient),
        Term::Sum(_) => gradient,
        _ => return gradient,
    };
    pulled(machine, side, *term.children().last().expect("it moves something"), before)
}

/// Whether both sides of a law of moves bring any gradient back alike.
fn holds_of_gradients(law: &Law, tensor: Tensor, names: &Names) -> bool {
    let [left, right] = law.sides(tensor.idle());
    let mut machine = Machine { tensor, names, arrays: BTreeMap::new() };
    machine.fill(&left);
    let root = |ast: &PatternAst<Term>| Id::from(ast.as_ref().len() - 1);
    let made = machine.value(&left, root(&left));
    let seeded = (1_000..).zip(&made);
    let gradient: Held =
        seeded.map(|(seed, own)| Array::random(&own.shape, seed)).collect();
    let [one, other] =
        [&left, &right].map(|side| pulled(&machine, side, root(side), gradient.clone()));
    one.iter().zip(&other).all(|(one, other)| one.is_near(other))
}

/// Whoever adds a share to a gradient adds one on both sides.
#[test]
fn laws_of_moves_hold_of_gradients() {
    let cut_of_gather = LAWS.iter().filter(|law| law.name == "cut_of_gather");
    for law in MOVES.iter().chain(cut_of_gather) {
        for tensor in grids().into_iter().filter(|own| law.on.is_on(grid(*own))) {
            for names in namings(law, tensor) {
                let holds = holds_of_gradients(law, tensor, &names);
                assert!(holds, "{} on {tensor:?} {names:?}", law.name);
            }
        }
    }
    let wrong = [
        ("(vary ?d (gather ?d ?e ?x))", "(gather ?d ?e ?x)"),
        ("(vary ?d (vary ?f ?x))", "(vary ?d ?x)"),
        ("(vary ?d (cut ?f ?e (gather ?d ?e ?x)))", "(cut ?f ?e (gather ?d ?e ?x))"),
    ];
    let tensor = Tensor { contraction: Contraction::Each, ..Tensor::grid(2, 2) };
    for (left, right) in wrong {
        let law = Law { name: "wrong", left, right, fits: Fits::Crossing, on: On::All };
        let names = named(Fits::Crossing, 0, Along::Columns, [2, 2]);
        assert!(!holds_of_gradients(&law, tensor, &names), "{left} is no {right}");
    }
}

fn term_of(node: &ENodeOrVar<Term>) -> Option<&Term> {
    match node {
        ENodeOrVar::ENode(term) => Some(term),
        ENodeOrVar::Var(_) => None,
    }
}

/// What a leaf says.
fn place(leaf: &Term) -> Option<Place> {
    match leaf {
        Term::Along(_) => Some(Place::Along),
        Term::Extent(_) => Some(Place::Extent),
        Term::Operation(_) => Some(Place::Operation),
        _ => None,
    }
}

/// Terms read leaves where they say so, and arrays behind them.
#[test]
fn laws_have_leaves_where_terms_read_them() {
    for (law, side) in all().flat_map(|law| law.sides(None).map(|side| (law, side))) {
        let names = named(law.fits, 0, Along::Rows, [1, 2]);
        let stands = |id: &Id| match &side[*id] {
            ENodeOrVar::ENode(term) => place(term),
            ENodeOrVar::Var(name) => names.get(name.to_string().as_str()).and_then(place),
        };
        for term in side.as_ref().iter().filter_map(term_of) {
            let read = term.children().iter().map(stands);
            let arrays = term.arrays().iter().map(|_| None);
            let says = term.places().iter().copied().map(Some).chain(arrays);
            assert!(read.eq(says), "{term} of {}", law.name);
        }
    }
}

/// What is misspelled, or reads too much or too little, is no law.
#[test]
fn laws_are_made_of_known_terms() {
    let parsed = |text: &str| text.parse::<Pattern<Term>>().is_ok();
    assert!(parsed("(cut c e1 (gather ?d ?e v0))"));
    let wrong =
        ["(gathers ?d ?e ?x)", "(gather ?d ?x)", "(sum rows ?x)", "(cut c e ?x)", "v"];
    for text in wrong {
        assert!(!parsed(text), "{text}");
    }
}

/// Of ways that cost the same the first is taken by the names of its terms.
#[test]
fn terms_are_ordered_by_their_names() {
    let whole = Term::Whole([Id::from(0); 3]);
    let value = Term::Value(Lettered(0));
    let sides = all().flat_map(|law| law.sides(None));
    let of = |side: PatternAst<Term>| {
        let all = side.as_ref().iter().filter_map(term_of).cloned();
        all.filter(|term| !term.is_leaf()).collect::<Vec<_>>()
    };
    let all: BTreeSet<Term> = sides.flat_map(of).chain([whole, value]).collect();
    let names: Vec<String> = all.iter().map(Term::to_string).collect();
    assert!(names.is_sorted(), "{names:?}");
}

/// Names are told apart, and every way has a law.
#[test]
fn laws_have_names_of_their_own() {
    let names: BTreeSet<&str> = all().map(|law| law.name).collect();
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
