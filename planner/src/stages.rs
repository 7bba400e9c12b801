//! What the stages of all plans take, each pattern of stages derived once.

use crate::{
    alike::{Kind, Shapes, places},
    bill::Reach,
    cost::Costs,
    load::StageLoad,
    nodes::Nodes,
    parallel::parallel,
    pattern::{Arriving, Pattern, in_a_row, patterns},
    reason::Reason,
};
use roundelay_codegen::{BackwardForm, StageForm};
use roundelay_dsl::Program;
use roundelay_schedule::{DeviceList, Id, Order, Pass, Stage, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// A cut model on the devices that share tensors, for micro-batches of one size.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    /// Of a micro-batch.
    pub examples: u32,
    /// How tensors are split.
    pub tensor: Tensor,
    /// First node of every stage but the first.
    pub cuts: &'a [u32],
    /// How the routines of each stage are made.
    pub forms: Vec<StageForm>,
}

/// How an order has the backward pass of a stage; one's own lists say so themselves.
pub(crate) fn backward_form(
    order: Order,
    lists: &[DeviceList],
    stage: Stage,
) -> BackwardForm {
    let mut listed = lists.iter().flatten();
    let split = match order {
        Order::Listed => {
            listed.any(|one| one.stage == stage && one.pass == Pass::InputGradient)
        }
        order => order.splits_backward(),
    };
    if split { BackwardForm::Split } else { BackwardForm::Whole }
}

/// What decides what a stage takes.
type PatternKey = (Tensor, Reach, StageForm, Kind);

/// The stages that are known.
pub(crate) struct KnownStages<'a> {
    program: &'a Program,
    costs: &'a Costs,
    shapes: BTreeMap<Tensor, Shapes>,
    /// Ways to split tensors whose calls are on lines.
    straight: BTreeSet<Tensor>,
    patterns: BTreeMap<PatternKey, Result<Pattern, Reason>>,
}

impl<'a> KnownStages<'a> {
    /// No stage is known yet of a program with these nodes.
    pub(crate) fn new(
        program: &'a Program,
        costs: &'a Costs,
        nodes: &BTreeMap<Tensor, Nodes>,
    ) -> Self {
        let shapes = nodes.iter();
        let shapes = shapes
            .map(|(tensor, own)| (*tensor, Shapes::new(&program.model, &own.marks)))
            .collect();
        let straight = nodes.iter().filter(|(_, own)| own.reach == Reach::All);
        let straight = straight.map(|(tensor, _)| *tensor).collect();
        Self { program, costs, shapes, straight, patterns: BTreeMap::new() }
    }

    /// What the stages of each cell take.
    pub(crate) fn loads(
        &mut self,
        cells: &[Result<Cell<'_>, Reason>],
        threads: usize,
    ) -> Vec<Result<Vec<StageLoad>, Reason>> {
        let keys = loop {
            let keys: Vec<Vec<PatternKey>> = cells
                .iter()
                .map(|cell| cell.as_ref().map_or(vec![], |cell| self.keys(cell)))
                .collect();
            let bent = self.derive(cells, &keys, threads);
            if bent.is_empty() {
                break keys;
            }
            self.straight.retain(|tensor| !bent.contains(tensor));
        };
        let both: Vec<_> = cells.iter().zip(&keys).collect();
        parallel(&both, threads, &|(cell, keys)| {
            let cell = cell.as_ref().map_err(Clone::clone)?;
            self.load(cell, keys)
        })
    }

    /// What the stages of one cell take.
    ///
    /// # Errors
    /// When the model cannot be cut or differentiated like this.
    pub(crate) fn load_of(&mut self, cell: Cell<'_>) -> Result<Vec<StageLoad>, Reason> {
        let found = self.loads(&[Ok(cell)], 1).into_iter().next();
        found.expect("a cell has its loads")
    }

    fn keys(&self, cell: &Cell<'_>) -> Vec<PatternKey> {
        let reach = match self.straight.contains(&cell.tensor) {
            true => Reach::All,
            false => Reach::One(cell.examples),
        };
        let kinds = match self.shapes.get(&cell.tensor) {
            // What a table says of a call may depend on more than shapes.
            Some(shapes) if self.program.profiles.is_empty() => shapes.kinds(cell.cuts),
            _ => places(&self.program.model, cell.cuts),
        };
        let kinds = kinds.into_iter().zip(&cell.forms);
        kinds.map(|(kind, form)| (cell.tensor, reach, *form, kind)).collect()
    }

    /// Derives the patterns that are not yet known. Where calls turn out to be on no lines, the way
    /// to split tensors is told.
    fn derive(
        &mut self,
        cells: &[Result<Cell<'_>, Reason>],
        keys: &[Vec<PatternKey>],
        threads: usize,
    ) -> BTreeSet<Tensor> {
        let mut bent = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut wanted: Vec<(&Cell<'_>, BTreeMap<Stage, &PatternKey>)> = Vec::new();
        for (cell, keys) in cells.iter().zip(keys) {
            let Ok(cell) = cell else { continue };
            let fresh = keys.iter().enumerate().filter(|(_, key)| {
                !self.patterns.contains_key(*key) && seen.insert(*key)
            });
            let fresh: BTreeMap<Stage, &PatternKey> =
                fresh.map(|(stage, key)| (Stage::new(stage), key)).collect();
            if !fresh.is_empty() {
                wanted.push((cell, fresh));
            }
        }
        let found = parallel(&wanted, threads, &|(cell, keys)| {
            let stages: BTreeSet<Stage> = keys.keys().copied().collect();
            let form = |stage: Stage| cell.forms[stage.index()];
            let reach = keys.values().next().map_or(Reach::All, |key| key.1);
            let size = (reach, cell.tensor);
            patterns(self.program, (cell.cuts, form), &stages, size, self.costs)
                .map_err(|error| Reason::Refused(error.to_string()))
        });
        for ((cell, keys), found) in wanted.into_iter().zip(found) {
            let Some(found) = found.transpose() else {
                bent.insert(cell.tensor);
                continue;
            };
            for (stage, key) in keys {
                let pattern = found.as_ref().map_err(Clone::clone);
                let pattern = pattern.map(|all| all[&stage].clone());
                self.patterns.insert(key.clone(), pattern);
            }
        }
        bent
    }

    fn load(
        &self,
        cell: &Cell<'_>,
        keys: &[PatternKey],
    ) -> Result<Vec<StageLoad>, Reason> {
        let mut known: BTreeMap<&PatternKey, Arriving> = BTreeMap::new();
        let mut stages = Vec::with_capacity(keys.len());
        for key in keys {
            let one = match known.get(key) {
                Some(one) => one.clone(),
                None => {
                    let pattern = self.patterns[key].as_ref().map_err(Clone::clone)?;
                    let one = pattern.at(cell.examples, self.costs);
                    known.insert(key, one.clone());
                    one
                }
            };
            stages.push(one);
        }
        Ok(in_a_row(stages))
    }
}
