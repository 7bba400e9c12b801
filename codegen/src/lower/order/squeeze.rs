//! List scheduling: passes start as early as memory and the other devices allow, near the order
//! that a pattern gives; weight gradients fill the gaps.

use roundelay_schedule::{DeviceList, Id, Item, Listed, Pass, pass_length};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
    mem,
};

/// A pattern: the passes of each device but for weight gradients, in the order in which the
/// pattern repeats them.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// Per device.
    pub(super) lists: Vec<Vec<Listed>>,
    /// S.
    pub(super) stages: u32,
    /// N.
    pub(super) micro_batches: u32,
    /// Passes whose activations one device may keep.
    pub(super) kept_max: u32,
}

/// How far a device may leave the order of its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// It takes one of this many next passes.
    pub(super) window: usize,
    /// Which of several passes that could start at one time goes first.
    pub(super) first: First,
    /// Forward passes that may be overtaken without keeping room for them.
    pub(super) overtaken: u32,
}

/// Which of several passes that could start at one time goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// The one that the pattern has first.
    Pattern,
    /// The one with the longest rest of the way through the stages, where each micro-batch that
    /// it comes earlier counts as much as this many stages.
    Farthest(i64),
}

/// The best of some policies: the shortest span, the first of them in this order. Policies that
/// get stuck for want of memory are no candidates.
pub(super) fn squeeze(pattern: &Pattern, policies: &[Policy]) -> Vec<DeviceList> {
    let each = policies.iter().filter_map(|policy| Press::new(pattern, *policy).run());
    let best = each.min_by_key(|(span, _)| *span);
    best.map(|(_, lists)| lists).expect("the pattern's own order never gets stuck")
}

/// A pass that a device may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    start: u64,
    choice: Choice,
}

/// Which pass it is; of those that could start at one time the first of them goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    /// One of the pattern.
    Next {
        urgency: Reverse<i64>,
        /// Its place among the next passes.
        place: usize,
    },
    /// The weight gradient that has waited longest.
    Filler,
}

/// When the passes of a cell ended that others wait for.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    forward: Option<u64>,
    gradient: Option<u64>,
}

/// The devices while they are filled.
struct Press<'a> {
    pattern: &'a Pattern,
    policy: Policy,
    todo: Vec<VecDeque<Listed>>,
    weights: Vec<VecDeque<Listed>>,
    kept: Vec<u32>,
    free: Vec<u64>,
    ends: Vec<Ends>,
    lists: Vec<DeviceList>,
}

impl<'a> Press<'a> {
    fn new(pattern: &'a Pattern, policy: Policy) -> Self {
        let devices = pattern.lists.len();
        let passes = (pattern.stages * pattern.micro_batches) as usize;
        Self {
            pattern,
            policy,
            todo: pattern
                .lists
                .iter()
                .map(|list| list.iter().copied().collect())
                .collect(),
            weights: vec![VecDeque::new(); devices],
            kept: vec![0; devices],
            free: vec![0; devices],
            ends: vec![Ends::default(); passes],
            lists: vec![Vec::new(); devices],
        }
    }

    /// Always starts the earliest pass of all devices; gives the span and the lists.
    fn run(mut self) -> Option<(u64, Vec<DeviceList>)> {
        let devices = self.todo.len();
        let mut offers: Vec<Option<Offer>> =
            (0..devices).map(|d| self.offer(d)).collect();
        let open = offers.iter().zip(0..);
        let mut open: BTreeSet<(Offer, usize)> =
            open.filter_map(|(offer, device)| Some(((*offer)?, device))).collect();
        while let Some((offer, device)) = open.pop_first() {
            self.take(device, offer);
            // Its neighbours alone wait for what ended.
            let near = device.saturating_sub(1)..devices.min(device + 2);
            for (changed, known) in near.clone().zip(&mut offers[near]) {
                let offer = self.offer(changed);
                if let Some(former) = mem::replace(known, offer) {
                    open.remove(&(former, changed));
                }
                open.extend(offer.map(|offer| (offer, changed)));
            }
        }
        let done = self.todo.iter().all(VecDeque::is_empty);
        let span = self.free.iter().copied().max().unwrap_or(0);
        done.then_some((span, self.lists))
    }

    /// The pass that a device would start next.
    fn offer(&self, device: usize) -> Option<Offer> {
        let mut forwards = 0;
        let mut best: Option<Offer> = None;
        for (place, listed) in
            self.todo[device].iter().enumerate().take(self.policy.window)
        {
            if listed.pass == Pass::Forward {
                forwards += 1;
                let room =
                    forwards.max(self.policy.overtaken + 1) - self.policy.overtaken;
                if self.kept[device] + room > self.pattern.kept_max {
                    continue;
                }
            }
            let Some(ready) = self.ready(*listed) else { continue };
            let urgency = Reverse(self.urgency(*listed));
            let start = ready.max(self.free[device]);
            let offer = Offer { start, choice: Choice::Next { urgency, place } };
            best = best.into_iter().chain([offer]).min();
        }
        let filler = (!self.weights[device].is_empty())
            .then(|| Offer { start: self.free[device], choice: Choice::Filler });
        best.into_iter().chain(filler).min()
    }

    fn take(&mut self, device: usize, offer: Offer) {
        let listed = match offer.choice {
            Choice::Next { place, .. } => {
                self.todo[device].remove(place).expect("the offer stands there")
            }
            Choice::Filler => {
                self.weights[device].pop_front().expect("a filler was offered")
            }
        };
        let end = offer.start + pass_length(listed.pass);
        self.free[device] = end;
        self.lists[device].push(Item::One(listed));
        match listed.pass {
            Pass::Forward => self.kept[device] += 1,
            Pass::WeightGradient => self.kept[device] -= 1,
            _ => {
                let weight = Listed { pass: Pass::WeightGradient, ..listed };
                self.weights[device].push_back(weight);
            }
        }
        let cell = self.cell(listed.stage.index(), listed.micro_batch.index());
        match listed.pass {
            Pass::WeightGradient => {}
            Pass::Forward => self.ends[cell].forward = Some(end),
            _ => self.ends[cell].gradient = Some(end),
        }
    }

    fn cell(&self, stage: usize, micro_batch: usize) -> usize {
        stage * self.pattern.micro_batches as usize + micro_batch
    }

    /// When all that a pass needs is done, if that is known.
    fn ready(&self, listed: Listed) -> Option<u64> {
        let (stage, i) = (listed.stage.index(), listed.micro_batch.index());
        let ends = |stage: usize| self.ends[self.cell(stage, i)];
        let last = stage + 1 == self.pattern.stages as usize;
        match listed.pass {
            Pass::Forward if stage == 0 => Some(0),
            Pass::Forward => ends(stage - 1).forward,
            _ if last => ends(stage).forward,
            _ => Some(ends(stage).forward?.max(ends(stage + 1).gradient?)),
        }
    }

    fn urgency(&self, listed: Listed) -> i64 {
        let First::Farthest(weight) = self.policy.first else { return 0 };
        let stages = i64::from(self.pattern.stages);
        let (stage, i) = (listed.stage.index() as i64, listed.micro_batch.index() as i64);
        let way = match listed.pass {
            Pass::Forward => 2 * stages - stage,
            _ => stage + 1,
        };
        weight * (i64::from(self.pattern.micro_batches) - 1 - i) + way
    }
}
