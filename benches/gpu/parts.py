"""What is measured, part by part. A part gets the bench and adds rows; whatever it raises becomes a
row too."""

import json
import resource
from dataclasses import dataclass

import judge
import sides
import speed
from bench import FIRST_RUN, attempt
from checks import kernels, nccl, sanitizer
from losses import losses
from sides import Failed
from told import graphs_of
from virtual import virtual, virtual_before


@dataclass
class Part:
    work: object
    # Whether it may run beside others, where it comes first: its figures are no times.
    together: bool
    # What of it is no measurement, as planning and compiling are, and runs before, beside others.
    before: object = None
    # A part that ends before, where both run beside others.
    behind: str = ""


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


def choose(wanted, bench):
    """What is chosen by time, before anything else is on the GPU."""
    if not bench.is_over() and {"compile", "speed"} & set(wanted):
        attempt(bench, "speed", "attention of PyTorch", lambda: speed.choose(bench))


# The host


# A GPT-2 of as many layers, and so of as many calls, that is next to nothing for the GPU: it is the host
# that takes time. AdamW alone would move memory for more than 1 % of a step in a model of the usual width.
NARROW = {"seq = 1024": "seq = 64", "width = 768": "width = 128", "heads = 12": "heads = 2",
          "vocab = 50304": "vocab = 1024", "tokens.bin": "narrow.bin"}


def overhead(bench):
    ours = bench.ours
    sides.tokens(ours.work / "narrow.bin", 1024, 20_000)
    edits = [] if bench.tiny else NARROW.items()
    schedule = ours.compile("gpt2", "overhead", ["train.batch = 1"], edits, bench.timeout(120))
    steps = 8 if bench.tiny else 200
    runs = {graphs: ours.run(schedule, steps, bench.run_limit(FIRST_RUN), "--graphs", graphs)
            for graphs in ("periods", "never")}
    end = runs["periods"]["end"]
    if end["gpus"]["graphs"] == 0:
        raise Failed(f"nothing to compare, for there were no graphs: {end['gpus']['ungraphed']}")
    count, times = end["kernels"], {graphs: run["step_s"] for graphs, run in runs.items()}
    per = lambda step: f"{step * 1e3:.3f} ms a step, {step / count * 1e6:.2f} us a kernel"
    found = f"{count} kernels; with {graphs_of(end['gpus'])} {per(times['periods'])}; without {per(times['never'])}"
    bench.results.add("overhead", "gpt2, narrow, with one short sequence", found, figures=times, kernels=count)
    tell_share(bench, (schedule, steps), times["periods"], count)


def tell_share(bench, narrow, narrow_s, count):
    """The host does for a step of the usual size what it does for a narrow one, call by call, but for more
    tokens that it copies. That is no more than a narrow step takes, and than what all of its threads compute for
    one, waits that ask again and again among it; which two runs tell, of which one has more steps."""
    schedule, steps = narrow
    more = (2 if bench.tiny else 10) * steps
    (_, first), (_, second) = (
        with_processor(lambda: bench.ours.run(schedule, some, bench.run_limit()))
        for some in (steps, more))
    busy = (second - first) / (more - steps)
    whole = step_of(bench, "gpt2", speed.speed_schedule(bench, "gpt2"))
    own = bench.runs["gpt2"][-1]["end"]["kernels"]
    bound = (min(narrow_s, busy) if busy > 0 else narrow_s) * max(own / count, 1) / whole
    found = (f"threads compute for {busy * 1e3:.3f} ms in a narrow step; a step of the usual size takes "
             f"{whole * 1e3:.3f} ms for {own} kernels, of which the host takes at most {bound:.2%}")
    bench.results.add("overhead", "gpt2, the host's part with graphs", found,
                      target=judge.bounded(bound, judge.HOST), bound=bound, processor_s=busy)


def with_processor(work):
    """What a command gives, and the processor's seconds that it took."""
    taken = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before = taken()
    return work(), taken() - before


# The clock


def step_of(bench, model, schedule):
    """Time of a step of ours in its usual size, from `speed` if that was measured."""
    if model not in bench.runs:
        run = bench.ours.run(schedule, bench.sizes(model)["steps"], bench.run_limit(FIRST_RUN))
        bench.runs[model] = [run]
    return bench.step(model)


def clock(bench):
    for model in bench.models:
        attempt(bench, "clock", model, lambda: clock_of(bench, model))


def clock_of(bench, model):
    ours = bench.ours
    table = ours.work / f"clock-{model}.yaml"
    bare = ours.program_file(model, f"clock-{model}-bare")
    patience = 1 if bench.tiny else 10
    words = ["profile", bare, "--device", "cuda", "--top", 1, "--patience", patience, "-o", table]
    ours.call(words, bench.run_limit(FIRST_RUN))
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
    "compile": Part(speed.compile_all, True),
    "speed": Part(speed.speed, False, speed.plan),
    "virtual": Part(virtual, False, virtual_before),
    "clock": Part(clock, False),
    "overhead": Part(overhead, False),
    "sanitizer": Part(sanitizer, True, behind="kernels"),
}
