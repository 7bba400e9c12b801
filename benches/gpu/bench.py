"""What parts measure with, and what becomes of one that ends early."""

import json
import statistics
import threading
import traceback
from dataclasses import dataclass, field

from sides import Absent, Failed, Late

# Seconds that one run of ours may take, and a model's first one, which tries algorithms and engines; the
# stand-ins take longer.
RUN, FIRST_RUN, TINY_RUN = 120, 240, 900

# And compiling all of our kernels, on all cores.
COMPILING = 240


@dataclass
class Card:
    # As `nvidia-smi` calls it; nothing and zero where nobody says.
    name: str = ""
    bytes: int = 0


@dataclass
class Bench:
    ours: object
    theirs: object
    results: object
    models: list
    tiny: bool
    seed: int
    card: Card = field(default_factory=Card)
    # Runs of ours in the usual size, by model: the first one has the GPU to itself.
    runs: dict = field(default_factory=dict)
    compiled: threading.Lock = field(default_factory=threading.Lock)
    is_compiled: bool = False

    def compile_kernels(self):
        """Machine code of all our kernels at once, for what would compile one file after another; where some
        is not made, only who needs it fails."""
        with self.compiled:
            if not self.is_compiled:
                attempt(self, "kernels", "machine code", self.compile_now)
            self.is_compiled = True

    def compile_now(self):
        told = json.loads(self.ours.call(["devices", "--compile", "--json"], self.run_limit(COMPILING)))
        times = {one["file"]: one["compile_s"] for one in told["sources"] if one["compile_s"]}
        found = f"{len(told['sources'])} files for {told['architecture']}, {len(times)} of them compiled now"
        if times:
            slowest = max(times, key=times.get)
            found += f", {slowest} in {times[slowest]:.0f} s"
        self.results.add("kernels", "machine code", found, sources=told["sources"])

    def sizes(self, model):
        return self.ours.sizes[model]

    def step(self, model):
        """Time of a step of ours in its usual size, over all runs."""
        return statistics.median(run["step_s"] for run in self.runs[model])

    def timeout(self, most):
        """Seconds that a command may take."""
        if self.is_over():
            raise Absent("no time was left")
        return min(most, self.results.left())

    def run_limit(self, most=RUN):
        return self.timeout(TINY_RUN if self.tiny else most)

    def is_over(self):
        return self.results.left() < 5


def attempt(bench, part, what, work):
    """One item of a part, which may fail by itself."""
    try:
        work()
    except Exception as error:
        bench.results.add(part, what, reason_of(error), verdict_of(bench, error))


def verdict_of(bench, error):
    """What is absent, or had no time left, is missing; whatever else ends early has failed."""
    lacks = isinstance(error, Absent) or isinstance(error, Late) and bench.is_over()
    return "missing" if lacks else "FAILED"


def verdict_of_all(bench, errors):
    verdicts = [verdict_of(bench, error) for error in errors]
    return "FAILED" if "FAILED" in verdicts else "missing"


def reason_of(error):
    """In words, with the place where nobody expected it."""
    if isinstance(error, Failed):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {last.name}, line {last.lineno}: {error}"


def total(figures, key):
    return sum(pool[key] for pool in figures["pools"].values())


def gigabytes(count):
    return "unknown" if count is None else f"{count / 1e9:.2f} GB"
