//! How a run goes on from a checkpoint.

use super::{Checkpoint, CheckpointError, Latest, Provenance};
use crate::{
    ArrayNumbers, ArraySource, ParameterState, State, StateError, state::is_named_as_head,
};
use roundelay_schedule::{Belonging, Job, Parameter, Rule, Schedule, counted};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// How a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// As if it had never stopped, bit for bit.
    Exactly,
    /// With the whole state, but under a plan or a model whose numbers are not the same bit for bit.
    WithOtherBits {
        /// In what they differ, as a sentence without full stop.
        reason: &'static str,
    },
    /// From the newest parameters θ_T: older versions are taken equal to them.
    FromParameters {
        /// What goes on beside them.
        optimizer: OptimizerState,
        /// What keeps it from going on exactly, as a sentence without full stop.
        reason: String,
    },
    /// From the start, as was asked for.
    FromStart,
    /// From the start, for there was no checkpoint to go on from.
    WithoutCheckpoint,
    /// From the start, with parameters of a file instead of drawn ones.
    FromWeights,
}

/// What becomes of the optimizer state of a checkpoint under another rule, seed, optimizer or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerState {
    /// It stays as it was.
    Kept,
    /// It begins at zero: it was another method's, or heads have none to go on with.
    Zero,
    /// The optimizer has none.
    Absent,
}

const OTHER_MODEL: &str = "the model computes something else of the same parameters";

/// What a model computes and what decay leaves out have one digest.
const OTHER_SPARED: &str = "weight decay leaves out other parameters (`no_decay`), and the model may \
                            compute something else besides";

const OTHER_HEADS: &str = "heads of units begin as they are drawn";

const OTHER_DELAYS: Resumed = Resumed::WithOtherBits {
    reason: "the plan takes gradients at other versions of parameters: delays follow from \
             `micro_batches`, and from where the model is cut",
};

const OTHER_BITS: Resumed = Resumed::WithOtherBits {
    reason: "the plan cuts the model elsewhere, sums gradients in another order, clips them by \
             a norm of other parts, or splits tensors among another number of rows",
};

/// What a run goes on with.
#[derive(Debug)]
pub struct Resumption {
    /// The state to start from.
    pub state: State<ArraySource>,
    /// How it relates to the earlier run.
    pub resumed: Resumed,
    /// Unfinished, damaged and foreign files of the folder.
    pub ignored: Vec<CheckpointError>,
}

impl Resumption {
    /// Goes on from the newest whole checkpoint of a folder, or starts anew.
    ///
    /// # Errors
    /// When the folder cannot be read, or its newest checkpoint is of another model but for heads
    /// of a local rule.
    pub fn of(
        folder: &Path,
        schedule: &Schedule,
        provenance: &Provenance,
    ) -> Result<Self, CheckpointError> {
        let found = Latest::of(folder)?;
        let (state, resumed) = match found.checkpoint {
            Some(checkpoint) => checkpoint.resume(schedule, provenance)?,
            None => (State::drawn(&schedule.job), Resumed::WithoutCheckpoint),
        };
        Ok(Self { state, resumed, ignored: found.ignored })
    }
}

impl Checkpoint {
    /// The state from which a schedule's run goes on.
    ///
    /// # Errors
    /// [`CheckpointError::Stranger`] where the model has another name and does not fit;
    /// [`CheckpointError::Mismatch`] with everything in which one of this name differs.
    pub fn resume(
        self,
        schedule: &Schedule,
        provenance: &Provenance,
    ) -> Result<(State<ArraySource>, Resumed), CheckpointError> {
        let mut state = self.state;
        let rules = [provenance, &self.provenance].map(|run| run.entry("rule"));
        let other_heads =
            rules[0] != rules[1] && rules.iter().any(|rule| has_heads(rule));
        if other_heads {
            share(&mut state, &schedule.job);
        }
        let earlier = &self.provenance;
        let other = |name| provenance.entry(name) != earlier.entry(name);
        let mistakes = state.misfits(&schedule.job);
        if !mistakes.is_empty() {
            let models = [earlier, provenance].map(|run| run.entry("model").to_owned());
            return Err(unfit(self.path, models, mistakes));
        }
        let mut differences = provenance.differences(earlier);
        differences.extend(forgotten(&state, schedule));
        let computes = match provenance.spares_otherwise(earlier) {
            _ if !provenance.computes_otherwise(earlier) => None,
            true => Some(OTHER_SPARED),
            // Heads are a part of what is computed, and that the rule is another one is said.
            false if other_heads => None,
            false => Some(OTHER_MODEL),
        };
        if differences.is_empty() {
            let resumed = match computes {
                Some(reason) => Resumed::WithOtherBits { reason },
                None if provenance.delays_otherwise(earlier) => OTHER_DELAYS,
                None if other("arithmetic") => OTHER_BITS,
                None => Resumed::Exactly,
            };
            return Ok((state, resumed));
        }
        differences.extend(computes.map(str::to_owned));
        let drawn_heads = other_heads && heads(&schedule.job).next().is_some();
        if drawn_heads {
            differences.push(OTHER_HEADS.to_owned());
        }
        state.restart();
        // Updates are counted for all parameters together, so state begins for all of them anew.
        let anew = other("states") || drawn_heads;
        if anew {
            forget_optimizer(&mut state, &schedule.job);
        }
        let optimizer = match schedule.job.optimizer.method.states() {
            0 => OptimizerState::Absent,
            _ if anew => OptimizerState::Zero,
            _ => OptimizerState::Kept,
        };
        let reason = differences.join("; ");
        Ok((state, Resumed::FromParameters { optimizer, reason }))
    }
}

/// A checkpoint that does not fit. Of a model of another name that is the reason for all the rest.
fn unfit(
    path: PathBuf,
    [model, own]: [String; 2],
    mistakes: Vec<StateError>,
) -> CheckpointError {
    match model == own {
        true => CheckpointError::Mismatch { path, mistakes },
        false => CheckpointError::Stranger { path, model, own },
    }
}

/// Whether models under a rule, as checkpoints spell it, have heads.
fn has_heads(rule: &str) -> bool {
    matches!(rule.parse(), Ok(Rule::Local { units: 2.., hop: _ }))
}

/// Keeps what is no head: heads of the earlier rule are dropped, and those of the new one begin as
/// they are drawn. What the new model has beside its heads is none of the earlier one, whatever its name.
fn share(state: &mut State<ArraySource>, job: &Job) {
    let kept: BTreeSet<&str> = job
        .parameters
        .iter()
        .filter(|own| own.belonging == Belonging::Model)
        .map(|own| own.name.as_str())
        .collect();
    state.tensors.retain(|name, _| kept.contains(&**name) || !is_named_as_head(name));
    let drawn: BTreeSet<&String> = heads(job).map(|head| &head.name).collect();
    let fresh = State::drawn(job).tensors.into_iter();
    state.tensors.extend(fresh.filter(|(name, _)| drawn.contains(name)));
}

/// Parameters of heads.
fn heads(job: &Job) -> impl Iterator<Item = &Parameter> {
    job.parameters.iter().filter(|own| own.belonging == Belonging::Head)
}

/// An older version that the schedule reads and the checkpoint does not hold.
fn forgotten(state: &State<ArraySource>, schedule: &Schedule) -> Option<String> {
    let moment = state.moment();
    let age = |own: &Parameter| moment.reach(&schedule.plan, own.stage);
    let held = |parameter: &Parameter| state.tensors[&parameter.name].versions.len();
    let short = |parameter: &&Parameter| held(parameter) <= age(parameter) as usize;
    schedule.job.parameters.iter().find(short).map(|parameter| {
        let (age, name) = (counted(age(parameter).into(), "update"), &parameter.name);
        format!("the checkpoint does not hold `{name}` of {age} before")
    })
}

/// State begins at zero; a master copy, which comes last, stays.
fn forget_optimizer(state: &mut State<ArraySource>, job: &Job) {
    state.optimizer_origin = state.step;
    let states = job.optimizer.method.states() as usize;
    let masters = job.dtype.masters() as usize;
    for ParameterState { versions, optimizer, shape: _ } in state.tensors.values_mut() {
        let numbers = versions[0].length() / job.dtype.size() as usize;
        let kept = optimizer.split_off(optimizer.len().saturating_sub(masters));
        let zero = ArraySource::zero(numbers * job.dtype.wide_size() as usize);
        *optimizer = vec![zero; states];
        optimizer.extend(kept);
    }
}
