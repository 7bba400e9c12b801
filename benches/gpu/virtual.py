"""Virtual devices on one card: memory and throughput of cyclic steps over synchronous ones."""

import judge
from bench import FIRST_RUN, attempt, gigabytes, total
from sides import step_time

# Virtual devices: examples of a micro-batch.
VIRTUAL = {"resnet50": 16, "vit": 16, "gpt2": 4}
# Of more virtual devices too many periods are different; there launches are graphs, and all of them have come
# back twice after so many steps.
GRAPHED = 4
RECURRED = 96
TINY_VIRTUAL = {"resnet50": 2, "vit": 2, "gpt2": 2}


def virtual_before(bench):
    for model, count in virtual_cases(bench):
        for rule in ("sync", "cyclic_v2"):
            attempt(bench, "virtual", f"{model}, N = {count}, {rule}: planning",
                    lambda: virtual_schedule(bench, model, count, rule))


def virtual_cases(bench):
    models = TINY_VIRTUAL if bench.tiny else VIRTUAL
    counts = (2, 4) if bench.tiny else (2, 4, 8)
    return [(model, count) for model in models if model in bench.models for count in counts]


def virtual(bench):
    for model, count in virtual_cases(bench):
        attempt(bench, "virtual", f"{model}, N = {count}", lambda: virtual_of(bench, model, count))
    for model, count in sorted(virtual_cases(bench), key=lambda case: case[1] > GRAPHED):
        attempt(bench, "virtual", f"{model}, N = {count}, with graphs",
                lambda: virtual_with_graphs(bench, model, count))


def virtual_schedule(bench, model, count, rule):
    each = (TINY_VIRTUAL if bench.tiny else VIRTUAL)[model]
    edits = []
    if bench.sizes(model)["file"] == "gpt2":
        edits = [("targets, weight = table)", "targets, vocab)")]
    settings = [f"train.batch = {count * each}", f"micro_batches = {count}", f"stages = {count}",
                "placement = concurrent", "states = replicated", f"rule = {rule}"]
    name = f"virtual-{model}-{count}-{rule}"
    return bench.ours.compile(model, name, settings, edits, bench.timeout(120))


def virtual_of(bench, model, count):
    each = (TINY_VIRTUAL if bench.tiny else VIRTUAL)[model]
    found = virtual_runs(bench, model, count, "never", 64)
    sides = {}
    for side in ("predicted", "measured"):
        peaks = [total(run["end"][side], "activation_peak_bytes") for run in found[:2]]
        sides[side] = (*peaks, peaks[1] / peaks[0])
    sync, cyclic, ratio = sides["measured"]
    steps = [run["step_s"] for run in found]
    speed, rates = compared(steps, count * each)
    text = (f"activations {gigabytes(cyclic)} cyclic over {gigabytes(sync)} synchronous = {ratio:.3f} "
            f"(predicted {sides['predicted'][2]:.3f}; equal stages would have {(count + 1) / (2 * count):.3f}); "
            f"{rates}, all without graphs")
    right = ratio < 1 and abs(ratio - sides["predicted"][2]) < 0.01
    bench.results.add("virtual", f"{model}, N = {count}, {each} examples each", text,
                      "right" if right else "WRONG", target=judge.at_least(speed, judge.VIRTUAL),
                      peaks=sides, steps_s=steps)


def virtual_runs(bench, model, count, graphs, steps):
    """A synchronous run, a cyclic one and again a synchronous one."""
    schedules = [virtual_schedule(bench, model, count, rule) for rule in ("sync", "cyclic_v2", "sync")]
    steps = 8 if bench.tiny else steps
    return [bench.ours.run(schedule, steps, bench.run_limit(FIRST_RUN), "--graphs", graphs)
            for schedule in schedules]


def compared(steps, examples):
    """Throughput of the cyclic run over that of both synchronous ones, and all in words."""
    before, cyclic, after = steps
    sync = (before + after) / 2
    words = (f"{examples / cyclic:,.1f} over {examples / sync:,.1f} samples/s = {sync / cyclic:.3f} "
             f"(of two synchronous runs, {abs(before - after) / sync:.1%} apart)")
    return sync / cyclic, words


def virtual_with_graphs(bench, model, count):
    """The same with graphs, of periods or of launches: only steps count that launch those which are
    there."""
    each = (TINY_VIRTUAL if bench.tiny else VIRTUAL)[model]
    runs = virtual_runs(bench, model, count, "periods", 64 if count <= GRAPHED else RECURRED + 32)
    what = f"{model}, N = {count}, with graphs"
    for run in runs:
        gpus = run["end"]["gpus"]
        if gpus["graphs"] + gpus["launch_graphs"] == 0:
            bench.results.add("virtual", what, gpus["ungraphed"], target=judge.at_least(None, judge.VIRTUAL))
            return
    steps = [step_time(run["times"], recorded(run["end"]["gpus"])) for run in runs]
    if None in steps:
        target, found = None, "all steps went by while graphs were recorded"
    else:
        target, found = compared(steps, count * each)
    bench.results.add("virtual", what, found, target=judge.at_least(target, judge.VIRTUAL), steps_s=steps)


def recorded(gpus):
    """Steps until all that is to come is there. Of periods the first is given and each graph recorded once; one
    more, for steps that lag."""
    return gpus["graphs"] + 2 if gpus["graphs"] else RECURRED
