//! What measures a GPU: the check of kernels, tables of measured times, and the script of
//! `benches/gpu`.

use crate::{
    bench::{Bench, has_compiler, program},
    support::{Ended, document, ended, schema},
};
use roundelay::parts::{
    kernels::{NAMES, cuda::SOURCES},
    runtime::TriedKernel,
};
use serde_json::Value;
use std::{env, fs, path::Path, process::Command};

/// Kernels of several sources, products among them.
const SOME: &str = "relu,matmul,affine_gelu,affine_gelu_tanh,matmul_gelu_tanh_backward,\
                    affine_gradients,softmax,adamw,cross_entropy,halo,halo_add";

/// Those of them that are products.
const PRODUCTS: [&str; 5] = [
    "matmul",
    "affine_gelu",
    "affine_gelu_tanh",
    "matmul_gelu_tanh_backward",
    "affine_gradients",
];

#[test]
fn kernels_are_held_to_their_references() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("kernel-check");
    let words = format!("devices --check-kernels --calls 3 --seed 9 --only {SOME}");
    let counts = bench.scratch.path("counts");
    let mut command = bench.command(&words);
    let told = document(command.env("STANDIN_CUDA_COUNTS", &counts), "kernel-check");
    let rows = told["rows"].as_array().expect("the schema holds");
    assert_eq!(rows.len(), 11 * 4, "kernels in all element types");
    let counted = fs::read_to_string(counts).expect("the stand-in counts");
    for epilogue in ["gelus", "sums"] {
        let none = format!("\n{epilogue} 0\n");
        assert!(!counted.contains(&none), "all that it makes is looked at: {counted}");
    }
    for row in rows {
        assert!(row["wrong"].is_null(), "{row}");
        assert!(row["error"].as_f64() <= row["tolerance"].as_f64(), "{row}");
        // Three random calls; the large one and the usual one in all ways.
        let name = row["kernel"].as_str().expect("the schema holds");
        let is_product = PRODUCTS.contains(&name);
        assert_eq!(row["products"].as_u64() > Some(0), is_product, "{row}");
        assert_eq!(row["calls"] == 9, is_product || row["kernel"] == "cross_entropy");
    }
    assert!(told["cublaslt"].as_u64() > Some(0), "{told}");
    let words = "devices --check-kernels --calls 1 --only matmul --own-products";
    let told = document(&mut bench.command(words), "kernel-check");
    let rows = told["rows"].as_array().expect("the schema holds");
    assert!(rows.iter().all(|row| row["products"] == 0), "{told}");
    assert_eq!(told["cublaslt"], 0, "{told}");
    let unknown = ended(&mut bench.command("devices --check-kernels --only relo"));
    assert!(
        unknown.code == 2 && unknown.err.contains("nearest is `relu`"),
        "{unknown:?}"
    );
}

#[test]
fn all_kernels_are_compiled_once_for_runs_to_come() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("compile");
    let compile =
        || document(&mut bench.command("devices --compile"), "compiled-kernels");
    let first = compile();
    let sources =
        |told: &Value| told["sources"].as_array().expect("by the schema").clone();
    let files: Vec<_> = sources(&first).iter().map(|own| own["file"].clone()).collect();
    let all: Vec<_> = SOURCES.iter().map(|source| Value::from(source.name)).collect();
    assert_eq!(files, all);
    assert_eq!(first["architecture"], "sm_90a", "{first}");
    let again = sources(&compile());
    assert!(again.iter().all(|own| own["compile_s"].is_null()), "{again:?}");
    let mut nowhere = bench.command("devices --compile");
    let nowhere = ended(nowhere.env("ROUNDELAY_CACHE", "/dev/null"));
    let said = ["cannot be kept in `/dev/null`", "hint: set ROUNDELAY_CACHE"];
    let said = said.iter().all(|own| nowhere.err.contains(own));
    assert!(nowhere.code == 3 && said, "{nowhere:?}");
}

#[test]
fn what_checks_nothing_is_refused() {
    let bench = Bench::new("kernel-check-of-nothing");
    let words = "devices --check-kernels --only relu,all_reduce";
    let exchange = ended(&mut bench.command(words));
    let said = exchange.err.contains("`all_reduce` is an exchange");
    assert!(exchange.code == 2 && said, "{exchange:?}");
    assert!(exchange.err.contains("--self-check"), "{exchange:?}");
    let alone = ended(&mut bench.command("devices --deadline 5"));
    assert!(alone.code == 2 && alone.err.contains("--self-check"), "{alone:?}");
}

#[test]
fn a_wrong_kernel_is_named() {
    if !has_compiler() || env::var_os("CXX").is_some() {
        return;
    }
    let bench = Bench::new("kernel-wrong");
    let compiler = bench.wrong_compiler("return rectified(x)", "return x");
    let mut command = bench.command("devices --check-kernels --calls 2 --only relu,copy");
    command.env("CXX", compiler).env("ROUNDELAY_CACHE", bench.scratch.path("own-cache"));
    let found = ended(&mut command);
    let lines: Vec<&str> = found.out.lines().filter(|l| l.contains("WRONG")).collect();
    assert!(found.code == 3 && found.err.contains("WRONG in f32: relu"), "{found:?}");
    assert!(lines.len() == 1 && lines[0].starts_with("relu"), "{found:?}");
}

/// A library that refuses what it said it could do is wrong in that, and nothing else is.
#[test]
fn a_call_that_a_library_refuses_is_named_and_others_are_looked_at() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("kernel-refused");
    let mut command =
        bench.command("devices --check-kernels --calls 1 --only matmul,relu");
    let found = ended(command.env("STANDIN_CUDA_PRODUCTS", "fail").arg("--json"));
    let told: Value = serde_json::from_str(&found.out).expect("it tells of all");
    let rows = told["rows"].as_array().expect("the schema holds");
    assert_eq!((found.code, rows.len()), (3, 2 * 4), "{found:?}");
    for row in rows {
        let wrong = row["wrong"].as_str().unwrap_or_default();
        let is_product = row["kernel"] == "matmul";
        assert_eq!(wrong.contains("CUBLAS_STATUS_NOT_SUPPORTED"), is_product, "{row}");
        assert_eq!(row["wrong"].is_null(), !is_product, "{row}");
    }
}

const PLAN: &str = "rule sync, placement accumulate, micro_batches 2, stages 1";

/// The table has times of all calls, so nothing of the plan is guessed, and what comes of the
/// schedule is the same.
#[test]
fn a_gpu_is_profiled_and_its_table_predicts() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("profile");
    let program = program(&bench, "bare", 1, "steps 4, dtype bf16", PLAN);
    let table = bench.scratch.path("table.yaml");
    let mut profile = bench.command("profile --device cuda --top 1 --patience 1");
    let told = document(profile.arg(&program).arg("-o").arg(&table), "table");
    assert_eq!(told["processor"], "Stand-in");
    assert!(told["calls"].as_array().is_some_and(|rows| rows.len() > 10), "{told}");
    assert!(told["copies"]["bandwidth"].as_u64() > Some(0), "{told}");
    let text = fs::read_to_string(&program).expect("it was written");
    let text = text
        .replace("bandwidth 10 GB/s }", "bandwidth 10 GB/s, measured \"table.yaml\" }");
    let measured = bench.scratch.file("measured.rdl", &text);
    let mut plan = bench.command("plan --top 1");
    let plan = document(plan.arg(&measured), "plan")["plans"][0].clone();
    assert_eq!(
        (&plan["calls"]["guessed"], &plan["calls"]["scaled"]),
        (&0.into(), &0.into())
    );
    let trained = bench.run("--device cuda", &measured, &[]);
    let bare = bench.run("--device cuda", &program, &[]);
    assert!(trained.is(&bare), "a table changes no number");
    let without = bench.run("--device cuda --graphs never", &program, &[]);
    assert!(without.is(&bare), "graphs change no number");
    let (kept, none) = (&bare.end["gpus"], &without.end["gpus"]);
    assert!(kept["graphs"].as_u64() > Some(0) && kept["ungraphed"].is_null(), "{kept}");
    assert_eq!((&none["graphs"], none["ungraphed"].is_string()), (&0.into(), true));
    let figure = |name: &str| kept[name].as_u64().expect("a count");
    let (handed, page) = (figure("handed_bytes"), figure("page_bytes"));
    let pools = bare.end["predicted"]["pools"].as_object().expect("pools by name");
    let arenas = pools.values().filter_map(|pool| pool["arena_bytes"].as_u64());
    assert_eq!(handed, arenas.map(|bytes| bytes.next_multiple_of(page)).sum::<u64>());
    let on_cpu =
        ended(bench.command("profile --device cpu -o").arg(&table).arg(&program));
    assert!(
        on_cpu.code == 3 && on_cpu.err.contains("computes in f32 and f64"),
        "{on_cpu:?}"
    );
    let text = fs::read_to_string(&program).expect("it was written");
    let text = text.replace("dtype bf16", "dtype f16");
    let narrow = bench.scratch.file("narrow.rdl", &text);
    let mut profile = bench.command("profile --device cuda --top 1 --patience 1");
    let refused = ended(profile.arg(narrow).arg("-o").arg(&table));
    assert!(refused.code == 3 && refused.err.contains("scale"), "{refused:?}");
}

/// The same bytes as a run sees, for other programs.
#[test]
fn examples_become_files() {
    let bench = Bench::new("examples");
    let program = program(&bench, "tiny", 1, "steps 4, dtype bf16", PLAN);
    let folder = bench.scratch.path("examples");
    let mut data = bench.command("data --steps 3");
    let told = document(data.arg(&program).arg("-o").arg(&folder), "data");
    let index = fs::read_to_string(folder.join("index.json")).expect("it was written");
    let index: Value = serde_json::from_str(&index).expect("it is JSON");
    schema::hold("data", &index);
    assert_eq!(told, index);
    let tokens = |name: &str| {
        let bytes = fs::read(folder.join(name)).expect("it was written");
        let (words, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty());
        words.iter().map(|word| i32::from_ne_bytes(*word)).collect::<Vec<_>>()
    };
    let (tokens, targets) = (tokens("tokens.bin"), tokens("targets.bin"));
    assert_eq!(tokens.len(), 3 * 8 * 8, "steps, examples, positions");
    for (row, next) in tokens.chunks(8).zip(targets.chunks(8)) {
        assert_eq!(row[1..], next[..7], "targets are the tokens that follow");
    }
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok()
}

/// A kernel that the script does not name would not be checked.
#[test]
fn the_script_names_all_kernels() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gpu/checks.py");
    let text = fs::read_to_string(script).expect("it is there");
    let (_, rest) = text.split_once("KERNELS = {").expect("it has groups");
    let (groups, _) = rest.split_once("\n}\n").expect("they end");
    let words = |c: char| !(c.is_alphanumeric() || c == '_');
    for name in NAMES {
        let times = groups.split(words).filter(|word| word == name).count();
        assert_eq!(times, usize::from(TriedKernel::named(name).is_ok()), "{name}");
    }
}

/// A text of Python beside the script's files, which must end well.
fn in_python(text: &str) {
    if !has_python() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gpu");
    let mut python = Command::new("python3");
    let ended = ended(python.args(["-B", "-c", text]).env("PYTHONPATH", folder));
    assert_eq!(ended.code, 0, "{}", ended.err);
}

/// What the script says of figures, apart from where they come from.
#[test]
fn the_script_judges_as_it_says() {
    in_python(
        "import judge
near = lambda found, *wanted: all(abs(a - b) < 1e-12 for a, b in zip(found, wanted))
# Noise within a window is none; where losses go to zero, their mean is what counts.
assert near(judge.distance([2.0, 4.0] * 20, [3.0] * 40), 0.0, 0.0)
assert near(judge.distance([2.0] * 20 + [0.5] * 20, [2.0] * 20 + [0.0] * 20), 0.25, 0.5)
assert near(judge.distance([0.0] * 8, [0.0] * 8), 0.0, 0.0)
assert not judge.distance([float('nan')], [1.0])[0] <= 1.0
# The two curves that lie furthest apart are the noise.
assert near([judge.noise([[1.0], [1.01], [0.99]])], 0.02 / 0.99)
assert judge.is_noise(0.021, 0.01) and not judge.is_noise(0.023, 0.01)
assert judge.is_noise(0.001, 0.0) and not judge.is_noise(float('nan'), 0.01)
counts = lambda **counts: judge.known_counts({name.replace('_', '-'): n for name, n in counts.items()})
assert counts(default=9, reduce_overhead=9)['reduce-overhead'] == 9
assert counts(default=9, reduce_overhead=1)['reduce-overhead'] is None
assert counts(reduce_overhead=9)['reduce-overhead'] is None
assert judge.at_most(0.019, judge.CLOCK).startswith('holds')
assert judge.at_most(0.03, judge.CLOCK) == 'MISSED (0.030, at most 0.02)'
assert judge.bounded(0.004, judge.HOST).startswith('holds')
assert judge.bounded(0.02, judge.HOST).startswith('not known')
# The faster mode counts, and more is wanted of one model.
assert judge.of_speed('gpt2', [1.2, 1.05]) == 'MISSED (1.050, at least 1.10)'
assert judge.of_speed('vit', [1.2, 1.05]) == 'holds (1.050, at least 1.00)'
# Where a mode was not measured, the other one may show a miss, and nothing else.
assert judge.of_speed('vit', [1.2, None]).startswith('not known')
assert judge.of_speed('vit', [None, 0.9]) == 'MISSED (0.900, at least 1.00)'
assert judge.of_speed('vit', [None, None]).startswith('not known')
assert judge.of_memory(8.0, [10.0, 12.0]).startswith('holds')
assert judge.of_memory(8.0, [10.0, None]).startswith('not known')
assert judge.of_memory(9.0, [10.0, None]).startswith('MISSED')
assert judge.of_memory(9.0, [None]).startswith('not known')
assert judge.memory_allowed([10.0, None, 12.0]) == 8
assert judge.kept(['holds (1)', 'MISSED (2)', 'holds (3)']) == '2 hold, 1 MISSED, 0 not known'
import sides
assert sides.sizes_for(80e9)['gpt2']['batch'] == 64 and sides.sizes_for(0)['gpt2']['batch'] == 32
assert sides.step_time([1.0, 2.0, 5.0, 8.0], 1) == 3.0 and sides.step_time([1.0, 2.0], 1) is None
",
    );
}

/// What becomes of a run of ours, of PyTorch's answers, and of a sanitizer's report.
#[test]
fn the_script_tells_what_was_found() {
    in_python(
        "import checks, speed, types
end = lambda bytes: {'gpus': {'handed_bytes': bytes}, 'beside_bytes': 1, 'measured': {}}
both = lambda least: {'default': {'allocated': least}, 'reduce-overhead': {'allocated': 200}}
assert speed.is_memory_missed(end(90), both(100)) and not speed.is_memory_missed(end(70), both(100))
assert not speed.is_memory_missed(end(90), {'default': None, 'reduce-overhead': None})
# Where the fastest plan takes too much, the frugal one is measured, and told with its time.
rows, compiled = [], []
ours = types.SimpleNamespace(
    compile=lambda model, name, settings, timeout: compiled.append((name, settings)),
    run=lambda schedule, steps, limit: {'step_s': steps * 0.1, 'end': end(70)})
own = {'side': 8, 'patch': 4, 'width': 8, 'heads': 2, 'layers': 1}
bench = types.SimpleNamespace(
    ours=ours, runs={'vit': [{'end': end(90)}]}, step=lambda model: 0.8, timeout=lambda most: most, run_limit=lambda: 1,
    sizes=lambda model: {'steps': 20, 'file': 'vit', 'batch': 2, 'model': own},
    card=types.SimpleNamespace(name='NVIDIA H200'),
    results=types.SimpleNamespace(add=lambda *row, **more: rows.append((row, more))))
speed.PAGES = 5
speed.tell_frugal(bench, 'vit', both(100))
assert compiled == [('frugal-vit', ['gpu.memory = 74 B'])], compiled
assert '0.80 of the speed' in rows[0][0][2] and rows[0][1]['target'].startswith('holds'), rows
# Both sides tell means, for a mean of one against a median of the other is no ratio.
import judge
assert judge.times_of([1.0, 4.0, 1.0]) == {'step_s': 2.0, 'median_s': 1.0}
# A mode is held to the run between its turns, and is not what it is called if it gave its graphs up.
turns = lambda graphs: [{'step_s': step, 'graphs': graphs} for step in (1.1, 1.3)]
told = lambda graphs: speed.tell_turns(bench, 'vit', 'reduce-overhead', 1.0, turns(graphs))
assert abs(told(None)[0] - 1.2) < 1e-12 and not told(None)[1]
assert not told({'a_step': 2.0, 'skips': 0})[1]
assert told({'a_step': 2.0, 'skips': 1})[1] and told({'a_step': 0.0, 'skips': 0})[1]
assert 'MFU 0.0%' in rows[-1][0][2], rows
bench.card.name = 'NVIDIA A100'
assert told(None)[0] and 'MFU not known for this card' in rows[-1][0][2], rows
said = [
    '========= Error: Race reported between Write access at flash_sm90_64_bf16+0xa70',
    '=========     and Read access at 0x1fe0 in /tmp/a.cu:63:softmax_bf16(u32) [64 hazards]',
    '=========     at relu_f32+0x40', '=========     by thread (0,0,0) in block (1,0,0)']
assert checks.places_of(said) == ['flash_sm90_64_bf16', 'softmax_bf16', 'relu_f32']
",
    );
}

/// Under a sanitizer ours is a process of the tool's.
#[test]
fn what_takes_too_long_leaves_nothing_behind() {
    in_python(
        "import pathlib, sides, tempfile, time
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / 'child'
    try:
        sides.finished(['sh', '-c', f'sleep 60 & echo $! > {file}; wait'], 1, None)
        raise SystemExit('it was waited for')
    except sides.Late as error:
        assert 'took more than 1 s' in str(error), error
    state = pathlib.Path('/proc') / file.read_text().strip() / 'stat'
    def runs():
        try:
            return state.read_text().split()[2] != 'Z'
        except OSError:
            return False
    ends = time.monotonic() + 10
    # Whoever inherits it may leave it a zombie.
    while runs():
        assert time.monotonic() < ends, 'a process of it still runs'
        time.sleep(0.02)
done = sides.finished(['sh', '-c', 'echo out; echo error >&2; exit 3'], 10, None)
assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (3, 'out', 'error'), done
",
    );
}

/// The script with small sizes and without PyTorch: its exit code and its rows.
fn measured(
    bench: &Bench,
    (parts, budget): (&str, &str),
    settings: &[(&str, &str)],
) -> (Ended, Vec<Value>) {
    let (out, work) = (bench.scratch.path("out"), bench.scratch.path("work"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gpu/run");
    let own = bench.command("--version");
    let mut command = Command::new("python3");
    command.arg(script).arg(own.get_program()).arg(&out);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("ROUNDELAY_CUDA_LIBRARIES", bench.scratch.path(""));
    command.args(["--tiny", "--models", "gpt2", "--python", "/nonexistent/python"]);
    command.args(["--budget", budget, "--parts", parts]);
    let ended = ended(command.arg("--work").arg(work).envs(settings.iter().copied()));
    let text = fs::read_to_string(out.join("results.json"));
    let document: Value =
        serde_json::from_str(&text.expect("it was written")).expect("JSON");
    let rows = document["rows"].as_array().expect("a list").clone();
    let table = fs::read_to_string(out.join("table.md")).expect("it was written");
    assert!(ended.out.ends_with(&format!("{table}\n")), "the table comes last");
    (ended, rows)
}

/// The verdicts of a part, in order.
fn verdicts<'a>(rows: &'a [Value], part: &str) -> Vec<&'a str> {
    let own = rows.iter().filter(|row| row["part"] == part);
    own.filter_map(|row| row["verdict"].as_str()).collect()
}

#[test]
fn the_script_measures_what_is_here() {
    if !has_compiler() || !has_python() {
        return;
    }
    let bench = Bench::new("script");
    let parts = "losses,nccl,speed,virtual,clock,overhead";
    let (ended, rows) = measured(&bench, (parts, "3000"), &[]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert_eq!(verdicts(&rows, "losses"), ["right", "right", "missing"], "{rows:#?}");
    assert_eq!(verdicts(&rows, "nccl"), ["missing"], "{rows:#?}");
    assert!(verdicts(&rows, "memory").contains(&"right"), "{rows:#?}");
    assert_eq!(verdicts(&rows, "virtual"), ["right", "right", "", ""], "{rows:#?}");
    let counts = (verdicts(&rows, "clock").len(), verdicts(&rows, "overhead").len());
    assert_eq!(counts, (1, 2), "{rows:#?}");
    has_targets(&rows);
    let said = |row: &Value| row["found"].as_str().map(str::to_owned);
    let speed = rows.iter().filter(|row| row["part"] == "speed").filter_map(said);
    assert_eq!(speed.filter(|text| text.contains("products by cuBLASLt")).count(), 1);
}

/// Each target is in one row of its kind; of times on stand-ins nobody says whether they hold.
fn has_targets(rows: &[Value]) {
    let said = |row: &Value| row["target"].as_str().map(str::to_owned);
    let of = |part: &str| {
        let own = rows.iter().filter(|row| row["part"] == part).filter_map(said);
        own.filter(|target| !target.is_empty()).collect::<Vec<_>>()
    };
    let unknown = |target: &String| target.starts_with("not known");
    assert!(of("speed").iter().all(unknown) && of("speed").len() == 1, "{rows:#?}");
    let memory = of("memory");
    assert_eq!(memory[0], "holds (the same bytes)", "{rows:#?}");
    assert!(memory.len() == 2 && unknown(&memory[1]), "{rows:#?}");
    assert_eq!((of("virtual").len(), of("clock").len()), (4, 1), "{rows:#?}");
    // Of two and of four stages the periods come back within the run, or it is said why not.
    let measured = of("virtual").iter().filter(|target| !unknown(target)).count();
    assert!(measured >= 3, "{rows:#?}");
    assert_eq!(of("overhead").len(), 1, "{rows:#?}");
}

/// What fails is no right answer, and what had no time says so.
#[test]
fn the_script_tells_failures_from_what_is_missing() {
    if !has_compiler() || !has_python() {
        return;
    }
    let bench = Bench::new("script-failure");
    let broken = [("STANDIN_CUDA_FAIL", "30")];
    let (ended, rows) = measured(&bench, ("overhead", "3000"), &broken);
    assert_eq!(ended.code, 3, "{}\n{}", ended.out, ended.err);
    assert_eq!(verdicts(&rows, "overhead"), ["FAILED"], "{rows:#?}");
    let (ended, rows) = measured(&bench, ("speed,overhead", "1"), &[]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert!(rows.iter().all(|row| row["verdict"] == "missing"), "{rows:#?}");
    assert!(rows.iter().all(|row| row["found"] == "no time was left"), "{rows:#?}");
    for part in ["speed", "overhead"] {
        assert!(!verdicts(&rows, part).is_empty(), "{part}: {rows:#?}");
    }
}
