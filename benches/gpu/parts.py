"""What is measured, part by part. A part gets the bench and adds rows; whatever it raises becomes a
row too."""

import concurrent.futures
import json
import shutil
import statistics
import subprocess
from dataclasses import dataclass

import judge
from bench import attempt, gigabytes, reason_of, total, verdict_of, verdict_of_all
from sides import Absent, Failed, Late, last_words
from virtual import virtual, virtual_before

# bf16 products of an H100 or H200 with dense matrices, in arithmetic per second (NVIDIA's data
# sheet); what is divided by it is called MFU.
PEAK = 989e12

# Loss curves: examples of a step, and steps.
LOSSES = {"gpt2": (4, 200), "resnet50": (16, 200)}
TINY_LOSSES = {"gpt2": (4, 8), "resnet50": (4, 8)}

# PyTorch servers that compile at a time; more would take the cores of whoever runs beside.
COMPILING = 2


@dataclass
class Part:
    work: object
    # Whether it may run beside others: its figures are no times.
    together: bool
    # What of it is no measurement, as planning and compiling are, and runs before, beside others.
    before: object = None


def run(name, bench):
    take(name, bench, PARTS[name].work)


def prepare(name, bench):
    if PARTS[name].before:
        take(name, bench, PARTS[name].before)


def take(name, bench, work):
    bench.results.say(f"{name} begins" if work is PARTS[name].work else f"{name} is prepared")
    if bench.is_over():
        bench.results.add(name, "the part", "no time was left", "missing")
    else:
        attempt(bench, name, "the part", lambda: work(bench))


# Kernels


# Kernels that are checked in one call; together all that `devices --check-kernels` knows.
KERNELS = {
    "products":
        "matmul affine affine_relu affine_gelu affine_gelu_tanh affine_add "
        "matmul_gelu_tanh_backward affine_gradients",
    "heads":
        "attention attention_backward",
    "stored heads":
        "scores mix mix_backward rotary",
    "convolutions":
        "conv2d conv2d_backward conv2d_weights",
    "norms":
        "softmax softmax_backward layer_norm layer_norm_backward layer_norm_parameters batch_norm "
        "batch_norm_backward group_norm group_norm_backward rms_norm rms_norm_backward",
    "losses":
        "cross_entropy cross_entropy_backward masked_cross_entropy masked_cross_entropy_backward "
        "linear_cross_entropy mse mse_backward accuracy",
    "optimizers":
        "sgd adamw",
    "activations":
        "relu relu_backward gelu gelu_backward silu silu_backward gelu_tanh gelu_tanh_backward "
        "soft_cap soft_cap_backward dropout dropout_backward",
    "sums":
        "add add_rows accumulate zero copy sum_rows multiply multiply_sum_rows scale",
    "rows":
        "embedding embedding_backward slice slice_backward slice_integers prepend",
    "pools":
        "max_pool max_pool_backward avg_pool avg_pool_backward global_pool global_pool_backward",
    "parts":
        "part embedding_part embedding_part_backward cross_entropy_part cross_entropy_join "
        "cross_entropy_part_backward norm_part_sums norm_part_squares norm_part norm_part_slopes "
        "norm_part_backward norm_part_gain",
}


def kernels(bench):
    for group, names in KERNELS.items():
        attempt(bench, "kernels", group, lambda: kernels_of(bench, group, names.split()))


def kernels_of(bench, group, names):
    """One group, so that what takes too long loses this one alone."""
    ours, calls = bench.ours, 1 if bench.tiny else 12
    words = ["devices", "--check-kernels", "--json", "--seed", bench.seed, "--calls", calls]
    command = [str(ours.program), *map(str, words), "--only", ",".join(names)]
    limit = bench.run_limit()
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=ours.environment,
                              timeout=limit)
    except subprocess.TimeoutExpired:
        raise Late(f"the check took more than {limit:.0f} s") from None
    if not done.stdout.startswith("{") or '"rows"' not in done.stdout:
        raise Failed(done.stderr.strip()[-400:] or "the check said nothing")
    document = json.loads(done.stdout)
    rows, errors = document["rows"], []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        known = [row for row in rows if row["dtype"] == dtype and row["error"] is not None]
        if known:
            worst = max(known, key=lambda row: row["error"])
            errors.append(f"{dtype} {worst['error']:.1e} ({worst['kernel']}) of {worst['tolerance']:.1e}")
    wrong = [f"{row['kernel']} in {row['dtype']}" for row in rows if row["wrong"]]
    found = (f"{len(names)} kernels, {sum(row['calls'] for row in rows)} calls with "
             f"{sum(row['products'] for row in rows)} products by cuBLASLt {document['cublaslt']}, "
             f"{sum(row['convolutions'] for row in rows)} convolutions and "
             f"{sum(row['attentions'] for row in rows)} calls of attention by cuDNN {document['cudnn']}; "
             f"largest errors {', '.join(errors)}")
    if wrong:
        found += "; wrong: " + ", ".join(wrong)
    bench.results.add("kernels", f"{group} against references in f64, seed {bench.seed}", found,
                      "WRONG" if wrong else "right", rows=rows)


# In the order of their worth. Races and what follows them are looked for with our own products alone:
# the library's kernels are not ours to judge.
SANITIZERS = {
    "memcheck": ([], []),
    "racecheck": (["--racecheck-detect-level", "error"], ["--own-products"]),
    "synccheck": ([], ["--own-products"]),
    "initcheck": ([], ["--own-products"]),
}


def sanitizer(bench):
    tool = shutil.which("compute-sanitizer")
    if not tool:
        raise Absent("compute-sanitizer is not here")
    for which in SANITIZERS:
        attempt(bench, "sanitizer", which, lambda: sanitize(bench, tool, which))


def sanitize(bench, tool, which):
    of_tool, of_ours = SANITIZERS[which]
    command = [tool, "--tool", which, *of_tool, "--error-exitcode", "9", str(bench.ours.program)]
    command += ["devices", "--check-kernels", "--calls", "1", "--seed", str(bench.seed), "--json"]
    limit = bench.timeout(240)
    try:
        done = subprocess.run([*command, *of_ours], capture_output=True, text=True, timeout=limit,
                              env=bench.ours.environment)
    except subprocess.TimeoutExpired:
        raise Late(f"it took more than {limit:.0f} s") from None
    said = [line for line in done.stdout.splitlines() if "=====" in line]
    # Other codes are those of the program: what it says counts then.
    by_tool = said and done.returncode in (0, 9)
    last = said[-1].strip("= ") if by_tool else last_words(done.stderr)
    verdict = {0: "right", 9: "WRONG"}.get(done.returncode, "FAILED")
    bench.results.add("sanitizer", f"{which} over all kernels", last, verdict)


# NCCL


def nccl(bench):
    """A communicator of one rank: whether the library is found, starts and reduces."""
    own = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"}
    words = ["devices", "--self-check", "--json", "--largest", 1, "--deadline", 30]
    try:
        told = json.loads(bench.ours.call(words, bench.run_limit(), own))
    except Failed as error:
        if "there is no NCCL" in str(error):
            raise Absent(str(error)) from None
        raise
    rows = told["rows"]
    wrong = [row["exercise"] for row in rows if row["wrong_ranks"]]
    found = f"NCCL {told['ranks'][0]['nccl']}, {len(rows)} exercises"
    found += f"; wrong: {', '.join(wrong)}" if wrong else ""
    bench.results.add("nccl", "one rank alone", found, "WRONG" if wrong or not rows else "right", rows=rows)


# Losses


def losses(bench):
    for model in (TINY_LOSSES if bench.tiny else LOSSES):
        if model in bench.models:
            attempt(bench, "losses", model, lambda: losses_of(bench, model))


def losses_of(bench, model):
    batch, steps = (TINY_LOSSES if bench.tiny else LOSSES)[model]
    ours, work = bench.ours, bench.ours.work
    name = f"losses-{model}"
    schedule = ours.compile(model, name, [f"train.batch = {batch}"], timeout=bench.timeout(120))
    weights, data = work / f"{name}.safetensors", work / f"{name}-data"
    ours.run(schedule, 0, bench.run_limit(), "--save", weights)
    ours.call(["data", schedule, "--steps", steps, "-o", data], bench.run_limit())
    runs, kept = [], []
    for number, graphs in enumerate(["periods", "periods", "never"]):
        saved = work / f"{name}-{number}.safetensors"
        words = ["--weights", weights, "--save", saved, "--graphs", graphs]
        found = ours.run(schedule, steps, bench.run_limit(), *words)
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
    for precision in ("bf16", "f32"):
        try:
            theirs = bench.theirs.losses(sizes, precision, weights, data, steps, bench.run_limit())
            curves[precision] = theirs
        except Exception as error:
            absent[precision] = error
    shutil.rmtree(data, ignore_errors=True)
    if absent:
        found = "; ".join(f"PyTorch in {precision}: {reason_of(why)}" for precision, why in absent.items())
        bench.results.add("losses", f"{model}: {steps} steps against PyTorch", found,
                          verdict_of_all(bench, absent.values()), curves=curves)
    else:
        compare_curves(bench, model, curves)


def graphs_of(gpus):
    why = f" ({gpus['ungraphed']})" if gpus["ungraphed"] else ""
    return f"{gpus['graphs']} graphs{why}"


def products_of(gpus):
    products = gpus["products"]
    why = f" ({products['why_own']})" if products["why_own"] else ""
    return f"{products['cublaslt']} products by cuBLASLt, {products['own']} by own functions{why}"


def convolutions_of(gpus):
    return ways_of(gpus["convolutions"], [("cudnn", "convolutions by cuDNN"), ("own", "by own functions")])


def attention_of(gpus):
    return ways_of(gpus["attention"], [("cudnn", "calls of attention by cuDNN"),
                                       ("sm90", "by functions for sm_90a"),
                                       ("usual", "by those for every device")])


def ways_of(told, ways):
    """Who makes what may be made in several ways, and why; nothing of models that have none of it."""
    counts = [(told[key], words) for key, words in ways]
    if not any(count for count, _ in counts):
        return ""
    names = ("why_usual", "why_own", "wrong")
    reasons = dict.fromkeys(told[name] for name in names if told.get(name))
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return ", " + ", ".join(f"{count} {words}" for count, words in counts) + why


def compare_curves(bench, model, curves):
    """Ours is within the noise of bf16 when it lies no further from PyTorch's losses in 32 bits than
    twice as far as PyTorch's own in bf16, give or take 0.5 %."""
    own, most = judge.distance(curves["ours"], curves["f32"])
    noise, _ = judge.distance(curves["bf16"], curves["f32"])
    between, _ = judge.distance(curves["ours"], curves["bf16"])
    ends = ", ".join(f"{name} {curve[0]:.4f} to {curve[-1]:.4f}" for name, curve in curves.items())
    found = (f"{ends}; in windows of {judge.WINDOW} steps the mean distance of ours from f32 is {own:.2%} "
             f"(at most {most:.2%}), of PyTorch's bf16 {noise:.2%}, between the two {between:.2%}")
    verdict = "right" if own <= 2 * noise + 0.005 else "WRONG"
    bench.results.add("losses", f"{model}: {len(curves['ours'])} steps against PyTorch", found,
                      verdict, curves=curves)


# Speed


def speed_before(bench):
    """Plans, and fills PyTorch's caches of compiled kernels."""
    for model in bench.models:
        attempt(bench, "speed", f"{model}: planning", lambda: speed_schedule(bench, model))
        attempt(bench, "memory", f"{model}: planning", lambda: frugal_schedule(bench, model))
    with concurrent.futures.ThreadPoolExecutor(COMPILING) as pool:
        list(pool.map(lambda model: warm(bench, model), bench.models))


def warm(bench, model):
    """Has PyTorch compile a model, mode by mode: the second one finds most of it done."""
    for mode in torch_modes(bench).values():
        attempt(bench, "speed", f"{model}: PyTorch {mode} compiles", lambda: warm_mode(bench, model, mode))


def warm_mode(bench, model, mode):
    limit = bench.timeout(180)
    server = bench.theirs.serve(bench.sizes(model), mode, 2)
    try:
        server.ask("ready", limit)
    finally:
        server.close()


def torch_modes(bench):
    """PyTorch's modes, and what they are while the script is tried."""
    return {mode: "eager" if bench.tiny else mode for mode in ("default", "reduce-overhead")}


def speed_schedule(bench, model):
    return bench.ours.compile(model, f"speed-{model}", timeout=bench.timeout(120))


def frugal_schedule(bench, model):
    """The same that computes again what is cheap for the bytes it takes."""
    return bench.ours.compile(model, f"frugal-{model}", ["recompute = selective"], timeout=bench.timeout(120))


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
    for model in bench.models:
        attempt(bench, "speed", model, lambda: speed_of(bench, model))


def speed_of(bench, model):
    sizes = bench.sizes(model)
    schedule = speed_schedule(bench, model)
    servers, absent, told = {}, {}, {}
    for mode, own in torch_modes(bench).items():
        try:
            servers[mode] = bench.theirs.serve(sizes, own)
        except Exception as error:
            absent[mode] = error
    try:
        for mode, server in list(servers.items()):
            try:
                told[mode] = server.ask("ready", bench.timeout(120))
            except Exception as error:
                absent[mode] = error
                servers.pop(mode).close()
        own, turns = take_turns(bench, model, schedule, servers, absent)
        tell_speed(bench, model, own, turns)
        memories = ask_all(bench, servers, absent, "memory", 30)
        counts = ask_all(bench, servers, absent, "kernels", 60)
    finally:
        for server in servers.values():
            server.close()
        for what, error in absent.items():
            bench.results.add("speed", f"{model}: PyTorch {what}", reason_of(error), verdict_of(bench, error))
    tell_memory(bench, model, own[-1]["end"], memories)
    if is_memory_missed(own[-1]["end"], memories):
        attempt(bench, "memory", f"{model}: peak, recompute selective", lambda: tell_frugal(bench, model, memories))
    kernels_of = judge.known_counts({mode: answer["kernels"] for mode, answer in counts.items()})
    found = f"ours {own[-1]['end']['kernels']} functions and products"
    found += "".join(f", PyTorch {mode} {'not known' if count is None else count}"
                     for mode, count in kernels_of.items())
    bench.results.add("speed", f"{model}: kernels of a step", found,
                      ours=own[-1]["end"]["kernels"], theirs=kernels_of)
    for mode, answer in told.items():
        bench.results.add("speed", f"{model}: attention of PyTorch {mode}", str(answer["attention"]),
                          times=answer.get("attention_ms"))


def take_turns(bench, model, schedule, servers, absent):
    """Our runs, and step times of each of PyTorch's modes; one that fails is left out from there."""
    turns, own = {}, []
    for _ in range(1 if bench.tiny else 2):
        for mode, server in list(servers.items()):
            seconds = 0.1 if bench.tiny else 3
            try:
                step = server.ask(f"turn {seconds}", bench.timeout(60))["step_s"]
                turns.setdefault(mode, []).append(step)
            except Exception as error:
                absent[mode] = error
                servers.pop(mode).close()
        try:
            own.append(bench.ours.run(schedule, bench.sizes(model)["steps"], bench.run_limit()))
        except Failed as error:
            if not own:
                raise
            bench.results.add("speed", f"{model}: our second run", str(error), verdict_of(bench, error))
    return own, turns


def ask_all(bench, servers, absent, request, seconds):
    """Answers by mode, of those that give one."""
    answers = {}
    for mode, server in servers.items():
        try:
            answers[mode] = server.ask(request, bench.timeout(seconds))
        except Exception as error:
            absent[f"{mode}, {request}"] = error
    return answers


def tell_speed(bench, model, own, turns):
    sizes = bench.sizes(model)
    per_example, unit = (sizes["model"]["seq"], "tok/s") if sizes["file"] == "gpt2" else (1, "img/s")
    arithmetic = work_of(model, sizes)
    ours = statistics.median(run["step_s"] for run in own)
    bench.steps[model] = ours
    rate = lambda step: sizes["batch"] * per_example / step
    utilized = lambda step: sizes["batch"] * arithmetic / step / PEAK
    found = f"ours {rate(ours):,.0f} {unit}, MFU {utilized(ours):.1%}, {ours * 1e3:.2f} ms a step"
    gpus = own[-1]["end"]["gpus"]
    found += f" with {graphs_of(gpus)} and {products_of(gpus)}{convolutions_of(gpus)}{attention_of(gpus)}"
    figures = {"ours": {"step_s": ours, "rate": rate(ours), "mfu": utilized(ours), "products": gpus["products"],
                        "convolutions": gpus["convolutions"], "attention": gpus["attention"]}}
    for mode, steps in turns.items():
        step = statistics.median(steps)
        found += f"; PyTorch {mode} {rate(step):,.0f}, MFU {utilized(step):.1%}: ours is {step / ours:.2f} of it"
        figures[mode] = {"step_s": step, "rate": rate(step), "mfu": utilized(step), "ratio": step / ours}
    target = judge.of_speed(model, ours, [statistics.median(steps) for steps in turns.values()])
    bench.results.add("speed", f"{model}, batch {sizes['batch']}, bf16", found, target=target, unit=unit,
                      figures=figures)


def tell_memory(bench, model, end, memories):
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
    peak = total(end["measured"], "activation_peak_bytes")
    found = (f"ours {gigabytes(arenas[1])} in arenas ({gigabytes(peak)} activations by scan) and "
             f"{gigabytes(end['beside_bytes'])} beside")
    for mode, memory in memories.items():
        found += f"; PyTorch {mode} {gigabytes(memory['allocated'])} allocated, {gigabytes(memory['reserved'])} reserved"
    bench.results.add("memory", f"{model}: peak", found, target=target_of_memory(end, memories),
                      ours=end["measured"], theirs=memories)


def bytes_of(end):
    """All memory that a run of ours takes on the card."""
    return end["gpus"]["handed_bytes"] + end["beside_bytes"]


def target_of_memory(end, memories):
    return judge.of_memory(bytes_of(end), [memory["allocated"] for memory in memories.values()])


def is_memory_missed(end, memories):
    return target_of_memory(end, memories).startswith("MISSED")


def tell_frugal(bench, model, memories):
    """What the plan costs in time that may hold the target of memory where the fastest one does not."""
    run = bench.ours.run(frugal_schedule(bench, model), bench.sizes(model)["steps"] // 2, bench.run_limit())
    step, end = run["step_s"], run["end"]
    found = (f"ours {gigabytes(bytes_of(end))}, {step * 1e3:.2f} ms a step, {bench.steps[model] / step:.2f} of the "
             f"speed without")
    bench.results.add("memory", f"{model}: peak, recompute selective", found,
                      target=target_of_memory(end, memories), step_s=step, ours=end["measured"])


def overhead(bench):
    """Steps so small that the host is what takes time."""
    ours, model = bench.ours, "gpt2"
    edits = [] if bench.tiny else [("seq = 1024", "seq = 64")]
    schedule = ours.compile(model, "overhead", ["train.batch = 1"], edits, bench.timeout(120))
    steps = 8 if bench.tiny else 200
    runs = {}
    kept = []
    for graphs in ("periods", "never"):
        found = ours.run(schedule, steps, bench.run_limit(), "--graphs", graphs)
        runs[graphs] = found["step_s"]
        count = found["end"]["kernels"]
        kept.append(found["end"]["gpus"])
    if kept[0]["graphs"] == 0:
        raise Failed(f"nothing to compare, for there were no graphs: {kept[0]['ungraphed']}")
    per = lambda step: f"{step * 1e3:.3f} ms a step, {step / count * 1e6:.2f} us a kernel"
    found = f"{count} kernels; with {graphs_of(kept[0])} {per(runs['periods'])}; without {per(runs['never'])}"
    bench.results.add("overhead", "gpt2 with one short sequence", found, figures=runs, kernels=count)
    # The host does for a step of the usual size what it does for a short one, but for more tokens
    # that it copies, and that whole step is an upper bound of it.
    whole = step_of(bench, model, speed_schedule(bench, model))
    share = runs["periods"] / whole
    found = f"a step of the usual size takes {whole * 1e3:.3f} ms, of which the host takes at most {share:.2%}"
    bench.results.add("overhead", "gpt2, the host's part with graphs", found, target=judge.bounded(share, judge.HOST),
                      bound=share)


# The clock


def step_of(bench, model, schedule):
    """Time of a step of ours in its usual size, from `speed` if that was measured."""
    if model not in bench.steps:
        run = bench.ours.run(schedule, bench.sizes(model)["steps"], bench.run_limit())
        bench.steps[model] = run["step_s"]
    return bench.steps[model]


def clock(bench):
    for model in bench.models:
        attempt(bench, "clock", model, lambda: clock_of(bench, model))


def clock_of(bench, model):
    ours = bench.ours
    table = ours.work / f"clock-{model}.yaml"
    bare = ours.program_file(model, f"clock-{model}-bare")
    patience = 1 if bench.tiny else 10
    words = ["profile", bare, "--device", "cuda", "--top", 1, "--patience", patience, "-o", table]
    ours.call(words, bench.run_limit())
    edits = [("overhead 2 us }", f'overhead 2 us, measured "{table.name}" }}')]
    schedule = ours.compile(model, f"clock-{model}", (), edits, bench.timeout(120))
    predicted = json.loads(ours.call(["simulate", schedule, "--json"], bench.timeout(60)))["step_time_s"]
    measured = step_of(bench, model, schedule)
    error = predicted / measured - 1
    found = f"predicted {predicted * 1e3:.3f} ms, measured {measured * 1e3:.3f} ms: {error:+.2%}"
    bench.results.add("clock", f"{model}: step time from a table of measured times", found,
                      target=judge.at_most(abs(error), judge.CLOCK), predicted_s=predicted, measured_s=measured)


# In the order of their worth: what has no time left is what stands last.
PARTS = {
    "kernels": Part(kernels, True),
    "losses": Part(losses, True),
    "nccl": Part(nccl, True),
    "speed": Part(speed, False, speed_before),
    "virtual": Part(virtual, False, virtual_before),
    "clock": Part(clock, False),
    "overhead": Part(overhead, False),
    "sanitizer": Part(sanitizer, False),
}
