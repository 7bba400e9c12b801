//! Launches that are no steps of a routine: sums of what several parts bring, rows of images that they
//! exchange, counts of words.

use super::{Binding, Code, Step, number_of};
use crate::cuda::{
    CudaError,
    driver::{Address, DriverError, Stream},
    exchange::{Joined, Meeting},
};
use roundelay_kernels::{
    Store,
    cuda::{self, Launch, MOST_SUMMED, Number, sum},
};
use roundelay_schedule::{Element, Schedule};

impl Code {
    /// Loads what sums over the members of groups need.
    pub(super) fn prepare_sums(&mut self, schedule: &Schedule) -> Result<(), CudaError> {
        if schedule.groups.is_empty() {
            return Ok(());
        }
        let elements = [Element::Real, Element::Wide].into_iter();
        let mut numbers = elements.map(|element| number_of(schedule.job.dtype, element));
        numbers.try_for_each(|number| self.prepare_sum(number))
    }

    /// Loads what parts need to make a call together.
    pub(super) fn prepare_meeting(&mut self, meeting: &Meeting) -> Result<(), CudaError> {
        match meeting.joined {
            Joined::Columns(_) => self.prepare_sum(meeting.number),
            Joined::Rows(halos) => self.tools.functions.all(&halos.functions()).map(drop),
        }
    }

    fn prepare_sum(&mut self, number: Number) -> Result<(), CudaError> {
        let launch = sum(1, number, 1, Store::Write);
        let launch = launch.expect("a sum of one array of one number is one");
        self.tools.functions.of(&launch).map(drop)
    }

    /// Adds arrays of this many numbers from the first to the last, and that to what is there if it
    /// accumulates. Where there are more than one launch takes, the sum of those before, rounded to
    /// their type, is the first one of the next launch.
    pub(in crate::cuda) fn sum(
        &mut self,
        number: Number,
        terms: &[Address],
        (to, elements): (Address, u64),
        mut store: Store,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let mut terms = terms.to_vec();
        // What the first launch writes over is read by it.
        if let Some(own) = terms.iter().position(|term| *term == to) {
            terms[..=own].rotate_right(usize::from(own >= MOST_SUMMED));
        }
        let mut rest = &terms[..];
        while !rest.is_empty() {
            let so_far = if rest.len() < terms.len() { &[to][..] } else { &[] };
            let count = rest.len().min(MOST_SUMMED - so_far.len());
            let (own, others) = rest.split_at(count);
            let parts: Vec<Address> = [so_far, own].concat();
            self.sum_once(number, &parts, (to, elements), store, stream)?;
            (rest, store) = (others, Store::Write);
        }
        Ok(())
    }

    /// Counts words of memory, as [`count_words`] says; of this many each, those that are `word`.
    ///
    /// [`count_words`]: cuda::count_words
    pub(in crate::cuda) fn count_words(
        &mut self,
        (from, words): (Address, u64),
        (each, word): (u64, u32),
        to: Address,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let launch = cuda::count_words(words as usize, each as usize, word);
        self.launch_all(vec![launch], &[from, to], stream)
    }

    /// Launches functions of ours that were loaded at the start, one after another.
    pub(in crate::cuda) fn launch_all(
        &mut self,
        launches: Vec<Launch>,
        operands: &[Address],
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let binding = Binding::of(operands, Address(0));
        launches.into_iter().try_for_each(|launch| {
            let function = self.tools.functions.of(&launch);
            let function =
                function.expect("what a schedule needs was loaded at the start");
            self.run(&Step::Launch(function, launch), &binding, stream)
        })
    }

    fn sum_once(
        &mut self,
        number: Number,
        parts: &[Address],
        (to, elements): (Address, u64),
        store: Store,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let launch = sum(parts.len(), number, elements as usize, store);
        let launch =
            launch.expect("a launch sums at least one part and no more than most");
        let operands: Vec<Address> = [to].iter().chain(parts).copied().collect();
        self.launch_all(vec![launch], &operands, stream)
    }
}
