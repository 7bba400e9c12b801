//! What a replay must give: the losses of the oracle, and its state at every rest.

use crate::{
    examples::Examples,
    graph::{Graph, Taste},
    machine::Machine,
    random::Random,
};
use roundelay_runtime::{
    Cpu, CpuOptions, Evaluator, Fill, Measures, Oracle, State, Timing,
};
use roundelay_schedule::{
    ActionId, Buffer, Checked, Id, Parameter, Rest, Schedule, Segment, Slice, Stage,
    Subject,
};
use std::{collections::BTreeMap, ops::Range};

/// Steps of every replay.
pub(crate) const STEPS: u64 = 4;

/// Where a replay rests.
const CUTS: [&[u64]; 2] = [&[STEPS], &[1, 3, STEPS]];

/// The right bits.
pub(crate) struct Truth {
    losses: BTreeMap<(i64, usize), u64>,
    states: Vec<State>,
    /// What the last state makes of further examples.
    held_out: Measures,
}

impl Truth {
    /// The oracle's steps from the start.
    pub(crate) fn of(schedule: &Checked) -> Self {
        let first = State::initial(&schedule.job);
        let mut oracle = Oracle::new(schedule, &first).expect("a new state fits");
        let (mut losses, mut states) = (BTreeMap::new(), vec![first]);
        for step in 0..STEPS as i64 {
            let found = oracle.advance(&mut Examples);
            let bits = (0..).zip(found).map(|(i, loss)| ((step, i), loss.to_bits()));
            losses.extend(bits);
            states.push(oracle.state());
        }
        let held_out = held_out(schedule, &states[STEPS as usize]);
        Self { losses, states, held_out }
    }

    /// Looks at held-out data with the forward passes of a mutant; says what is wrong.
    pub(crate) fn on_held_out(&self, schedule: &Checked) -> Result<(), String> {
        let found = held_out(schedule, &self.states[STEPS as usize]);
        match found == self.held_out {
            true => Ok(()),
            false => Err(format!("{found:?} of held-out data, not {:?}", self.held_out)),
        }
    }

    /// Replays in random orders that the schedule allows; says what is wrong.
    pub(crate) fn in_orders(
        &self,
        schedule: &Schedule,
        focus: &[ActionId],
        orders: usize,
        random: &mut Random,
    ) -> Result<(), String> {
        let mut machine = Machine::new(schedule);
        let graphs = CUTS.map(|cut| graphs(schedule, cut));
        let tastes = [Taste::Late, Taste::Any, Taste::Late, Taste::Queues, Taste::Early];
        for order in 0..orders {
            machine.poison();
            machine.losses.clear();
            self.load(schedule, &mut machine, 0)?;
            let taste = tastes[order % tastes.len()];
            for (segment, graph) in &graphs[order % CUTS.len()] {
                if segment.first > 0 && order % 4 == 1 {
                    machine.poison();
                    self.load(schedule, &mut machine, segment.first as usize)?;
                }
                graph.walk(taste, focus, random, |node| machine.execute(node));
                self.holds(schedule, &machine, segment.end as usize)?;
            }
            if machine.losses != self.losses {
                return Err(format!("order {order} ({taste:?}): other losses"));
            }
        }
        Ok(())
    }

    /// Replays on the CPU machine with random delays; says what is wrong.
    pub(crate) fn on_threads(&self, schedule: &Checked, seed: u64) -> Result<(), String> {
        let timing = Timing::Jittered(seed);
        let options = CpuOptions { fill: Fill::Poison, timing, ..CpuOptions::default() };
        let fail = |error: roundelay_runtime::CpuError| error.to_string();
        let mut cpu = Cpu::new(schedule, Box::new(Examples), options).map_err(fail)?;
        cpu.load(&self.states[0]).map_err(fail)?;
        let mut losses = BTreeMap::new();
        for rest in CUTS[seed as usize % CUTS.len()] {
            cpu.replay(*rest, &mut |loss| {
                let place = (loss.step as i64, loss.micro_batch as usize);
                losses.insert(place, loss.loss.to_bits());
            })
            .map_err(fail)?;
            let state = cpu.save().map_err(fail)?;
            if state.as_ref() != Some(&self.states[*rest as usize]) {
                return Err(format!("on threads: another state at {rest}"));
            }
        }
        match losses == self.losses {
            true => Ok(()),
            false => Err("on threads: other losses".to_owned()),
        }
    }

    fn load(
        &self,
        schedule: &Schedule,
        machine: &mut Machine<'_>,
        t: usize,
    ) -> Result<(), String> {
        for row in carried(schedule, t as i64) {
            machine.write(row.device, row.start..row.end).fill(0);
            for part in row.parts(schedule, &self.states[t])? {
                machine.write(row.device, part.bytes).copy_from_slice(&part.right);
            }
        }
        Ok(())
    }

    /// Every carried row holds what it declares, and all that is newest is there.
    fn holds(
        &self,
        schedule: &Schedule,
        machine: &Machine<'_>,
        t: usize,
    ) -> Result<(), String> {
        let mut newest = BTreeMap::new();
        for row in carried(schedule, t as i64) {
            for Part { bytes, right, name } in row.parts(schedule, &self.states[t])? {
                if machine.read(row.device, bytes) != right {
                    return Err(format!("{} holds other bits at rest {t}", row.name));
                }
                if row.age == 0 {
                    newest.insert(name, right.len());
                }
            }
        }
        let all = schedule.job.parameters.iter().map(|p| 4 * p.elements() as usize);
        let arrays = 1 + schedule.job.optimizer.method.states() as usize;
        match newest.values().sum::<usize>() == arrays * all.sum::<usize>() {
            true => Ok(()),
            false => Err(format!("something is lost at rest {t}")),
        }
    }
}

/// What a state makes of examples that it was not trained on.
fn held_out(schedule: &Checked, state: &State) -> Measures {
    let mut evaluator = Evaluator::new(schedule).expect("its calls are sound");
    evaluator.measure(state, &mut Examples, 2).expect("the state fits")
}

fn graphs(schedule: &Schedule, cut: &[u64]) -> Vec<(Segment, Graph)> {
    let firsts = [0].into_iter().chain(cut.iter().copied());
    let segments = firsts.zip(cut).map(|(first, end)| Segment { first, end: *end });
    segments.map(|segment| (segment, Graph::new(schedule, segment))).collect()
}

/// A row that crosses a rest.
struct Carried {
    name: String,
    device: usize,
    start: usize,
    end: usize,
    subject: Subject,
    age: u32,
    elements: Range<u64>,
}

fn carried(schedule: &Schedule, t: i64) -> Vec<Carried> {
    let mut rows = Vec::new();
    for (id, buffer) in schedule.buffers.iter() {
        let Rest::Carried(ages) = &buffer.rest else { continue };
        let ring = &schedule.rings[buffer.home];
        for coordinate in schedule.coordinates() {
            for (place, slots) in (0..).zip(ages) {
                for (slot, age) in (0..).zip(slots) {
                    let Some(age) = *age else { continue };
                    let device = schedule.device_at(ring.device(place, t), &coordinate);
                    let offset = u64::from(buffer.slot(slot, t)) * buffer.size.0;
                    let start = (buffer.offset.0 + offset) as usize;
                    rows.push(Carried {
                        name: format!("{id}.{slot} on {device}"),
                        device: device.index(),
                        start,
                        end: start + buffer.size.0 as usize,
                        subject: buffer.subject,
                        age,
                        elements: elements(schedule, buffer, &coordinate),
                    });
                }
            }
        }
    }
    rows
}

fn elements(schedule: &Schedule, buffer: &Buffer, coordinate: &[u32]) -> Range<u64> {
    let (stage, slice) = stage(buffer.subject);
    let all = schedule.job.elements[stage];
    match slice {
        Slice::Whole => 0..all,
        Slice::Shard(axis) => {
            let part = all / u64::from(schedule.axes[axis].extent);
            let own = u64::from(coordinate[axis.index()]);
            own * part..(own + 1) * part
        }
    }
}

fn stage(subject: Subject) -> (Stage, Slice) {
    match subject {
        Subject::Parameter(stage, slice) | Subject::Optimizer(stage, slice) => {
            (stage, slice)
        }
        other => unreachable!("{other:?} is not carried"),
    }
}

/// A part of a parameter, or of its optimizer state, in a row.
struct Part {
    bytes: Range<usize>,
    /// What must be there.
    right: Vec<u8>,
    /// Array (parameters first), parameter, first element.
    name: (usize, String, u64),
}

impl Carried {
    /// What each part of the row must hold; padding is free.
    fn parts(&self, schedule: &Schedule, state: &State) -> Result<Vec<Part>, String> {
        let (job, (stage, _)) = (&schedule.job, stage(self.subject));
        let (first, flats) = match self.subject {
            Subject::Parameter(..) => {
                (0, state.parameters(job, stage, 0, self.age).map(|flat| vec![flat]))
            }
            _ => (1, state.optimizer(job, stage, 0)),
        };
        let flats = flats.map_err(|error| error.to_string())?;
        let mut parts = Vec::new();
        let length = (self.elements.end - self.elements.start) as usize * 4;
        for (array, flat) in flats.into_iter().enumerate() {
            for parameter in job.parameters_of(stage) {
                let part = self.common(parameter);
                if part.is_empty() {
                    continue;
                }
                let [start, end] = [part.start, part.end].map(|element| {
                    let inside = (element - self.elements.start) as usize * 4;
                    self.start + array * length + inside
                });
                let right = flat[part.start as usize * 4..part.end as usize * 4].to_vec();
                let name = (first + array, parameter.name.clone(), part.start);
                parts.push(Part { bytes: start..end, right, name });
            }
        }
        Ok(parts)
    }

    /// The elements of a parameter that the row holds.
    fn common(&self, parameter: &Parameter) -> Range<u64> {
        let Range { start, end } = self.elements;
        let own = parameter.offset..parameter.offset + parameter.elements();
        start.max(own.start)..end.min(own.end).max(start.max(own.start))
    }
}
