//! Happens-before of one segment, and random orders that keep to it.
//!
//! A node is one instance at one coordinate of the axes, or at all when its queue takes them
//! together. It comes after its predecessor in the queue and after what it waits for; instances
//! that are skipped are nodes like others.

use crate::random::Random;
use roundelay_schedule::{Action, ActionId, Instance, PhysicalQueue, Schedule, Segment};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

/// One instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) action: ActionId,
    pub(crate) period: i64,
    /// The step that it serves; none when it is skipped.
    pub(crate) step: Option<i64>,
    /// Number of its coordinate; none when it takes all.
    pub(crate) coordinate: Option<usize>,
    queue: u32,
}

/// All instances of a segment, and which come after which.
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    before: Vec<Vec<u32>>,
    after: Vec<Vec<u32>>,
    queues: usize,
}

/// Which of the orders that happens-before allows is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taste {
    /// Anything that may come next.
    Any,
    /// Some queues run ahead of others as far as they may.
    Queues,
    /// One instance, of these actions if there are any, comes as late as it may.
    Late,
    /// One instance comes as early as it may.
    Early,
}

impl Graph {
    pub(crate) fn new(schedule: &Schedule, segment: Segment) -> Self {
        let mut build = Build {
            schedule,
            segment,
            coordinates: schedule.coordinates().len(),
            queues: BTreeMap::new(),
            last: BTreeMap::new(),
            instances: BTreeMap::new(),
            nodes: Vec::new(),
            before: Vec::new(),
        };
        for period in segment.periods(schedule) {
            for (id, action) in schedule.actions.iter() {
                build.instance(id, action, period);
            }
        }
        let mut after = vec![Vec::new(); build.nodes.len()];
        for (node, before) in (0..).zip(&build.before) {
            before.iter().for_each(|other| after[*other as usize].push(node));
        }
        let Build { nodes, before, queues, .. } = build;
        Self { nodes, before, after, queues: queues.len() }
    }

    /// Takes all nodes in an order that happens-before allows.
    pub(crate) fn walk(
        &self,
        taste: Taste,
        focus: &[ActionId],
        random: &mut Random,
        mut take: impl FnMut(&Node),
    ) {
        let rank = self.ranks(taste, focus, random);
        let mut open: Vec<usize> = self.before.iter().map(Vec::len).collect();
        let mut ready = BinaryHeap::new();
        let mut enter = |ready: &mut BinaryHeap<_>, node: u32| {
            ready.push(Reverse((rank[node as usize], random.bits() as u32, node)));
        };
        for (node, before) in (0..).zip(&self.before) {
            if before.is_empty() {
                enter(&mut ready, node);
            }
        }
        while let Some(Reverse((_, _, node))) = ready.pop() {
            take(&self.nodes[node as usize]);
            for other in &self.after[node as usize] {
                open[*other as usize] -= 1;
                if open[*other as usize] == 0 {
                    enter(&mut ready, *other);
                }
            }
        }
    }

    fn ranks(&self, taste: Taste, focus: &[ActionId], random: &mut Random) -> Vec<u32> {
        let mut ranks = vec![1; self.nodes.len()];
        match taste {
            Taste::Any => {}
            Taste::Queues => {
                let queues: Vec<u32> =
                    (0..self.queues).map(|_| random.bits() as u32).collect();
                for (rank, node) in ranks.iter_mut().zip(&self.nodes) {
                    *rank = queues[node.queue as usize];
                }
            }
            Taste::Late => {
                let chosen = self.choose(focus, random);
                ranks[chosen] = 2;
            }
            Taste::Early => {
                let mut open = vec![self.choose(focus, random) as u32];
                while let Some(node) = open.pop() {
                    if std::mem::replace(&mut ranks[node as usize], 0) == 1 {
                        open.extend(&self.before[node as usize]);
                    }
                }
            }
        }
        ranks
    }

    fn choose(&self, focus: &[ActionId], random: &mut Random) -> usize {
        let wanted = random.pick(focus).filter(|_| random.below(4) > 0);
        let fits = |node: &usize| {
            let node = &self.nodes[*node];
            node.step.is_some() && wanted.is_none_or(|action| node.action == action)
        };
        let fitting: Vec<usize> = (0..self.nodes.len()).filter(fits).collect();
        random.pick(&fitting).unwrap_or(0)
    }
}

struct Build<'a> {
    schedule: &'a Schedule,
    segment: Segment,
    coordinates: usize,
    queues: BTreeMap<(PhysicalQueue, Option<usize>), u32>,
    last: BTreeMap<u32, u32>,
    /// First node of an instance.
    instances: BTreeMap<(i64, ActionId), u32>,
    nodes: Vec<Node>,
    before: Vec<Vec<u32>>,
}

impl Build<'_> {
    fn instance(&mut self, id: ActionId, action: &Action, period: i64) {
        let queue = self.schedule.queue(action, period);
        let step = match self.segment.instance(action, period) {
            Instance::Execute(step) => Some(step),
            Instance::Skip => None,
        };
        self.instances.insert((period, id), self.nodes.len() as u32);
        let alone = is_joint(queue).then_some(None);
        let each = (0..self.coordinates).filter(|_| !is_joint(queue)).map(Some);
        for coordinate in alone.into_iter().chain(each) {
            let next = self.queues.len() as u32;
            let number = *self.queues.entry((queue, coordinate)).or_insert(next);
            let mut before = Vec::new();
            before.extend(self.last.insert(number, self.nodes.len() as u32));
            for wait in &action.after {
                let earlier = period - i64::from(wait.distance);
                before.extend(self.sources(wait.action, earlier, coordinate));
            }
            self.nodes.push(Node { action: id, period, step, coordinate, queue: number });
            self.before.push(before);
        }
    }

    /// The nodes of an instance that one at a coordinate waits for.
    fn sources(
        &self,
        action: ActionId,
        period: i64,
        coordinate: Option<usize>,
    ) -> std::ops::Range<u32> {
        let Some(first) = self.instances.get(&(period, action)) else { return 0..0 };
        let all = match self.nodes[*first as usize].coordinate {
            None => 1,
            Some(_) => self.coordinates as u32,
        };
        match coordinate {
            Some(own) if all > 1 => first + own as u32..first + own as u32 + 1,
            _ => *first..first + all,
        }
    }
}

fn is_joint(queue: PhysicalQueue) -> bool {
    match queue {
        PhysicalQueue::Lane(..) | PhysicalQueue::Arrival(_) => false,
        PhysicalQueue::Group(_) | PhysicalQueue::Host(_) => true,
    }
}
