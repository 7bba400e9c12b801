//! Checkpoints come back as they were written, whatever happens to their folder.

mod damage;
mod resume;

use super::*;
use crate::{Dataset, scratch::Scratch};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{
    Belonging, Data, Division, Float, Id, Initial, Job, Method, Order, Parameter,
    ParameterKind, Placement, Plan, Recompute, Reduction, Rule, Schedule, Stage, States,
    Table, Timeline, Treatment,
};
use std::{fs, io::Cursor};

/// A schedule of two stages with a parameter each; it does nothing.
pub(crate) fn schedule(rule: Rule) -> Schedule {
    let parameter = |name: &str, stage, shape: &[u64]| Parameter {
        belonging: Belonging::Model,
        name: name.into(),
        stage: Stage::new(stage),
        offset: 0,
        shape: shape.to_vec(),
        kind: ParameterKind::Plain,
        split: Division::Whole,
        initial: Initial::Normal(1.0),
        treatment: Treatment::Decayed,
    };
    let mut job = crate::data::tests::job(Data::Synthetic, &[]);
    job.optimizer.method = Method::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 };
    job.parameters =
        vec![parameter("first.weight", 0, &[2, 3]), parameter("last.bias", 1, &[5])];
    job.elements = [6, 5].into_iter().collect();
    of(rule, job)
}

/// A schedule of a job that does nothing.
pub(crate) fn scheduled(job: Job) -> Schedule {
    of(Rule::Sync, job)
}

fn of(rule: Rule, job: Job) -> Schedule {
    let plan = Plan {
        rule,
        placement: Placement::Data,
        order: Order::Cyclic,
        replicas: 1,
        shards: 1,
        tensor: roundelay_schedule::Tensor::WHOLE,
        stages: 2,
        chunks: 1,
        slices: 1,
        ties: Vec::new(),
        cuts: vec![1],
        boundaries: Vec::new(),
        micro_batches: 2,
        states: States::Replicated,
        recompute: vec![Recompute::None; 2],
        reduction: Reduction::Sequential,
        delays: rule.delays(Timeline::Workers, 2, 2),
        devices: Vec::new(),
        lists: Vec::new(),
        rewrites: roundelay_schedule::Rewrites::default(),
        maps: roundelay_schedule::MapWays::default(),
    };
    Schedule {
        fingerprint: "0123456789abcdef-fedcba9876543210".into(),
        target: Default::default(),
        plan,
        job,
        axes: Table::new(),
        rings: Table::new(),
        groups: Table::new(),
        routines: Table::new(),
        buffers: Table::new(),
        actions: Table::new(),
    }
}

fn run(schedule: &Schedule) -> Provenance {
    Provenance::new(schedule, &Dataset::open(&schedule.job, None).unwrap())
}

/// A state at rest with random contents and the versions that the schedule reads.
fn state(schedule: &Schedule, step: u64) -> State {
    let mut state = State::initial(&schedule.job);
    state.step = step;
    let mut index = 0;
    let stream = Stream::new(step, &[]);
    for parameter in &schedule.job.parameters {
        let tensor = state.tensors.get_mut(&parameter.name).unwrap();
        let staleness = schedule.plan.delays.staleness(parameter.stage.index());
        let versions = 1 + u64::from(staleness).min(step);
        tensor.versions.resize(versions as usize, tensor.versions[0].clone());
        for byte in tensor.versions.iter_mut().chain(&mut tensor.optimizer).flatten() {
            *byte = stream.below(index, 256) as u8;
            index += 1;
        }
    }
    state
}

/// The checkpoint of a run's state.
fn bytes(run: &Provenance, state: &State) -> Vec<u8> {
    format::write(Cursor::new(Vec::new()), run, state).unwrap().into_inner()
}

/// A folder, and the run of a schedule that has kept its state of step 1 there.
fn begun(folder: &str, rule: Rule) -> (Scratch, Schedule, Checkpoints) {
    let (folder, schedule) = (Scratch::new(folder), schedule(rule));
    let checkpoints = Checkpoints::start(folder.path(), run(&schedule)).unwrap();
    checkpoints.save(&state(&schedule, 1)).unwrap();
    (folder, schedule, checkpoints)
}

fn names(folder: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().into_string().unwrap()
    };
    let is_shown = |name: &String| !name.starts_with('.');
    let mut names: Vec<String> = entries.map(name).filter(is_shown).collect();
    names.sort();
    names
}

fn newest(folder: &Scratch) -> State {
    Latest::of(folder.path()).unwrap().checkpoint.unwrap().state.held().unwrap()
}

/// What was written by an earlier release tells its run in the same words.
#[test]
fn digests_of_a_run_stay() {
    let schedule = schedule(Rule::CyclicV2);
    let told = run(&schedule);
    assert_eq!(told.entry("arithmetic"), "bbf9edcd32c532e9");
    assert_eq!(told.entry("delays"), "57af17765873b3a0");
    let mut earlier = told;
    for younger in ["spared", "data_size"] {
        earlier.entries.remove(younger);
    }
    let bytes = bytes(&earlier, &state(&schedule, 1));
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let text = &header.metadata().as_ref().unwrap()[format::KEY];
    let entries: std::collections::BTreeMap<String, String> =
        serde_json::from_str(text).unwrap();
    assert_eq!(entries["digest"], "5fe70e57e2bd3197");
}

#[test]
fn an_array_of_another_length_than_its_shape_is_not_written() {
    let schedule = schedule(Rule::Sync);
    let mut state = state(&schedule, 1);
    state.tensors.get_mut("last.bias").unwrap().optimizer[1].pop();
    let refused = format::write(Cursor::new(Vec::new()), &run(&schedule), &state);
    let refused = refused.map(drop).unwrap_err().to_string();
    assert_eq!(refused, "`last.bias#square` has 19 bytes, its shape takes 20");
}

#[test]
fn a_state_comes_back_bit_for_bit() {
    for (rule, dtype) in [
        (Rule::CyclicV2, Float::F32),
        (Rule::CyclicV1, Float::F64),
        (Rule::Sync, Float::F32),
    ] {
        let folder = Scratch::new(&format!("checkpoint-{rule}"));
        let mut schedule = schedule(rule);
        schedule.job.dtype = dtype;
        let checkpoints = Checkpoints::start(folder.path(), run(&schedule)).unwrap();
        for (step, optimizer_origin) in [(0, 0), (1, 0), (7, 5)] {
            let state = State { optimizer_origin, ..state(&schedule, step) };
            let path = checkpoints.save(&state).unwrap().path;
            assert_eq!(newest(&folder), state);
            let bytes = fs::read(&path).unwrap();
            checkpoints.save(&state).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes, "one state has one file");
            let found =
                Resumption::of(folder.path(), &schedule, &run(&schedule)).unwrap();
            assert_eq!(found.state.held().unwrap(), state);
            assert_eq!(found.resumed, Resumed::Exactly);
            assert!(found.ignored.is_empty());
        }
    }
}

#[test]
fn any_reader_of_safetensors_finds_the_names() {
    let schedule = schedule(Rule::CyclicV2);
    let bytes = bytes(&run(&schedule), &state(&schedule, 3));
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    let expected = [
        "first.weight",
        "first.weight#mean",
        "first.weight#square",
        "first.weight@-1",
        "last.bias",
        "last.bias#mean",
        "last.bias#square",
    ];
    assert_eq!(names, expected, "stage 1 of two is always fresh");
    assert_eq!(file.tensor("first.weight@-1").unwrap().shape(), [2, 3]);
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let text = &header.metadata().as_ref().unwrap()["roundelay"];
    let wanted = [
        r#""step":"3""#,
        r#""position":"12""#,
        r#""rule":"cyclic_v2""#,
        r#""micro_batches":"2""#,
        r#""seed":"7""#,
        r#""fingerprint":"0123456789abcdef-fedcba9876543210""#,
    ];
    assert!(wanted.iter().all(|entry| text.contains(entry)), "{text}");
    assert!(!text.contains("optimizer_origin"), "zero is what files without it have");
}

#[test]
fn the_two_newest_are_kept() {
    let folder = Scratch::new("checkpoint-kept");
    let schedule = schedule(Rule::CyclicV2);
    let checkpoints = Checkpoints::start(folder.path(), run(&schedule)).unwrap();
    for step in [5, 10, 15] {
        checkpoints.save(&state(&schedule, step)).unwrap();
    }
    let expected = ["step-000000000010.safetensors", "step-000000000015.safetensors"];
    assert_eq!(names(&folder), expected);
    checkpoints.save(&state(&schedule, 12)).unwrap();
    assert_eq!(names(&folder).len(), 3, "what lies ahead is left alone");
    assert!(names(&folder).contains(&expected[1].to_string()));
}

/// What is damaged looks new, and would be in the way of what is older and whole.
#[test]
fn a_damaged_one_takes_no_whole_ones_place() {
    let (folder, schedule, checkpoints) = begun("checkpoint-place", Rule::CyclicV2);
    drop(checkpoints);
    let mut flipped = bytes(&run(&schedule), &state(&schedule, 2));
    *flipped.last_mut().unwrap() ^= 1;
    folder.write("step-000000000002.safetensors", &flipped);
    let checkpoints = Checkpoints::open(folder.path(), run(&schedule)).unwrap();
    let found = Resumption::of(folder.path(), &schedule, &run(&schedule)).unwrap();
    checkpoints.found_whole(found.state.step);
    let whole = |step| format!("step-{step:012}.safetensors");
    checkpoints.save(&state(&schedule, 3)).unwrap();
    assert_eq!(names(&folder), [1, 2, 3].map(whole));
    checkpoints.save(&state(&schedule, 4)).unwrap();
    assert_eq!(names(&folder), [3, 4].map(whole), "then nobody misses it");
}

#[test]
fn a_new_run_does_not_take_the_folder_of_another() {
    let folder = Scratch::new("checkpoint-occupied");
    let schedule = schedule(Rule::Sync);
    let place = folder.path().join("a/b");
    let start = || Checkpoints::start(&place, run(&schedule));
    let checkpoints = start().unwrap();
    checkpoints.save(&state(&schedule, 4)).unwrap();
    drop(checkpoints);
    let error = start().unwrap_err();
    assert!(matches!(error, CheckpointError::Occupied { step: 4, .. }), "{error}");
    assert!(Checkpoints::open(&place, run(&schedule)).is_ok());
}

/// Whoever may write to a folder needs no right to list the one above it.
#[test]
fn a_folder_below_one_that_is_closed_is_taken() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Scratch::new("checkpoint-closed");
    let schedule = schedule(Rule::Sync);
    let close = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path(), mode).unwrap();
    };
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    close(0o300);
    for place in [there, folder.path().join("made")] {
        let checkpoints = Checkpoints::start(&place, run(&schedule)).unwrap();
        checkpoints.save(&state(&schedule, 1)).unwrap();
    }
    close(0o700);
}

#[test]
fn two_runs_do_not_write_to_one_folder() {
    let folder = Scratch::new("checkpoint-held");
    let schedule = schedule(Rule::Sync);
    let open = || Checkpoints::open(folder.path(), run(&schedule));
    let first = open().unwrap();
    let other = first.clone();
    for run in [first, other] {
        let refused = open().unwrap_err();
        assert!(matches!(refused, CheckpointError::Held { .. }), "{refused}");
        run.save(&state(&schedule, 1)).unwrap();
    }
    let found = Resumption::of(folder.path(), &schedule, &run(&schedule)).unwrap();
    assert!(found.ignored.is_empty(), "anybody may read: {:?}", found.ignored);
    open().unwrap().save(&state(&schedule, 2)).unwrap();
}

/// Whoever looks has the folder for a moment, and others who look have it too.
#[test]
fn a_look_at_a_folder_refuses_nobody() {
    let (folder, schedule, checkpoints) = begun("checkpoint-looked-at", Rule::Sync);
    drop(checkpoints);
    let looking = fs::File::open(folder.path().join(".held")).unwrap();
    looking.lock_shared().unwrap();
    Checkpoints::try_open(folder.path()).unwrap();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| Checkpoints::open(folder.path(), run(&schedule)));
        std::thread::sleep(std::time::Duration::from_millis(5));
        drop(looking);
        opened.join().unwrap().unwrap();
    });
}

#[test]
fn a_write_cut_at_any_byte_loses_nothing() {
    let (folder, schedule, checkpoints) = begun("checkpoint-cut", Rule::CyclicV2);
    let next = bytes(&run(&schedule), &state(&schedule, 2));
    let unfinished = "step-000000000002.safetensors.1-23.unfinished";
    for length in (0..=next.len()).step_by(37) {
        folder.write(unfinished, &next[..length]);
        let found = Latest::of(folder.path()).unwrap();
        assert_eq!(found.checkpoint.unwrap().state.held().unwrap(), state(&schedule, 1));
        let [CheckpointError::Unfinished { path }] = found.ignored.as_slice() else {
            panic!("{:?}", found.ignored)
        };
        assert!(path.ends_with(unfinished));
    }
    checkpoints.save(&state(&schedule, 2)).unwrap();
    assert_eq!(newest(&folder), state(&schedule, 2));
    assert!(!names(&folder).contains(&unfinished.to_string()));
}

/// Writers of other files would find theirs gone, and so would one that still writes a checkpoint.
#[test]
fn only_remnants_of_checkpoints_that_nobody_writes_are_removed() {
    let (folder, schedule, checkpoints) = begun("checkpoint-remnants", Rule::Sync);
    let foreign = [
        "b.safetensors.1-23.unfinished",
        "step-000000000002.safetensors.unfinished",
        "step-2.safetensors.1-23.unfinished",
    ];
    let written = "step-000000000003.safetensors.1-24.unfinished";
    let left = "step-000000000003.safetensors.1-23.unfinished";
    folder.write("step-000000000003.safetensors.1-25.unfinished/inside", b"");
    for name in foreign.into_iter().chain([written, left]) {
        folder.write(name, b"half");
    }
    let writer = fs::File::open(folder.path().join(written)).unwrap();
    writer.lock().unwrap();
    let saved = checkpoints.save(&state(&schedule, 2)).unwrap();
    assert!(saved.left.is_empty(), "{:?}", saved.left);
    let found = names(&folder);
    let stays = |name: &str| found.iter().any(|own| own == name);
    assert!(foreign.into_iter().all(stays) && stays(written), "{found:?}");
    assert!(!stays(left), "{found:?}");
    let ignored = Latest::of(folder.path()).unwrap().ignored;
    let is_foreign =
        |own: &&CheckpointError| matches!(own, CheckpointError::Foreign { .. });
    assert_eq!((ignored.len(), ignored.iter().filter(is_foreign).count()), (5, 4));
}

/// The new checkpoint is on disk.
#[test]
fn what_cannot_be_removed_ends_no_run() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, schedule, checkpoints) = begun("checkpoint-stays", Rule::Sync);
    fs::create_dir(folder.path().join("a.safetensors.unfinished")).unwrap();
    let allow = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path(), mode).unwrap();
    };
    // What lies there nobody knows who may not list it, unless he may do everything.
    allow(0o300);
    let saved = checkpoints.save(&state(&schedule, 2)).unwrap();
    let may_list = fs::read_dir(folder.path()).is_ok();
    allow(0o700);
    assert_eq!(saved.left.is_empty(), may_list, "{:?}", saved.left);
    assert_eq!(newest(&folder), state(&schedule, 2));
}

#[test]
fn what_somebody_else_has_removed_is_not_missed() {
    let removed =
        |error: io::ErrorKind| folder::stays(Path::new("old"), Err(error.into()));
    assert!(removed(io::ErrorKind::NotFound).is_none());
    let told = removed(io::ErrorKind::PermissionDenied).unwrap().to_string();
    assert!(told.starts_with("cannot remove `old`: permission denied; "), "{told}");
}

#[test]
fn what_another_run_is_writing_was_not_left_unfinished() {
    let (folder, _, checkpoints) = begun("checkpoint-written", Rule::Sync);
    folder.write("step-000000000002.safetensors.1-23.unfinished", b"half");
    let left = || Latest::of_another_run(folder.path()).unwrap().ignored.len();
    assert_eq!(left(), 0);
    drop(checkpoints);
    assert_eq!(left(), 1);
}

#[test]
fn damaged_and_foreign_files_are_passed_over() {
    let (folder, schedule, _checkpoints) = begun("checkpoint-foreign", Rule::CyclicV2);
    let whole = bytes(&run(&schedule), &state(&schedule, 9));
    folder.write("step-000000000009.safetensors", &whole[..whole.len() - 1]);
    folder.write("step-000000000008.safetensors", b"");
    folder.write("step-8.safetensors", &whole);
    folder.write("model.safetensors", &whole);
    folder.write("step-000000000010.safetensors/inside", &whole);
    let found = Latest::of(folder.path()).unwrap();
    assert_eq!(found.checkpoint.unwrap().state.held().unwrap(), state(&schedule, 1));
    let count = |damaged: bool| {
        let is = |e: &&CheckpointError| {
            matches!(e, CheckpointError::Damaged { .. }) == damaged
        };
        found.ignored.iter().filter(is).count()
    };
    assert_eq!((count(true), count(false)), (2, 3), "{:?}", found.ignored);
}

#[test]
fn foreign_files_are_told_on_one_line() {
    let told = |names: &[&str]| {
        let folder = Scratch::new("checkpoint-lines");
        folder.write("step-000000000009.safetensors.1-2.unfinished", b"");
        names.iter().for_each(|name| folder.write(name, b""));
        let lines = CheckpointError::lines(&Latest::of(folder.path()).unwrap().ignored);
        let place = format!("{}/", folder.path().display());
        let [unfinished, rest @ ..] = &lines[..] else { panic!("{lines:?}") };
        assert!(unfinished.contains("was not finished"), "{lines:?}");
        rest.iter().map(|line| line.replace(&place, "")).collect::<Vec<_>>()
    };
    assert!(told(&[]).is_empty());
    let hint = "give checkpoints a folder of their own";
    assert_eq!(told(&["a"]), [format!("`a` is not a checkpoint; {hint}")]);
    assert_eq!(told(&["b\n", "a"]), [format!("`a`, `b\\n` are not checkpoints; {hint}")]);
    let many = ["a", "b", "c", "d", "e"];
    let expected = format!("`a`, `b`, `c` and 2 more are not checkpoints; {hint}");
    assert_eq!(told(&many), [expected]);
}

/// A run that starts anew would lose what somebody believes is there.
#[test]
fn a_folder_whose_checkpoints_are_all_damaged_is_refused() {
    let folder = Scratch::new("checkpoint-damaged");
    let schedule = schedule(Rule::Sync);
    let whole = bytes(&run(&schedule), &state(&schedule, 9));
    folder.write("step-000000000009.safetensors", &whole[..whole.len() - 1]);
    folder.write("step-000000000008.safetensors", b"");
    let refused = Resumption::of(folder.path(), &schedule, &run(&schedule)).unwrap_err();
    assert!(matches!(refused, CheckpointError::NoneWhole { count: 2, .. }), "{refused}");
}

/// It may be whole, so nobody is told to remove it.
#[test]
fn a_checkpoint_that_may_not_be_read_is_not_said_to_be_damaged() {
    let path = |step| folder::file(Path::new("kept"), step);
    let damaged =
        |step| CheckpointError::Damaged { path: path(step), reason: "cut".into() };
    let source = io::ErrorKind::PermissionDenied.into();
    let wrong =
        vec![damaged(3), CheckpointError::Read { path: path(2), source }, damaged(1)];
    let told = none_whole(Path::new("kept"), wrong).unwrap();
    assert_eq!(
        told.to_string(),
        "cannot read `kept/step-000000000002.safetensors`: permission denied; check that it exists \
         and may be read"
    );
    let told = none_whole(Path::new("kept"), vec![damaged(3), damaged(1)]).unwrap();
    assert_eq!(
        told.to_string(),
        "none of the 2 checkpoints in `kept` is whole, the newest one for this: cut; name \
         another folder, or remove them to start anew"
    );
    let told = none_whole(Path::new("kept"), vec![damaged(3)]).unwrap();
    assert_eq!(
        told.to_string(),
        "the only checkpoint in `kept` is not whole: cut; name another folder, or remove it \
         to start anew"
    );
    assert!(none_whole(Path::new("kept"), Vec::new()).is_none());
}

#[test]
fn a_folder_without_checkpoints_starts_anew() {
    let folder = Scratch::new("checkpoint-none");
    let schedule = schedule(Rule::Sync);
    let missing = folder.path().join("missing");
    let found = Resumption::of(&missing, &schedule, &run(&schedule)).unwrap();
    assert_eq!(found.state.held().unwrap(), State::initial(&schedule.job));
    assert_eq!(found.resumed, Resumed::WithoutCheckpoint);
    folder.write("file", b"");
    assert!(Latest::of(&folder.path().join("file")).is_err());
    assert!(Checkpoints::start(&folder.path().join("file"), run(&schedule)).is_err());
}

/// Whoever looks at held-out data gathers no optimizer state.
#[test]
fn parameters_alone_are_no_checkpoint() {
    let (folder, schedule, checkpoints) = begun("checkpoint-half", Rule::Sync);
    let mut bare = state(&schedule, 2);
    bare.tensors.values_mut().for_each(|tensor| tensor.optimizer.clear());
    let error = checkpoints.save(&bare).unwrap_err().to_string();
    assert!(error.contains("it is no whole state"), "{error}");
    assert_eq!(newest(&folder), state(&schedule, 1));
}

#[test]
fn what_cannot_be_written_is_said_and_leaves_the_last_one() {
    let (folder, schedule, checkpoints) = begun("checkpoint-refused", Rule::Sync);
    folder.write("step-000000000002.safetensors/in-the-way", b"");
    let error = checkpoints.save(&state(&schedule, 2)).unwrap_err();
    assert!(matches!(error, CheckpointError::Write { .. }), "{error}");
    assert_eq!(newest(&folder), state(&schedule, 1));
}
