//! What a reader gets: rankings as tables and documents, plan files, reasons, remarks, and what would
//! change.

pub(crate) mod aligned;
pub(crate) mod amounts;
pub(crate) mod appraise;
pub(crate) mod approach;
pub(crate) mod blame;
pub(crate) mod breach;
pub(crate) mod decisions;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod front;
pub(crate) mod idle;
pub(crate) mod json;
pub(crate) mod plan_file;
pub(crate) mod refusal;
pub(crate) mod remarks;
pub(crate) mod repair;
pub(crate) mod row_by_row;
pub(crate) mod shifted_cuts;
pub(crate) mod table;
pub(crate) mod unaligned;
pub(crate) mod what_if;
pub(crate) mod workload;
