//! How long ways take on the device: each is recorded some times in a row, and the graph is played, in rounds
//! of all of them, once the device's clock stands.
//!
//! So what the host does for a call, which may be more than the device does, is of no account. In steps that
//! are graphs it is done once for all of them; in others the host is ahead of the device where there is
//! anything to gain. One way for all of them also means the same bits for all. What cannot be recorded would
//! fail in a step that is a graph, and so it fails here.
//!
//! A GPU that has rested is slow at first. So after a second without a trial one way is played until times
//! agree. Then all are played in turns, there and back, and the middle of a way's times counts: what
//! drifts meanwhile meets all alike, and what happens once meets nobody.
//!
//! Bounds: what is played between two moments is repeated until it takes half a millisecond by the first
//! look, 64 times at most, and once at least. Warming ends after half a second or 50 looks of 10 ms. There are
//! six rounds, and no two of them begin after two seconds. After two or four a way leaves whose least
//! time is more than twice that of another. So a trial takes at most 2.5 seconds, three single calls of every way, and as long
//! as the last two rounds take that began in time, which are four looks of every way; and one look that
//! takes longer than [`DEADLINE`] ends it.

use super::{
    super::super::{
        bounce::{Unreached, wait},
        driver::{DriverError, Graph},
    },
    Bench, DEADLINE, Tried, Watch, best,
};
use roundelay_schedule::Nanos;
use std::time::{Duration, Instant};

/// How long what is played between two moments should take, and how often it is repeated at most.
const LOOK: Nanos = Nanos(500_000);
const MOST_REPEATED: u64 = 64;

/// Rounds there and back; after so long none begins.
const PAIRS: usize = 3;
const RACING: Duration = Duration::from_secs(2);

/// A way leaves that always takes more than this many times as long as another.
const HOPELESS: u64 = 2;

/// A device whose last trial was not as long ago is warm.
const RESTED: Duration = Duration::from_secs(1);

/// How long one look takes while the clock rises, how many must agree, and within how many hundredths.
const WINDOW: Nanos = Nanos(10_000_000);
const AGREEING: usize = 3;
const AGREED: u64 = 2;

/// Bounds of warming.
const MOST_WINDOWS: usize = 50;
const WARMING: Duration = Duration::from_millis(500);

/// What was found.
pub(super) struct Found {
    /// The place of the best way; none where none could be timed.
    pub(super) best: Option<usize>,
    /// The first way that could not be recorded, and why.
    pub(super) unrecorded: Option<(usize, DriverError)>,
}

/// A way, some times in a row.
struct Batch {
    way: usize,
    repeated: u64,
    graph: Graph,
}

/// A way that is timed.
struct Entrant {
    batch: Batch,
    /// What one takes, at a first look.
    once: Nanos,
    times: Vec<Nanos>,
}

/// All ways on one bench.
struct Race<'a, 'b> {
    bench: &'a Bench,
    tried: &'a mut dyn Tried,
    watch: &'a mut Watch<'b>,
    unrecorded: Option<(usize, DriverError)>,
}

impl Bench {
    /// The best way; the last trial on the same device ended `before`.
    pub(super) fn compare(
        &mut self,
        tried: &mut dyn Tried,
        before: Option<Instant>,
        watch: &mut Watch<'_>,
    ) -> Result<Found, Unreached> {
        let open = tried.prepare(self)?;
        let mut race = Race { bench: self, tried, watch, unrecorded: None };
        let mut field = Vec::new();
        race.run(&open, before, &mut field)?;
        let unrecorded = race.unrecorded;
        let mut times = vec![None; open.len()];
        for entrant in field {
            times[entrant.batch.way] = Some(middle(entrant.times));
        }
        Ok(Found { best: best(&times), unrecorded })
    }
}

impl Race<'_, '_> {
    fn run(
        &mut self,
        open: &[bool],
        before: Option<Instant>,
        field: &mut Vec<Entrant>,
    ) -> Result<(), Unreached> {
        for way in (0..open.len()).filter(|way| open[*way]) {
            field.extend(self.enter(way)?);
        }
        let is_warm = before.is_some_and(|before| before.elapsed() < RESTED);
        if let Some(least) = field.iter().min_by_key(|entrant| entrant.once)
            && !is_warm
        {
            self.warm(least)?;
        }
        self.rounds(field)
    }

    /// Makes a way ready to be timed; none where it is refused.
    fn enter(&mut self, way: usize) -> Result<Option<Entrant>, Unreached> {
        (self.watch)()?;
        if self.tried.run(way, self.bench).is_err() {
            return Ok(None);
        }
        // Whatever happens at a first use has happened before anything is recorded.
        self.rest()?;
        let Some(single) = self.batch(way, 1)? else { return Ok(None) };
        let once = self.play(&single, 1)?;
        let batch = match repeated(once) {
            1 => Some(single),
            more => self.batch(way, more)?,
        };
        Ok(batch.map(|batch| Entrant { batch, once, times: Vec::new() }))
    }

    /// A way so often in a row; none where it cannot be recorded.
    fn batch(&mut self, way: usize, repeated: u64) -> Result<Option<Batch>, Unreached> {
        match self.record(way, repeated) {
            Ok(graph) => Ok(Some(Batch { way, repeated, graph })),
            Err(reason) => {
                self.unrecorded.get_or_insert((way, reason));
                // A stream on which nothing can be done any more is no matter of this way.
                self.rest()?;
                Ok(None)
            }
        }
    }

    fn record(&mut self, way: usize, repeated: u64) -> Result<Graph, DriverError> {
        let stream = &self.bench.stream;
        stream.begin_capture()?;
        let given = (0..repeated).try_for_each(|_| self.tried.run(way, self.bench));
        // The stream takes work again behind the end of a capture, whatever came of that.
        let graph = stream.end_capture();
        given.and(graph)
    }

    /// Waits for all that was given.
    fn rest(&mut self) -> Result<(), Unreached> {
        let [moment, _] = &self.bench.events;
        self.bench.stream.record(moment)?;
        wait(moment, DEADLINE, self.watch)
    }

    /// What one of a batch takes that is played this many times. It is played once before that, so that the
    /// device is busy until the host has given all that counts.
    fn play(&mut self, batch: &Batch, times: u64) -> Result<Nanos, Unreached> {
        (self.watch)()?;
        let (stream, [start, end]) = (&self.bench.stream, &self.bench.events);
        stream.launch_graph(&batch.graph)?;
        stream.record(start)?;
        for _ in 0..times {
            stream.launch_graph(&batch.graph)?;
        }
        stream.record(end)?;
        wait(end, DEADLINE, self.watch)?;
        Ok(Nanos(end.since(start)?.0 / (times * batch.repeated)))
    }

    /// Plays a way until the clock of the device stands, or for so long.
    fn warm(&mut self, entrant: &Entrant) -> Result<(), Unreached> {
        let Entrant { batch, once, .. } = entrant;
        let played = (WINDOW.0 / (once.0 * batch.repeated).max(1)).max(1);
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.len() < MOST_WINDOWS && began.elapsed() < WARMING {
            times.push(self.play(batch, played)?);
            if agree(&times) {
                break;
            }
        }
        Ok(())
    }

    fn rounds(&mut self, field: &mut Vec<Entrant>) -> Result<(), Unreached> {
        let began = Instant::now();
        for _ in 0..PAIRS {
            let forth = 0..field.len();
            for place in forth.clone().chain(forth.rev()) {
                let time = self.play(&field[place].batch, 1)?;
                field[place].times.push(time);
            }
            leave(field);
            if began.elapsed() > RACING {
                break;
            }
        }
        Ok(())
    }
}

/// How often something is repeated that takes so long.
fn repeated(once: Nanos) -> u64 {
    (LOOK.0 / once.0.max(1)).clamp(1, MOST_REPEATED)
}

/// Whether the last times are as many as must agree, and do.
fn agree(times: &[Nanos]) -> bool {
    let Some(last) = times.last_chunk::<AGREEING>() else { return false };
    let [least, most] = [last.iter().min(), last.iter().max()];
    least
        .zip(most)
        .is_some_and(|(least, most)| (most.0 - least.0) * 100 <= least.0 * AGREED)
}

/// Those leave that took much longer than another whenever they were played: one time that was
/// disturbed is no reason.
fn leave(field: &mut Vec<Entrant>) {
    let time = |entrant: &Entrant| entrant.times.iter().min().copied();
    let Some(least) = field.iter().filter_map(time).min() else { return };
    let hopeless = Nanos(least.0 * HOPELESS);
    field.retain(|entrant| time(entrant).is_some_and(|time| time <= hopeless));
}

/// The middle of times, of which half are of rounds there and half of rounds back: of an even
/// number the mean of both in the middle, so that what grows all the time is met by all at the same time.
fn middle(mut times: Vec<Nanos>) -> Nanos {
    times.sort_unstable();
    let half = times.len() / 2;
    Nanos((times[half - 1].0 + times[half].0) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: impl IntoIterator<Item = u64>) -> Vec<Nanos> {
        of.into_iter().map(Nanos).collect()
    }

    /// Ways that take the same have the same middle, however fast all get slower or faster; and a round
    /// that was disturbed does not count.
    #[test]
    fn what_drifts_meets_all_ways_alike() {
        let ways = 5;
        for slope in [-40, -3, 0, 7, 90_i64] {
            let at = |moment: usize| (100_000 + slope * moment as i64) as u64;
            let moments = |way| {
                let pair = move |pair| {
                    let start = 2 * ways * pair;
                    [start + way, start + 2 * ways - 1 - way]
                };
                (0..PAIRS).flat_map(pair)
            };
            let of = |way| middle(times(moments(way).map(at)));
            assert!((1..ways).all(|way| of(way) == of(0)), "{slope}");
        }
        assert_eq!(middle(times([10, 12, 900, 10, 12, 11])), Nanos(11));
    }

    #[test]
    fn short_calls_are_repeated() {
        let of = |once| repeated(Nanos(once));
        assert_eq!([0, 2_000, 50_000, 300_000, 9_000_000].map(of), [64, 64, 10, 1, 1]);
    }

    #[test]
    fn a_clock_stands_where_the_last_times_agree() {
        assert!(!agree(&times([100, 100])), "too few");
        assert!(!agree(&times([100, 100, 97])), "it still rises");
        assert!(!agree(&times([100, 98, 96, 94])), "slowly, too");
        assert!(agree(&times([300, 200, 1000, 1004, 1019])));
    }
}
