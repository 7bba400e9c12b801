//! By which functions of ours something is made that has two ways: those for every device, or those for
//! this one, where a trial found them faster and their numbers the same.

use super::{
    CudaError,
    bounce::Unreached,
    code::give,
    drawn::{Distance, extents},
    driver::{Device, DriverError, Parameters},
    functions::{Functions, Loaded, sources},
    tuning::{Bench, Choice, Trials, Tried, Tuner},
};
use crate::{digest::Digest, machine::AttentionCounts};
use roundelay_kernels::cuda::Either;
use roundelay_schedule::Bytes;

/// The devices that have the instructions of `sm_90a`.
const SM90: (u32, u32) = (9, 0);

/// What says which functions are best.
const USUAL: &[u8] = b"functions for every device";
const SPECIAL: &[u8] = b"functions for sm_90a";

/// Why something is made by functions for every device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    /// They are asked for.
    #[error("functions for every device are asked for")]
    Unwanted,
    /// The device has no others.
    #[error("a device of compute capability {}.{} has no warp groups", .0.0, .0.1)]
    Device((u32, u32)),
    /// Others are not there.
    #[error("functions for sm_90a are not to be had: {0}")]
    Absent(String),
    /// Nobody tried what is faster.
    #[error("no trial was kept that says whether functions for sm_90a are faster")]
    Untried,
    /// They are what was kept.
    #[error("a trial kept functions for every device")]
    Slower,
}

/// Chooses functions for one GPU.
pub(super) struct Chooser {
    usable: Result<(), Reason>,
    trials: Trials,
    tuner: Tuner,
    /// Of what times depend on.
    versions: String,
    /// What was chosen, by what it makes.
    known: Vec<(String, Result<(), Reason>)>,
    counts: AttentionCounts,
}

impl Chooser {
    /// For a GPU.
    pub(super) fn new(device: &Device, trials: Trials) -> Self {
        let facts = device.facts();
        Self {
            usable: usable(facts.capability),
            trials,
            tuner: Tuner::new(facts, trials),
            versions: format!("{:?} {:?}", facts.driver, facts.compiler),
            known: Vec::new(),
            counts: AttentionCounts::default(),
        }
    }

    /// Takes functions for every device alone.
    pub(super) fn take_usual(&mut self) {
        self.usable = Err(Reason::Unwanted);
    }

    /// By whom that was made of which was asked so far.
    pub(super) fn counts(&self) -> &AttentionCounts {
        &self.counts
    }

    /// How it is made, as for products.
    pub(super) fn ways(&self) -> String {
        let mut digest = Digest::new();
        for (text, choice) in &self.known {
            digest.add(text.as_bytes());
            digest.add(if choice.is_ok() { SPECIAL } else { USUAL });
        }
        format!("{:016x}", digest.value())
    }

    /// The functions that make something, beside whose operands a call takes so much memory.
    ///
    /// # Errors
    /// When there are none.
    pub(super) fn choose(
        &mut self,
        either: &Either,
        functions: &mut Functions,
        scratch: Bytes,
    ) -> Result<Loaded, CudaError> {
        let usual = functions.all(&either.usual)?;
        match self.special(either, &usual, functions, scratch) {
            Ok(special) => {
                self.counts.sm90 += 1;
                Ok(special)
            }
            Err(reason) => {
                self.counts.usual += 1;
                self.counts.why_usual.get_or_insert_with(|| reason.to_string());
                Ok(usual)
            }
        }
    }

    fn special(
        &mut self,
        either: &Either,
        usual: &Loaded,
        functions: &mut Functions,
        scratch: Bytes,
    ) -> Result<Loaded, Reason> {
        self.usable.clone()?;
        let special = functions.all(&either.sm90);
        let special = special.map_err(|reason| Reason::Absent(reason.to_string()))?;
        if self.trials == Trials::Skipped {
            return Ok(special);
        }
        let text = text(either, [usual, &special]);
        let known = self.known.iter().find(|(other, _)| *other == text);
        let choice = match known {
            Some((_, choice)) => choice.clone(),
            None => {
                let choice = self.tried(either, [usual, &special], &text, scratch);
                self.known.push((text, choice.clone()));
                choice
            }
        };
        choice.map(|()| special)
    }

    fn tried(
        &mut self,
        either: &Either,
        ways: [&Loaded; 2],
        text: &str,
        scratch: Bytes,
    ) -> Result<(), Reason> {
        let parameters = Parameters::default();
        let mut trial = Trial { either, ways, scratch, parameters, wrong: None };
        let words = [self.versions.as_str(), text];
        let choice = self.tuner.choose(&mut trial, "attention", words);
        if let Some(wrong) = trial.wrong {
            self.counts.wrong.get_or_insert(wrong);
        }
        match choice {
            Choice::First => Err(Reason::Untried),
            Choice::Kept(0) => Err(Reason::Slower),
            Choice::Kept(_) => Ok(()),
        }
    }
}

/// Whether a device has functions of its own.
fn usable(capability: (u32, u32)) -> Result<(), Reason> {
    match capability {
        SM90 => Ok(()),
        other => Err(Reason::Device(other)),
    }
}

/// What is made, by which sources.
fn text(either: &Either, ways: [&Loaded; 2]) -> String {
    let mut text = format!("{} {:?}", either.words, either.arrays);
    for way in ways {
        text += &format!(" by {:016x}", sources(way));
        for (_, launch) in way {
            text += &format!(" {:?}", launch.arguments);
        }
    }
    text
}

/// Something that is tried in both ways.
struct Trial<'a> {
    either: &'a Either,
    ways: [&'a Loaded; 2],
    scratch: Bytes,
    parameters: Parameters,
    /// In words how far the numbers of the special way are from those of the usual one.
    wrong: Option<String>,
}

impl Tried for Trial<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        vec![USUAL.to_vec(), SPECIAL.to_vec()]
    }

    fn extents(&self) -> Vec<Bytes> {
        extents(&self.either.arrays, self.scratch)
    }

    fn prepare(&mut self, bench: &mut Bench) -> Result<Vec<bool>, Unreached> {
        let Either { words, arrays, .. } = self.either;
        let distances = bench.distances(self, arrays)?;
        if let Some(Distance::Far(error)) = distances.get(1) {
            let wrong = format!("{words} is off by {error:.1e} of the largest number");
            self.wrong = Some(wrong);
        }
        Ok(distances.iter().map(|distance| *distance == Distance::Near).collect())
    }

    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError> {
        let (binding, parameters) = (bench.binding(), &mut self.parameters);
        self.ways[way].iter().try_for_each(|(function, launch)| {
            give((function, launch), &binding, parameters, &bench.stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sm_90a` is no base of later architectures.
    #[test]
    fn neither_older_nor_newer_devices_have_warp_groups() {
        assert_eq!(usable(SM90), Ok(()));
        for other in [(8, 0), (8, 9), (10, 0), (12, 1)] {
            let said = usable(other).map_err(|reason| reason.to_string());
            let (major, minor) = other;
            let expected = format!(
                "a device of compute capability {major}.{minor} has no warp groups"
            );
            assert_eq!(said, Err(expected));
        }
    }
}
