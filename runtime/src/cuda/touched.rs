//! Which memory is no poison any more: counted on the device run by run, and looked at on the
//! host only where a run has both.

use super::{
    CudaError, Engine,
    arena::allocate,
    bounce::Unreached,
    driver::{Address, DeviceMemory},
};
use crate::machine::{POISON, append, scan};
use roundelay_schedule::{Bytes, DeviceId};
use std::ops::Range;

/// Bytes of a word of the scan.
const WORD: u64 = 4;
/// Words of a run.
const RUN: u64 = 16 << 10;
/// Runs that are counted at one time.
const RUNS: u64 = 64 << 10;

/// Room for the counts of [`RUNS`] runs.
pub(super) struct Counts(DeviceMemory);

impl Engine {
    pub(super) fn counts(&self) -> Result<Counts, CudaError> {
        let memory = allocate(&self.device, "counting poison", Bytes(RUNS * WORD))?;
        Ok(Counts(memory))
    }

    /// The ranges of a range of an arena that are touched, in order.
    pub(super) fn touched_in(
        &mut self,
        counts: &Counts,
        device: DeviceId,
        range: Range<u64>,
    ) -> Result<Vec<Range<u64>>, CudaError> {
        let mut found = Vec::new();
        let words = match range.start.is_multiple_of(WORD) {
            true => (range.end - range.start) / WORD,
            false => 0,
        };
        let counted = range.start + words * WORD;
        let mut start = range.start;
        while start < counted {
            let end = counted.min(start + RUNS * RUN * WORD);
            self.touched_runs((counts, device), start..end, &mut found)?;
            start = end;
        }
        self.look(device, counted..range.end, &mut found)?;
        Ok(found)
    }

    fn touched_runs(
        &mut self,
        (counts, device): (&Counts, DeviceId),
        range: Range<u64>,
        found: &mut Vec<Range<u64>>,
    ) -> Result<(), CudaError> {
        let from = self.arenas.at(device, range.start);
        let poisoned = self.poisoned(from, (range.end - range.start) / WORD, counts);
        let poisoned = poisoned.map_err(|unreached| self.unmoved(unreached))?;
        let starts = range.clone().step_by((RUN * WORD) as usize);
        for (start, poisoned) in starts.zip(poisoned) {
            let run = start..range.end.min(start + RUN * WORD);
            match u64::from(poisoned) * WORD {
                0 => append(found, run),
                all if all == run.end - run.start => {}
                _ => self.look(device, run, found)?,
            }
        }
        Ok(())
    }

    /// Words of each run that are poison.
    fn poisoned(
        &mut self,
        from: Address,
        words: u64,
        counts: &Counts,
    ) -> Result<Vec<u32>, Unreached> {
        let (to, stream) = (counts.0.start(), &self.lanes.origin);
        let word = u32::from_ne_bytes([POISON; WORD as usize]);
        self.code.count_words((from, words), (RUN, word), to, stream)?;
        let mut bytes = vec![0; (words.div_ceil(RUN) * WORD) as usize];
        self.bounce.read(stream, to, &mut bytes, self.deadline)?;
        let (counts, _) = bytes.as_chunks::<4>();
        Ok(counts.iter().map(|count| u32::from_ne_bytes(*count)).collect())
    }

    /// Brings a range to the host and looks at it there.
    fn look(
        &mut self,
        device: DeviceId,
        range: Range<u64>,
        found: &mut Vec<Range<u64>>,
    ) -> Result<(), CudaError> {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + RUN * WORD);
            let mut bytes = vec![0; (end - start) as usize];
            self.read(device, start, &mut bytes)?;
            scan(&bytes, start).into_iter().for_each(|part| append(found, part));
            start = end;
        }
        Ok(())
    }
}
