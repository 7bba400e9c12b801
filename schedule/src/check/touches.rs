//! The touches of an action, one after another without a list.

use crate::{Access, Place, Row, Schedule, Touch, Work};

/// Calls `visit` with every touch of an action, in the order of [`Schedule::touches`]; a
/// collective's members stand in group order.
pub(super) fn each(schedule: &Schedule, work: &Work, mut visit: impl FnMut(Touch)) {
    let mut touch = |at: Place, row: Row, access| visit(Touch { at, row, access });
    match work {
        Work::Launch { at, routine, rows, .. } => {
            let arguments = &schedule.routines[*routine].arguments;
            for (row, argument) in rows.iter().zip(arguments) {
                touch(*at, *row, argument.access);
            }
        }
        Work::Transfer { from, to, .. } => {
            touch(from.at, from.row, Access::Read);
            touch(to.at, to.row, Access::Write);
        }
        Work::Collective { group, from, to, .. } => {
            for at in &schedule.groups[*group].places {
                if from == to {
                    touch(*at, *to, Access::Update);
                } else {
                    touch(*at, *from, Access::Read);
                    touch(*at, *to, Access::Write);
                }
            }
        }
        Work::Feed { at, row, .. } => touch(*at, *row, Access::Write),
        Work::Report { at, row, .. } => touch(*at, *row, Access::Read),
    }
}
