"""Speed and memory against PyTorch: ours alone, then in turns with one of PyTorch's modes after the other."""

import concurrent.futures
import statistics

import judge
from bench import FIRST_RUN, attempt, gigabytes, reason_of, total, verdict_of
from sides import Failed
from told import attention_of, convolutions_of, graphs_of, products_of, unrecorded_of, untried_of

# bf16 products with dense matrices, in arithmetic per second (NVIDIA's data sheets), by what
# `nvidia-smi` calls a card; what is divided by it is called MFU.
PEAKS = {"NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H200": 989e12}

# An arena is handed out in pages of 2 MiB, one for each kind of memory: fewer than so many bytes more.
PAGES = 32 << 20

# Models that PyTorch compiles at a time, and the bytes of a card that has room for two of them beside the checks.
COMPILING, ROOMY = 2, 100e9

# Seconds until a mode is compiled and warm, and until attention is chosen: a machine that has just started reads
# gigabytes of libraries for that.
READY, CHOSEN = 300, 240


def choose(bench):
    """What makes PyTorch's attention, which is timed: nothing else is on the GPU."""
    models = [model for model in bench.models if "heads" in bench.sizes(model)["model"]]
    chosen = bench.theirs.choose([bench.sizes(model) for model in models], bench.timeout(CHOSEN))
    for model, one in zip(models, chosen):
        bench.results.add("speed", f"{model}: attention of PyTorch", one["said"], times=one["times"])


def plan(bench):
    for model in bench.models:
        attempt(bench, "speed", f"{model}: planning", lambda: speed_schedule(bench, model))


def compile_all(bench):
    """Fills PyTorch's caches of compiled kernels, which `speed` takes."""
    with concurrent.futures.ThreadPoolExecutor(COMPILING if bench.card.bytes >= ROOMY else 1) as pool:
        list(pool.map(lambda model: compile_modes(bench, model), bench.models))


def compile_modes(bench, model):
    """Mode by mode: the second one finds most of it done."""
    for mode in torch_modes(bench).values():
        attempt(bench, "compile", f"{model}: PyTorch {mode}", lambda: compile_mode(bench, model, mode))


def compile_mode(bench, model, mode):
    limit = bench.timeout(READY)
    server = bench.theirs.serve(bench.sizes(model), mode, 2)
    try:
        server.ask("ready", limit)
    finally:
        server.close()


def torch_modes(bench):
    """PyTorch's modes, and what they are while the script is tried without a GPU."""
    tried = bench.theirs.device != "cuda"
    return {mode: "eager" if tried else mode for mode in ("default", "reduce-overhead")}


def speed_schedule(bench, model):
    return bench.ours.compile(model, f"speed-{model}", timeout=bench.timeout(120))


def frugal_schedule(bench, model, arenas):
    """The same in arenas of so many bytes: the planner computes again in as few layers as that takes."""
    return bench.ours.compile(model, f"frugal-{model}", [f"gpu.memory = {arenas} B"], timeout=bench.timeout(120))


def work_of(model, sizes):
    """Arithmetic of training with one example: 6 per parameter and token and 6 per layer, width and
    pair of positions, as llm.c counts; for images three times the
    forward pass as its papers count it, scaled with the area."""
    own = sizes["model"]
    if sizes["file"] == "gpt2":
        layers, width, seq = own["layers"], own["width"], own["seq"]
        parameters = own["vocab"] * width + seq * width + layers * (12 * width * width + 13 * width) + 2 * width
        return seq * (6 * parameters + 6 * layers * width * seq)
    if sizes["file"] == "vit":
        tokens, width = 1 + (own["side"] // own["patch"]) ** 2, own["width"]
        layer = 12 * width * width * tokens + 2 * tokens * tokens * width
        return 6 * (own["layers"] * layer + 3 * own["patch"] ** 2 * width * (tokens - 1))
    return 6 * 4.09e9 * (own["side"] / 224) ** 2 * (own["width"] / 64) ** 2


def speed(bench):
    """All of ours first: it is little time, tries algorithms on a quiet GPU, and what fails shows at once."""
    for model in bench.models:
        attempt(bench, "speed", f"{model}: ours", lambda: alone(bench, model))
    bench.theirs.forget_choices()
    for model in bench.models:
        if model in bench.runs:
            attempt(bench, "speed", f"{model}: PyTorch", lambda: against(bench, model))


def own_run(bench, model, limit):
    run = bench.ours.run(speed_schedule(bench, model), bench.sizes(model)["steps"], limit)
    bench.runs.setdefault(model, []).append(run)
    return run


def alone(bench, model):
    run = own_run(bench, model, bench.run_limit(FIRST_RUN))
    gpus, step = run["end"]["gpus"], run["step_s"]
    found = f"{rate_of(bench, model, step)} with {graphs_of(gpus)} and {products_of(gpus)}"
    found += f"{convolutions_of(gpus)}{attention_of(gpus)}{unrecorded_of(gpus)}{untried_of(gpus)}"
    figures = {key: gpus[key] for key in ("products", "convolutions", "attention")}
    bench.results.add("speed", f"{name_of(bench, model)}: ours alone", found, step_s=step, **figures)
    tell_arenas(bench, model, run["end"])


def name_of(bench, model):
    return f"{model}, batch {bench.sizes(model)['batch']}, bf16"


def rate_of(bench, model, step):
    """What a step's time is, in words."""
    sizes, peak = bench.sizes(model), PEAKS.get(bench.card.name)
    per_example, unit = (sizes["model"]["seq"], "tok/s") if sizes["file"] == "gpt2" else (1, "img/s")
    mfu = f"{sizes['batch'] * work_of(model, sizes) / step / peak:.1%}" if peak else "not known for this card"
    return f"{sizes['batch'] * per_example / step:,.0f} {unit}, MFU {mfu}, {step * 1e3:.2f} ms a step"


def against(bench, model):
    """Each of PyTorch's modes, and what all of them together say. `taken` has what was found of each, also of
    one that ends early."""
    taken = {mode: {} for mode in torch_modes(bench)}
    for mode, own in taken.items():
        attempt(bench, "speed", f"{model}: PyTorch {mode}", lambda: in_turns(bench, model, mode, own))
    ratios = {mode: own.get("ratio") for mode, own in taken.items()}
    found = f"ours {rate_of(bench, model, bench.step(model))}"
    found += "".join(f"; {'not known' if ratio is None else f'{ratio:.3f}'} of PyTorch {mode}"
                     for mode, ratio in ratios.items())
    # What stands for a mode that was not measured.
    void = [None for own in taken.values() if own.get("void")]
    bench.results.add("speed", name_of(bench, model), found, step_s=bench.step(model), ratios=ratios,
                      target=judge.of_speed(model, [*ratios.values(), *void]))
    memories, end = {mode: own.get("memory") for mode, own in taken.items()}, bench.runs[model][-1]["end"]
    tell_memory(bench, model, end, memories)
    if is_memory_missed(end, memories):
        attempt(bench, "memory", f"{model}: peak of the target", lambda: tell_frugal(bench, model, memories))
    kernels = judge.known_counts({mode: own.get("kernels") for mode, own in taken.items()})
    found = f"ours {end['kernels']} functions and products"
    found += "".join(f", PyTorch {mode} {'not known' if count is None else count}"
                     for mode, count in kernels.items())
    bench.results.add("speed", f"{model}: kernels of a step", found, ours=end["kernels"], theirs=kernels)


def in_turns(bench, model, mode, taken):
    """A mode's step times before and after a run of ours. No other mode is on the GPU: a card of 80 GB has
    room for one beside ours, and each chooses its kernels undisturbed."""
    server = bench.theirs.serve(bench.sizes(model), torch_modes(bench)[mode])
    try:
        server.ask("ready", bench.timeout(READY))
        turns = [turn_of(bench, server)]
        taken["memory"] = server.ask("memory", bench.timeout(30))
        run = bench.runs[model][0]
        try:
            run = own_run(bench, model, bench.run_limit())
            turns.append(turn_of(bench, server))
        except Failed as error:
            # What is there counts: this mode's first turn, and our run of before.
            what = f"{model}: ours or the second turn beside PyTorch {mode}"
            bench.results.add("speed", what, reason_of(error), verdict_of(bench, error))
        taken["ratio"], taken["void"] = tell_turns(bench, model, mode, run["step_s"], turns)
        taken["kernels"] = server.ask("kernels", bench.timeout(60))["kernels"]
    finally:
        server.close()


def turn_of(bench, server):
    return server.ask(f"turn {0.1 if bench.tiny else 3}", bench.timeout(60))


def tell_turns(bench, model, mode, ours, turns):
    """PyTorch's step time over ours, and whether the mode was not what it is called."""
    step = statistics.fmean(turn["step_s"] for turn in turns)
    ratio, graphs, void = step / ours, turns[-1]["graphs"], False
    times = ", ".join(f"{turn['step_s'] * 1e3:.2f}" for turn in turns)
    found = f"PyTorch {rate_of(bench, model, step)} ({times}); ours {ours * 1e3:.2f} ms: {ratio:.3f} of it"
    if graphs:
        found += f"; {graphs['a_step']:.1f} graphs a step, given up {graphs['skips']} times"
        void = bool(graphs["skips"] or not graphs["a_step"])
        found += f": this is not {mode}, and can show a miss alone" if void else ""
    bench.results.add("speed", f"{name_of(bench, model)}: in turns with PyTorch {mode}", found,
                      ours_s=ours, turns=turns, ratio=ratio)
    return ratio, void


def tell_arenas(bench, model, end):
    page, handed = end["gpus"]["page_bytes"], end["gpus"]["handed_bytes"]
    arenas = [total(end[side], "arena_bytes") for side in ("predicted", "measured")]
    pools = end["predicted"]["pools"].values()
    wanted = sum(-(-pool["arena_bytes"] // page) * page for pool in pools)
    found = (f"the driver handed out {handed} bytes; predicted {arenas[0]}, which is {wanted} in "
             f"whole pages of {page} for each pool")
    exact = arenas[0] == arenas[1]
    bench.results.add("memory", f"{model}: arenas against prediction", found,
                      "right" if handed == wanted and exact else "WRONG",
                      target="holds (the same bytes)" if exact else f"MISSED ({arenas[1] - arenas[0]:+} bytes)")


def tell_memory(bench, model, end, memories):
    peak, arenas = (total(end["measured"], key) for key in ("activation_peak_bytes", "arena_bytes"))
    found = (f"ours {gigabytes(arenas)} in arenas ({gigabytes(peak)} activations by scan) and "
             f"{gigabytes(end['beside_bytes'])} beside")
    for mode, memory in memories.items():
        found += f"; PyTorch {mode} "
        found += f"{gigabytes(memory['allocated'])} allocated, {gigabytes(memory['reserved'])} reserved" if memory else "not known"
    bench.results.add("memory", f"{model}: peak", found, target=target_of_memory(end, memories),
                      ours=end["measured"], theirs=memories)


def bytes_of(end):
    """All memory that a run of ours takes on the card."""
    return end["gpus"]["handed_bytes"] + end["beside_bytes"]


def target_of_memory(end, memories):
    return judge.of_memory(bytes_of(end), [memory and memory["allocated"] for memory in memories.values()])


def is_memory_missed(end, memories):
    return target_of_memory(end, memories).startswith("MISSED")


def arenas_allowed(end, memories):
    """The bytes of arenas that hold the target of memory, if what is beside them stays as it is."""
    allowed = judge.memory_allowed([memory and memory["allocated"] for memory in memories.values()])
    return allowed - end["beside_bytes"] - PAGES


def tell_frugal(bench, model, memories):
    """What the plan costs in time that holds the target of memory where the fastest one does not."""
    arenas = arenas_allowed(bench.runs[model][-1]["end"], memories)
    schedule = frugal_schedule(bench, model, arenas)
    run = bench.ours.run(schedule, bench.sizes(model)["steps"] // 2, bench.run_limit())
    step, end = run["step_s"], run["end"]
    found = (f"ours {gigabytes(bytes_of(end))}, {step * 1e3:.2f} ms a step, {bench.step(model) / step:.2f} of the "
             f"speed without")
    bench.results.add("memory", f"{model}: peak of the target", found,
                      target=target_of_memory(end, memories), step_s=step, ours=end["measured"])
