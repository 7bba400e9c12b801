//! What the search for the cheapest way looks at, and what is said of why it ended.

use super::{
    costs::Facts,
    extract::Search,
    image_tests::{NARROWED, regions_of, regions_or_refused},
    region::{Kind, Region},
    term::Term,
    tests::{both, examples, model},
    *,
};
use crate::rewrite::Algebra;
use roundelay_schedule::Tensor;

fn each(rows: u32, columns: u32) -> Tensor {
    Tensor { contraction: Contraction::Each, ..Tensor::grid(rows, columns) }
}

/// The regions of a residual block in which something is added.
fn blocks(tensor: Tensor) -> Vec<Region> {
    let text = "
        input tokens: i32[batch, 4]
        input y: real[batch, 4, 16]
        x = embedding(tokens, 64, 16)
        x = x + linear(gelu(linear(layer_norm(x), 32)), 16)
        x = linear(gelu(linear(layer_norm(x), 32)), 16) + x
        loss mse(x + x, y)";
    let mut regions = regions_of(&model(text), tensor);
    regions.retain(|region| region.operations.iter().any(|part| part.kind == Kind::Pair));
    regions
}

/// A sum lies as either of its terms, if both lie somehow by choice; where the first is given the other
/// way asks more of the second alone, and finds nothing better.
#[test]
fn no_way_is_searched_that_finds_nothing() {
    let mut met = BTreeMap::new();
    for tensor in [each(1, 4), each(2, 2), Tensor::grid(4, 1)] {
        for region in blocks(tensor) {
            let (terms, ..) = solved(&region, STEPS_MAX);
            let facts = Facts::new(&region, &terms);
            let search = Search::new(&facts, STEPS_MAX);
            let all = terms.classes().flat_map(|class| &class.nodes);
            for pair in all {
                let Term::Pair([_, first, second]) = *pair else { continue };
                let given = [first, second].map(|id| search.is_there(terms.find(id)));
                let ways = match given {
                    [true, _] => 1,
                    [false, _] => 2,
                };
                assert_eq!(search.reads(pair).len(), ways, "{given:?} {tensor:?}");
                *met.entry(given).or_insert(0) += 1;
            }
        }
    }
    let kinds: Vec<_> = met.keys().copied().collect();
    let expected = [[false, false], [false, true], [true, false], [true, true]];
    assert_eq!(kinds, expected, "{met:?}");
}

/// Nine heads that read three divide among no rows and columns of two: no way is found, and no limit is
/// met.
#[test]
fn regions_without_any_way_met_no_limit() {
    let all = examples();
    let (_, model) =
        all.iter().find(|(name, _)| name.ends_with("/llama-small.rdl")).unwrap();
    let tensor = each(2, 2);
    let regions = regions_or_refused(model, tensor).expect_err("heads are refused");
    let has_none = |region: &Region| solved(region, STEPS_MAX).1.cost.is_none();
    assert!(regions.iter().any(has_none));
    let algebra = Algebra::default();
    assert_eq!(both(model, tensor, &algebra), None);
    let stops = algebra.map_stops();
    assert_eq!(stops.keys().collect::<Vec<_>>(), [&Stop::Saturated], "{stops:?}");
}

/// A search that is cut short leaves maps to themselves, and says so.
#[test]
fn a_search_that_meets_its_limit_says_so() {
    let regions = blocks(each(1, 4));
    let region = regions.iter().find(|region| region.has_maps()).expect("there are maps");
    let alone = region.ways(&Terms::default(), &Cheapest::default());
    assert_eq!(find(region, 8), (alone.clone(), Stop::Search));
    let (found, stop) = find(region, STEPS_MAX);
    assert_eq!(stop, Stop::Saturated);
    assert_ne!(found, alone);
}

/// A map has one way, so its shares meet once: summed for one reader, they are not scattered for another.
#[test]
fn shares_meet_once() {
    let ways = [
        vec![Some(MapWay::ColumnsToColumns), Some(MapWay::ColumnsToWhole)],
        vec![None],
        vec![Some(MapWay::WholeToAll)],
    ];
    let mut met = 0;
    for tensor in [each(4, 2), each(2, 4)] {
        let mut regions = regions_of(&model(NARROWED), tensor);
        let region = regions.iter_mut().find(|region| region.has_maps()).expect("maps");
        let mut left = ways.iter();
        for part in &mut region.operations {
            if let Kind::Map { open, .. } = &mut part.kind {
                open.clone_from(left.next().expect("there are three"));
            }
        }
        let (terms, cheapest, _) = solved(region, STEPS_MAX);
        let met_by = |term: &Term| match term {
            Term::Sum([_, shares]) | Term::Scatter([_, _, shares]) => {
                Some(terms.find(*shares))
            }
            _ => None,
        };
        let mut shares: Vec<_> = cheapest.terms().filter_map(met_by).collect();
        met += shares.len();
        shares.sort();
        assert!(shares.is_sorted_by(|one, other| one < other), "{tensor:?}: {region:?}");
    }
    assert!(met > 0);
}
