//! What must hold for a program.

use crate::{planning::Units, program::Program};
use roundelay::{
    Checked, SearchOptions, SourceFile, compile,
    parts::runtime::{Cpu, CpuOptions, Dataset, Fill, Oracle, State, Timing},
    plan, read, write,
};
use std::time::Duration;

/// How a program ended that did well.
pub(crate) enum Verdict {
    /// It was trained.
    Trained,
    /// No plan fits, or the language takes it not, and it was said why.
    Refused,
}

/// How far losses in 64 bits may be from those of one device, relatively.
const APART: f64 = 1e-7;

/// How long a replay may stand still.
const DEADLINE: Duration = Duration::from_secs(20);

/// Losses by step and micro-batch, and what was learned.
struct Outcome {
    losses: Vec<Vec<f64>>,
    state: State,
}

/// # Errors
/// What does not hold.
pub(crate) fn judge(program: &Program) -> Result<Verdict, String> {
    // A CPU has no numbers of 16 bits.
    let dtype = if program.training.dtype == "f64" { "f64" } else { "f32" };
    let text = program.with(dtype, &program.planning.text());
    let units = program.planning.units;
    let Some(schedule) = scheduled(&text, units)? else { return Ok(Verdict::Refused) };
    let found = read(&write(&schedule)).map_err(|wrong| wrong.to_string())?;
    if found != *schedule {
        return Err("the schedule is not read as it was written".to_owned());
    }
    let steps = program.training.steps as u64;
    let recursion = recursion(&schedule, steps)?;
    let rests = [steps];
    for (rests, timing) in
        [(&rests[..], Timing::Natural), (&[1, steps], Timing::Jittered(steps))]
    {
        let replay = replay(&schedule, rests, timing)?;
        if bits(&replay) != bits(&recursion) {
            let (own, other) = (&replay.losses, &recursion.losses);
            return Err(format!("rests {rests:?}: losses {own:?}, recursion {other:?}"));
        }
        if replay.state != recursion.state {
            return Err(format!("rests {rests:?}: the state is not the recursion's"));
        }
    }
    if program.planning.synchronous {
        like_one_device(program)?;
    }
    Ok(Verdict::Trained)
}

/// The proven schedule of the first plan; none where no plan fits, or where the model does not fall
/// into units.
fn scheduled(text: &str, units: Units) -> Result<Option<Checked>, String> {
    let source = SourceFile::new("random.rdl", text);
    let program = match roundelay::parse(&source) {
        Ok(program) => program,
        Err(mistakes) => {
            let is_known = mistakes.iter().all(|mistake| {
                let is_of_units = units == Units::Some && !mistake.hints.is_empty();
                is_of_units || mistake.message.contains("lies behind the model")
            });
            return if is_known { Ok(None) } else { Err(mistakes.to_string()) };
        }
    };
    let search = SearchOptions { top: 1, ..SearchOptions::default() };
    let ranking = match plan(&program, &search) {
        Ok(ranking) => ranking,
        Err(refusal) if refusal.binding.is_empty() => return Err(refusal.to_string()),
        Err(_) => return Ok(None),
    };
    let schedule = compile(&program, ranking.best());
    schedule.map(Some).map_err(|wrong| format!("planned, but not compiled: {wrong}"))
}

/// Losses as they are, numbers or not.
fn bits(outcome: &Outcome) -> Vec<u64> {
    outcome.losses.iter().flatten().map(|loss| loss.to_bits()).collect()
}

fn recursion(schedule: &Checked, steps: u64) -> Result<Outcome, String> {
    let said = |wrong: &dyn std::fmt::Display| wrong.to_string();
    let mut data = Dataset::open(&schedule.job, None).map_err(|wrong| said(&wrong))?;
    let state = State::initial(&schedule.job);
    let mut oracle = Oracle::new(schedule, &state).map_err(|wrong| said(&wrong))?;
    let losses = (0..steps).map(|_| oracle.advance(&mut data)).collect();
    Ok(Outcome { losses, state: oracle.state() })
}

/// In memory that holds what is no number, with rests before these steps.
fn replay(schedule: &Checked, rests: &[u64], timing: Timing) -> Result<Outcome, String> {
    let said = |wrong: &dyn std::fmt::Display| wrong.to_string();
    let data = Dataset::open(&schedule.job, None).map_err(|wrong| said(&wrong))?;
    let options = CpuOptions {
        fill: Fill::Poison,
        timing,
        deadline: DEADLINE,
        ..CpuOptions::default()
    };
    let mut cpu =
        Cpu::new(schedule, Box::new(data), options).map_err(|wrong| said(&wrong))?;
    cpu.load(&State::initial(&schedule.job)).map_err(|wrong| said(&wrong))?;
    let steps = rests.last().map_or(0, |last| *last as usize);
    let all = schedule.plan.all_micro_batches() as usize;
    let mut losses = vec![vec![0.0; all]; steps];
    for end in rests {
        let mut keep = |loss: roundelay::parts::runtime::Loss| {
            losses[loss.step as usize][loss.micro_batch as usize] = loss.loss;
        };
        cpu.replay(*end, &mut keep).map_err(|wrong| said(&wrong))?;
    }
    let state = cpu.save().map_err(|wrong| said(&wrong))?;
    let state = state.expect("it is the only rank");
    Ok(Outcome { losses, state })
}

/// The plan and one device with as many micro-batches, both in 64 bits.
fn like_one_device(program: &Program) -> Result<(), String> {
    let schedule = |plan: &str| {
        let schedule = scheduled(&program.with("f64", plan), Units::None)?;
        schedule.ok_or_else(|| format!("refused in 64 bits: {plan}"))
    };
    let own = schedule(&program.planning.text())?;
    let alone = schedule(&Program::alone(own.plan.all_micro_batches()))?;
    let steps = program.training.steps as u64;
    let losses =
        |schedule| recursion(schedule, steps).map(|outcome| outcome.losses.concat());
    let (found, expected) = (losses(&own)?, losses(&alone)?);
    let near = |(own, other): (&f64, &f64)| (own - other).abs() <= APART * other.abs();
    match found.len() == expected.len() && found.iter().zip(&expected).all(near) {
        true => Ok(()),
        false => Err(format!("losses {found:?}, on one device {expected:?}")),
    }
}
