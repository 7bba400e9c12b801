"""Training speed and memory against PyTorch on the same CPU.

    python3 benches/pytorch.py [--models gpt,vit,resnet18] [--threads 2] [--rounds 5]

Our process and PyTorch (float32, eager and torch.compile) take turns: same model, batch,
optimizer and threads. Printed are the medians of all rounds, their ratios, and the peak resident
memory of every process: ours counts whole, planner and data included.

PyTorch comes from this interpreter if it has it, else from the environment in --environment
(or ROUNDELAY_TORCH), which is made if it is missing: that downloads about 3 GB of packages.
Our side is `cargo run --release -- run benches/pytorch/MODEL.rdl`, one device with --threads.
"""

import argparse
import importlib.util
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIDES = ("roundelay", "eager", "compiled")


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default="gpt,vit,resnet18", help="comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="turns of every side")
    parser.add_argument("--seconds", type=float, default=8.0, help="of one turn, about")
    parser.add_argument("--sides", default=",".join(SIDES[1:]), help="of PyTorch")
    default = os.environ.get("ROUNDELAY_TORCH", ROOT / "target" / "pytorch")
    parser.add_argument("--environment", type=Path, default=Path(default))
    parser.add_argument("--program", type=Path, help="a built roundelay")
    parser.add_argument("--worker", nargs=2, metavar=("MODEL", "SIDE"), help=argparse.SUPPRESS)
    return parser.parse_args()


# The environment


def enter_environment(place):
    """Goes on in a Python that has torch; makes one where there is none."""
    if importlib.util.find_spec("torch"):
        return
    python = place / "bin" / "python"
    if not python.exists():
        print(f"making {place}: pip downloads torch and numpy, about 3 GB", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    has_torch = [python, "-c", "import torch"]
    if subprocess.run(has_torch, stderr=subprocess.DEVNULL).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "torch", "numpy"], check=True)
    os.execv(python, [str(python), *sys.argv])


def build():
    subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True)
    return ROOT / "target" / "release" / "roundelay"


# Our side


class Ours:
    """A fresh process every turn; a turn's speed is that between its first and last step."""

    WARM_UP = 3

    def __init__(self, program, model, threads, folder):
        text = (HERE / "pytorch" / f"{model}.rdl").read_text()
        text = re.sub(r"threads \d+", f"threads {threads}", text)
        absolute = lambda path: f'"{(HERE / "pytorch" / path.group(1)).resolve()}"'
        text = re.sub(r'"(\.\./[^"]*)"', absolute, text)
        self.file = Path(folder) / f"{model}.rdl"
        self.file.write_text(text)
        self.program, self.peak, self.losses = program, 0, []
        self.batch = int(re.search(r"batch +(\d+)", text.split("train {")[1]).group(1))
        self.step_seconds = None

    def turn(self, seconds):
        steps = 8 if self.step_seconds is None else round(seconds / self.step_seconds)
        steps = max(steps, 4) + self.WARM_UP
        command = [self.program, "run", self.file, "--steps", str(steps), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        times, cpu = [], []
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "step":
                times.append(event["elapsed_s"])
                cpu.append(processor_seconds(process.pid))
                self.losses.append(event["loss"])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            sys.exit(f"{self.program} run {self.file}: status {status}")
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        count = len(times) - self.WARM_UP
        took = times[-1] - times[self.WARM_UP - 1]
        self.step_seconds = took / count
        samples = count * self.batch
        return samples / took, (cpu[-1] - cpu[self.WARM_UP - 1]) / samples

    def close(self):
        pass


def processor_seconds(process):
    """Of all threads of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# PyTorch's side


class Theirs:
    """One process that lives through all turns, so torch.compile compiles once."""

    def __init__(self, model, side, arguments):
        command = [sys.executable, __file__, "--worker", model, side]
        command += ["--threads", str(arguments.threads), "--seconds", str(arguments.seconds)]
        environment = os.environ | {
            "OMP_NUM_THREADS": str(arguments.threads),
            "CUDA_VISIBLE_DEVICES": "",
        }
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("a PyTorch process ended early; its message stands above")
        return json.loads(answer)

    def turn(self, seconds):
        answer = self.ask(f"turn {seconds}")
        return answer["samples_per_s"], answer["cpu_s_per_sample"]

    @property
    def peak(self):
        return self.ask("peak")["bytes"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def worker(model, side, threads):
    """Answers `turn SECONDS` and `peak` on standard input, a JSON line each."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    sys.path.insert(0, str(HERE / "pytorch"))
    import models

    batch, step = models.MODELS[model](compiled=side == "compiled")
    for _ in range(3):
        step()
    for request in sys.stdin:
        match request.split():
            case ["turn", seconds]:
                answer = timed(step, batch, float(seconds))
            case ["peak"]:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                answer = {"bytes": peak}
        print(json.dumps(answer), flush=True)


def timed(step, batch, seconds):
    step()
    start, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds or count < 4:
        step()
        count += 1
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"samples_per_s": count * batch / took, "cpu_s_per_sample": cpu / count / batch}


# The table


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def vectors():
    flags = Path("/proc/cpuinfo").read_text()
    return "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"


def head(arguments, program):
    import torch

    ours = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    load = os.getloadavg()[0]
    print(f"{processor()}, {vectors()}, {os.cpu_count()} cores, load {load:.1f} before")
    print(f"{arguments.threads} threads; {ours.strip()}; torch {torch.__version__}", end="")
    print(f", Python {platform.python_version()}; float32")
    print(f"medians of {arguments.rounds} rounds of about {arguments.seconds:g} s each")


def measure(model, arguments, program, folder):
    sides = {"roundelay": Ours(program, model, arguments.threads, folder)}
    for side in arguments.sides.split(","):
        sides[side] = Theirs(model, side, arguments)
    rows = {side: [] for side in sides}
    for side in sides.values():
        side.turn(1.0)
    for _ in range(arguments.rounds):
        for name, side in sides.items():
            rows[name].append(side.turn(arguments.seconds))
    peaks = {name: side.peak for name, side in sides.items()}
    for side in sides.values():
        side.close()
    return rows, peaks


def table(model, rows, peaks):
    """Ratios above one are in our favour for speed, below one for memory."""
    median = lambda name, column: statistics.median(row[column] for row in rows[name])
    best = lambda name: max(row[0] for row in rows[name])
    print(f"\n{model:>10}  samples/s   ratio  best ratio  CPU ms/sample   ratio   peak MB   ratio")
    for name in rows:
        speed, cpu, peak = median(name, 0), median(name, 1) * 1e3, peaks[name]
        line = f"{name:>10} {speed:>10.1f}"
        line += f" {median('roundelay', 0) / speed:>7.2f} {best('roundelay') / best(name):>11.2f}"
        line += f" {cpu:>14.1f} {cpu / (median('roundelay', 1) * 1e3):>7.2f}"
        line += f" {peak / 1e6:>9.0f} {peaks['roundelay'] / peak:>7.2f}"
        print(line, flush=True)


def main():
    arguments = options()
    enter_environment(arguments.environment)
    if arguments.worker:
        return worker(*arguments.worker, arguments.threads)
    program = arguments.program or build()
    head(arguments, program)
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.models.split(","):
            table(model, *measure(model, arguments, program, folder))


if __name__ == "__main__":
    main()
