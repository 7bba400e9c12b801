//! What has come from other ranks, and what is known of all of them.

use crate::{
    awake::{Awake, Clock},
    ranks::{
        launcher::Seat,
        trouble::{Position, Trouble},
    },
};
use std::{collections::VecDeque, time::Duration};

/// What has come.
pub(super) struct Inbox {
    pub(super) clock: Clock,
    /// By link.
    pub(super) data: Vec<VecDeque<Vec<u8>>>,
    /// By link, the beginning of what comes in parts.
    pub(super) begun: Vec<Vec<u8>>,
    /// Links whose rank said goodbye, and those that are read no more.
    pub(super) left: Vec<bool>,
    pub(super) closed: Vec<bool>,
    /// By rank, this one too.
    pub(super) heard: Vec<Heard>,
    /// Which of them is this one.
    rank: usize,
    pub(super) own: Own,
    pub(super) trouble: Option<Trouble>,
    /// Whether others are being told of it.
    pub(super) spreading: bool,
    /// Whether this rank is done.
    pub(super) done: bool,
}

/// What this rank does.
#[derive(Clone, Copy)]
pub(super) enum Own {
    /// What can be completed.
    Works,
    /// It tells somebody something, who may take his time.
    Tells,
}

/// What is known of a rank.
#[derive(Clone, Copy)]
pub(super) struct Heard {
    pub(super) position: Position,
    /// When it was last heard of.
    pub(super) last: Awake,
    /// When it last completed something, as far as is known here; of rank 0, when any rank did.
    moved: Awake,
}

impl Heard {
    pub(super) fn at(position: Position, now: Awake) -> Self {
        Self { position, last: now, moved: now }
    }
}

impl Inbox {
    pub(super) fn new(seat: &Seat, links: usize) -> Self {
        let mut clock = Clock::new();
        let starting = Heard::at(Position::Starting, clock.now());
        Self {
            clock,
            data: vec![VecDeque::new(); links],
            begun: vec![Vec::new(); links],
            left: vec![false; links],
            closed: vec![false; links],
            heard: vec![starting; seat.size as usize],
            rank: seat.rank as usize,
            own: Own::Works,
            trouble: None,
            spreading: false,
            done: false,
        }
    }

    /// Hears where a rank is, and for how long nothing was completed.
    pub(super) fn beats(&mut self, rank: usize, position: Position, still: Duration) {
        let now = self.clock.now();
        let moved = now.before(still).max(self.heard[rank].moved);
        self.heard[rank] = Heard { position, last: now, moved };
    }

    /// Something was completed on this rank.
    pub(super) fn moved(&mut self) {
        self.heard[self.rank].moved = self.clock.now();
    }

    /// For how long nothing was completed on this rank, though it could have been.
    pub(super) fn own_still(&mut self) -> Duration {
        match self.own {
            Own::Works => self.clock.now().since(self.heard[self.rank].moved),
            Own::Tells => Duration::ZERO,
        }
    }

    /// For how long nothing was completed on any rank, as far as is known.
    pub(super) fn still(&mut self) -> Duration {
        let now = self.clock.now();
        let others = self.heard.iter().map(|heard| now.since(heard.moved)).min();
        others.map_or(Duration::ZERO, |others| others.min(self.own_still()))
    }

    /// As [`Control::more_time`](super::Control::more_time).
    pub(super) fn more_time(&mut self, deadline: Duration) -> Option<Duration> {
        let left = deadline.saturating_sub(self.still());
        (!left.is_zero()).then_some(left)
    }
}
