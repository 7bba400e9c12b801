//! Running a checked schedule: data, state, machine, training loop.

mod ahead;
mod data_from;
mod error;
mod evaluate;
mod event;
mod machine;
mod notes;
mod options;
mod start;

pub use data_from::{DataFrom, OpenData};
pub use error::RunError;
pub use evaluate::{Assessment, EvaluateOptions, Learned, evaluate};
pub use event::{Outcome, RunEvent, TokenFacts};
pub(crate) use machine::{refuse_unscaled, turn_to_cpu};
pub use options::{Folder, Given, On, RunOptions, Start};

use event::Listening;
use machine::Settled;
use roundelay_runtime::{
    Control, Dataset, Evaluating, Every, HeldOut, OutputError, OutputFile, Provenance,
    Rests, Resumed, TrainError, TrainObserver, Trainer, Written, data_files,
    refuse_among_data, unless_lost,
};
use roundelay_schedule::{Checked, Evaluation, Job};
use std::{path::PathBuf, sync::Arc};

/// Replays a schedule; where several ranks train together, all of them call this.
///
/// # Errors
/// Unusable data, checkpoints or weights, before anything is trained; a machine that fails; whatever
/// goes wrong on another rank.
pub fn run(
    schedule: &Checked,
    options: &RunOptions,
    mut listener: impl FnMut(RunEvent),
) -> Result<Outcome, RunError> {
    let RunOptions { seat, deadline, .. } = options;
    let control = match seat.size {
        1 => None,
        _ => {
            let tell = &mut |text| listener(RunEvent::Note(text));
            Some(Arc::new(Control::meet_telling(seat, *deadline, tell)?))
        }
    };
    let mut heard = |event| {
        if seat.is_first() {
            listener(event);
        }
    };
    let done = train(schedule, options, control.as_ref(), &mut heard);
    told(control.as_ref(), done)
}

/// All ranks hear of what went wrong on this one.
fn told<T>(
    control: Option<&Arc<Control>>,
    done: Result<T, RunError>,
) -> Result<T, RunError> {
    if let (Some(control), Err(error)) = (control, &done) {
        control.fail(&error.to_string());
    }
    done
}

fn train(
    schedule: &Checked,
    options: &RunOptions,
    control: Option<&Arc<Control>>,
    listener: &mut impl FnMut(RunEvent),
) -> Result<Outcome, RunError> {
    if let Some(control) = control {
        let agreed =
            control.agree_on(0, &alike(options), "give all ranks the same options");
        agreed.map_err(|trouble| control.ended(trouble))?;
    }
    let settled = Settled::of(schedule, options, control, listener)?;
    let save = output(&schedule.job, options)?;
    let data = options.data.open(&schedule.job)?;
    let provenance = Provenance::new(schedule, &data);
    let (start, checkpoint) = start::begin(schedule, provenance, options, listener)?;
    let end = options.steps.unwrap_or(schedule.job.steps);
    if let Some(control) = control {
        let agreed = control.agree(schedule, data.digest(), &start.state, end);
        agreed.map_err(|trouble| control.ended(trouble))?;
    }
    notes::tell_passed_over(&start.ignored, listener);
    let from_weights = start.resumed == Resumed::FromWeights;
    listener(RunEvent::Begin {
        tokens: options.seat.is_first().then(|| TokenFacts::of(&data)).flatten(),
        images: data.images().filter(|_| options.seat.is_first()),
        resumed: start.resumed,
        first: start.state.step,
        end,
    });
    let evaluate = evaluating(schedule.job.evaluate, &data)?;
    let machine = settled.machine(schedule, data, options.deadline, listener)?;
    notes::tell(&machine, schedule, options.seat.size, listener);
    let trainer = Trainer::new(machine, Rests { evaluate, checkpoint });
    let mut trainer = trainer.interruptible(options.interrupt.clone());
    let work = || {
        let mut listening = Listening::new(listener);
        trainer.machine().load(&start.state)?;
        if from_weights {
            // Whoever goes on from the folder knows nothing of the file.
            let saved = trainer.keep(&start.state).map_err(TrainError::Checkpoint)?;
            let left = saved.iter().flat_map(|saved| &saved.left);
            left.for_each(|why| listening.stays(why));
        }
        drop(start.state);
        let done = trainer.run(end, &mut listening);
        let machine = trainer.machine();
        let rests = matches!(done, Ok(_) | Err(TrainError::LastCheckpoint(_)));
        if rests
            && options.save.is_some()
            && let (Some(state), Some(save)) = (machine.newest()?, save)
        {
            state.write_weights(&schedule.job, &save)?;
            notes::tell_not_finite(save.path(), &state.not_finite(), listener);
            if done.is_err() {
                notes::tell_saved(save.path(), listener);
            }
        }
        let report = done?;
        let touched = machine.touched()?;
        machine.leave()?;
        Ok(Outcome { report, touched })
    };
    // Before the machine is given up, which may take its time where a kernel waits.
    told(control, unless_lost(work).unwrap_or_else(|lost| Err(lost.into())))
}

/// Where the first rank writes the last parameters: over nothing that the run reads or was made of, and not
/// among checkpoints. Nothing that is written lies among the data.
fn output(job: &Job, options: &RunOptions) -> Result<Option<OutputFile>, RunError> {
    let RunOptions { save, data, sources, start, seat, .. } = options;
    if !seat.is_first() {
        return Ok(None);
    }
    let root = data.folder();
    let apart = |written| refuse_among_data(&job.data, root, written);
    if let Some(folder) = start.folder() {
        apart(Written::Checkpoints(&folder.path))?;
    }
    let Some(path) = save.as_deref() else { return Ok(None) };
    let files = data_files(&job.data, root)?;
    let read = files.iter().chain(sources).map(PathBuf::as_path);
    let read = read.chain(start.weights());
    let save = OutputFile::beside(read, path)?;
    apart(Written::File(path))?;
    match start.folder() {
        Some(folder) if save.lies_in(&folder.path) => {
            let (path, folder) = (path.to_path_buf(), folder.path.clone());
            Err(OutputError::AmongCheckpoints { path, folder }.into())
        }
        Some(_) | None => Ok(Some(save)),
    }
}

/// What all ranks must have been told alike, because they do it together.
fn alike(options: &RunOptions) -> [(&'static str, String); 3] {
    let device = match options.on {
        On::Best(_) => "the best that all have",
        On::Cpu => "a CPU",
        On::Cuda(_) => "a GPU",
    };
    let kept =
        options.start.folder().map_or("none".to_owned(), |own| own.every.to_string());
    let saved = if options.save.is_some() { "yes" } else { "no" };
    [
        ("choice of devices", device.to_owned()),
        ("choice of checkpoints", kept),
        ("choice whether weights are saved", saved.to_owned()),
    ]
}

fn evaluating(evaluation: Evaluation, data: &Dataset) -> Result<Evaluating, RunError> {
    Ok(match evaluation {
        Evaluation::Never => Evaluating::Never,
        Evaluation::Every(steps) => {
            let steps = Every::new(steps).expect("no checked schedule says 0");
            let held_out = Box::new(data.held_out(HeldOut::EXAMPLES)?);
            Evaluating::Every { steps, held_out }
        }
    })
}
