//! The compute tasks of one period, in an order in which they could run one by one.

mod chimera;
mod dual_pipe;
mod lists;
mod squeeze;
mod steps;
mod vee;
mod wave;

pub(super) use lists::descending;
pub use lists::device_lists;

use super::{LowerError, calendar::by_time};
use crate::BackwardForm;
use roundelay_schedule::{
    Id, Item, ItemTime, Listed, MicroBatch, Order, Pass, Placement, Plan, Stage, Units,
    item_times,
};
use steps::Size;

/// One pass of one stage on one micro-batch, and how many periods after its step it
/// stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) pass: Pass,
    pub(crate) stage: Stage,
    pub(crate) micro_batch: MicroBatch,
    pub(crate) lag: u32,
    /// When it starts in its period if passes take the times of the order, in its units.
    pub(crate) start: u64,
    /// When it ends; beyond the period for what runs into the next one.
    pub(crate) end: u64,
    /// The stage and micro-batch of the forward pass that it is beside, in the slots
    /// above.
    pub(crate) beside: Option<(Stage, MicroBatch)>,
}

/// The slots of one period. For each (stage, micro-batch) stand a forward pass and either
/// a backward pass or its two halves, each once.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    stages: usize,
    micro_batches: usize,
    index: Vec<Option<u32>>,
}

/// The passes of one micro-batch through a stage, in order.
pub(crate) fn passes(form: BackwardForm) -> &'static [Pass] {
    match form {
        BackwardForm::Whole => &[Pass::Forward, Pass::Backward],
        BackwardForm::Split => {
            &[Pass::Forward, Pass::InputGradient, Pass::WeightGradient]
        }
    }
}

impl Slots {
    /// The order of a plan for the `micro_batches` that one cell takes itself.
    pub(crate) fn new(plan: &Plan, micro_batches: u32) -> Result<Self, LowerError> {
        let size = Size { stages: plan.pass_stages(), micro_batches };
        let slots = match (plan.order, plan.placement) {
            (Order::Sequential, _) => size.sequential(&Units::of(plan)),
            (Order::Parallel, _) => size.parallel(&Units::of(plan)),
            (Order::Cyclic, Placement::Pipeline) => size.flush_free(),
            (Order::Cyclic, _) => size.staggered(),
            _ => of_lists(plan)?,
        };
        Ok(Self::indexed(slots, size))
    }

    fn indexed(slots: Vec<Slot>, size: Size) -> Self {
        let (stages, micro_batches) = (size.stages as usize, size.micro_batches as usize);
        let index = vec![None; Pass::ON_MICRO_BATCHES.len() * stages * micro_batches];
        let mut order = Self { slots, stages, micro_batches, index };
        for number in 0..order.len() {
            let Slot { pass, stage, micro_batch, .. } = order.slot(number);
            let cell = order.cell(pass, stage, micro_batch);
            let before = order.index[cell].replace(number);
            assert_eq!(before, None, "no pass stands twice");
        }
        let each = order.stages().map(|stage| order.passes(stage).len() * micro_batches);
        assert_eq!(order.slots.len(), each.sum(), "every pass stands once");
        order
    }

    fn cell(&self, pass: Pass, stage: Stage, micro_batch: MicroBatch) -> usize {
        let known = Pass::ON_MICRO_BATCHES.iter().position(|known| *known == pass);
        let kind = known.expect("only passes on a micro-batch stand in an order");
        (kind * self.stages + stage.index()) * self.micro_batches + micro_batch.index()
    }

    /// Where a pass stands in the list, and its slot.
    pub(crate) fn find(&self, pass: Pass, stage: Stage, i: MicroBatch) -> (u32, Slot) {
        let number = self.index[self.cell(pass, stage, i)].expect("the order has it");
        (number, self.slots[number as usize])
    }

    /// Whether a stage's backward passes stand in the list whole or in halves.
    pub(crate) fn form(&self, stage: Stage) -> BackwardForm {
        let whole = self.cell(Pass::Backward, stage, MicroBatch::new(0));
        match self.index[whole] {
            Some(_) => BackwardForm::Whole,
            None => BackwardForm::Split,
        }
    }

    /// The passes of one micro-batch through a stage, in order.
    pub(crate) fn passes(&self, stage: Stage) -> &'static [Pass] {
        passes(self.form(stage))
    }

    /// The pass that follows forward: gradients go on to earlier stages after it.
    pub(crate) fn turn(&self, stage: Stage) -> Pass {
        self.passes(stage)[1]
    }

    /// The last pass of one micro-batch through a stage: its parameter gradients are
    /// made.
    pub(crate) fn closing(&self, stage: Stage) -> Pass {
        *self.passes(stage).last().expect("a stage has passes")
    }

    /// The slot before which everything stands that a slot's pass needs: its own, or that
    /// of the forward pass that it is beside.
    pub(crate) fn head(&self, number: u32) -> u32 {
        let beside = self.slot(number).beside;
        beside.map_or(number, |(stage, i)| self.find(Pass::Forward, stage, i).0)
    }

    /// How many slots there are.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("slots are counted in 32 bits")
    }

    /// A slot by its number.
    pub(crate) fn slot(&self, number: u32) -> Slot {
        self.slots[number as usize]
    }

    /// All slots in list order, with their number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Slot)> {
        (0..).zip(self.slots.iter().copied())
    }

    /// The same order with each backward pass in halves, one right after the other.
    pub(crate) fn halved(&self) -> Self {
        let slots = self.slots.iter().flat_map(|slot| {
            let passes: &[Pass] = match slot.pass {
                Pass::Backward => &passes(BackwardForm::Split)[1..],
                _ => std::slice::from_ref(&slot.pass),
            };
            passes.iter().map(|pass| Slot { pass: *pass, ..*slot })
        });
        let [stages, micro_batches] = [self.stages, self.micro_batches]
            .map(|count| u32::try_from(count).expect("it was one before"));
        Self::indexed(slots.collect(), Size { stages, micro_batches })
    }

    /// All micro-batches of the cell.
    pub(crate) fn micro_batches(
        &self,
    ) -> impl DoubleEndedIterator<Item = MicroBatch> + use<> {
        (0..self.micro_batches).map(MicroBatch::new)
    }

    /// All stages.
    pub(crate) fn stages(&self) -> impl DoubleEndedIterator<Item = Stage> + use<> {
        (0..self.stages).map(Stage::new)
    }
}

/// The devices' lists, merged in the order of the time at which passes start.
fn of_lists(plan: &Plan) -> Result<Vec<Slot>, LowerError> {
    let lists = device_lists(plan);
    let times = item_times(&lists, &Units::of(plan)).map_err(LowerError::Stuck)?;
    let order = by_time(times.iter().map(|time| time.start), |n| times[n].list_order());
    let slots = |number: &u32| {
        let ItemTime { item, start, end } = &times[*number as usize];
        item.passes().iter().map(|listed| Slot {
            pass: listed.pass,
            stage: listed.stage,
            micro_batch: listed.micro_batch,
            lag: 0,
            start: *start,
            end: *end,
            beside: beside(item, *listed),
        })
    };
    let mut all = Vec::with_capacity(times.len());
    all.extend(order.iter().flat_map(slots));
    Ok(all)
}

/// The forward pass of a pair, for a backward pass in it.
fn beside(item: &Item, listed: Listed) -> Option<(Stage, MicroBatch)> {
    let first = item.first();
    (first != listed).then_some((first.stage, first.micro_batch))
}
