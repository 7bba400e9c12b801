//! Machines write checkpoints array by array: the files are those of the whole state, in one process and
//! on ranks, and where one cannot be written the machine rests as before.

use crate::{
    models::{self, gpt},
    plans::Kind,
    ranks::{DEADLINE, on_ranks},
    support::{compiled, plan},
};
use roundelay::{
    Checked, Seat,
    parts::{
        runtime::{
            AnyMachine, Checkpoints, Control, Cpu, CpuOptions, Dataset, Provenance,
            SaveError, State,
        },
        schedule::{Sequence, Tensor},
    },
};
use roundelay_schedule::{Order, Placement, Rule, States};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

/// A folder of this process.
fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("roundelay-{name}-{}", process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// The one file in a folder of checkpoints.
fn file(folder: &Path) -> Vec<u8> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let whole = |path: &PathBuf| path.extension().is_some_and(|own| own == "safetensors");
    let mut files = files.filter(whole);
    let only = fs::read(files.next().expect("there is a checkpoint")).unwrap();
    assert_eq!(files.next(), None, "nothing lies beside it");
    only
}

/// A machine of one process, or of a rank, that has trained a little.
fn trained(schedule: &Checked, seat: Option<&Seat>) -> AnyMachine {
    let data = Box::new(Dataset::open(&schedule.job, None).unwrap());
    let options = CpuOptions { deadline: DEADLINE, ..CpuOptions::default() };
    let cpu = match seat {
        None => Cpu::new(schedule, data, options),
        Some(seat) => {
            let control = Arc::new(Control::meet(seat, DEADLINE).unwrap());
            Cpu::of_rank(schedule, data, options, control)
        }
    };
    let mut machine = AnyMachine::from(cpu.unwrap());
    machine.load(&State::initial(&schedule.job)).unwrap();
    machine.replay_while(3, &mut |_| {}, &mut || true).unwrap();
    machine
}

/// Where this rank writes checkpoints, if it does.
fn checkpoints(machine: &AnyMachine, folder: &Path) -> Option<Checkpoints> {
    let data = Dataset::open(&machine.schedule().job, None).unwrap();
    let provenance = Provenance::new(machine.schedule(), &data);
    machine.is_first().then(|| Checkpoints::open(folder, provenance).unwrap())
}

/// Layers of which ranks cannot send all in one round.
const WIDE: &str = "model wide {
    input x: real[batch, 600]
    input wanted: real[batch, 600]
    loss mse(linear(relu(linear(x, 600)), 600), wanted)
}";

/// Schedules that keep older versions, shards of optimizer state, parts of split tensors, and much.
fn schedules() -> [Checked; 4] {
    let program = gpt(2, 4);
    let of = |kind: Kind| plan(&program, kind, 2, 2);
    let cyclic = of((Rule::CyclicV1, Placement::Data, Order::Cyclic, States::Replicated));
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Zero3);
    let sharded = of(kind).replicated(2, 1);
    let rows =
        of((Rule::CyclicV2, Placement::Pipeline, Order::Cyclic, States::Replicated))
            .with_tensor(Tensor::rows(2, Sequence::Whole));
    let wide = models::program(&format!("{WIDE}\n{}", models::job(4)));
    let much = plan(&wide, kind, 2, 2).replicated(2, 1);
    let [cyclic, sharded, rows] =
        [cyclic, sharded, rows].map(|plan| compiled(&program, &plan));
    [cyclic, sharded, rows, compiled(&wide, &much)]
}

#[test]
fn a_machine_writes_the_file_of_its_state() {
    for schedule in schedules() {
        let (by_arrays, at_once) = (folder("by-arrays"), folder("at-once"));
        let mut machine = trained(&schedule, None);
        let own = checkpoints(&machine, &by_arrays);
        machine.checkpoint(own.as_ref()).unwrap();
        let state = machine.save().unwrap().unwrap();
        checkpoints(&machine, &at_once).unwrap().save(&state).unwrap();
        let wanted = file(&at_once);
        assert!(file(&by_arrays) == wanted, "{:?}", schedule.plan);
        let on_ranks = folder("on-ranks");
        let wrote = self::on_ranks(&schedule, |seat| rank(&schedule, seat, &on_ranks));
        let [first, others @ ..] = &wrote[..] else { panic!("there are ranks") };
        assert!(first.as_ref() == Some(&wanted), "{:?}", schedule.plan);
        assert!(others.iter().all(Option::is_none), "{:?}", schedule.plan);
        [by_arrays, at_once].iter().for_each(|own| fs::remove_dir_all(own).unwrap());
    }
}

/// What a rank wrote, if it is the first one. What it cannot write ends no other rank's work.
fn rank(schedule: &Checked, seat: &Seat, folder: &Path) -> Option<Vec<u8>> {
    let mut machine = trained(schedule, Some(seat));
    let own = checkpoints(&machine, folder);
    machine.checkpoint(own.as_ref()).unwrap();
    let wrote = own.is_some().then(|| file(folder));
    if machine.is_first() {
        fs::remove_dir_all(folder).unwrap();
    }
    match machine.checkpoint(own.as_ref()) {
        Ok(written) => {
            assert!(written.is_none() && !machine.is_first(), "there is no folder");
        }
        Err(SaveError::Checkpoint(error)) => {
            assert!(machine.is_first());
            assert!(error.to_string().contains("cannot write"), "{error}");
        }
        Err(SaveError::Machine(error)) => panic!("{error}"),
    }
    machine.replay_while(4, &mut |_| {}, &mut || true).unwrap();
    machine.leave().unwrap();
    wrote
}

/// Optimizers differ in what they keep, and a file says of which run it is.
#[test]
fn a_folder_of_another_run_is_not_written_to() {
    let [schedule, ..] = schedules();
    let mut machine = trained(&schedule, None);
    let mut other = (*schedule).clone();
    other.job.optimizer.method =
        roundelay_schedule::Method::Sgd { momentum: 0.0, nesterov: false };
    let data = Dataset::open(&schedule.job, None).unwrap();
    let folder = folder("another-run");
    let another = Checkpoints::open(&folder, Provenance::new(&other, &data)).unwrap();
    let refused = machine.checkpoint(Some(&another)).unwrap_err().to_string();
    assert!(refused.contains("no whole state"), "{refused}");
    let left = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), [".held"], "nothing unfinished stays");
    fs::remove_dir_all(folder).unwrap();
}
