//! What the stages of all plans take, each pattern of stages derived once.

use crate::{
    costs::{
        alike::{Kind, Shapes},
        bill::Reach,
        calls::{Costs, Kinds},
        core::{Core, Place, Shortened, Within},
        load::StageLoad,
        nodes::Nodes,
        pattern::{Pattern, Taken, in_a_row, patterns},
    },
    parallel::parallel,
    space::reason::Reason,
};
use roundelay_codegen::{BackwardForm, StageForm};
use roundelay_dsl::Program;
use roundelay_schedule::{DeviceList, Id, Order, Pass, Stage, Tensor, listed_in};
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
    /// The kinds of devices of each stage; none where what stages take on the fastest will do.
    pub kinds: &'a [Kinds],
}

impl Cell<'_> {
    /// The same where a share of what is computed again is none of it, and where it is all, where these
    /// differ.
    fn ways(&self) -> Vec<Self> {
        let way = |which: usize| {
            let form = |form: &StageForm| StageForm {
                recompute: form.recompute.ways()[which],
                ..*form
            };
            Self { forms: self.forms.iter().map(form).collect(), ..self.clone() }
        };
        let [last, first] = [0, 1].map(way);
        if last.forms == first.forms { vec![last] } else { vec![last, first] }
    }
}

/// What some stages take at least, whichever of two ways they go.
fn least_of(one: Vec<StageLoad>, other: &[StageLoad]) -> Vec<StageLoad> {
    one.iter().zip(other).map(|(one, other)| one.least(other)).collect()
}

/// How an order has the backward pass of a stage; one's own lists say so themselves.
pub(crate) fn backward_form(
    order: Order,
    lists: &[DeviceList],
    stage: Stage,
) -> BackwardForm {
    let mut listed = lists.iter().flat_map(|list| listed_in(list));
    let split = match order {
        Order::Listed => {
            listed.any(|one| one.stage == stage && one.pass == Pass::InputGradient)
        }
        order => order.splits_backward(),
    };
    if split { BackwardForm::Split } else { BackwardForm::Whole }
}

/// What decides what a stage takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PatternKey {
    within: Within,
    tensor: Tensor,
    reach: Reach,
    form: StageForm,
    kind: Kind,
}

/// Patterns whose stages are at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    within: Within,
    tensor: Tensor,
    reach: Reach,
    place: Place,
}

/// The pattern of a stage, and where one is.
#[derive(Clone, Debug)]
struct Placed {
    place: Place,
    key: PatternKey,
}

/// The patterns that say what a stage takes.
#[derive(Clone, Debug)]
struct StagePatterns {
    short: Placed,
    /// Layers that the short one has not.
    missing: u64,
    /// What a layer adds is what the first takes without what the second does.
    slope: Option<[Placed; 2]>,
}

/// A cell and the patterns of its stages.
struct Wanted<'c> {
    cell: &'c Cell<'c>,
    stages: Vec<StagePatterns>,
}

/// The stages that are known.
pub(crate) struct KnownStages<'a> {
    program: &'a Program,
    costs: &'a Costs,
    core: Core,
    shapes: BTreeMap<Tensor, Shapes>,
    /// Ways to split tensors whose calls are on lines.
    straight: BTreeSet<Tensor>,
    patterns: BTreeMap<PatternKey, Result<Pattern, Reason>>,
}

impl<'a> KnownStages<'a> {
    /// No stage is known yet of a program whose short model has these nodes.
    pub(crate) fn new(
        program: &'a Program,
        costs: &'a Costs,
        core: Core,
        nodes: &BTreeMap<Tensor, Nodes>,
    ) -> Self {
        let shapes = nodes.iter();
        let shapes = shapes
            .map(|(tensor, own)| (*tensor, Shapes::new(&core.model, &own.marks)))
            .collect();
        let straight = nodes.iter().filter(|(_, own)| own.reach == Reach::Most);
        let straight = straight.map(|(tensor, _)| *tensor).collect();
        Self { program, costs, core, shapes, straight, patterns: BTreeMap::new() }
    }

    /// What the stages of each cell take; at least, where the layers of a stage differ in what they
    /// compute again: no more is known of a stage than what it takes where all do alike.
    pub(crate) fn loads(
        &mut self,
        cells: &[Result<Cell<'_>, Reason>],
    ) -> Vec<Result<Vec<StageLoad>, Reason>> {
        let mut all = Vec::with_capacity(cells.len());
        let numbers = cells.iter().map(|cell| {
            let before = all.len();
            match cell {
                Ok(cell) => all.extend(cell.ways().into_iter().map(Ok)),
                Err(reason) => all.push(Err(reason.clone())),
            }
            all.len() - before
        });
        let numbers: Vec<usize> = numbers.collect();
        let mut found = self.loads_of_alike(&all).into_iter();
        let least = |number: &usize| {
            let mut own = found.by_ref().take(*number);
            let first = own.next().expect("every cell has a way");
            own.fold(first, |one, other| Ok(least_of(one?, &other?)))
        };
        numbers.iter().map(least).collect()
    }

    fn loads_of_alike(
        &mut self,
        cells: &[Result<Cell<'_>, Reason>],
    ) -> Vec<Result<Vec<StageLoad>, Reason>> {
        let cells = loop {
            let wanted: Vec<Result<Wanted<'_>, Reason>> = cells
                .iter()
                .map(|cell| {
                    cell.as_ref().map(|cell| self.wanted(cell)).map_err(Clone::clone)
                })
                .collect();
            let bent = self.derive(wanted.iter().flatten());
            if bent.is_empty() {
                break wanted;
            }
            self.straight.retain(|tensor| !bent.contains(tensor));
        };
        parallel(&cells, &|cell| {
            cell.as_ref().map_err(Clone::clone).and_then(|cell| self.load(cell))
        })
    }

    /// What the stages of one cell take.
    ///
    /// # Errors
    /// When the model cannot be cut or differentiated like this.
    pub(crate) fn load_of(&mut self, cell: Cell<'_>) -> Result<Vec<StageLoad>, Reason> {
        let found = self.loads(&[Ok(cell)]).into_iter().next();
        found.expect("a cell has its loads")
    }

    fn wanted<'c>(&self, cell: &'c Cell<'c>) -> Wanted<'c> {
        let tensor = cell.tensor;
        let reach = match self.straight.contains(&tensor) {
            true => Reach::widest(cell.examples, tensor),
            false => Reach::One(cell.examples),
        };
        // What a table says of a call may depend on more than shapes.
        let shapes = self.shapes.get(&tensor);
        let shapes = shapes.filter(|_| self.program.profiles.is_empty());
        let at = |within: Within, place: Place, form: StageForm| {
            let kind = match (within, shapes) {
                (Within::Short, Some(shapes)) => shapes.kind(place),
                (Within::Short, None) | (Within::Whole, _) => Kind::Own(place),
            };
            Placed { place, key: PatternKey { within, tensor, reach, form, kind } }
        };
        let stage = |(short, form): (Shortened, &StageForm)| {
            let slope = self.core.slope().filter(|_| short.missing > 0);
            StagePatterns {
                short: at(short.within, short.place, *form),
                missing: short.missing,
                slope: slope
                    .map(|places| places.map(|place| at(Within::Short, place, *form))),
            }
        };
        let stages = self.core.stages(cell.cuts, tensor).into_iter().zip(&cell.forms);
        Wanted { cell, stages: stages.map(stage).collect() }
    }

    /// Derives the patterns that are not yet known. Where calls turn out to be on no lines, the way
    /// to split tensors is told.
    fn derive<'c>(
        &mut self,
        cells: impl Iterator<Item = &'c Wanted<'c>>,
    ) -> BTreeSet<Tensor> {
        let each = cells.flat_map(|cell| &cell.stages);
        let each = each.flat_map(|stage| {
            stage.slope.iter().flatten().chain(std::iter::once(&stage.short))
        });
        let fresh: BTreeMap<&PatternKey, Place> = each
            .filter(|own| !self.patterns.contains_key(&own.key))
            .map(|own| (&own.key, own.place))
            .collect();
        // Forms of one place share its graph.
        let mut groups: BTreeMap<Group, Vec<&PatternKey>> = BTreeMap::new();
        for (key, place) in fresh {
            let PatternKey { within, tensor, reach, .. } = *key;
            let group = Group { within, tensor, reach, place };
            groups.entry(group).or_default().push(key);
        }
        let groups: Vec<(Group, Vec<&PatternKey>)> = groups.into_iter().collect();
        let found = parallel(&groups, &|(group, keys)| {
            let forms: Vec<StageForm> = keys.iter().map(|key| key.form).collect();
            self.patterns_at(*group, &forms)
        });
        let keys = groups.into_iter().flat_map(|(_, keys)| keys);
        let mut bent = BTreeSet::new();
        for (key, found) in keys.zip(found.into_iter().flatten()) {
            match found.transpose() {
                Some(found) => drop(self.patterns.insert(key.clone(), found)),
                None => drop(bent.insert(key.tensor)),
            }
        }
        bent
    }

    /// What stages like the one at a place take, in some forms; nothing where its calls are on no
    /// lines.
    fn patterns_at(
        &self,
        Group { within, tensor, reach, place }: Group,
        forms: &[StageForm],
    ) -> Vec<Result<Option<Pattern>, Reason>> {
        let Place { before, start, end } = place;
        let model = match within {
            Within::Short => (self.program, &self.core.model),
            Within::Whole => (self.program, &self.program.model),
        };
        let ends = [before, start, end].into_iter();
        let cuts: BTreeSet<usize> =
            ends.filter(|cut| (1..model.1.cuttable()).contains(cut)).collect();
        let stage = Stage::new(cuts.iter().filter(|cut| **cut <= start).count());
        let cuts: Vec<u32> =
            cuts.into_iter().map(|cut| u32::try_from(cut).unwrap_or(u32::MAX)).collect();
        let wanted: Vec<_> = forms.iter().map(|form| (stage, *form)).collect();
        match patterns(model, (&cuts, tensor), &wanted, reach, self.costs) {
            Ok(found) => {
                found.into_iter().map(|one| one.map_err(Reason::refused)).collect()
            }
            Err(error) => forms.iter().map(|_| Err(Reason::refused(&error))).collect(),
        }
    }

    fn load<'w>(&self, wanted: &'w Wanted<'_>) -> Result<Vec<StageLoad>, Reason> {
        let mut known: BTreeMap<&PatternKey, Taken> = BTreeMap::new();
        let mut stages = Vec::with_capacity(wanted.stages.len());
        for StagePatterns { short, missing, slope } in &wanted.stages {
            let own = self.taken(wanted.cell.examples, &short.key, &mut known)?;
            stages.push(match slope {
                None => own,
                Some([more, less]) => {
                    let mut of = |own: &'w Placed| {
                        self.taken(wanted.cell.examples, &own.key, &mut known)
                    };
                    let (more, less) = (of(more)?, of(less)?);
                    own.longer(*missing, [&more, &less])
                }
            });
        }
        Ok(in_a_row(stages, wanted.cell.kinds))
    }

    fn taken<'k>(
        &self,
        examples: u32,
        key: &'k PatternKey,
        known: &mut BTreeMap<&'k PatternKey, Taken>,
    ) -> Result<Taken, Reason> {
        if let Some(one) = known.get(key) {
            return Ok(one.clone());
        }
        let pattern = self.patterns[key].as_ref().map_err(Clone::clone)?;
        let one = pattern.at(examples, self.costs);
        known.insert(key, one.clone());
        Ok(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        costs::{calls::On, core::stages_between, nodes::Times},
        sample,
    };
    use roundelay_dsl::{NoFiles, SourceFile, localised, parse};
    use roundelay_schedule::{DeviceId, Hop, Nanos};
    use std::ops::Range;

    /// One stage, then ever longer ones, of which the first ends at one of three places: the phase
    /// says where, so that several ways to split tensors have seen them all.
    fn some_cuts(end: usize, phase: usize) -> BTreeSet<Vec<u32>> {
        let end = u32::try_from(end).unwrap();
        let long = [7, 13, 20, 29, 47, 66, 91].into_iter().map(move |step: u32| {
            let first = [1, step / 3, step][phase % 3];
            (first..end).step_by(step as usize).collect()
        });
        std::iter::once(Vec::new()).chain(long).collect()
    }

    /// A cell of two examples for all cuts and forms. Asked for together, they share graphs.
    fn cells<'c>(
        cuts: impl IntoIterator<Item = &'c Vec<u32>>,
        tensor: Tensor,
    ) -> Vec<Result<Cell<'c>, Reason>> {
        let of = |(cuts, form): (&'c Vec<u32>, StageForm)| Cell {
            examples: 2,
            tensor,
            cuts,
            forms: vec![form; cuts.len() + 1],
            kinds: &[],
        };
        let pairs = cuts
            .into_iter()
            .flat_map(|cuts| sample::forms().map(move |form| (cuts, form)));
        pairs.map(|pair| Ok(of(pair))).collect()
    }

    #[test]
    fn stages_of_many_layers_follow_from_those_of_few() {
        [false, true].into_iter().for_each(follow_from_few);
    }

    /// Where the table of the embedding is that of the head too, or is not.
    fn follow_from_few(is_tied: bool) {
        let mut program = sample::program(4, 4);
        program.model = sample::gpt(12, 32, 16, is_tied);
        let (costs, core) = (Costs::new(&program), Core::new(&program));
        assert!(core.model.nodes.len() < program.model.nodes.len());
        let mut missing = 0;
        for (phase, tensor) in sample::SPLITS.into_iter().enumerate() {
            let known = |core: &Core| {
                let model = (&program, &core.model);
                let nodes = Nodes::new(model, (2, tensor), &costs).unwrap();
                let nodes = [(tensor, nodes)].into();
                KnownStages::new(&program, &costs, core.clone(), &nodes)
            };
            let mut exact = match is_tied {
                false => {
                    let (whole, none) = (Core::whole(&program), BTreeMap::new());
                    KnownStages::new(&program, &costs, whole, &none)
                }
                // Parts gather a whole table, however few examples there are; lines through larger
                // micro-batches say less.
                true => known(&Core::whole(&program)),
            };
            let mut known = known(&core);
            let cuts = some_cuts(program.model.cuttable(), phase);
            let layers = |cuts| {
                core.stages(cuts, tensor).iter().map(|one| one.missing).sum::<u64>()
            };
            missing += cuts.iter().map(|cuts| layers(cuts)).sum::<u64>();
            let cells = cells(&cuts, tensor);
            let (short, own) = (known.loads(&cells), exact.loads(&cells));
            for (cell, (short, own)) in cells.iter().zip(short.into_iter().zip(own)) {
                let stages = short.unwrap().into_iter().zip(own.unwrap());
                for (stage, (short, own)) in stages.enumerate() {
                    alike_but_for_rounding(short, &own, || {
                        format!("{stage} of {cell:?}")
                    });
                }
            }
        }
        assert!(missing > 50, "only {missing} layers were left out");
    }

    /// Updates of short models are rounded up layer by layer.
    fn alike_but_for_rounding(
        mut short: StageLoad,
        own: &StageLoad,
        which: impl Fn() -> String,
    ) {
        for [short, own] in [
            [short.update, own.update],
            [short.split.combine, own.split.combine],
            [short.split.update, own.split.update],
        ] {
            assert!((short..=short + Nanos(12)).contains(&own), "{}", which());
        }
        (short.update, short.split) = (own.update, own.split);
        assert_eq!(short, *own, "{}", which());
    }

    /// The same program with devices like one of them alone.
    fn of_one_kind(program: &Program, kind: DeviceId) -> Program {
        let mut alone = program.clone();
        let devices = &mut alone.target.devices;
        let own = devices[kind].clone();
        devices.iter_mut().for_each(|(_, device)| *device = own.clone());
        alone
    }

    /// First bounds come from nodes alone: whatever the cuts, they take no more than the stages do
    /// on a device of any kind.
    #[test]
    fn nodes_take_no_more_than_their_stages() {
        let mut program = sample::program(4, 4);
        // One kind computes fast, another one has fast memory.
        let slow = &mut program.target.devices[DeviceId::new(1)];
        slow.compute.0 /= 16;
        slow.bandwidth.0 *= 16;
        let models =
            [sample::gpt(4, 32, 16, false), sample::positioned(), sample::model()];
        let mut turned_sooner = 0;
        for model in models {
            program.model = model;
            let costs = Costs::new(&program);
            let of = |tensor| {
                let nodes = Nodes::new((&program, &program.model), (2, tensor), &costs);
                Some((tensor, nodes.ok()?))
            };
            let nodes: BTreeMap<_, _> =
                sample::SPLITS.into_iter().filter_map(of).collect();
            for kind in [0, 1] {
                let alone = of_one_kind(&program, DeviceId::new(kind));
                let (own, core) = (Costs::new(&alone), Core::whole(&alone));
                let mut known = KnownStages::new(&alone, &own, core, &nodes);
                for (phase, (tensor, nodes)) in (kind..).zip(&nodes) {
                    let times = nodes.times(2, On::Any, &costs);
                    let cuts = some_cuts(program.model.cuttable(), phase);
                    let cells = cells(&cuts, *tensor);
                    let loads = known.loads(&cells);
                    for (cell, loads) in cells.iter().flatten().zip(loads) {
                        turned_sooner += compared(&times, cell.cuts, &loads.unwrap());
                    }
                }
            }
        }
        assert!(turned_sooner > 100, "only {turned_sooner} stages have a second half");
    }

    /// Holds nodes to their stages; how many of them have a second half.
    fn compared(times: &Times, cuts: &[u32], loads: &[StageLoad]) -> usize {
        let stages = stages_between(cuts, times.passes.len());
        let late = |(own, load): (Range<usize>, &StageLoad)| {
            let sum =
                |times: &[Nanos]| -> Nanos { times[own.clone()].iter().copied().sum() };
            let (passes, turns) = (sum(&times.passes), sum(&times.turns));
            let turn = load.forward + load.turn();
            assert!(
                passes <= load.pass() && turns <= turn,
                "{own:?} of {cuts:?} {load:?}"
            );
            turns < passes
        };
        stages.zip(loads).filter(|one| late(one.clone())).count()
    }

    /// Units are stages too, whether gradients hop back between them or not.
    #[test]
    fn units_of_many_layers_follow_from_those_of_few() {
        let text = "model deep {
            input tokens:  i32[batch, 32]
            input targets: i32[batch, 32]
            x = embedding(tokens, 32, 16)
            repeat 14 as layer {
                x = x + attention(layer_norm(x), 2, causal = true)
                x = x + linear(gelu(linear(layer_norm(x), 32)), 16)
            }
            loss cross_entropy(linear(layer_norm(x), 32), targets)
        }";
        let source = SourceFile::new("deep.rdl", text);
        let whole = parse(&source, &NoFiles).unwrap().0.model;
        for (units, hop) in
            [(2, Hop::Added), (7, Hop::Added), (14, Hop::Alone), (7, Hop::None)]
        {
            let mut program = sample::program(4, 4);
            program.model = localised(&whole, units, hop).unwrap();
            let (costs, core) = (Costs::new(&program), Core::new(&program));
            let (all, none) = (Core::whole(&program), BTreeMap::new());
            let mut exact = KnownStages::new(&program, &costs, all, &none);
            for tensor in sample::SPLITS {
                let nodes = Nodes::new((&program, &core.model), (2, tensor), &costs);
                let nodes = [(tensor, nodes.unwrap())].into();
                let mut known = KnownStages::new(&program, &costs, core.clone(), &nodes);
                let cuts = program.model.boundaries();
                let cells = cells([&cuts], tensor);
                let (short, own) = (known.loads(&cells), exact.loads(&cells));
                for (cell, (short, own)) in cells.iter().zip(short.into_iter().zip(own)) {
                    let (mut short, own) = (short.unwrap(), own.unwrap());
                    for (short, own) in short.iter_mut().zip(&own) {
                        (short.update, short.split) = (own.update, own.split);
                    }
                    assert_eq!(short, own, "{units} {hop:?} {cell:?}");
                }
            }
        }
    }

    /// One example is added to as much as it is, so calls go together that do not for two; and
    /// between the sizes of lines nothing is taken from them.
    #[test]
    fn stages_take_what_their_own_size_says() {
        let mut program = sample::program(4, 4);
        for model in [sample::positioned(), sample::gpt(2, 32, 16, false)] {
            program.model = model;
            let (costs, core) = (Costs::new(&program), Core::whole(&program));
            let none = BTreeMap::new();
            let nodes =
                Nodes::new((&program, &core.model), (2, Tensor::WHOLE), &costs).unwrap();
            assert_eq!(nodes.reach, Reach::Most);
            let nodes = [(Tensor::WHOLE, nodes)].into();
            let mut known = KnownStages::new(&program, &costs, core.clone(), &nodes);
            let mut exact = KnownStages::new(&program, &costs, core, &none);
            for (examples, form) in [1, 2, 5, 17, 20, 31, 40]
                .into_iter()
                .flat_map(|examples| sample::forms().map(move |form| (examples, form)))
            {
                let cell = Cell {
                    examples,
                    tensor: Tensor::WHOLE,
                    cuts: &[2],
                    forms: vec![form; 2],
                    kinds: &[],
                };
                let own = exact.load_of(cell.clone()).unwrap();
                assert_eq!(known.load_of(cell).unwrap(), own, "{examples} {form:?}");
            }
        }
    }
}
