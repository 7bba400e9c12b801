//! What is found for the models of the examples and for convolutions, against how maps go by themselves
//! and against all ways that there are.

use super::{
    region::{Kind, Region},
    tests::{all_ways, both, cost, examples, grids, maps, model},
    *,
};
use crate::rewrite::Algebra;
use roundelay_codegen::{Everywhere, LoweringChoice, Neighbour, Piece};
use roundelay_dsl::Model;
use roundelay_schedule::{Contraction, Rewrite, Tensor};
use std::{collections::BTreeSet, sync::Mutex};

const GRIDS: [(u32, u32); 9] =
    [(2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (4, 2), (2, 4), (8, 4)];

/// Keeps the regions of a model.
struct Regions(Mutex<Vec<Region>>);

impl LoweringChoice for Regions {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        Everywhere.choose(neighbours)
    }

    fn ways(&self, divided: &Divided<'_>) -> MapWays {
        if !is_stuck(divided) {
            let found = region::regions(divided).into_iter();
            *self.0.lock().unwrap() = found.map(|found| found.region).collect();
        }
        divided.ways.clone()
    }
}

/// The regions of a model that lowering splits.
pub(super) fn regions_of(model: &Model, tensor: Tensor) -> Vec<Region> {
    regions_or_refused(model, tensor).unwrap_or_default()
}

/// The regions of a model; those of one that lowering refuses apart.
pub(super) fn regions_or_refused(
    model: &Model,
    tensor: Tensor,
) -> Result<Vec<Region>, Vec<Region>> {
    let heard = Regions(Mutex::default());
    let refused = Piece::new(model, (&[][..], tensor), &heard).is_err();
    let regions = heard.0.into_inner().unwrap();
    if refused { Err(regions) } else { Ok(regions) }
}

/// What lowering does by itself is among the ways of every region: where maps may go no other way, it
/// is found.
#[test]
fn what_maps_do_by_themselves_is_a_way() {
    let mut asked = BTreeSet::new();
    for (name, model) in examples() {
        for tensor in grids() {
            for mut region in regions_of(&model, tensor) {
                let mut own = Vec::new();
                for part in &mut region.operations {
                    if let Kind::Map { open, alone, .. } = &mut part.kind {
                        // In one row what rows divide is whole.
                        let same = match (tensor.rows, *alone) {
                            (1, Some(MapWay::RowsToColumns)) => {
                                Some(MapWay::WholeToColumns)
                            }
                            (_, own) => own,
                        };
                        open.retain(|way| way == alone || *way == same);
                    }
                    own.push(match part.kind {
                        Kind::Map { alone, .. } => alone,
                        _ => None,
                    });
                }
                if !asked.contains(&region) {
                    let found = find(&region, STEPS_MAX);
                    assert_eq!(
                        found,
                        (own, Stop::Saturated),
                        "{name} {tensor:?}: {region:?}"
                    );
                    asked.insert(region);
                }
            }
        }
    }
    assert!(asked.len() > 500, "only {} were asked about", asked.len());
}

/// Where maps take turns or all gather, what is found is what lowering does by itself, or less work, or
/// as much that sends less: for the models of the examples.
#[test]
fn examples_find_what_their_maps_do_by_themselves() {
    let algebra = Algebra::default();
    let all = examples();
    assert!(all.len() > 15, "only {} are read", all.len());
    let (mut compared, mut different) = (0, BTreeSet::new());
    for (name, model) in &all {
        for ((rows, columns), contraction) in GRIDS.into_iter().flat_map(|grid| {
            [Contraction::Alternate, Contraction::Gather].map(|own| (grid, own))
        }) {
            let tensor = Tensor { contraction, ..Tensor::grid(rows, columns) };
            if !tensor.can_contract() {
                continue;
            }
            let Some([alone, found]) = both(model, tensor, &algebra) else { continue };
            compared += 1;
            if found != alone {
                let [own, other] = [&found, &alone].map(|ways| cost(model, tensor, ways));
                assert!(own < other, "{name} on {tensor:?}: {own:?} for {other:?}");
                let name = name.rsplit('/').next().unwrap_or_default();
                different.insert((name.to_owned(), rows, columns));
            }
        }
    }
    assert!(compared > 150, "only {compared} were compared");
    // Bottlenecks turn back at their narrow end; where no group norm is divided, and so all of it is
    // whole, filters of one pixel are divided that turn back by themselves.
    let names: BTreeSet<&str> =
        different.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(Vec::from_iter(names), ["resnet50.rdl", "unet.rdl"]);
    let unets = different.iter().filter(|(name, ..)| name == "unet.rdl");
    assert!(unets.eq(&[("unet.rdl".to_owned(), 8, 1)]), "{different:?}");
    let stops = algebra.map_stops();
    assert_eq!(stops.keys().collect::<Vec<_>>(), [&Stop::Saturated], "{stops:?}");
}

/// Where each map goes a way of its own, nothing is worse than by themselves.
#[test]
fn convolutions_that_choose_cost_no_more_than_in_turn() {
    let algebra = Algebra::default();
    let mut better = 0;
    for (name, model) in examples() {
        let images = ["/unet.rdl", "/resnet18-cifar.rdl", "/resnet50.rdl"];
        if !images.iter().any(|own| name.ends_with(own)) {
            continue;
        }
        for (rows, columns) in GRIDS.into_iter().filter(|(_, columns)| *columns > 1) {
            let contraction = Contraction::Each;
            let tensor = Tensor { contraction, ..Tensor::grid(rows, columns) };
            let Some([alone, found]) = both(&model, tensor, &algebra) else { continue };
            let own = cost(&model, tensor, &found).expect("it splits");
            if let Some(other) = cost(&model, tensor, &alone) {
                assert!(own <= other, "{name} on {tensor:?}: {own:?} for {other:?}");
                better += usize::from(own < other);
            }
        }
    }
    assert!(better > 10, "only {better} are better");
    let stops = algebra.map_stops();
    assert_eq!(stops.keys().collect::<Vec<_>>(), [&Stop::Saturated], "{stops:?}");
}

/// Two convolutions that are added up before they meet.
pub(super) const JOINED: &str = "
    input images: real[batch, 4, 4, 4]
    input wanted: real[batch, 4, 4, 4]
    x = relu(conv2d(images, 8))
    z = conv2d(x, 8, bias = false) + conv2d(gelu(x), 8, kernel = 1, bias = false)
    loss mse(conv2d(silu(z), 4), wanted)";

/// A block whose inner channels are fewer.
pub(super) const NARROWED: &str = "
    input images: real[batch, 4, 4, 4]
    input wanted: real[batch, 4, 4, 16]
    x = relu(conv2d(images, 16))
    y = relu(group_norm(conv2d(x, 4, kernel = 1), 4))
    loss mse(x + batch_norm(conv2d(y, 16)), wanted)";

/// Groups, pools and larger images.
pub(super) const GROUPED: &str = "
    input images: real[batch, 4, 4, 4]
    input wanted: real[batch, 4]
    x = conv2d(max_pool(conv2d(images, 8), 2), 8, groups = 4)
    x = global_pool(upsample(silu(conv2d(relu(x), 16, kernel = 1))))
    loss mse(linear(x, 4), wanted)";

/// Every way of every map of small models, as lowering makes it and as its exchanges count: nothing
/// costs less than what is found.
#[test]
fn no_way_of_convolutions_costs_less_than_what_is_found() {
    let algebra = Algebra::default();
    for text in [JOINED, NARROWED, GROUPED] {
        let model = model(text);
        let maps = maps(&model);
        for (rows, columns) in [(1, 2), (2, 2)] {
            let contraction = Contraction::Each;
            let tensor = Tensor { contraction, ..Tensor::grid(rows, columns) };
            let [_, found] = both(&model, tensor, &algebra).expect("it splits");
            let own = cost(&model, tensor, &found).expect("it splits");
            for ways in all_ways(&maps, tensor) {
                if let Some(other) = cost(&model, tensor, &ways) {
                    assert!(
                        own <= other,
                        "{tensor:?}: {found:?} {own:?}, {ways:?} {other:?}"
                    );
                }
            }
        }
    }
}

/// Of which all ways of one row have the latter.
#[test]
fn in_one_row_maps_from_rows_are_those_from_what_is_whole() {
    let contraction = Contraction::Each;
    let tensor = Tensor { contraction, ..Tensor::grid(1, 2) };
    for text in [JOINED, NARROWED, GROUPED] {
        let model = model(text);
        let maps = maps(&model);
        for ways in all_ways(&maps, tensor).step_by(7) {
            let mut other = ways.clone();
            for (site, way) in ways.iter() {
                if way == MapWay::WholeToColumns {
                    other.send(site, Some(MapWay::RowsToColumns));
                }
            }
            let [own, other] = [&ways, &other].map(|ways| cost(&model, tensor, ways));
            assert_eq!(own, other, "{ways:?}");
        }
        for site in &maps {
            let mut ways = MapWays::default();
            ways.send(*site, Some(MapWay::RowsToWhole));
            assert_eq!(cost(&model, tensor, &ways), None, "o{site}");
        }
    }
}
