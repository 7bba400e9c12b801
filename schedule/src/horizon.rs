//! How far back a period looks: the first instance whose touch no write has covered when the
//! period begins.

use crate::{Access, Cells, Schedule, Turned, Writes};

/// An instance of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Horizon {
    /// The period.
    pub period: u64,
    /// The place of its action in the list.
    pub line: usize,
}

impl Horizon {
    /// The first instance that touches a cell which nobody writes between it and `period`; the
    /// start of `period` if there is none.
    ///
    /// An instance of `period` or later that conflicts with one above the horizon also conflicts
    /// with the write in between. So what is ordered, and what waits for what, can be found from
    /// the horizon on: whatever leads from one instance to another stands between them in the list.
    pub fn before(
        period: u64,
        schedule: &Schedule,
        (cells, writes): (&Cells, &Writes),
    ) -> Self {
        let mut open = writes.ever.clone();
        let mut left = open.iter().filter(|open| **open).count();
        let mut horizon = Self { period, line: 0 };
        let mut turned = Turned::new(schedule, cells, 0);
        let mut written = Vec::new();
        for period in (0..period).rev() {
            turned.turn_to(i64::try_from(period).unwrap_or(i64::MAX));
            for (line, action) in schedule.actions.values().enumerate().rev() {
                if left == 0 {
                    return horizon;
                }
                turned.each_cell(action, |access, cell| {
                    if open[cell] {
                        horizon = Self { period, line };
                        if access != Access::Read {
                            written.push(cell);
                        }
                    }
                });
                for cell in written.drain(..) {
                    left -= usize::from(std::mem::take(&mut open[cell]));
                }
            }
        }
        horizon
    }

    /// How many lines of a period, which is not below it, lie above it.
    pub fn lines_above(self, period: u64) -> usize {
        if period == self.period { self.line } else { 0 }
    }
}
