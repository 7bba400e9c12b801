//! What one instance of an action does.

use super::{Loss, Shared, launch::Rendezvous, rank::label};
use crate::{
    code::Code,
    lock::lock,
    machine::{Joint, Launched, Span, input_of},
    memory::{Arguments, Claim},
    native::number_of,
};
use roundelay_schedule::{Action, ActionId, Id, LinkId, MicroBatch, Nanos, Spot, Work};
use std::{ops::ControlFlow, sync::atomic::Ordering};

/// One instance that executes.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) id: ActionId,
    pub(super) action: &'a Action,
    pub(super) period: i64,
    /// The step that it serves; −1 for moves of what the run starts from.
    pub(super) step: i64,
    /// Number of the coordinate, for actions that are not joint.
    pub(super) coordinate: usize,
}

/// What one thread executes actions with; sized once.
pub(super) struct Executor<'a> {
    pub(super) shared: &'a Shared,
    pub(super) arguments: Arguments,
    pub(super) operands: Vec<*mut u8>,
    /// Times of the calls of the last launch, when the machine records.
    pub(super) times: Vec<Nanos>,
    /// Exchanges with the other rows.
    pub(super) rendezvous: Rendezvous<'a>,
}

impl<'a> Executor<'a> {
    /// Room for every routine of the schedule, on thread `thread`.
    pub(super) fn new(shared: &'a Shared, thread: usize) -> Self {
        let arguments =
            shared.schedule.routines.values().map(|r| r.arguments.len()).max();
        let operands = shared.code.values().map(Code::widest).max();
        Self {
            shared,
            arguments: Arguments::new(arguments.unwrap_or(0)),
            operands: Vec::with_capacity(operands.unwrap_or(0)),
            times: Vec::new(),
            rendezvous: Rendezvous::new(shared, thread),
        }
    }

    /// Does what the action says, within a claim on its touches; breaks when everything stops
    /// before that is done.
    pub(super) fn execute(
        &mut self,
        turn: Turn<'_>,
        mut claim: Claim,
    ) -> ControlFlow<()> {
        match turn.action.work {
            Work::Launch { at, routine, micro_batch, ref rows, .. } => {
                let launched = Launched { at, routine, micro_batch, rows };
                return self.launch(turn, launched, &mut claim);
            }
            Work::Transfer { link, from, to, .. } => {
                return self.transfer(turn, &mut claim, link, from, to);
            }
            Work::Collective { link, kind, group, from, to, .. } => {
                let period = turn.period;
                let joint = Joint { link, kind, group, from, to, period };
                return self.collective(turn, joint, &mut claim);
            }
            Work::Feed { at, micro_batch, row } => {
                self.feed(turn, &mut claim, micro_batch, Spot { at, row });
            }
            Work::Report { at, micro_batch, row } => {
                self.report(turn, &claim, micro_batch, Spot { at, row });
            }
        }
        ControlFlow::Continue(())
    }

    fn transfer(
        &mut self,
        turn: Turn<'_>,
        claim: &mut Claim,
        link: LinkId,
        from: Spot,
        to: Spot,
    ) -> ControlFlow<()> {
        let Shared { schedule, coordinates, meter, share, .. } = self.shared;
        let coordinate = &coordinates[turn.coordinate];
        let span =
            |spot: Spot| Span::of(schedule, spot.at, spot.row, turn.period, coordinate);
        let (from, to) = (span(from), span(to));
        let bytes = from.len().min(to.len());
        if from.device != to.device && share.has(from.device) {
            meter.message();
            meter.moved(link, from.device, bytes);
        }
        self.bring(turn, claim, &from.part(0..bytes), &to)
    }

    /// Brings a range to the start of another: by a copy, or by a message of which one end is here.
    pub(super) fn bring(
        &self,
        turn: Turn<'_>,
        claim: &mut Claim,
        from: &Span,
        to: &Span,
    ) -> ControlFlow<()> {
        let Shared { arenas, share, .. } = self.shared;
        match (share.has(from.device), share.has(to.device)) {
            (true, true) => {
                let source = arenas.of(from.device);
                let target = arenas.of(to.device);
                source.copy(claim, from.bytes.clone(), target, to.bytes.start);
            }
            (true, false) => {
                let bytes = arenas.of(from.device).read(claim, from.bytes.clone());
                return self.shared.send(label(&turn), to.device, bytes);
            }
            (false, true) => {
                let brought =
                    self.shared.receive(label(&turn), from.device, from.len())?;
                let (block, target) = (brought.block(), arenas.of(to.device));
                block.copy(claim, 0..block.len(), target, to.bytes.start);
            }
            (false, false) => {}
        }
        ControlFlow::Continue(())
    }

    fn feed(
        &mut self,
        turn: Turn<'_>,
        claim: &mut Claim,
        micro_batch: MicroBatch,
        spot: Spot,
    ) {
        let Shared { schedule, arenas, batches, feed, feeding, .. } = self.shared;
        let id = input_of(schedule, spot.row);
        let size = schedule.job.inputs[id].bytes(schedule.job.dtype).0;
        let mut feed = lock(feed);
        feeding.store(turn.id.index() + 1, Ordering::Relaxed);
        for (coordinate, span) in self.everywhere(turn, spot, size) {
            let bytes = arenas.of(span.device).write(claim, span.bytes);
            let micro_batch = batches.global(coordinate, Some(micro_batch));
            feed.fill(id, step(turn), micro_batch, bytes);
        }
        feeding.store(0, Ordering::Relaxed);
    }

    /// The parts of a split tensor have the same losses; the first of them tells it.
    fn report(
        &mut self,
        turn: Turn<'_>,
        claim: &Claim,
        micro_batch: MicroBatch,
        spot: Spot,
    ) {
        let Shared { schedule, arenas, coordinates, batches, .. } = self.shared;
        let dtype = schedule.job.dtype;
        for (coordinate, span) in self.everywhere(turn, spot, dtype.size()) {
            if schedule.part_at(&coordinates[coordinate]) > 0 {
                continue;
            }
            let bytes = arenas.of(span.device).read(claim, span.bytes);
            self.shared.report(Loss {
                step: step(turn),
                micro_batch: batches.global(coordinate, Some(micro_batch)),
                loss: number_of(dtype, bytes),
            });
        }
    }

    /// The first bytes of a row at each coordinate, with its number, where they are in this process.
    fn everywhere(
        &self,
        turn: Turn<'_>,
        Spot { at, row }: Spot,
        size: u64,
    ) -> impl Iterator<Item = (usize, Span)> + use<'a> {
        let Shared { schedule, coordinates, share, .. } = self.shared;
        let period = turn.period;
        let span = move |coordinate: &Vec<u32>| {
            Span::of(schedule, at, row, period, coordinate).part(0..size)
        };
        let spans = coordinates.iter().map(span).enumerate();
        spans.filter(|(_, span)| share.has(span.device))
    }
}

/// The training step that an instance serves.
pub(super) fn step(turn: Turn<'_>) -> u64 {
    u64::try_from(turn.step).expect("only moves serve a step before the first")
}
