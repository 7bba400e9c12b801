//! Every example parses, is formatted, plans as its name says, is proven, and trains within the
//! memory that was predicted.

use roundelay::{
    Checked, Disk, Program, SearchOptions, SourceFile,
    parts::{
        dsl, planner,
        runtime::{Cpu, CpuOptions, Dataset, Fill, State},
        schedule::{Hop, Kind, Placement, Rule, States},
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What each file's plan must be; a new example says it here.
const PLACED: [(&str, Placement, Rule, States); 14] = [
    ("accumulate", Placement::Accumulate, Rule::Sync, States::Replicated),
    ("concurrent", Placement::Concurrent, Rule::CyclicV2, States::Replicated),
    ("data-handoff", Placement::Data, Rule::CyclicV2, States::Handoff),
    ("data-zero3", Placement::Data, Rule::Sync, States::Zero3),
    ("fsdp", Placement::Accumulate, Rule::Sync, States::Zero3),
    ("grid", Placement::Accumulate, Rule::Sync, States::Replicated),
    (
        "local",
        Placement::Pipeline,
        Rule::Local { units: 4, hop: Hop::None },
        States::Replicated,
    ),
    ("orders", Placement::Pipeline, Rule::Sync, States::Replicated),
    ("pipeline", Placement::Pipeline, Rule::CyclicV2, States::Replicated),
    ("pixels", Placement::Accumulate, Rule::Sync, States::Replicated),
    ("shared", Placement::Shared, Rule::CyclicV2, States::Replicated),
    ("slices", Placement::Pipeline, Rule::Sync, States::Replicated),
    ("tensor", Placement::Pipeline, Rule::Sync, States::Replicated),
    ("unet", Placement::Accumulate, Rule::Sync, States::Replicated),
];

/// Models of published sizes, with their parameters: they are planned, and too large to train here.
const PUBLISHED: [(&str, u64); 7] = [
    ("gpt-1024", 175_245_043_712),
    ("gpt2", 124_439_808),
    ("llama-small", 134_515_008),
    ("resnet18-cifar", 11_173_962),
    ("resnet50", 25_557_032),
    ("unet-28b", 28_027_864_899),
    ("vit", 86_567_656),
];

/// Small examples that show a model or a search rather than a placement.
const MODELS: [&str; 3] = ["families", "quickstart", "shapes"];

/// Training steps after which the rings of these plans have come round: they turn by at most eight
/// places.
const ROUND: u64 = 8;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("examples are text")
}

/// All programs under a folder of the examples.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "rdl")).collect();
    paths.sort();
    paths
}

/// The programs that are small enough to train in a test.
fn small() -> Vec<PathBuf> {
    let is_small =
        |path: &PathBuf| PUBLISHED.iter().all(|(large, _)| name(path) != *large);
    programs(&folder()).into_iter().filter(is_small).collect()
}

fn name(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).expect("examples have plain names")
}

/// The program of an example; a warning is a mistake.
fn parsed(path: &Path) -> Program {
    let source = SourceFile::new(path.display().to_string(), text(path));
    let (program, warnings) =
        dsl::parse(&source, &Disk).unwrap_or_else(|refused| panic!("{refused}"));
    assert!(warnings.is_empty(), "{}: {warnings:?}", path.display());
    program
}

fn compiled(path: &Path) -> Checked {
    let program = parsed(path);
    let ranking = roundelay::plan(&program, &SearchOptions::default())
        .unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display()));
    roundelay::compile(&program, ranking.best())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A machine that has trained for some steps from the example's own data, over poisoned memory.
fn trained(schedule: &Checked, steps: u64) -> (Cpu, Vec<f64>) {
    let data = Dataset::open(&schedule.job, None).expect("examples have data");
    let options = CpuOptions { fill: Fill::Poison, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(data), options).expect("it can be built");
    cpu.load(&State::initial(&schedule.job)).expect("a new state fits");
    let mut losses = Vec::new();
    cpu.replay(steps, &mut |loss| losses.push(loss.loss)).expect("nothing fails");
    (cpu, losses)
}

#[test]
fn large_programs_of_the_benches_parse_and_are_formatted() {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    let folders = ["planner", "published"].map(|name| programs(&benches.join(name)));
    assert!(folders.iter().all(|paths| paths.len() >= 4));
    for path in folders.concat() {
        let program = parsed(&path);
        assert!(program.target.devices.len() >= 8, "{}", path.display());
        let formatted = roundelay::format(&text(&path)).expect("it parses");
        assert_eq!(text(&path), formatted, "run `roundelay fmt {}`", path.display());
    }
}

#[test]
fn examples_are_formatted_and_open_with_their_name() {
    for path in [programs(&folder()), programs(&folder().join("models"))].concat() {
        let text = text(&path);
        let formatted =
            roundelay::format(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(text, formatted, "run `roundelay fmt {}`", path.display());
        let own = path.strip_prefix(folder().parent().unwrap()).unwrap();
        assert!(
            text.starts_with(&format!("# {} : ", own.display())),
            "{}",
            own.display()
        );
    }
}

#[test]
fn every_placement_has_an_example_and_its_plan_is_what_the_name_says() {
    let others = small().into_iter().filter(|path| !MODELS.contains(&name(path)));
    let names: Vec<String> = others.map(|path| name(&path).to_owned()).collect();
    assert_eq!(names, PLACED.map(|(name, ..)| name));
    for placement in Placement::ALL {
        assert!(PLACED.iter().any(|(_, placed, ..)| placed == placement), "{placement}");
    }
    for (name, placement, rule, states) in PLACED {
        let plan = compiled(&folder().join(format!("{name}.rdl"))).plan.clone();
        assert_eq!((plan.placement, plan.rule, plan.states), (placement, rule, states));
    }
}

#[test]
fn published_models_have_their_parameters_and_are_planned() {
    for (name, expected) in PUBLISHED {
        let program = parsed(&folder().join(format!("{name}.rdl")));
        let ranking = roundelay::plan(&program, &SearchOptions::default())
            .unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let workload = planner::Workload::new(&program, &ranking);
        assert_eq!(workload.parameters, expected, "{name}");
        let is_tied = ["gpt2", "llama-small"].contains(&name);
        let tied = &ranking.space.tied;
        assert_eq!(tied.is_some(), is_tied, "{name}: {tied:?}");
    }
}

#[test]
fn the_documents_of_a_plan_are_those_of_its_schedule() {
    for path in small() {
        let program = parsed(&path);
        let ranking = roundelay::plan(&program, &SearchOptions::default()).unwrap();
        let row = &planner::document(&ranking, &program).plans[0];
        let schedule = compiled(&path);
        let read = roundelay::read(&roundelay::write(&schedule)).expect("it reads back");
        assert_eq!(read, *schedule, "{}", path.display());
        let step_time = roundelay::simulate_steady(&schedule).step_time();
        assert_eq!(row.step_time_s, step_time.0 as f64 / 1e9, "{}", path.display());
        let arenas = schedule.facts().device_arena.values();
        assert_eq!(Some(row.device_peak_bytes), arenas.map(|bytes| bytes.0).max());
        let sent: u64 = schedule.facts().link_bytes.values().map(|bytes| bytes.0).sum();
        let devices = u64::from(schedule.plan.device_count());
        assert_eq!(
            row.comm_bytes_per_device,
            sent.div_ceil(devices),
            "{}",
            path.display()
        );
    }
}

#[test]
fn examples_train_in_exactly_the_memory_that_was_predicted() {
    for path in small() {
        let schedule = compiled(&path);
        let (mut cpu, losses) = trained(&schedule, ROUND);
        assert!(losses.iter().all(|loss| loss.is_finite()), "{}", path.display());
        let steps = u64::from(schedule.plan.all_micro_batches()) * ROUND;
        assert_eq!(losses.len() as u64, steps, "{}", path.display());
        hold_memory(&schedule, &mut cpu, &path);
    }
}

/// Arenas are as large as predicted to the byte, no kind of memory takes more, and activations
/// take all that they were given, within 2 %.
fn hold_memory(schedule: &Checked, cpu: &mut Cpu, path: &Path) {
    let measured = cpu.measured().expect("there are no other ranks");
    let (facts, arenas) = (schedule.facts(), measured.arenas);
    let touched = cpu.touched().expect("the replay ended well");
    for coordinate in schedule.coordinates() {
        for (cell, predicted) in &facts.device_arena {
            let device = schedule.device_at(*cell, &coordinate);
            assert_eq!(arenas[&device], *predicted, "{} {device}", path.display());
            for &kind in Kind::ALL {
                let declared =
                    facts.kinds.get(&(*cell, kind)).copied().unwrap_or_default();
                let used = touched.get(&(device, kind)).copied().unwrap_or_default();
                let which = format!("{} {device} {kind}: {used:?}", path.display());
                assert!(used.count <= declared, "{which} of {declared}");
                if kind == Kind::Activation {
                    let share = used.span.0 as f64 / declared.0 as f64;
                    assert!((0.98..=1.0).contains(&share), "{which} of {declared}");
                }
            }
        }
    }
}
