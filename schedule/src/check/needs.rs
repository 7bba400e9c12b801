//! Rule 1 across routines: who reads a part of an array finds it written by whoever makes the
//! array.

use super::{Culprit, faults::Faults, ranges::Ranges};
use crate::{Element, Role, RoutineId, Schedule, Stage};
use std::{collections::BTreeMap, ops::Range};

/// An array that one routine makes and others read.
type Array = (Role, Option<Stage>);

/// Which bytes of arrays are read, and which are written by each maker.
#[derive(Debug)]
pub(super) struct Needs<'a> {
    schedule: &'a Schedule,
    read: BTreeMap<Array, Vec<(Range<u64>, RoutineId)>>,
    makers: Vec<(Array, RoutineId, Ranges)>,
}

/// The array that an argument of this role is; none when its coverage is checked elsewhere.
fn array(schedule: &Schedule, role: Role, stage: Stage) -> Option<Array> {
    match role {
        Role::Activation | Role::Retained | Role::Adjoint => Some((role, Some(stage))),
        Role::Parameter | Role::Tied(_) => {
            Some((Role::Parameter, Some(schedule.plan.state_of(role, stage))))
        }
        Role::Value(_) | Role::ValueGradient(_) | Role::Input(_) | Role::Metric => {
            Some((role, None))
        }
        Role::NextParameter
        | Role::Gradient
        | Role::TiedGradient(_)
        | Role::Received
        | Role::Optimizer
        | Role::Squares
        | Role::Workspace => None,
    }
}

impl<'a> Needs<'a> {
    /// Nothing is needed yet.
    pub(super) fn new(schedule: &'a Schedule) -> Self {
        Self { schedule, read: BTreeMap::new(), makers: Vec::new() }
    }

    /// A routine reads bytes that it has not written.
    pub(super) fn reads(&mut self, id: RoutineId, role: Role, bytes: &Ranges) {
        let routine = &self.schedule.routines[id];
        if !routine.pass.is_on_micro_batch() {
            return;
        }
        if let Some(array) = array(self.schedule, role, routine.stage) {
            let all = bytes.iter().map(|range| (range.clone(), id));
            self.read.entry(array).or_default().extend(all);
        }
    }

    /// A routine makes an array.
    pub(super) fn makes(&mut self, id: RoutineId, role: Role, bytes: &Ranges) {
        let stage = self.schedule.routines[id].stage;
        if let Some(array) = array(self.schedule, role, stage) {
            self.makers.push((array, id, bytes.clone()));
        }
    }

    /// The forward pass of the last stage writes the loss, and together with those of earlier stages
    /// every metric. A routine that nothing launches writes none.
    fn measures(&self, faults: &mut Faults) {
        let schedule = self.schedule;
        let ends = |maker: &RoutineId| schedule.ends(schedule.routines[*maker].stage);
        let launched = schedule.launched();
        let makers = self.makers.iter().filter(|(array, maker, _)| {
            array.0 == Role::Metric && launched.contains(maker)
        });
        let (last, earlier): (Vec<_>, Vec<_>) =
            makers.partition(|(_, maker, _)| ends(maker));
        let job = &schedule.job;
        for (_, maker, written) in last {
            let mut all = written.clone();
            let others = earlier.iter().flat_map(|(_, _, written)| written.iter());
            others.for_each(|range| all.add(range.clone()));
            let loss = 0..job.dtype.wide_size().min(job.measured().0);
            let whole = written.covers(&loss) && all.covers(&(0..job.measured().0));
            faults.require(whole, Culprit::Routine(*maker), || {
                "never writes the loss and every metric: add the calls that make them"
                    .into()
            });
        }
    }

    /// Every maker writes all that is read; parameters and inputs come from outside.
    pub(super) fn check(&self, faults: &mut Faults) {
        self.measures(faults);
        for (array, maker, written) in &self.makers {
            let read = self.read.get(array).into_iter().flatten();
            let missed = read.filter(|(range, _)| !written.covers(range));
            for (range, reader) in missed.take(1) {
                faults.malformed(
                    Culprit::Routine(*maker),
                    format!(
                        "never writes all of bytes {} to {} of its {}, which {reader} \
                         reads: add the call that makes them",
                        range.start, range.end, array.0
                    ),
                );
            }
        }
        for (array, reads) in &self.read {
            let Some(given) = given(self.schedule, *array) else { continue };
            let missed = reads.iter().filter(|(range, _)| !given.covers(range));
            for (range, reader) in missed.take(1) {
                faults.malformed(
                    Culprit::Routine(*reader),
                    format!(
                        "reads bytes {} to {} of its {}, which nothing fills: read what \
                         the job declares",
                        range.start, range.end, array.0
                    ),
                );
            }
        }
    }
}

/// The bytes of an array that comes from outside.
fn given(schedule: &Schedule, (role, stage): Array) -> Option<Ranges> {
    let job = &schedule.job;
    let mut ranges = Ranges::default();
    match (role, stage) {
        (Role::Parameter, Some(stage)) => {
            ranges.add(0..job.elements[stage] * Element::Real.size(job.dtype));
        }
        (Role::Input(input), _) => {
            ranges.add(0..job.inputs[input].bytes(job.dtype).0);
        }
        _ => return None,
    }
    Some(ranges)
}
