//! From losses of micro-batches, which arrive as devices give them, to losses of steps.

use crate::machine::Loss;
use roundelay_schedule::Schedule;
use std::collections::VecDeque;

/// Losses of the steps that are under way.
///
/// Nothing waits for a report but the next one from the same place, so a device whose host is held
/// up can be steps behind the others. Hence as many steps are under way as there happen to be:
/// room is made for those of one period, and more is made on the way.
pub(super) struct StepLosses {
    /// By step; the first is `next`.
    under_way: VecDeque<Row>,
    /// Rows of steps that are complete, to be used again.
    spare: Vec<Row>,
    micro_batches: usize,
    next: u64,
}

struct Row {
    losses: Vec<f64>,
    missing: usize,
}

impl StepLosses {
    /// Nothing yet; the first complete step will be `first`.
    pub(super) fn new(schedule: &Schedule, first: u64) -> Self {
        let (lag, _) = schedule.span();
        let micro_batches = schedule.plan.all_micro_batches() as usize;
        Self::with(micro_batches, lag as usize + 1, first)
    }

    fn with(micro_batches: usize, room: usize, first: u64) -> Self {
        let spare = (0..room).map(|_| Row::new(micro_batches)).collect();
        let under_way = VecDeque::with_capacity(room);
        Self { under_way, spare, micro_batches, next: first }
    }

    /// Takes the loss of a micro-batch; hands on each step that is complete with all before it:
    /// the mean over micro-batches, summed in their order.
    pub(super) fn add(&mut self, loss: Loss, mut complete: impl FnMut(u64, f64)) {
        let row = self.row(loss.step);
        row.losses[loss.micro_batch as usize] = loss.loss;
        row.missing -= 1;
        while self.under_way.front().is_some_and(|row| row.missing == 0) {
            let Some(mut row) = self.under_way.pop_front() else { return };
            let sum: f64 = row.losses.iter().sum();
            complete(self.next, sum / self.micro_batches as f64);
            row.missing = self.micro_batches;
            self.spare.push(row);
            self.next += 1;
        }
    }

    fn row(&mut self, step: u64) -> &mut Row {
        let ahead =
            step.checked_sub(self.next).expect("a complete step has all its losses");
        while self.under_way.len() as u64 <= ahead {
            let spare = self.spare.pop();
            self.under_way
                .push_back(spare.unwrap_or_else(|| Row::new(self.micro_batches)));
        }
        &mut self.under_way[ahead as usize]
    }
}

impl Row {
    fn new(micro_batches: usize) -> Self {
        Self { losses: vec![0.0; micro_batches], missing: micro_batches }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes complete of losses of two micro-batches from step 5 on, with room for one step.
    fn complete_of(losses: &[(u64, u64, f64)]) -> Vec<(u64, f64)> {
        let mut gathered = StepLosses::with(2, 1, 5);
        let mut complete = Vec::new();
        for &(step, micro_batch, loss) in losses {
            let loss = Loss { step, micro_batch, loss };
            gathered.add(loss, |step, mean| complete.push((step, mean)));
        }
        complete
    }

    #[test]
    fn steps_become_complete_with_the_mean_of_their_losses() {
        let losses = [
            (5, 1, 1.0),
            (6, 1, 3.0),
            (5, 0, 2.0),
            (7, 1, 0.0),
            (6, 0, 1.0),
            (7, 0, 8.0),
        ];
        assert_eq!(complete_of(&losses), [(5, 1.5), (6, 2.0), (7, 4.0)]);
    }

    #[test]
    fn a_report_may_be_steps_late() {
        let losses = [
            (5, 1, 1.0),
            (6, 1, 3.0),
            (7, 1, 0.0),
            (6, 0, 1.0),
            (7, 0, 8.0),
            (5, 0, 2.0),
        ];
        assert_eq!(complete_of(&losses[..5]), []);
        assert_eq!(complete_of(&losses), [(5, 1.5), (6, 2.0), (7, 4.0)]);
    }
}
