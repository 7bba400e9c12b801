//! Doing one run.

use super::{
    case::{Case, Origin},
    record::Outcome,
};
use roundelay::{
    Checked, SearchOptions, SourceFile,
    parts::runtime::{Cpu, CpuOptions, Dataset, Evaluator, State},
};
use std::{error::Error, path::Path};

/// Training steps between looks at the loss.
const ROUND: u64 = 50;

/// A loss above it is that of a run that has diverged.
const LOST: f64 = 100.0;

/// Tells texts apart, by the same number everywhere (Fowler, Noll and Vo).
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A run that can begin.
pub(crate) struct Prepared {
    schedule: Checked,
    data: Dataset,
    steps: u64,
    held_out: u64,
    key: u64,
}

impl Prepared {
    /// Plans and compiles a case and reads its data.
    pub(crate) fn new(case: &Case, text: &Path) -> Result<Self, Box<dyn Error>> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/comparison.rdl");
        let program = case.program();
        let source = SourceFile::new(file.display().to_string(), program.as_str());
        let parsed = roundelay::parse(&source)?;
        let ranking = roundelay::plan(
            &parsed,
            &SearchOptions { top: 1, ..SearchOptions::default() },
        )?;
        let schedule = roundelay::compile(&parsed, ranking.best())?;
        let folder = match case.task.origin() {
            Origin::Folder => Some(text),
            Origin::Seed => None,
        };
        let data = Dataset::open(&schedule.job, folder)?;
        let key =
            digest(&format!("{program} {} {:?}", data.digest(), schedule.plan.cuts));
        let (steps, held_out) = (case.task.steps(), case.task.held_out());
        Ok(Self { schedule, data, steps, held_out, key })
    }

    /// Tells programs, data and cuts apart.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// Trains and looks at held-out data.
    pub(crate) fn train(self) -> Result<Outcome, Box<dyn Error>> {
        let Self { schedule, data, steps, held_out, key: _ } = self;
        let mut held_out = data.held_out(held_out)?;
        let mut cpu = Cpu::new(&schedule, Box::new(data), CpuOptions::default())?;
        cpu.load(&State::drawn(&schedule.job))?;
        while cpu.step() < steps {
            let end = (cpu.step() + ROUND).min(steps);
            let mut lost = None;
            cpu.replay(end, &mut |loss| {
                if loss.loss.is_nan() || loss.loss > LOST {
                    lost.get_or_insert(loss.step);
                }
            })?;
            if let Some(step) = lost {
                return Ok(Outcome::Diverged { step });
            }
        }
        let micro_batches = held_out.micro_batches();
        let state = cpu.save()?.expect("it is the only rank");
        let found =
            Evaluator::new(&schedule)?.measure(&state, &mut held_out, micro_batches)?;
        Ok(Outcome::Trained { loss: found.loss, metrics: found.metrics })
    }
}
