//! The command as its users meet it, its documents and examples, and the rules of the house.

mod ahead;
mod begun;
mod command_line;
mod documents;
mod examples;
mod help;
mod interrupt;
mod kill;
mod language_reference;
mod lists;
mod mixed;
mod page;
mod plan_options;
mod profile;
mod pytorch;
mod recoded;
mod roots;
mod shipped;
mod slices;
#[path = "../support/mod.rs"]
mod support;
mod tidy;
mod ties;
mod told;
mod trace;
mod values;
mod weights;
mod written;
