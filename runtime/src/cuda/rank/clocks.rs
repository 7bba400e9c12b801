//! Which waits of a schedule a rank keeps that has one of its devices.
//!
//! A rank issues the whole list, but gives its streams only what touches its device. What is
//! ordered in the whole, often through actions of other devices, must stay ordered on its streams.
//! So every instance has a vector clock: how far each stream of this rank must be before the
//! instance is done. Actions of others hand on what they waited for; one of this rank has its
//! stream wait, and stands for all of it from then on.
//!
//! Law: of two actions of this rank that happen one before the other in the whole schedule, the
//! second's stream has waited for the first.

/// The clocks of the last instances of all actions, and of the last instance in each queue.
pub(super) struct Clocks {
    /// Streams of this rank.
    width: usize,
    /// Periods that waits look back, with the one that is issued.
    depth: usize,
    actions: usize,
    /// First one row per instance, then one per queue.
    rows: Vec<u64>,
    /// What the instance that is issued waits for by its waits alone, and with its queue.
    named: Vec<u64>,
    now: Vec<u64>,
    /// Instances on each stream.
    issued: Vec<u64>,
    /// By stream, how far it knows each other one to be.
    known: Vec<u64>,
}

/// A moment of a stream: after this many instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) stream: usize,
    pub(super) number: u64,
}

impl Clocks {
    /// Nothing is issued.
    pub(super) fn new(width: usize, queues: usize, actions: usize, depth: usize) -> Self {
        Self {
            width,
            depth,
            actions,
            rows: vec![0; width * (actions * depth + queues)],
            named: vec![0; width],
            now: vec![0; width],
            issued: vec![0; width],
            known: vec![0; width * width],
        }
    }

    /// The row of an action's instance in a period.
    pub(super) fn row(&self, action: usize, period: i64) -> usize {
        action * self.depth + period.rem_euclid(self.depth as i64) as usize
    }

    fn queue_row(&self, queue: usize) -> usize {
        self.actions * self.depth + queue
    }

    /// The next instance: it waits for the rows of others, and for what stands before it in its
    /// queue.
    pub(super) fn gather(&mut self, queue: usize, after: impl Iterator<Item = usize>) {
        let Self { width, rows, named, now, .. } = self;
        named.fill(0);
        for row in after {
            join(named, &rows[row * *width..][..*width]);
        }
        now.copy_from_slice(named);
        let tail = self.actions * self.depth + queue;
        join(now, &rows[tail * *width..][..*width]);
    }

    /// How far a stream must be for the waits of the instance, its queue aside.
    pub(super) fn named(&self, stream: usize) -> u64 {
        self.named[stream]
    }

    /// The next instance is another rank's.
    pub(super) fn pass_on(&mut self, row: usize, queue: usize) {
        let Self { width, rows, now, .. } = self;
        let tail = self.actions * self.depth + queue;
        for place in [row, tail] {
            rows[place * *width..][..*width].copy_from_slice(now);
        }
    }

    /// The next instance is for a stream of this rank: calls `wait` for every moment that the
    /// stream does not know to be past, and returns the moment of the instance.
    ///
    /// # Errors
    /// Whatever `wait` says.
    pub(super) fn take<E>(
        &mut self,
        row: usize,
        queue: usize,
        stream: usize,
        mut wait: impl FnMut(Moment) -> Result<(), E>,
    ) -> Result<Moment, E> {
        let known = stream * self.width;
        for other in (0..self.width).filter(|other| *other != stream) {
            let number = self.now[other];
            if number > self.known[known + other] {
                wait(Moment { stream: other, number })?;
                self.known[known + other] = number;
            }
        }
        self.issued[stream] += 1;
        let number = self.issued[stream];
        for place in [row, self.queue_row(queue)] {
            let own = &mut self.rows[place * self.width..][..self.width];
            own.fill(0);
            own[stream] = number;
        }
        Ok(Moment { stream, number })
    }

    /// The moment of an instance of this rank.
    pub(super) fn moment(&self, row: usize, stream: usize) -> Moment {
        Moment { stream, number: self.rows[row * self.width + stream] }
    }
}

fn join(all: &mut [u64], other: &[u64]) {
    all.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A small source of numbers that look random.
    fn draw(state: &mut u64, below: usize) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 33) as usize % below
    }

    /// An action: its queue, the stream of this rank if it is its, and the actions that it waits
    /// for, each with the periods back.
    type Drawn = (usize, Option<usize>, Vec<(usize, usize)>);

    const PERIODS: usize = 4;
    const DEPTH: usize = 3;
    const QUEUES: usize = 5;

    /// Queues 0 and 1 are lanes of this rank; 2 and 3 are others', of which some instances are
    /// this rank's too, on its stream of messages; 4 is another device's.
    fn schedule(seed: u64) -> Vec<Drawn> {
        let mut state = seed;
        let mut actions = Vec::new();
        for number in 0..12 {
            let queue = draw(&mut state, QUEUES);
            let own = match queue {
                0 | 1 => Some(queue),
                2 | 3 => (draw(&mut state, 2) == 0).then_some(2),
                _ => None,
            };
            let mut after = Vec::new();
            for _ in 0..draw(&mut state, 3) {
                let distance = draw(&mut state, DEPTH);
                let most = if distance == 0 { number } else { 12 };
                if most > 0 {
                    after.push((draw(&mut state, most), distance));
                }
            }
            actions.push((queue, own, after));
        }
        actions
    }

    /// What happens before each instance in the whole schedule.
    fn before(actions: &[Drawn]) -> Vec<Vec<bool>> {
        let count = actions.len();
        let mut all = vec![vec![false; PERIODS * count]; PERIODS * count];
        let mut tails = [None; QUEUES];
        for period in 0..PERIODS {
            for (number, (queue, _, after)) in actions.iter().enumerate() {
                let own = period * count + number;
                let named = after.iter().filter(|(_, distance)| *distance <= period);
                let mut sources: Vec<usize> = named
                    .map(|(other, distance)| (period - distance) * count + other)
                    .collect();
                sources.extend(tails[*queue]);
                let mut past = vec![false; PERIODS * count];
                for source in sources {
                    past[source] = true;
                    past.iter_mut().zip(&all[source]).for_each(|(own, one)| *own |= one);
                }
                all[own] = past;
                tails[*queue] = Some(own);
            }
        }
        all
    }

    #[test]
    fn what_is_ordered_in_the_whole_is_ordered_on_a_rank() {
        for seed in 0..200 {
            let actions = schedule(seed);
            let (count, ordered) = (actions.len(), before(&actions));
            let mut clocks = Clocks::new(3, QUEUES, count, DEPTH);
            // What each instance of this rank comes after, by its stream and by waits.
            let mut own: Vec<(usize, Moment, Vec<bool>)> = Vec::new();
            for period in 0..PERIODS {
                for (number, (queue, stream, after)) in actions.iter().enumerate() {
                    let named = after.iter().filter(|(_, distance)| *distance <= period);
                    let rows: Vec<usize> = named
                        .map(|(other, distance)| {
                            clocks.row(*other, (period - distance) as i64)
                        })
                        .collect();
                    clocks.gather(*queue, rows.into_iter());
                    let row = clocks.row(number, period as i64);
                    let Some(stream) = stream else {
                        clocks.pass_on(row, *queue);
                        continue;
                    };
                    let mut waits = Vec::new();
                    let moment = clocks.take(row, *queue, *stream, |moment| {
                        waits.push(moment);
                        Ok::<(), Infallible>(())
                    });
                    let Ok(moment) = moment;
                    let instance = period * count + number;
                    let mut past = vec![false; PERIODS * count];
                    for (other, at, theirs) in &own {
                        let waited = waits.iter().any(|wait| {
                            wait.stream == at.stream && wait.number >= at.number
                        });
                        if at.stream == *stream || waited {
                            past[*other] = true;
                            past.iter_mut()
                                .zip(theirs)
                                .for_each(|(own, one)| *own |= one);
                        }
                    }
                    for (other, _, _) in &own {
                        assert!(
                            past[*other] || !ordered[instance][*other],
                            "seed {seed}: {instance} must come after {other}"
                        );
                    }
                    own.push((instance, moment, past));
                }
            }
        }
    }

    #[test]
    fn nothing_is_waited_for_twice() {
        let mut clocks = Clocks::new(2, 2, 3, 1);
        let never =
            |_| -> Result<(), Infallible> { panic!("there is nothing to wait for") };
        clocks.gather(0, [].into_iter());
        let Ok(first) = clocks.take(0, 0, 0, never);
        assert_eq!(first, Moment { stream: 0, number: 1 });
        let mut waits = Vec::new();
        for action in [1, 2] {
            clocks.gather(1, [0].into_iter());
            let Ok(_) = clocks.take(action, 1, 1, |moment| {
                waits.push(moment);
                Ok::<(), Infallible>(())
            });
        }
        assert_eq!(waits, [first]);
        assert_eq!(clocks.moment(2, 1), Moment { stream: 1, number: 2 });
    }
}
