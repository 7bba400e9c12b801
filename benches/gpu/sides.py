"""The two sides: our program with its models and data, and PyTorch processes."""

import copy
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Failed(Exception):
    """A command that did not do what it should; its last words."""


class Late(Failed):
    """One that took longer than it may."""


class Absent(Failed):
    """What is not here, or had no time left."""


# Bytes of a card that has room for the larger batches, on both sides.
LARGE_CARD = 75e9

# Sizes: what stands in the model file under these names, examples of a step (fewer on a card that is
# not large, where two numbers stand), and steps of a turn.
FULL = {
    "gpt2": {"file": "gpt2", "batch": 64, "on_small_card": 32, "steps": 40, "model":
             {"seq": 1024, "width": 768, "heads": 12, "layers": 12, "vocab": 50304}},
    "gpt2_medium": {"file": "gpt2", "batch": 16, "steps": 40, "model":
                    {"seq": 1024, "width": 1024, "heads": 16, "layers": 24, "vocab": 50304}},
    "vit": {"file": "vit", "batch": 256, "steps": 60, "model":
            {"side": 224, "patch": 16, "width": 768, "heads": 12, "layers": 12, "classes": 1000}},
    "resnet50": {"file": "resnet50", "batch": 256, "steps": 60, "model":
                 {"side": 224, "width": 64, "classes": 1000}},
}
TINY_GPT2 = {"seq": 16, "width": 32, "heads": 2, "layers": 2, "vocab": 64}
TINY = {
    "gpt2": {"file": "gpt2", "batch": 4, "steps": 8, "model": TINY_GPT2},
    "gpt2_medium": {"file": "gpt2", "batch": 2, "steps": 8, "model": {**TINY_GPT2, "layers": 3}},
    "vit": {"file": "vit", "batch": 4, "steps": 8, "model":
            {"side": 16, "patch": 8, "width": 16, "heads": 2, "layers": 2, "classes": 8}},
    "resnet50": {"file": "resnet50", "batch": 4, "steps": 8, "model":
                 {"side": 32, "width": 4, "classes": 8}},
}


def sizes_for(memory):
    """The sizes for a card of so many bytes; one that is not known is small."""
    fitting = lambda own: own["batch"] if memory >= LARGE_CARD else own.get("on_small_card", own["batch"])
    return {model: {**own, "batch": fitting(own)} for model, own in FULL.items()}


def finished(command, timeout, environment):
    """A command that ended within its time. Of one that did not, nothing that it started stays: a process of
    ours under a tool of NVIDIA's is another one than the tool. The group is no session of its own, which
    would outlive whoever ends this script."""
    command = [str(word) if not isinstance(word, Path) else word for word in command]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, process_group=0)
    try:
        out, errors = process.communicate(timeout=max(timeout, 1))
    except subprocess.TimeoutExpired:
        raise Late(f"`{words_of(command)}` took more than {timeout:.0f} s") from None
    finally:
        end_group(process)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def end_group(process):
    """A process that still runs, and all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def words_of(command):
    """A command to be read: files without their folders, and not all of a long one."""
    text = " ".join(word.name if isinstance(word, Path) else word for word in command)
    return text if len(text) <= 160 else text[:157] + "..."


def tokens(path, vocab, count):
    """Every other token follows from the one before. The rest is drawn, number k as often as 1 / (k + 1), as
    words of a text are: what is learnt first is how often, so that losses fall from the first steps on."""
    draw, token, numbers = random.Random(1), 1, []
    for _ in range(count):
        token = int(vocab ** draw.random()) - 1 if draw.random() < 0.5 else token // 2
        numbers.append(token)
    path.write_bytes(struct.pack(f"<{count}H", *numbers))


def images(folder, side, classes, count):
    """PNG files that are not compressed: noise around a colour that tells the class."""
    draw = random.Random(2)
    for number in range(count):
        own = number % classes
        place = folder / f"{own:04}"
        place.mkdir(parents=True, exist_ok=True)
        colour = [random.Random(f"{own} {channel}").randrange(160) for channel in range(3)]
        noise = draw.randbytes(3 * side * side)
        table = [bytes((base + byte // 3) % 256 for byte in range(256)) for base in colour]
        channels = [noise[channel::3].translate(table[channel]) for channel in range(3)]
        pixels = bytearray(3 * side * side)
        for channel in range(3):
            pixels[channel::3] = channels[channel]
        rows = b"".join(b"\0" + pixels[y * 3 * side:(y + 1) * 3 * side] for y in range(side))
        (place / f"{number:04}.png").write_bytes(png(side, rows))


def png(side, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


class Ours:
    def __init__(self, program, environment, work, tiny, memory):
        self.program, self.environment, self.work = program, environment, work
        self.sizes = TINY if tiny else sizes_for(memory)
        self.tiny = tiny
        # Schedules that are compiled, by name.
        self.compiled = {}
        tokens(work / "tokens.bin", self.sizes["gpt2"]["model"]["vocab"], 4_000 if tiny else 1_000_000)
        image = self.sizes["resnet50"]["model"]
        images(work / "images", image["side"], 8, 40 if tiny else 320)

    def apart(self, name):
        """The same with a cache of its own for what is chosen by time, beside the machine code of all: what is
        timed while others run is no choice for those who measure."""
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        for code in Path(self.environment["ROUNDELAY_CACHE"]).iterdir():
            if code.suffix in (".cubin", ".ptx"):
                shutil.copy2(code, folder)
        own = copy.copy(self)
        own.environment = {**self.environment, "ROUNDELAY_CACHE": str(folder)}
        return own

    def call(self, words, timeout, more=None):
        """Standard output of a command that must end well, with more in its environment."""
        done = finished([self.program, *words], timeout, {**self.environment, **(more or {})})
        if done.returncode != 0:
            raise Failed(f"`{words_of(done.args)}`: {done.stderr.strip()[-400:]}")
        return done.stdout

    def program_file(self, model, name, edits=()):
        """The model file with this model's sizes; edits are pairs of text."""
        sizes = self.sizes[model]
        text = (HERE / "models" / f"{sizes['file']}.rdl").read_text()
        for key, value in sizes["model"].items():
            text, count = re.subn(rf"\b{key} = [0-9]+", f"{key} = {value}", text, count=1)
            if count != 1:
                raise Failed(f"models/{sizes['file']}.rdl has no `{key}`")
        text = re.sub(r"\bbatch +[0-9]+", f"batch {sizes['batch']}", text, count=1)
        for old, new in edits:
            if old not in text:
                raise Failed(f"models/{sizes['file']}.rdl has no `{old}`")
            text = text.replace(old, new)
        path = self.work / f"{name}.rdl"
        path.write_text(text)
        return path

    def compile(self, model, name, settings=(), edits=(), timeout=120):
        """A schedule with some decisions set; a name stands for one schedule."""
        if name in self.compiled:
            return self.compiled[name]
        program = self.program_file(model, name, edits)
        schedule = self.work / f"{name}.schedule"
        sets = [word for setting in settings for word in ("--set", setting)]
        self.call(["compile", program, *sets, "-o", schedule], timeout)
        self.compiled[name] = schedule
        return schedule

    def run(self, schedule, steps, timeout, *more):
        """A training on the GPU: losses, time of a step in the steady state, the end's figures."""
        command = ["run", schedule, "--device", "cuda", "--json", "--steps", steps, *more]
        lines = [json.loads(line) for line in self.call(command, timeout).splitlines()]
        steps = [line for line in lines if line["event"] == "step"]
        times, end = [line["elapsed_s"] for line in steps], lines[-1]
        losses, step_s = [line["loss"] for line in steps], step_time(times, len(times) // 4)
        return {"losses": losses, "times": times, "step_s": step_s, "end": end}


def step_time(times, first):
    """Mean time of the steps behind the first ones; none where nothing is left."""
    rest = len(times) - 1 - first
    return (times[-1] - times[first]) / rest if rest > 0 else None


class Theirs:
    def __init__(self, python, script, device, environment, work):
        self.python, self.script, self.device = python, script, device
        self.environment = dict(environment)
        if device != "cuda":
            self.environment.pop("LD_LIBRARY_PATH", None)
        # What makes attention, by sizes: chosen once, for compiling and for all that is measured.
        self.file = work / "attention.json"
        self.attention = json.loads(self.file.read_text()) if self.file.exists() else {}

    def command(self, what, sizes, *words):
        own = [what, "--sizes", json.dumps(sizes), "--device", self.device]
        return [self.python, self.script, *own, *map(str, words)]

    def told(self, timeout, *words):
        """The JSON of a process that ends."""
        try:
            done = finished(self.command(*words), timeout, self.environment)
        except OSError as error:
            raise Absent(f"`{self.python}`: {error.strerror}") from None
        if done.returncode != 0:
            raise ended(done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def losses(self, sizes, weights, data, steps, timeout, *more):
        words = ["--weights", weights, "--data", data, "--steps", steps]
        return self.told(timeout, "losses", sizes, *words, *more)["losses"]

    def choose(self, all_sizes, timeout):
        """What makes attention for each of these sizes; whoever is first measures, with nothing beside it."""
        wanted = [sizes for sizes in all_sizes if json.dumps(sizes) not in self.attention]
        if wanted:
            told = self.told(timeout, "attention", wanted)
            self.attention.update((json.dumps(sizes), one) for sizes, one in zip(wanted, told))
            self.file.write_text(json.dumps(self.attention))
        return [self.attention[json.dumps(sizes)] for sizes in all_sizes]

    def serve(self, sizes, mode, warm_up=20):
        chosen = self.attention.get(json.dumps(sizes), {}).get("attention", "")
        words = ["--mode", mode, "--warm-up", warm_up, "--attention", chosen]
        return Server(self.command("serve", sizes, *words), self.environment)

    def forget_choices(self):
        """Inductor keeps which of a kernel's forms was the fastest; what was timed beside other work is
        no choice to be measured by."""
        for kept in Path(self.environment["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
            kept.unlink()


class Server:
    """A process that answers; its messages go to a file of their own."""

    def __init__(self, command, environment):
        self.errors = tempfile.TemporaryFile("w+")
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors,
                                            env=environment, process_group=0)
        except OSError as error:
            raise Absent(f"`{command[0]}`: {error.strerror}") from None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.pending = b""

    def ask(self, request, timeout):
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
            return self.answer(timeout)
        except (OSError, ValueError) as error:
            # It is gone, or what it said is no JSON.
            raise ended(self.said(), f"PyTorch and `{request}`: {error}; ") from None

    def answer(self, timeout):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            self.pending += self.process.stdout.read() or b""
            if b"\n" in self.pending:
                line, self.pending = self.pending.split(b"\n", 1)
                return json.loads(line)
            if self.process.poll() is not None:
                raise ended(self.said())
            time.sleep(0.01)
        self.close()
        raise Late(f"PyTorch did not answer within {timeout:.0f} s")

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def close(self):
        end_group(self.process)


def ended(errors, before=""):
    """Why a PyTorch process ended: a Python without PyTorch is one that is not here."""
    said = last_words(errors)
    kind = Absent if "No module named 'torch'" in said else Failed
    return kind(before + said)


def last_words(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"
