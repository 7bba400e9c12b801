//! How the maps of a model are split, found by equations: time plays no part.
//!
//! A model falls into regions between values whose layout is fixed ([`region`]). A region becomes an
//! e-graph ([`sketch`]) of terms ([`term`]) whose classes are arrays in a layout; equations ([`rules`]) add
//! what else makes the same arrays; of all ways to make what others read that lowering would take
//! ([`moves`]), the cheapest ([`costs`]) is taken ([`extract`]), and how its maps are split is what the
//! plan says. Linear maps divide features, convolutions channels; those in groups have own groups.
//! Limits are counts, so no result depends on the machine; equal regions are asked about once.

#[cfg(test)]
mod array_operations;
#[cfg(test)]
mod arrays;
mod costs;
mod exchanges;
mod extract;
mod fences;
mod fits;
#[cfg(test)]
mod image_tests;
mod kinds;
#[cfg(test)]
mod laws;
mod moves;
mod region;
mod rules;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod sent_tests;
mod sketch;
mod term;
#[cfg(test)]
mod tests;

use crate::rewrite::{Answers, Stop, grown};
use extract::{Cheapest, STEPS_MAX};
use region::{Found, Region, regions};
use roundelay_codegen::Divided;
use roundelay_schedule::{Contraction, Images, MapWay, MapWays};
use sketch::Sketch;
use std::{collections::BTreeMap, sync::Arc};
use term::Terms;

/// The ways of the operations of a region.
type Ways = Vec<Option<MapWay>>;

/// Finds the ways of maps; it remembers what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Shardings {
    known: Answers<Region, Ways>,
}

impl Shardings {
    /// The ways of all maps of a model on a grid.
    pub(crate) fn ways(&self, divided: &Divided<'_>) -> MapWays {
        let mut ways = divided.ways.clone();
        if divided.tensor.images == Images::Split || is_stuck(divided) {
            return ways;
        }
        // Where maps choose, every part may do all of what does not divide.
        for (site, _) in divided.ways.iter().filter(|own| !fits(divided, *own)) {
            ways.send(site, None);
        }
        let found = regions(divided).into_iter();
        for Found { region, sites } in found.filter(|found| found.region.has_maps()) {
            let own = self.known.of(region, |region| find(region, STEPS_MAX));
            for (site, way) in sites.iter().zip(own) {
                let site = u32::try_from(roundelay_schedule::Id::index(*site));
                let site = site.expect("models have fewer than 2^32 nodes");
                ways.send(site, way);
            }
        }
        ways
    }

    /// How many e-graphs were made, by why they grew no further.
    pub(crate) fn stops(&self) -> BTreeMap<Stop, usize> {
        self.known.stops()
    }
}

/// Whether some map has no way to go: lowering refuses it by name.
fn is_stuck(divided: &Divided<'_>) -> bool {
    let chooses = divided.tensor.contraction == Contraction::Each;
    !chooses && (divided.is_refused || !divided.ways.iter().all(|own| fits(divided, own)))
}

/// Whether a map may go the way that it goes by itself.
fn fits(divided: &Divided<'_>, (site, way): (u32, MapWay)) -> bool {
    divided.fitting.get(&site).is_some_and(|fitting| fitting.contains(&way))
}

/// The ways of a region, and why its e-graph grew no further.
fn find(region: &Region, steps_max: usize) -> (Ways, Stop) {
    let (terms, cheapest, stop) = solved(region, steps_max);
    match (stop, cheapest.cost) {
        (Stop::Saturated, Some(_)) => (region.ways(&terms, &cheapest), stop),
        // What equations have not said of all terms may be worse than what maps do by themselves, and
        // of what they have said there may be no way that lowering takes.
        (stop, _) => {
            let alone = region.ways(&terms, &Cheapest::default());
            let is_cut_short = stop == Stop::Saturated && cheapest.is_limited;
            (alone, if is_cut_short { Stop::Search } else { stop })
        }
    }
}

/// All that equations say of a region, and what is cheapest of it.
fn solved(region: &Region, steps_max: usize) -> (Terms, Cheapest, Stop) {
    let Sketch { terms, needed, .. } = Sketch::new(region);
    let operations: Arc<[region::Part]> = region.operations.clone().into();
    let rules = fits::rewrites(region.grid, &operations);
    let (terms, stop) = grown(terms, &rules);
    let cheapest = extract::cheapest(region, (&terms, &needed), steps_max);
    (terms, cheapest, stop)
}
