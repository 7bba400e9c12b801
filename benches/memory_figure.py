"""The memory figure of cyclic data parallelism (arXiv 2403.08837).

    cargo build --release && python3 benches/memory_figure.py

Compiles ResNet-50 and ViT-B/16 for one device that has N micro-batches at work, N = 2 .. 32, and
prints what the checker finds: bytes of activations, cyclic against synchronous. The N stages lie
between the cuts that the planner chooses, which balance their times on the roofline of a device
with 19.5 TFLOP/s and 2 TB/s; a micro-batch has 8 examples whatever N. Nothing large runs. Then
both networks run at small width, where what was predicted is looked for in the machine's memory.
Another binary than target/release/roundelay is named as first argument.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
BINARY = sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "target/release/roundelay"
EXAMPLES = 8
NUMBERS = [2, 4, 8, 16, 32]
RULES = ["sync", "cyclic_v2"]
SMALLER = {
    "resnet50": [("width = 64", "width = 4"), ("224, 224", "32, 32")],
    "vit_b16": [("width = 768", "width = 24"), ("224, 224", "64, 64"), ("197", "17")],
}


def roundelay(*arguments):
    command = [str(argument) for argument in (BINARY, *arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compiled(folder, model, n, rule, changes=()):
    """The schedule of a model with N micro-batches and N stages."""
    text = (HERE / "memory_figure" / f"{model}.rdl").read_text()
    for before, after in [*changes, ("batch     8", f"batch     {EXAMPLES * n}")]:
        assert before in text, before
        text = text.replace(before, after)
    program, schedule = folder / f"{model}.rdl", folder / f"{model}.{n}.{rule}.schedule"
    program.write_text(text)
    pinned = [f"rule={rule}", f"stages={n}", f"micro_batches={n}"]
    options = [word for decision in pinned for word in ("--set", decision)]
    roundelay("compile", program, *options, "-o", schedule)
    return schedule


def memory(schedule):
    """Bytes by kind on the one device, of rows that are all in use at once."""
    (device,) = json.loads(roundelay("check", schedule, "--json"))["devices"].values()
    return device["memory"]


def stages(schedule):
    """A_j: what each stage keeps for one micro-batch."""
    rows = re.findall(r"subject: \{activation: s(\d+)\}.*? size: (\d+)", schedule.read_text())
    return [size for _, size in sorted((int(stage), int(size)) for stage, size in rows)]


def saved(sync, cyclic):
    return f"{100 * (1 - cyclic / sync):.1f} %"


def figure(folder, model, n):
    start = time.monotonic()
    schedules = [compiled(folder, model, n, rule) for rule in RULES]
    took = time.monotonic() - start
    sync, cyclic = map(memory, schedules)
    kept = stages(schedules[1])
    freed = sum(place * size for place, size in enumerate(kept))
    cells = [
        model,
        n,
        f"{sync['activation'] / 1e9:.2f} GB",
        f"{cyclic['activation'] / 1e9:.2f} GB",
        saved(sync["activation"], cyclic["activation"]),
        f"{100 * freed / (n * sum(kept)):.1f} %",
        f"{50 * (n - 1) / n:.1f} %",
        saved(sum(sync.values()), sum(cyclic.values())),
        f"{took:.1f} s",
    ]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def real(folder, model, n):
    for rule in RULES:
        schedule = compiled(folder, model, n, rule, SMALLER[model])
        lines = roundelay("run", schedule, "--device", "cpu", "--json").splitlines()
        end = next(line for line in map(json.loads, lines) if line["event"] == "end")
        (predicted,), (measured,) = (end[side]["pools"].values() for side in ["predicted", "measured"])
        peaks = [side["activation_peak_bytes"] for side in (predicted, measured)]
        print(f"| {model} | {n} | {rule} | {peaks[0]:,} | {peaks[1]:,} |", flush=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| model | N | sync | cyclic | saved | Σ(j−1)A_j / NΣA_j | (N−1)/2N | of all memory | compiled in |")
        print("| --- " * 9 + "|")
        for model in SMALLER:
            for n in NUMBERS:
                figure(folder, model, n)
        print("\n| small model | N | rule | predicted, bytes | measured, bytes |")
        print("| --- " * 5 + "|")
        for model in SMALLER:
            real(folder, model, 4)


if __name__ == "__main__":
    main()
