//! What is said of a map that cannot go the way that a plan lists for it.

use super::{
    local::Local,
    maps::{Map, site},
    shown,
};
use crate::stage::StageError;
use roundelay_dsl::{NodeId, Operation};
use roundelay_schedule::{Contraction, Direction, Id, MapWay};

/// Why a map cannot go a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its kind of contraction has other ways.
    Contraction(Contraction),
    /// It divides nothing on this grid.
    Single,
    /// An extent that the parts do not divide.
    Indivisible { what: &'static str, size: u64, parts: u64, direction: Direction },
}

impl Local<'_> {
    /// Why a map cannot go a way; none where it can.
    pub(super) fn fault(&self, map: Map<'_>, way: MapWay) -> Option<Fault> {
        let linear = map.operation == Operation::Linear;
        if linear && !way.suits(self.tensor.contraction) {
            return Some(Fault::Contraction(self.tensor.contraction));
        }
        if !way.divides(self.tensor) {
            return Some(Fault::Single);
        }
        let read = self.shape(map.operands[0]).last().map_or(1, |extent| extent.size);
        let names = match linear {
            true => ["input features", "output features"],
            false => ["channels", "filters"],
        };
        let reads = self.undivided_by(way.from(), (names[0], read));
        let makes = || self.undivided_by(way.to(), (names[1], map.made()));
        reads.or_else(|| makes().filter(|_| !self.is_of_classes(map, way)))
    }

    fn undivided_by(
        &self,
        direction: Option<Direction>,
        (what, size): (&'static str, u64),
    ) -> Option<Fault> {
        let direction = direction?;
        let parts = self.parts(direction);
        let fault = Fault::Indivisible { what, size, parts, direction };
        (!size.is_multiple_of(parts)).then_some(fault)
    }

    /// Whether a map makes classes of a loss, which however many parts may divide.
    fn is_of_classes(&self, map: Map<'_>, way: MapWay) -> bool {
        let parts = way.to().map_or(1, |to| self.parts(to));
        map.operation == Operation::Linear && self.absorb.may_be_uneven(map.id, parts)
    }

    /// Refuses a listed way, and says which would fit.
    pub(super) fn refuse_way(&mut self, map: Map<'_>, fault: Fault) {
        let fitting = MapWay::ALL.iter().filter(|way| self.fault(map, **way).is_none());
        let mut fitting: Vec<String> = fitting.map(MapWay::to_string).collect();
        fitting.push("no way, so that every part does all of it".to_owned());
        let way = self.listed.and_then(|listed| listed.of(site(map.id)));
        let Some(way) = way else { return };
        let error = StageError::MapWay {
            node: self.name(),
            site: site(map.id),
            way,
            problem: self.said(fault),
            hint: format!("what fits: {}", fitting.join(", ")),
        };
        self.refuse(error);
    }

    fn said(&self, fault: Fault) -> String {
        match fault {
            Fault::Contraction(contraction) => {
                format!("`contraction {contraction}` has no such maps")
            }
            Fault::Single => format!("it divides nothing on {}", self.tensor.shown()),
            Fault::Indivisible { what, size, parts, direction } => format!(
                "its {size} {what} do not divide among {parts} tensor {}",
                shown(direction)
            ),
        }
    }

    /// Refuses the first listed way that nothing went.
    pub(super) fn refuse_idle(&mut self) {
        let Some(listed) = self.listed else { return };
        let idle = listed.iter().find(|(site, _)| self.ways.of(*site).is_none());
        let Some((site, way)) = idle else { return };
        let node = self.whole.nodes.get(NodeId::numbered(site));
        let (node, problem) = match node {
            Some(node) => (
                node.name.clone(),
                "it is not a map of features or channels that this grid splits",
            ),
            None => (self.whole.name.clone(), "the model has fewer operations"),
        };
        let hint =
            "delete the operation from `maps`, or all of `maps` to have them found";
        let (problem, hint) = (problem.to_owned(), hint.to_owned());
        self.refuse(StageError::MapWay { node, site, way, problem, hint });
    }
}
