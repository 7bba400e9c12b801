"""Loss curves: the same bits in all runs of ours, and near to PyTorch's."""

import concurrent.futures
import shutil

import judge
from bench import FIRST_RUN, attempt, reason_of, verdict_of_all
from told import graphs_of

# Examples of a step, and steps.
LOSSES = {"gpt2": (4, 200), "resnet50": (16, 200)}
TINY_LOSSES = {"gpt2": (4, 8), "resnet50": (4, 8)}

# PyTorch's runs, by what they are called here. Two in bf16 that round in other places show how far bf16
# alone takes a curve: one with the residual stream in f32, as autocast leaves it, and one as it is served.
THEIRS = {"f32": ["--precision", "f32"], "bf16": [], "bf16 as served": ["--served"]}


def losses(bench):
    for model in (TINY_LOSSES if bench.tiny else LOSSES):
        if model in bench.models:
            attempt(bench, "losses", model, lambda: losses_of(bench, model))


def losses_of(bench, model):
    batch, steps = (TINY_LOSSES if bench.tiny else LOSSES)[model]
    bench.compile_kernels()
    ours, work = bench.ours.apart("losses"), bench.ours.work
    name = f"losses-{model}"
    schedule = ours.compile(model, name, [f"train.batch = {batch}"], timeout=bench.timeout(120))
    weights, data = work / f"{name}.safetensors", work / f"{name}-data"
    ours.run(schedule, 0, bench.run_limit(FIRST_RUN), "--save", weights)
    ours.call(["data", schedule, "--steps", steps, "-o", data], bench.run_limit())
    runs, kept = [], []
    for number, graphs in enumerate(["periods", "periods", "never"]):
        saved = work / f"{name}-{number}.safetensors"
        words = ["--weights", weights, "--save", saved, "--graphs", graphs]
        found = ours.run(schedule, steps, bench.run_limit(FIRST_RUN), *words)
        runs.append((found["losses"], saved.read_bytes()))
        kept.append(found["end"]["gpus"])
        saved.unlink()
    # Runs that should have replayed graphs, and one that should not.
    graphed = all(gpus["graphs"] > 0 for gpus in kept[:2]) and kept[2]["graphs"] == 0
    for what, other in [("two runs", 1), ("with graphs and without", 2)]:
        same = runs[0] == runs[other]
        found = f"{steps} losses and all weights are " + ("the same bits" if same else "OTHER bits")
        found += "; " + " against ".join(graphs_of(kept[number]) for number in (0, other))
        bench.results.add("losses", f"{model}: {what}", found, "right" if same and graphed else "WRONG")
    sizes = {**bench.sizes(model), "batch": batch}
    curves, absent = {"ours": runs[0][0]}, {}

    def run(name):
        try:
            limit = bench.run_limit()
            curves[name] = bench.theirs.losses(sizes, weights, data, steps, limit, *THEIRS[name])
        except Exception as error:
            absent[name] = error

    with concurrent.futures.ThreadPoolExecutor(len(THEIRS)) as pool:
        list(pool.map(run, THEIRS))
    shutil.rmtree(data, ignore_errors=True)
    if absent:
        found = "; ".join(f"PyTorch in {name}: {reason_of(why)}" for name, why in absent.items())
        bench.results.add("losses", f"{model}: {steps} steps against PyTorch", found,
                          verdict_of_all(bench, absent.values()), curves=curves)
    else:
        compare_curves(bench, model, curves)


def compare_curves(bench, model, curves):
    own, most = judge.distance(curves["ours"], curves["f32"])
    noise = judge.noise([curves[name] for name in THEIRS])
    ends = ", ".join(f"{name} {curves[name][0]:.4f} to {curves[name][-1]:.4f}" for name in ("ours", *THEIRS))
    apart = ", ".join(f"{judge.distance(curves['ours'], curves[name])[0]:.2%} from {name}" for name in THEIRS)
    found = (f"{ends}; in windows of {judge.WINDOW} steps the mean distance of ours is {apart} (from f32 at most "
             f"{most:.2%}); PyTorch's own are up to {noise:.2%} apart")
    verdict = "right" if judge.is_noise(own, noise) else "WRONG"
    bench.results.add("losses", f"{model}: {len(curves['ours'])} steps against PyTorch", found,
                      verdict, curves=curves)
