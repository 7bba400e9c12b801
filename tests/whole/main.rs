//! Whole schedules against the plain recursion, closed forms and the memory of the machine.

mod memory;
mod oracle;
mod support;
mod volume;
