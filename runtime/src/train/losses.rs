//! From losses of micro-batches, which arrive as devices give them, to losses of steps.

use crate::machine::Loss;
use roundelay_schedule::Schedule;

/// Losses of the steps that are under way; sized once.
pub(super) struct StepLosses {
    rows: Vec<Row>,
    micro_batches: usize,
    next: u64,
}

#[derive(Clone)]
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

    /// A machine hands losses on after any number of them, so `under_way` steps at least may be
    /// incomplete at one time: those of one period.
    fn with(micro_batches: usize, under_way: usize, first: u64) -> Self {
        let row = Row { losses: vec![0.0; micro_batches], missing: micro_batches };
        Self { rows: vec![row; under_way], micro_batches, next: first }
    }

    /// Takes the loss of a micro-batch; when that makes its step complete, hands on the mean over
    /// micro-batches, summed in their order.
    pub(super) fn add(&mut self, loss: Loss, mut complete: impl FnMut(u64, f64)) {
        let row = (loss.step % self.rows.len() as u64) as usize;
        self.rows[row].losses[loss.micro_batch as usize] = loss.loss;
        self.rows[row].missing -= 1;
        if self.rows[row].missing == 0 {
            assert_eq!(loss.step, self.next, "steps become complete in order");
            let sum: f64 = self.rows[row].losses.iter().sum();
            complete(loss.step, sum / self.micro_batches as f64);
            self.rows[row].missing = self.micro_batches;
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_become_complete_in_order_with_the_mean_of_their_losses() {
        let mut losses = StepLosses::with(2, 2, 5);
        let mut complete = Vec::new();
        for (step, micro_batch, loss) in
            [(5, 1, 1.0), (6, 1, 3.0), (5, 0, 2.0), (7, 1, 0.0), (6, 0, 1.0), (7, 0, 8.0)]
        {
            let loss = Loss { step, micro_batch, loss };
            losses.add(loss, |step, mean| complete.push((step, mean)));
        }
        assert_eq!(complete, [(5, 1.5), (6, 2.0), (7, 4.0)]);
    }
}
