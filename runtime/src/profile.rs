//! Measures what kernel calls, launches, waits and copies take, where they stand.
//!
//! A call is timed in a replay of a whole schedule: behind the calls that stand before it, on the
//! memory that the schedule gives it, while the other devices do what they do. Law of a row: per
//! place (a call of a routine) the [`usual`] time over all steps, devices and coordinates; per
//! text the mean of these, weighted by how often a step launches the routine. So the times of a
//! routine's calls add up to what the routine takes. Where moments are events of a GPU, what these
//! cost is taken off first (`profile/events.rs`).

mod copies;
mod events;
mod sample;

pub use copies::copies;
pub(crate) use copies::{BLOCK, REPETITIONS, SIZES, fit};
pub use sample::{Sample, Settling, sample};

use crate::code::{CodeError, parse_call};
use events::without;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Call, CallTime, Catalogue, Copies, Float, Footprint, Nanos, PROFILE_FORMAT, Profile,
    RoutineId, Schedule, feed_text,
};
use std::collections::{BTreeMap, BTreeSet};

/// Times of the calls of several schedules.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    calls: BTreeMap<(String, u32), Mean>,
    launches: Vec<Nanos>,
    wakes: Vec<Nanos>,
}

/// A weighted mean over places.
#[derive(Clone, Debug, Default)]
struct Mean {
    footprint: Footprint,
    nanos: f64,
    spread: f64,
    weight: f64,
    samples: u64,
}

impl Collection {
    /// Whether every call that a schedule launches was timed with this many busy devices; calls that
    /// rows make together have no row in the table.
    pub fn knows(&self, schedule: &Schedule, busy: u32) -> bool {
        let launched = schedule.launched().into_iter();
        let calls = launched.flat_map(|id| &schedule.routines[id].calls);
        let dtype = schedule.job.dtype;
        let alone = calls.filter(|call| Kernels.exchange(call, dtype).is_none());
        let texts: BTreeSet<String> = alone.map(Call::text).collect();
        texts.into_iter().all(|text| self.calls.contains_key(&(text, busy)))
    }

    /// Takes in what a schedule's replay showed.
    ///
    /// # Errors
    /// When a kernel call is malformed.
    pub fn add(&mut self, schedule: &Schedule, sample: &Sample) -> Result<(), CodeError> {
        let event = sample.event();
        let launch = usual(&sample.launches);
        let off = launch - without(launch, event);
        self.launches.extend(sample.launches.iter().map(|time| *time - off));
        self.wakes.extend(&sample.wakes);
        for ((routine, index), times) in &sample.calls {
            let call = &schedule.routines[*routine].calls[*index];
            let footprint = footprint(*routine, *index, call, schedule.job.dtype)?;
            self.row(call.text(), sample.busy, footprint).take(times, event);
        }
        for (input, times) in &sample.feeds {
            let input = &schedule.job.inputs[*input];
            let bytes = input.bytes(schedule.job.dtype);
            let footprint = Footprint { bytes, ..Footprint::default() };
            self.row(feed_text(input), sample.busy, footprint).take(times, Nanos(0));
        }
        Ok(())
    }

    fn row(&mut self, text: String, busy: u32, footprint: Footprint) -> &mut Mean {
        let mean = self.calls.entry((text, busy)).or_default();
        mean.footprint = footprint;
        mean
    }

    /// The table of everything that was taken in.
    pub fn profile(
        &self,
        processor: &str,
        threads: u32,
        dtype: Float,
        copies: Copies,
    ) -> Profile {
        let row = |((call, busy), mean): (&(String, u32), &Mean)| CallTime {
            busy: *busy,
            nanos: Nanos((mean.nanos / mean.weight).round().max(1.0) as u64),
            samples: mean.samples,
            spread: (mean.spread / mean.weight * 1e4).round() / 1e4,
            flops: mean.footprint.flops,
            bytes: mean.footprint.bytes,
            call: call.clone(),
        };
        let calls: Vec<CallTime> = self.calls.iter().map(row).collect();
        Profile {
            format: PROFILE_FORMAT,
            processor: processor.to_owned(),
            threads,
            dtype,
            launch: usual(&self.launches),
            wake: usual(&self.wakes),
            copies,
            rows: calls.len(),
            calls,
        }
    }
}

impl Mean {
    /// One more place, where an event costs so much.
    fn take(&mut self, times: &[Nanos], event: Nanos) {
        let [lower, median, upper] = quartiles(times);
        let [own, median] = [usual(times), median].map(|time| without(time, event));
        let weight = times.len() as f64;
        self.nanos += weight * own.0 as f64;
        self.spread += weight * (upper - lower).0 as f64 / median.0.max(1) as f64;
        self.weight += weight;
        self.samples += times.len() as u64;
    }
}

fn footprint(
    routine: RoutineId,
    index: usize,
    call: &Call,
    dtype: Float,
) -> Result<Footprint, CodeError> {
    parse_call(call, routine, index).map(|kernel| kernel.footprint(dtype))
}

/// The mean of times, where all beyond a fence count as the fence, three times the distance of
/// the quartiles above the upper one; zero without any.
///
/// Means add up as a step's calls do, where medians of skewed times fall short of their sum; the
/// fence keeps an interruption from being taken for a property of a kernel.
pub(crate) fn usual(times: &[Nanos]) -> Nanos {
    let [lower, _, upper] = quartiles(times);
    let fence = upper + Nanos(3 * (upper - lower).0);
    let sum: Nanos = times.iter().map(|time| *time.min(&fence)).sum();
    Nanos(sum.0 / times.len().max(1) as u64)
}

/// The times that a quarter, half and three quarters of all do not exceed; zero without any.
pub(crate) fn quartiles(times: &[Nanos]) -> [Nanos; 3] {
    let mut sorted = times.to_vec();
    sorted.sort();
    [1, 2, 3].map(|quarter| {
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * quarter / 4).copied().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_stand_in_the_sorted_list() {
        let times: Vec<Nanos> = [5, 1, 4, 2, 3].map(Nanos).into();
        assert_eq!(quartiles(&times), [Nanos(2), Nanos(3), Nanos(4)]);
        assert_eq!(quartiles(&[Nanos(7)]), [Nanos(7); 3]);
        assert_eq!(quartiles(&[]), [Nanos(0); 3]);
    }

    #[test]
    fn usual_times_add_up_but_for_interruptions() {
        let times =
            |list: &[u64]| -> Vec<Nanos> { list.iter().copied().map(Nanos).collect() };
        assert_eq!(usual(&times(&[10, 10, 20, 20, 40])), Nanos(20));
        assert_eq!(
            usual(&times(&[10, 12, 12, 14, 1_000_000])),
            Nanos((10 + 12 + 12 + 14 + 20) / 5)
        );
        assert_eq!(usual(&[]), Nanos(0));
    }
}
