//! How far stages come within a limit, and whether so many of them come to the end.
//!
//! Filling up one stage after another does not say that: a stage must have a node, and one node may be
//! too much for a slow device. So for each number of stages all places are known where they can end.
//! From places that follow each other stages come to all behind the first one up to where those come
//! that start at the last; there is a gap only where a node is too much. So the places are few ranges.

use roundelay_schedule::Nanos;

/// How far a device comes within a limit on time.
pub(super) struct Timely {
    /// The last place where a stage can end, by the place where it starts.
    last: Vec<usize>,
    /// The longest of these takes so much.
    longest: Nanos,
    /// The shortest takes so much that ends one place later.
    next: Nanos,
}

impl Timely {
    /// That of a device where so much time has elapsed before each place.
    pub(super) fn new(elapsed: &[Nanos], limit: Nanos) -> Self {
        let (mut longest, mut next) = (Nanos(0), Nanos::NEVER);
        let mut last = 0;
        let own = elapsed.iter().map(|before| {
            let further = loop {
                let further = elapsed.get(last + 1).map(|end| *end - *before);
                match further {
                    Some(time) if time <= limit => last += 1,
                    _ => break further,
                }
            };
            longest = longest.max(elapsed[last] - *before);
            next = next.min(further.unwrap_or(next));
            last
        });
        Self { last: own.collect(), longest, next }
    }

    /// The least limit within which the device comes as far.
    pub(super) fn longest(&self) -> Nanos {
        self.longest
    }

    /// The least limit within which it comes further.
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// The earlier of the last places and of others.
    pub(super) fn bounded(&self, mut last: Vec<usize>) -> Vec<usize> {
        last.iter_mut().zip(&self.last).for_each(|(last, own)| *last = *own.min(last));
        last
    }
}

/// How far a stage of some sort comes.
pub(super) struct Reach {
    /// The last place where it can end, by the place where it starts; that itself where it cannot.
    /// It is never before that of an earlier place.
    last: Vec<usize>,
    /// The places where it cannot start, the end among them.
    blocked: Vec<usize>,
}

impl Reach {
    /// That of a stage which ends there at the latest.
    pub(super) fn new(last: Vec<usize>) -> Self {
        let blocked = (0..last.len()).filter(|start| last[*start] == *start).collect();
        Self { last, blocked }
    }

    /// The last place where it can end, by the place where it starts.
    pub(super) fn last(&self) -> &[usize] {
        &self.last
    }

    /// The blocked places among those from one to another.
    fn blocked_in(&self, (first, last): (usize, usize)) -> impl Iterator<Item = usize> {
        let begin = self.blocked.partition_point(|place| *place < first);
        let behind = self.blocked[begin..].iter().copied();
        behind.take_while(move |place| *place <= last)
    }
}

/// Whether stages that come so far, one after another, can end at the end.
pub(super) fn all_fit(stages: &[&Reach]) -> bool {
    let mut ends = Ends(vec![(0, 0)]);
    let mut next = Ends(Vec::new());
    for reach in stages {
        next.follow(&ends, reach);
        std::mem::swap(&mut ends, &mut next);
    }
    let end = stages.first().map_or(0, |reach| reach.last.len() - 1);
    ends.0.last().is_some_and(|(_, last)| *last == end)
}

/// The places where so many stages can end: the first and the last one of each range, in order and
/// apart.
#[derive(Debug)]
struct Ends(Vec<(usize, usize)>);

impl Ends {
    /// Becomes those of one stage more.
    fn follow(&mut self, before: &Self, reach: &Reach) {
        self.0.clear();
        for (first, last) in &before.0 {
            let mut start = *first;
            for blocked in reach.blocked_in((*first, *last)) {
                self.add((start + 1, blocked));
                start = blocked + 1;
            }
            self.add((start + 1, reach.last[*last]));
        }
    }

    /// Adds a range that does not begin before the others, unless it is empty.
    fn add(&mut self, (first, last): (usize, usize)) {
        match self.0.last_mut() {
            _ if first > last => {}
            Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
            _ => self.0.push((first, last)),
        }
    }
}
