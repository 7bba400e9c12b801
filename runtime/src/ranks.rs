//! One process per device: who this process is among those that a launcher started, how they
//! meet, and what they tell each other besides the data of training.
//!
//! A launcher (torchrun, mpirun, srun) says by variables of the environment how many ranks there
//! are and which one this is ([`Seat::of_environment`]). Ranks meet at the first one
//! ([`Control::meet`]), and stay connected with it: to agree ([`Control::gather`]), and so that
//! whatever goes wrong on one of them ends all of them, with its place ([`Trouble`]).
//! What devices send each other goes elsewhere: over NCCL, or between CPUs by [`Mail`].

mod control;
mod hosts;
mod launcher;
mod mail;
mod meeting;
mod same;
mod seated;
mod share;
mod together;
mod trouble;
mod wire;

pub use control::Control;
pub use launcher::{LaunchError, Seat};
pub use meeting::MeetingError;
pub use seated::WorldSize;
pub use trouble::{Ended, Position, Seen, Trouble};

pub(crate) use mail::{Label, Mail, Missing, Unsent};
pub(crate) use seated::{Among, Owners, Seated};
pub(crate) use share::Share;
