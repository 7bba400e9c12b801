//! From a model to the graph of one device of the grid that splits its tensors.
//!
//! Operations are split in pairs, as in Megatron (arXiv 1909.08053): an affine map whose result
//! only goes where it may stay in parts (element by element, into attention head by head, into
//! another affine map, into a loss over classes) makes its own columns; the one behind adds up its
//! rows. Where features are whole every device does the same, or its share of the tokens
//! (`sequence split`, arXiv 2205.05198). Exchanges stand where one layout meets another; each says
//! its adjoint, so the backward pass has its own.
//!
//! With several columns what would be whole is divided too: affine maps read what one direction of
//! the grid divides and make what the other one divides, in turn (Tensor3D, arXiv 2305.13525), and
//! norms meet the sums of their own features. Then everything is split, or refused by name.
//! A device may take the examples of a micro-batch in two halves that take turns (`halves.rs`).
//! Convolutions are affine maps of channels (`turns.rs`, `images.rs`); how each map is split is an
//! instruction of the plan (`maps.rs`), or follows from how its operand lies. Or rows divide the height of
//! images instead (`pixels.rs`, `halos.rs`).

mod absorb;
#[cfg(test)]
mod adjoints;
mod divided;
mod halos;
mod halves;
mod heads;
mod images;
mod layout;
mod local;
mod losses;
mod maps;
mod pixels;
mod rules;
mod turns;
mod unfit;
mod whole;

pub use divided::{Divided, Lie};
pub(crate) use halves::Strand;
pub use losses::divides_classes;
pub use whole::{Undivided, undivided};

use crate::{
    rewrite::LoweringChoice,
    stage::{Graph, StageError},
};
use absorb::Absorb;
use layout::{Along, Layout};
use local::{Local, Maps};
use roundelay_dsl::{Model, NodeId, ParameterId};
use roundelay_schedule::{Contraction, Direction, Id, Images, MapWays, Tensor};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};
use turns::Turns;

/// A graph that was made of another: that of one device among several, or of slices of sequences.
#[derive(Clone, Debug)]
pub(crate) struct Parted {
    /// Its operations, on parts of the whole.
    pub(crate) model: Model,
    /// Where it is cut.
    pub(crate) cuts: Vec<u32>,
    /// The operation of the whole model that each belongs to.
    pub(crate) origin: Vec<NodeId>,
    /// How maps of the whole model are split.
    pub(crate) ways: MapWays,
    /// Which examples each works on; empty where all work on all.
    pub(crate) strands: Vec<Strand>,
    /// In how many parts the examples of a micro-batch are taken.
    pub(crate) halves: u32,
}

impl Parted {
    /// The part of a model, cut before these nodes, whose maps go the ways that `choice` says.
    ///
    /// # Errors
    /// When no operation can be split among one column, or some cannot among several; when a map
    /// cannot go its way.
    pub(crate) fn new(
        model: &Model,
        cuts: &[u32],
        tensor: Tensor,
        choice: &dyn LoweringChoice,
    ) -> Result<Self, StageError> {
        let maps = Maps { absorb: Absorb::new(model, tensor), turns: Turns::new(model) };
        let alone = Local::build(model, cuts, tensor, (&maps, None), BTreeMap::new());
        let ways = choice.ways(&alone.divided());
        let listed = (&maps, Some(&ways));
        // What no map does by itself may be done whole where each goes its own way.
        let repeats = alone.refused.is_some() && tensor.contraction == Contraction::Each;
        let trial = match ways == alone.ways && !repeats {
            true => alone,
            false => Local::build(model, cuts, tensor, listed, BTreeMap::new()),
        };
        if let Some(refused) = trial.refused {
            return Err(refused);
        }
        let stored = stored(trial);
        let local = Local::build(model, cuts, tensor, listed, stored);
        if let Some(refused) = local.refused {
            return Err(refused);
        }
        let divided = local.model.parameters.values().any(|own| !own.split.is_whole());
        if tensor.images == Images::Split && !local.splits_pixels {
            return Err(StageError::NoImages { tensor: tensor.shown() });
        }
        let split = divided || local.splits_pixels;
        match split {
            true if tensor.overdecompose == 1 => Ok(local.finish(cuts)),
            true => local.finish(cuts).in_halves(tensor.overdecompose),
            false => Err(StageError::Unsplit { tensor: tensor.shown() }),
        }
    }

    /// The graph for micro-batches of this many examples.
    ///
    /// # Errors
    /// When the graph is not sound, or the examples do not make halves.
    pub(crate) fn graph(&self, examples: u64) -> Result<Graph<'_>, StageError> {
        let Self { model, strands, halves, .. } = self;
        match examples.is_multiple_of(u64::from(*halves)) {
            true => {
                let graph = Graph::new(model, examples / u64::from(*halves))?;
                Ok(graph.in_strands(strands))
            }
            false => Err(StageError::Odd { examples, halves: *halves }),
        }
    }

    /// The nodes of the whole model that some of the own ones belong to.
    pub(crate) fn whole_nodes(&self, nodes: Range<usize>) -> Range<usize> {
        // Sums over slices stand behind all others, in an order of their own.
        let own = || {
            let own = self.origin.get(nodes.clone()).into_iter().flatten();
            own.map(|node| node.index())
        };
        let first = own().min().unwrap_or(0);
        first..own().max().map_or(first, |last| last + 1)
    }
}

/// Parameters that all their users want in the same parts are kept in these. What is used alike is
/// kept alike, whoever adds to its gradient.
fn stored(trial: Local<'_>) -> BTreeMap<ParameterId, Layout> {
    let one = |(parameter, wants): (ParameterId, BTreeSet<Layout>)| {
        let wants: BTreeSet<Layout> =
            wants.into_iter().map(|layout| layout.map(Along::of_value)).collect();
        let mut wants = wants.into_iter();
        match (wants.next(), wants.next()) {
            (Some(layout), None) if is_division(layout) => Some((parameter, layout)),
            _ => None,
        }
    };
    trial.wants.into_iter().filter_map(one).collect()
}

/// What the parts of a direction are called.
fn shown(direction: Direction) -> &'static str {
    match direction {
        Direction::Rows => "rows",
        Direction::Columns => "columns",
        Direction::Both => "parts",
    }
}

/// Whether a layout divides an array, and does nothing else.
fn is_division(layout: Layout) -> bool {
    let splits = |along| matches!(along, Along::Split(_));
    let fits = |along| splits(along) || along == Along::Whole;
    (splits(layout.rows) || splits(layout.columns))
        && fits(layout.rows)
        && fits(layout.columns)
}
