//! The compute tasks of one period, in an order in which they could run one by one.

use crate::BackwardForm;
use roundelay_schedule::{Id, MicroBatch, Order, Pass, Placement, Plan, Stage};
use std::collections::BTreeMap;

/// One pass of one stage on one micro-batch, and how many periods after its step it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) pass: Pass,
    pub(crate) stage: Stage,
    pub(crate) micro_batch: MicroBatch,
    pub(crate) lag: u32,
    /// When it starts in its period if passes take equal time, in units of the order.
    pub(crate) start: u64,
    /// When it ends; beyond the period for what runs into the next one.
    pub(crate) end: u64,
}

/// The slots of one period; each pass of a (stage, micro-batch) stands once: F and B or, for all
/// micro-batches of a stage alike, F, I and W.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    stages: usize,
    micro_batches: usize,
    index: BTreeMap<(Pass, Stage, MicroBatch), u32>,
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
    pub(crate) fn new(plan: &Plan, micro_batches: u32) -> Self {
        let size = Size { stages: plan.stages, micro_batches };
        let slots = match (plan.order, plan.placement) {
            (Order::Sequential, _) => size.sequential(),
            (Order::Parallel, _) => size.parallel(),
            (Order::Gpipe, _) => size.gpipe(),
            (Order::OneForwardOneBackward, _) => size.one_forward_one_backward(),
            (Order::Cyclic, Placement::Pipeline) => size.flush_free(),
            (Order::Cyclic, _) => size.staggered(),
        };
        Self::index(slots, size)
    }

    fn index(slots: Vec<Slot>, size: Size) -> Self {
        let (stages, micro_batches) = (size.stages as usize, size.micro_batches as usize);
        let key = |slot: &Slot| (slot.pass, slot.stage, slot.micro_batch);
        let index: BTreeMap<_, u32> = slots.iter().map(key).zip(0..).collect();
        assert_eq!(index.len(), slots.len(), "no pass stands twice");
        let order = Self { slots, stages, micro_batches, index };
        for (stage, i) in
            order.stages().flat_map(|j| order.micro_batches().map(move |i| (j, i)))
        {
            let stands = |pass: &Pass| order.index.contains_key(&(*pass, stage, i));
            let all = order.passes(stage).iter().all(stands);
            assert!(all, "each pass of {stage} on {i} stands once");
        }
        let each = order.stages().map(|stage| order.passes(stage).len() * micro_batches);
        assert_eq!(order.slots.len(), each.sum(), "no other pass stands there");
        order
    }

    /// Whether a stage's backward passes stand in the list whole or in halves.
    pub(crate) fn form(&self, stage: Stage) -> BackwardForm {
        let key = (Pass::WeightGradient, stage, MicroBatch::new(0));
        match self.index.contains_key(&key) {
            true => BackwardForm::Split,
            false => BackwardForm::Whole,
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

    /// The last pass of one micro-batch through a stage: its parameter gradients are made.
    pub(crate) fn closing(&self, stage: Stage) -> Pass {
        *self.passes(stage).last().expect("a stage has passes")
    }

    /// Where a pass stands in the list, and its slot.
    pub(crate) fn find(&self, pass: Pass, stage: Stage, i: MicroBatch) -> (u32, Slot) {
        let number = self.index[&(pass, stage, i)];
        (number, self.slots[number as usize])
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
        let (stages, micro_batches) = [self.stages, self.micro_batches]
            .map(|count| u32::try_from(count).expect("it was one before"))
            .into();
        Self::index(slots.collect(), Size { stages, micro_batches })
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

#[derive(Clone, Copy)]
struct Size {
    stages: u32,
    micro_batches: u32,
}

/// A pass with the time at which it starts; the list is sorted by it.
struct Timed {
    start: u64,
    pass: Pass,
    stage: u32,
    micro_batch: u32,
}

impl Size {
    fn sequential(self) -> Vec<Slot> {
        let turn = 2 * u64::from(self.stages);
        self.timed(|i, step| turn * u64::from(i) + step).lag_free()
    }

    fn parallel(self) -> Vec<Slot> {
        self.timed(|_, step| step).lag_free()
    }

    fn gpipe(self) -> Vec<Slot> {
        let flush = u64::from(self.micro_batches);
        let stages = u64::from(self.stages);
        let start = |i, step| u64::from(i) + step + if step < stages { 0 } else { flush };
        self.timed(start).lag_free()
    }

    /// Worker i starts 2S/N slots after worker i − 1 and goes up and down the stages without
    /// rest (`facts` of arXiv 2403.08837: F = 2Nt + 2(i−1) + (j−1), B = 2Nt + 2(i−1) + 2N − j
    /// for S = N). Times count N-th parts of a slot, so that 2S/N is whole.
    fn staggered(self) -> Vec<Slot> {
        let (stages, parts) = (u64::from(self.stages), u64::from(self.micro_batches));
        let start = |i, step| 2 * stages * u64::from(i) + parts * step;
        // Where workers follow each other faster than a pass takes, what a pass makes possible
        // stands above the same pass of the next worker, which needs it.
        self.timed(start).modulo(2 * stages * parts, parts.min(2 * stages))
    }

    /// A micro-batch enters every two slots and never waits; stage j alternates forward and
    /// backward.
    fn flush_free(self) -> Vec<Slot> {
        let start = |i, step| 2 * u64::from(i) + step;
        self.timed(start).modulo(2 * u64::from(self.micro_batches), 1)
    }

    /// `start(i, step)` for step 0 .. 2S: forward of stage `step`, then backward of stage
    /// 2S − 1 − `step`.
    fn timed(self, start: impl Fn(u32, u64) -> u64) -> Vec<Timed> {
        let of = |i: u32, step: u32| {
            let (pass, stage) = match step < self.stages {
                true => (Pass::Forward, step),
                false => (Pass::Backward, 2 * self.stages - 1 - step),
            };
            Timed { start: start(i, u64::from(step)), pass, stage, micro_batch: i }
        };
        let steps = 0..2 * self.stages;
        steps.flat_map(|step| (0..self.micro_batches).map(move |i| of(i, step))).collect()
    }

    /// Device by device: S − j forward passes to warm up, then one backward and one forward in
    /// turn; merged by the earliest start when each pass takes one slot.
    fn one_forward_one_backward(self) -> Vec<Slot> {
        let mut queues: Vec<Vec<(Pass, u32)>> =
            (0..self.stages).map(|stage| self.device_queue(stage)).collect();
        queues.iter_mut().for_each(|queue| queue.reverse());
        let mut done = vec![[0u32; 2]; self.stages as usize];
        let mut passes = Vec::new();
        for start in 0.. {
            let before = done.clone();
            for stage in 0..self.stages {
                let Some((pass, i)) = queues[stage as usize].last().copied() else {
                    continue;
                };
                if self.ready(&before, pass, stage, i) {
                    queues[stage as usize].pop();
                    done[stage as usize][usize::from(pass == Pass::Backward)] += 1;
                    passes.push(Timed { start, pass, stage, micro_batch: i });
                }
            }
            if queues.iter().all(Vec::is_empty) {
                break;
            }
        }
        passes.lag_free()
    }

    fn device_queue(self, stage: u32) -> Vec<(Pass, u32)> {
        let warm = (self.stages - stage).min(self.micro_batches);
        let mut queue: Vec<_> = (0..warm).map(|i| (Pass::Forward, i)).collect();
        for i in 0..self.micro_batches {
            queue.push((Pass::Backward, i));
            if i + warm < self.micro_batches {
                queue.push((Pass::Forward, i + warm));
            }
        }
        queue
    }

    fn ready(self, done: &[[u32; 2]], pass: Pass, stage: u32, i: u32) -> bool {
        let stage = stage as usize;
        match pass {
            Pass::Forward => stage == 0 || done[stage - 1][0] > i,
            _ => done[stage][0] > i && done.get(stage + 1).is_none_or(|next| next[1] > i),
        }
    }
}

trait Sorted {
    fn lag_free(self) -> Vec<Slot>;
    fn modulo(self, period: u64, duration: u64) -> Vec<Slot>;
}

impl Sorted for Vec<Timed> {
    fn lag_free(self) -> Vec<Slot> {
        self.modulo(u64::MAX, 1)
    }

    /// Sorts by the time within the period. At one time a backward pass stands first: it frees
    /// what a forward pass takes.
    fn modulo(mut self, period: u64, duration: u64) -> Vec<Slot> {
        let forward = |timed: &Timed| timed.pass == Pass::Forward;
        self.sort_by_key(|timed| {
            (timed.start % period, forward(timed), timed.micro_batch)
        });
        let slot = |timed: &Timed| Slot {
            pass: timed.pass,
            stage: Stage::new(timed.stage as usize),
            micro_batch: MicroBatch::new(timed.micro_batch as usize),
            lag: u32::try_from(timed.start / period).unwrap_or(u32::MAX),
            start: timed.start % period,
            end: timed.start % period + duration,
        };
        self.iter().map(slot).collect()
    }
}
