//! What ends a run of several ranks, and where each of them was.

use roundelay_schedule::{ActionId, counted};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// How far a rank is; later positions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Position {
    /// Nothing is trained yet.
    Starting,
    /// Nothing is under way.
    Resting {
        /// How many training steps are done.
        step: u64,
    },
    /// In a replay.
    Replaying {
        /// The period, and
        period: i64,
        /// the first action of it that is not known to be done.
        action: ActionId,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => write!(f, "before the first step"),
            Self::Resting { step } => write!(f, "at rest after step {step}"),
            Self::Replaying { period, action } => {
                write!(f, "in period {period} at {action}")
            }
        }
    }
}

/// What is known of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Which.
    pub rank: u32,
    /// Where it was when it was last heard of.
    pub position: Position,
    /// How long ago that was.
    pub silent: Duration,
}

impl Seen {
    /// Whether it does not run, as far as anybody knows.
    fn is_mute(&self) -> bool {
        self.silent > SILENCE
    }
}

/// Ranks speak many times in this; one that has not spoken for so long does not run.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// So many ranks are told of: nobody reads of thousands, and what tells of them has to fit a message.
const TOLD: usize = 16;

/// The first thing that went wrong on any rank; it ends all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Trouble {
    /// A rank is not there any more.
    #[error(
        "rank {rank} was lost {position}: its process has ended or cannot be reached"
    )]
    Lost {
        /// Which.
        rank: u32,
        /// Where it was when it was last heard of.
        position: Position,
    },
    /// A rank cannot go on.
    #[error("rank {rank} failed {position}: {what}")]
    Failed {
        /// Which.
        rank: u32,
        /// Where.
        position: Position,
        /// Why, in its own words.
        what: String,
    },
    /// Nothing moves.
    #[error("nothing was completed for {deadline:?}: {}", culprits(seen, *others))]
    Stuck {
        /// The deadline.
        deadline: Duration,
        /// The ranks that may hold all others up, and some more, in their order.
        seen: Vec<Seen>,
        /// How many more there are.
        #[serde(default)]
        others: usize,
    },
}

impl Trouble {
    /// Nothing moves, and this is known of ranks.
    pub(super) fn stuck(deadline: Duration, mut seen: Vec<Seen>) -> Self {
        let others = seen.len().saturating_sub(TOLD);
        seen.sort_by_key(|own| (!own.is_mute(), own.position, own.rank));
        seen.truncate(TOLD);
        seen.sort_by_key(|own| own.rank);
        Self::Stuck { deadline, seen, others }
    }
}

/// The end of a rank: something went wrong on one of them, which ends all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.said())]
pub struct Ended {
    /// This one.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Where this one was.
    pub position: Position,
    /// What went wrong.
    pub trouble: Box<Trouble>,
}

impl Ended {
    /// Of its own failure only the reason, because the rest is the same.
    fn said(&self) -> String {
        let Self { rank, size, position, trouble } = self;
        let why = match &**trouble {
            Trouble::Failed { rank: own, what, .. } if own == rank => what.clone(),
            Trouble::Failed { .. } | Trouble::Lost { .. } | Trouble::Stuck { .. } => {
                trouble.to_string()
            }
        };
        match size {
            1 => why,
            _ => format!("rank {rank} of {size} ends {position}: {why}"),
        }
    }
}

/// Which ranks may hold all others up: those that do not speak any more, else those that are
/// furthest behind; and where the others are. Of two ranks that a message does not get across, neither
/// is known to be at fault.
fn culprits(seen: &[Seen], others: usize) -> String {
    let least = seen.iter().map(|own| own.position).min();
    let (mute, spoken): (Vec<&Seen>, Vec<&Seen>) =
        seen.iter().partition(|own| own.is_mute());
    let mut text = Vec::new();
    for Seen { rank, position, silent } in &mute {
        let seconds = silent.as_secs_f64();
        text.push(format!(
            "rank {rank} has not answered for {seconds:.1} s; it was last seen {position}"
        ));
    }
    for Seen { rank, position, .. } in spoken {
        text.push(match mute.is_empty() && Some(*position) == least {
            true => format!("rank {rank} is furthest behind, {position}"),
            false => format!("rank {rank} waits {position}"),
        });
    }
    if others > 0 {
        text.push(format!("and {}", counted(others as u64, "more rank")));
    }
    text.join("; ")
}

#[cfg(test)]
mod tests {
    use super::{
        super::wire::{self, Frame, Message},
        *,
    };
    use roundelay_schedule::Id;

    fn seen(rank: u32, period: i64, silent: u64) -> Seen {
        let position = Position::Replaying { period, action: ActionId::new(7) };
        Seen { rank, position, silent: Duration::from_secs(silent) }
    }

    #[test]
    fn who_does_not_speak_is_to_blame_else_who_is_last() {
        let deadline = Duration::from_secs(9);
        let stuck = |seen| Trouble::stuck(deadline, seen).to_string();
        let mute = stuck(vec![seen(0, 4, 0), seen(1, 5, 8)]);
        let silent =
            "9s: rank 1 has not answered for 8.0 s; it was last seen in period 5";
        assert!(mute.contains(silent), "{mute}");
        assert!(mute.contains("rank 0 waits in period 4 at a7"), "{mute}");
        let last = stuck(vec![seen(0, 4, 0), seen(1, 3, 1), seen(2, 3, 0)]);
        for word in [
            "rank 0 waits",
            "rank 1 is furthest behind, in period 3",
            "rank 2 is furthest behind",
        ] {
            assert!(last.contains(word), "{last}");
        }
    }

    /// Wherever they stand among the others, and in a message that is read.
    #[test]
    fn of_thousands_those_to_blame_are_told() {
        let mut all: Vec<Seen> = (0..60_000).map(|rank| seen(rank, 4, 0)).collect();
        all[50_000] = seen(50_000, 4, 8);
        all[40_000] = seen(40_000, 3, 0);
        let stuck = Trouble::stuck(Duration::from_secs(9), all);
        let told = stuck.to_string();
        let words = ["rank 50000 has not answered", "rank 40000 waits in period 3"];
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        assert!(told.ends_with("; and 59984 more ranks"), "{told}");
        let mut sent = Vec::new();
        let frame = Frame::Said(Message::Trouble(stuck));
        wire::write(&mut sent, &frame).unwrap();
        assert_eq!(wire::read(&mut &*sent).unwrap(), frame);
    }

    #[test]
    fn positions_are_ordered_as_a_run_goes() {
        let action = ActionId::new(0);
        let later = Position::Replaying { period: -1, action };
        assert!(Position::Starting < Position::Resting { step: 0 });
        assert!(Position::Resting { step: 9 } < later);
        assert!(later < Position::Replaying { period: 0, action });
    }
}
