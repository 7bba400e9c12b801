"""PyTorch's side of benches/pipelining.py: takes lists of passes in processes and compares.

The lists say nothing about a model, so the stages here are small stacks of linear layers in
double precision. Every process takes two training steps under `torch.distributed.pipelining` and
compares the gradients of its own stages with those of one process that runs the whole stack, one
micro-batch after another, on the mean of their losses.
"""

import csv
import io
import logging
import math
import multiprocessing
import os
import queue
import re
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH = 8
ROWS = 3  # of one micro-batch
STEPS = 2
PATIENCE = 20.0  # seconds until a message that does not come is an error
LIMIT = 120.0  # seconds until a process that does not answer is ended
PASS = re.compile(r"(\d+)([FBIW])(\d+)")


class Lists:
    """Which stages each process has, and how many micro-batches there are."""

    def __init__(self, text):
        rows = list(csv.reader(io.StringIO(text)))
        passes = [[PASS.fullmatch(cell).groups() for cell in row if cell] for row in rows]
        self.stages = [sorted({int(stage) for stage, _, _ in row}) for row in passes]
        self.count = 1 + max(max(stages) for stages in self.stages)
        self.micro_batches = 1 + max(int(number) for row in passes for _, _, number in row)


def stack(count):
    """All stages, the same in every process: stage s has 1 + s mod 2 hidden layers."""
    torch.manual_seed(7)
    stages = []
    for stage in range(count):
        layers = []
        for _ in range(1 + stage % 2):
            layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
        stages.append(torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, WIDTH)))
    return torch.nn.ModuleList(stages)


def gradients(module):
    return [parameter.grad.clone() for parameter in module.parameters()]


def reference(model, inputs, targets, micro_batches):
    """Gradients per stage of the mean loss of all micro-batches, in this process alone."""
    for x, y in zip(inputs.chunk(micro_batches), targets.chunk(micro_batches)):
        for stage in model:
            x = stage(x)
        (torch.nn.functional.mse_loss(x, y) / micro_batches).backward()
    return [gradients(stage) for stage in model]


def distance(ours, theirs):
    """The largest difference of a parameter's gradient, relative to its largest number."""
    far = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs)]
    return max(d if math.isfinite(d) else math.inf for d in far)


def step(runtime, stages, lists, batch):
    inputs, targets = batch
    arguments = (inputs,) if 0 in stages else ()
    target = targets if lists.count - 1 in stages else None
    runtime.step(*arguments, target=target)


def compare(rank, lists, path, store, options):
    """Loads the lists and trains on them; yields how far it came, at last the largest distance."""
    own = lists.stages[rank]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=len(lists.stages),
        timeout=timedelta(seconds=PATIENCE),
    )
    cpu = torch.device("cpu")
    model, alone = stack(lists.count), stack(lists.count)
    stages = [PipelineStage(model[stage], stage, lists.count, cpu) for stage in own]
    loss = torch.nn.functional.mse_loss
    runtime = _PipelineScheduleRuntime(stages, lists.micro_batches, loss, **options)
    yield "made"
    runtime._load_csv(str(path), format="compute_only")
    yield "loaded"
    worst = 0.0
    for number in range(STEPS):
        torch.manual_seed(100 + number)
        batch = torch.randn(2, lists.micro_batches * ROWS, WIDTH)
        model.zero_grad()
        alone.zero_grad()
        step(runtime, own, lists, batch)
        expected = reference(alone, *batch, lists.micro_batches)
        for stage in own:
            worst = max(worst, distance(gradients(model[stage]), expected[stage]))
    yield worst


def process(answers, rank, *task):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)
    state = "started"
    try:
        for state in compare(rank, *task):
            pass
        answers.put((state, None))
    except Exception as error:
        why = " ".join("".join(traceback.format_exception_only(error)).split())
        answers.put((state, why))


def train(path, good, **options):
    """Takes the lists of a file in as many processes as `good` has lines.

    `good` says which process makes which stages; for a file with a fault that is the file it was
    made from. Returns how far each process came and why it went no further, in the order in which
    they ended: a distance and None, or "made" (the file was refused) or "loaded" (the step
    failed) and a message. `options` go to PyTorch's runtime.
    """
    lists = Lists(good)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(len(lists.stages)):
            task = (answers, rank, lists, path, Path(folder) / "store", options)
            processes.append(context.Process(target=process, args=task))
        for each in processes:
            each.start()
        while len(found) < len(processes):
            try:
                found.append(answers.get(timeout=LIMIT))
            except queue.Empty:
                found.append(("loaded", "no answer"))
        for each in processes:
            each.join(1.0)
            each.kill()
            each.join()
    return found
