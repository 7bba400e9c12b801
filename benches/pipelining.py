"""Schedules compiled by Roundelay, trained by PyTorch's pipelining on CPU processes.

    python3 benches/pipelining.py [--program target/release/roundelay] [--orders zb_v,listed]

For every order a program is compiled, its passes are written with `show --as csv`, and PyTorch
(`torch.distributed.pipelining`, Gloo, one process per device) loads them as `compute_only` and
trains on them; see pipelining_stages.py for what is compared. Then lists with one fault each are
given to `roundelay check` and to PyTorch. Exit code 1 if a gradient differs by more than 1e-6 or a
fault is not refused with its line and column, or if gradients that PyTorch was told not to divide
by the micro-batches go unnoticed.

PyTorch comes from this interpreter if it has it, else from the environment in --environment
(or ROUNDELAY_TORCH), which is made if it is missing, as benches/pytorch.py does.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipelining_faults import FAULTS, GOOD, HALVES
from pytorch import ROOT, build, enter_environment

TOLERANCE = 1e-6
LONGEST = 120  # characters of a message of PyTorch

PROGRAM = """
model stack {{
    width = 16
    input x: real[batch, width]
    input y: real[batch, width]
    repeat {layers} as layer {{ x = x + linear(relu(linear(x, width)), width) }}
    loss mse(x, y)
}}
device core {{ memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }}
link bus {{ bandwidth 8 GB/s, latency 2 us }}
cluster some {{ {devices} x core joined by bus }}
train {{ data synthetic, batch {batch}, steps 2, seed 3, optimizer sgd(lr = 0.1) }}
plan {{ rule sync, placement pipeline, replicas 1, devices {devices}{listed} }}
"""


@dataclass(frozen=True)
class Case:
    order: str
    devices: int
    chunks: int
    micro_batches: int
    lists: str = ""

    @property
    def stages(self):
        return 4 if self.lists else self.devices * self.chunks


# Written by hand: three stages on one device and one, with split backward passes, on the other.
UNEVEN = """\
0F0,1F0,2F0,0F1,1F1,2F1,2B0,1B0,0B0,0F2,1F2,2F2,2B1,1B1,0B1,2B2,1B2,0B2
,,,3F0,3I0,3W0,3F1,3I1,3W1,3F2,3I2,,3W2
"""

ONE_CHUNK = ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto"]
TWO_CHUNKS = ["interleaved", "breadth_first", "zb_v", "v_half", "v_min", "wave"]


def cases(devices, micro_batches):
    return [
        *(Case(order, devices, 1, micro_batches) for order in ONE_CHUNK),
        *(Case(order, devices, 2, micro_batches) for order in TWO_CHUNKS),
    ]


ALL = [*cases(2, 4), *cases(4, 8), *cases(3, 9), Case("listed", 2, 1, 3, UNEVEN)]


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--orders", help="comma-separated; all without it")
    default = os.environ.get("ROUNDELAY_TORCH", ROOT / "target" / "pytorch")
    parser.add_argument("--environment", type=Path, default=Path(default))
    parser.add_argument("--program", type=Path, help="a built roundelay")
    return parser.parse_args()


# Schedules


def call(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True)


def must(program, *arguments):
    done = call(program, *arguments)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, arguments))}:\n{done.stderr}")
    return done.stdout


def lists_of(program, case, folder):
    """Compiles the program of a case and returns its passes as comma-separated values."""
    listed = ""
    if case.lists:
        (folder / "mine.csv").write_text(case.lists)
        listed = ', order listed("mine.csv")'
    file, schedule = folder / "stack.rdl", folder / "stack.schedule"
    sizes = {"layers": case.stages, "batch": 2 * case.micro_batches}
    file.write_text(PROGRAM.format(devices=case.devices, listed=listed, **sizes))
    settings = [f"stages={case.stages}", f"micro_batches={case.micro_batches}"]
    if not case.lists:
        settings += [f"order={case.order}", f"chunks={case.chunks}"]
    sets = [word for setting in settings for word in ("--set", setting)]
    must(program, "compile", file, *sets, "-o", schedule)
    text = must(program, "show", schedule, "--as", "csv")
    path = folder / "stack.csv"
    path.write_text(text)
    must(program, "check", path)
    return path, text


def largest(ends):
    return max(distance for distance, _ in ends)


def compare(program, train, folder, wanted):
    rows = []
    for case in wanted:
        path, text = lists_of(program, case, folder)
        ends = train(path, text)
        why = next((why for _, why in ends if why), "")
        worst = float("inf") if why else largest(ends)
        passes = len(re.findall(r"[FBIW]", text))
        rows.append((case, len(ends), passes, worst, why))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


# Faults


def told(program, path):
    """Exit code of `check`, place and first message."""
    done = call(program, "check", path, "--json")
    try:
        first = json.loads(done.stdout)["diagnostics"][0]
        place = (first["line"], first["column"])
        return done.returncode, place, first["message"]
    except (KeyError, ValueError):
        return done.returncode, (0, 0), done.stderr.strip()


def reaction(ends):
    """What PyTorch did with a file."""
    refused = [why for state, why in ends if state == "made"]
    failed = [why for state, why in ends if state == "loaded"]
    if refused:
        return f"refused: {refused[0]}"
    if failed:
        return f"loaded, then failed: {failed[0]}"
    worst = largest(ends)
    return f"accepted, gradients {'equal' if worst <= TOLERANCE else f'off by {worst:.1g}'}"


def control(train, folder):
    """How far gradients are off that are sums over the micro-batches instead of means."""
    path = folder / "control.csv"
    path.write_text(GOOD)
    return largest(train(path, GOOD, scale_grads=False))


def faults(program, train, folder):
    path = folder / "fault.csv"
    rows = []
    for name, text in FAULTS:
        path.write_text(text)
        good = HALVES if "I0" in text else GOOD
        rows.append((name, *told(program, path), reaction(train(path, good))))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


# Tables


def print_faults(rows):
    print("| fault | exit code | line:column | Roundelay | PyTorch |")
    print("| --- | ---: | ---: | --- | --- |")
    for name, code, (line, column), message, theirs in rows:
        theirs = theirs if len(theirs) <= LONGEST else theirs[: LONGEST - 4] + " ..."
        print(f"| {name} | {code} | {line}:{column} | {message} | {theirs} |")


def print_orders(rows):
    print("\n| order | devices | stages | micro-batches | passes | largest difference | ok |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for case, devices, passes, worst, why in rows:
        ok = "yes" if worst <= TOLERANCE else f"NO {why}"
        numbers = f"{devices} | {case.stages} | {case.micro_batches} | {passes}"
        print(f"| {case.order} | {numbers} | {worst:.1e} | {ok} |")


def main():
    arguments = options()
    enter_environment(arguments.environment)
    program = arguments.program or build()
    import torch
    from pipelining_stages import train

    names = arguments.orders.split(",") if arguments.orders else {case.order for case in ALL}
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(
            program, train, Path(folder), [case for case in ALL if case.order in names]
        )
        refusals = faults(program, train, Path(folder))
        unscaled = control(train, Path(folder))
    ours = must(program, "--version").strip()
    print(f"{ours}; torch {torch.__version__}, Gloo; Python {platform.python_version()}\n")
    print_faults(refusals)
    print(f"\ncontrol: gradients left undivided are off by {unscaled:.3g}")
    print_orders(rows)
    lost = any(code != 1 or 0 in place for _, code, place, _, _ in refusals)
    wrong = not rows or any(not worst <= TOLERANCE for *_, worst, _ in rows)
    sys.exit(1 if lost or wrong or unscaled <= TOLERANCE else 0)


if __name__ == "__main__":
    main()
