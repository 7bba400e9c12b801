"""The PyTorch side of benches/gpu: the models of `models/*.rdl` as PyTorch users write them, on the
same weights and data.

    python3 peer.py losses    --sizes JSON --weights FILE --data DIR --steps K --precision bf16|f32
    python3 peer.py attention --sizes JSON
    python3 peer.py serve     --sizes JSON --mode eager|default|reduce-overhead --attention NAME

`losses` prints one JSON object, `attention` a list of one for each of its sizes. `serve` answers a JSON line for each line of standard input:
`ready`, `turn SECONDS`, `kernels`, `memory`. Weights are a safetensors file under our global
names; data is a folder of `roundelay data`. Parameters have 32 bits, and bf16 is autocast's. What is served
(`losses --served` too) has the residual stream in bf16, as ours is, and tries cuDNN's algorithms.
"""

import argparse
import contextlib
import json
import math
import struct
import sys
import time
from pathlib import Path

import judge
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


# Models


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, s, n = x.shape
        split = lambda t: t.view(b, s, self.heads, n // self.heads).transpose(1, 2)
        q, k, v = map(split, self.inputs(x).split(n, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(y.transpose(1, 2).reshape(b, s, n))

    def take(self, weights, name):
        # Ours has query, key and value of a head side by side; here those of all heads are.
        for part in ("weight", "bias"):
            ours = weights[f"{name}.query_key_value.{part}"]
            by_head = ours.unflatten(0, (self.heads, 3, -1))
            fill(getattr(self.inputs, part), by_head.transpose(0, 1).flatten(0, 2))
        take_affine(self.output, weights, f"{name}.output")


class Block(nn.Module):
    def __init__(self, width, heads, causal, gelu):
        super().__init__()
        # As `F.gelu` calls its forms: "tanh", or the exact one "none".
        self.gelu = gelu
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate=self.gelu))

    def take(self, weights, name):
        take_norm(self.first, weights, f"{name}.layer_norm")
        self.attention.take(weights, f"{name}.attention")
        take_norm(self.second, weights, f"{name}.layer_norm_1")
        take_affine(self.up, weights, f"{name}.linear")
        take_affine(self.down, weights, f"{name}.linear_1")


class Gpt2(nn.Module):
    """models/gpt2.rdl"""

    # What the residual stream is stored in.
    stream = torch.float32
    INPUTS = ("tokens", "targets")

    def __init__(self, seq, width, heads, layers, vocab):
        super().__init__()
        self.seq, self.vocab = seq, vocab
        self.table = nn.Parameter(torch.randn(vocab, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(seq, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, True, "tanh") for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = (F.embedding(tokens, self.table) + self.positions).to(self.stream)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.table)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def take(self, weights):
        fill(self.table, weights["table"])
        fill(self.positions, weights["positions.table"])
        for number, block in enumerate(self.blocks):
            block.take(weights, f"layer.{number}")
        take_norm(self.norm, weights, "layer_norm")

    def draw(self, batch, device):
        both = torch.randint(0, self.vocab, (batch, self.seq + 1), device=device)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()


class Vit(nn.Module):
    """models/vit.rdl"""

    # What the residual stream is stored in.
    stream = torch.float32
    INPUTS = ("images", "targets")

    def __init__(self, side, patch, width, heads, layers, classes):
        super().__init__()
        self.side, self.classes = side, classes
        self.cut = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(width))
        self.positions = nn.Parameter(torch.randn(1 + (side // patch) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, False, "none") for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images, targets):
        x = self.cut(images).flatten(2).transpose(1, 2)
        token = self.token.expand(len(x), 1, -1).to(x.dtype)
        x = (torch.cat([token, x], dim=1) + self.positions).to(self.stream)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]), targets)

    def take(self, weights):
        take_convolution(self.cut, weights, "cut")
        fill(self.token, weights["token.token"])
        fill(self.positions, weights["positions.table"])
        for number, block in enumerate(self.blocks):
            block.take(weights, f"layer.{number}")
        take_norm(self.norm, weights, "layer_norm")
        take_affine(self.head, weights, "head")

    def draw(self, batch, device):
        return draw_images(batch, self.side, self.classes, device)


class Bottleneck(nn.Module):
    def __init__(self, channels, filters, stride, changes):
        super().__init__()
        conv = lambda c, n, kernel, step: nn.Conv2d(c, n, kernel, step, kernel // 2, bias=False)
        self.first, self.first_norm = conv(channels, filters, 1, 1), nn.BatchNorm2d(filters)
        self.second, self.second_norm = conv(filters, filters, 3, stride), nn.BatchNorm2d(filters)
        self.third, self.third_norm = conv(filters, 4 * filters, 1, 1), nn.BatchNorm2d(4 * filters)
        self.changes = changes
        if changes:
            self.skip = conv(channels, 4 * filters, 1, stride)
            self.skip_norm = nn.BatchNorm2d(4 * filters)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)))
        y = F.relu(self.second_norm(self.second(y)))
        y = self.third_norm(self.third(y))
        return F.relu(y + (self.skip_norm(self.skip(x)) if self.changes else x))

    def take(self, weights, name):
        for part in ("first", "second", "third"):
            take_convolution(getattr(self, part), weights, f"{name}.body.{part}")
            take_batch_norm(getattr(self, part + "_norm"), weights, f"{name}.body.{part}_norm")
        if self.changes:
            take_convolution(self.skip, weights, f"{name}.skip")
            take_batch_norm(self.skip_norm, weights, f"{name}.skip_norm")


class Resnet50(nn.Module):
    """models/resnet50.rdl"""

    INPUTS = ("images", "targets")

    def __init__(self, side, width, classes):
        super().__init__()
        self.side, self.classes = side, classes
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.names, blocks, channels = [], [], width
        for name, more, factor in [("one", 2, 1), ("two", 3, 2), ("three", 5, 4), ("four", 2, 8)]:
            filters = factor * width
            blocks.append(Bottleneck(channels, filters, 1 if factor == 1 else 2, True))
            self.names.append(name)
            channels = 4 * filters
            for number in range(more):
                blocks.append(Bottleneck(channels, filters, 1, False))
                self.names.append(f"{name}_more.{number}.same")
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, images, targets):
        x = F.relu(self.stem_norm(self.stem(images)))
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean(dim=(2, 3))), targets)

    def take(self, weights):
        take_convolution(self.stem, weights, "stem")
        take_batch_norm(self.stem_norm, weights, "stem_norm")
        for name, block in zip(self.names, self.blocks):
            block.take(weights, name)
        take_affine(self.head, weights, "head")

    def draw(self, batch, device):
        return draw_images(batch, self.side, self.classes, device)


MODELS = {"gpt2": Gpt2, "vit": Vit, "resnet50": Resnet50}


def draw_images(batch, side, classes, device):
    images = torch.randn(batch, 3, side, side, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.randint(0, classes, (batch,), device=device)


# Weights and data of ours


def fill(parameter, numbers):
    if parameter.shape != numbers.shape:
        raise SystemExit(f"a parameter has shape {parameter.shape}, its weights {numbers.shape}")
    with torch.no_grad():
        parameter.copy_(numbers)


def take_affine(layer, weights, name):
    fill(layer.weight, weights[f"{name}.weight"])
    fill(layer.bias, weights[f"{name}.bias"])


def take_norm(layer, weights, name):
    fill(layer.weight, weights[f"{name}.gain"])
    fill(layer.bias, weights[f"{name}.bias"])


def take_convolution(layer, weights, name):
    fill(layer.weight, weights[f"{name}.weight"])
    if layer.bias is not None:
        fill(layer.bias, weights[f"{name}.bias"])


def take_batch_norm(layer, weights, name):
    take_norm(layer, weights, name)
    fill(layer.running_mean, weights[f"{name}.running_mean"])
    fill(layer.running_var, weights[f"{name}.running_variance"])


TYPES = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "F16": torch.float16}
ELEMENTS = {"i32": torch.int32, "f32": torch.float32, "f64": torch.float64,
            "bf16": torch.bfloat16, "f16": torch.float16}


def safetensors(path):
    """The tensors of a file: eight bytes of length, a JSON header, numbers."""
    bytes_ = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack("<Q", bytes_[:8])
    header = json.loads(bytes_[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        count = math.prod(entry["shape"])
        numbers = torch.frombuffer(bytes_, dtype=TYPES[entry["dtype"]], count=count,
                                   offset=8 + length + first)
        tensors[name] = numbers.reshape(entry["shape"]).float()
    return tensors


def batches(model, folder, device):
    """All steps of a folder of `roundelay data`, in order."""
    folder = Path(folder)
    index = json.loads((folder / "index.json").read_text())
    files = {}
    for entry in index["inputs"]:
        shape = [index["steps"], index["batch"], *entry["shape"]]
        file = str(folder / entry["file"])
        numbers = torch.from_file(file, size=math.prod(shape), dtype=ELEMENTS[entry["element"]])
        files[entry["name"]] = numbers.reshape(shape)
    for step in range(index["steps"]):
        yield tuple(for_model(files[name][step].to(device)) for name in model.INPUTS)


def for_model(numbers):
    if numbers.dtype == torch.int32:
        return numbers.long()
    return numbers.float().permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


# Training


def optimizer_of(name, model, device):
    fused = device.type == "cuda"
    if name == "resnet50":
        return torch.optim.SGD(groups(model, 1e-4), lr=0.001, momentum=0.9, fused=fused)
    betas = (0.9, 0.999)
    return torch.optim.AdamW(groups(model, 0.1), lr=3e-4, betas=betas, eps=1e-8, fused=fused)


def groups(model, weight_decay):
    """Vectors are spared from weight decay."""
    split = lambda wide: [p for p in model.parameters() if (p.dim() > 1) == wide]
    return [{"params": split(True), "weight_decay": weight_decay},
            {"params": split(False), "weight_decay": 0.0}]


def trained(arguments):
    """The model, and what makes one step of a batch and gives its loss as a tensor."""
    device, sizes = torch.device(arguments.device), json.loads(arguments.sizes)
    torch.manual_seed(1)
    model = MODELS[sizes["file"]](**sizes["model"]).to(device)
    if sizes["file"] != "gpt2":
        model = model.to(memory_format=torch.channels_last)
    model.train()
    if arguments.weights:
        model.take(safetensors(arguments.weights))
    optimizer = optimizer_of(sizes["file"], model, device)
    narrow = arguments.precision == "bf16"
    if not narrow:
        # Products and convolutions in all 32 bits: these are what others are held to.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False

    if arguments.served:
        model.stream = torch.bfloat16
        torch.backends.cudnn.benchmark = True
    loss_of = model if arguments.mode == "eager" else torch.compile(
        model, mode=None if arguments.mode == "default" else arguments.mode)

    def step(batch):
        if arguments.mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device.type, torch.bfloat16) if narrow else contextlib.nullcontext():
            loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return model, device, step


def losses(arguments):
    model, device, step = trained(arguments)
    found = []
    for number, batch in enumerate(batches(model, arguments.data, device)):
        if number == arguments.steps:
            break
        found.append(step(batch).clone())
    print(json.dumps({"losses": [loss.item() for loss in found]}), flush=True)


# What may make attention, by the names that are told.
ATTENTION = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}


def serve(arguments):
    arguments.served = True
    backend = ATTENTION.get(arguments.attention)
    with sdpa_kernel(backend) if backend else contextlib.nullcontext():
        answer_all(arguments)


def answer_all(arguments):
    model, device, step = trained(arguments)
    batch = json.loads(arguments.sizes)["batch"]
    all_batches = [model.draw(batch, device) for _ in range(2)]
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    graphs = Graphs() if arguments.mode == "reduce-overhead" else None
    for number in range(arguments.warm_up):
        step(all_batches[number % 2])
    wait()
    if graphs:
        graphs.told(arguments.warm_up)
    elif device.type == "cuda":
        # Of the training alone: what compiling and trials took is none of it. Memory of graphs would not
        # be counted again when they are replayed, so that mode keeps its whole peak.
        torch.cuda.reset_peak_memory_stats()
    for request in sys.stdin:
        match request.split():
            case ["ready"]:
                answer = {}
            case ["turn", seconds]:
                answer = {"torch": torch.__version__, **turn(step, all_batches, wait, float(seconds))}
                answer["graphs"] = graphs.told(answer["steps"] + ROW) if graphs else None
            case ["kernels"]:
                answer = {"kernels": kernels(step, all_batches[0], device)}
            case ["memory"]:
                answer = memory(device)
        print(json.dumps(answer), flush=True)


class Graphs:
    """How many graphs are replayed, and how often Inductor gave them up. It counts not all of what it gives
    up, so replays are what shows that there are graphs."""

    def __init__(self):
        self.replays = 0
        replay = torch.cuda.CUDAGraph.replay

        def counted(graph):
            self.replays += 1
            replay(graph)

        torch.cuda.CUDAGraph.replay = counted

    def told(self, steps):
        """Of the steps since this was asked last."""
        from torch._dynamo.utils import counters
        replays, self.replays = self.replays, 0
        return {"a_step": replays / steps, "skips": counters["inductor"]["cudagraph_skips"]}


# Steps that are given without a wait between them.
ROW = 10


def turn(step, all_batches, wait, seconds):
    """Mean of a step's time, as ours is told, and the median, over rows of steps that take so many seconds. The
    first row does not count: what the allocator gave back for our turn is taken again."""
    times, end = [], None
    while end is None or time.perf_counter() < end or len(times) < 4:
        before = time.perf_counter()
        for number in range(ROW):
            step(all_batches[number % len(all_batches)])
        wait()
        now = time.perf_counter()
        times.append((now - before) / ROW)
        end = end or now + seconds
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return {**judge.times_of(times[1:]), "steps": (len(times) - 1) * ROW}


def kernels(step, batch, device):
    """Kernels that one step gives to the GPU; none elsewhere."""
    if device.type != "cuda":
        return None
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step(batch)
        torch.cuda.synchronize()
    on_gpu = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(1 for event in on_gpu if is_kernel(event))


# Ranges that PyTorch marks on the GPU's timeline, by the names that they begin with.
ANNOTATIONS = ("## ", "Optimizer.", "ProfilerStep", "Torch-Compiled Region", "CompiledFunction")


def is_kernel(event):
    if getattr(event, "is_user_annotation", False):
        return False
    return not event.name.startswith(("Memcpy", "Memset", *ANNOTATIONS))


def memory(device):
    if device.type != "cuda":
        return {"allocated": None, "reserved": None}
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def attention(arguments):
    device = torch.device(arguments.device)
    chosen = [faster_attention(sizes, device) for sizes in json.loads(arguments.sizes)]
    print(json.dumps(chosen), flush=True)


def faster_attention(sizes, device):
    """The faster of cuDNN's and FlashAttention's kernels at the model's shape in bf16, forward and
    backward. Elsewhere whatever PyTorch picks."""
    own, times, absent = sizes["model"], {}, {}
    if device.type == "cuda":
        sequence = own.get("seq") or 1 + (own["side"] // own["patch"]) ** 2
        shape = (sizes["batch"], sequence, own["heads"], own["width"] // own["heads"])
        for name, backend in ATTENTION.items():
            try:
                with sdpa_kernel(backend):
                    times[name] = attention_time(shape, sizes["file"] == "gpt2", device)
            except RuntimeError as error:
                absent[name] = str(error).splitlines()[0][:120]
    fastest = min(times, key=times.get, default="")
    said = [f"{name} {time:.3f} ms a layer" for name, time in times.items()]
    said += [f"{name} is not there: {why}" for name, why in absent.items()]
    words = (fastest or "what PyTorch picks") + (f" ({', '.join(said)})" if said else "")
    return {"attention": fastest, "said": words, "times": times}


def attention_time(shape, causal, device):
    """Median milliseconds of one attention with its backward pass."""
    draw = lambda: torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
    leaves = [draw() for _ in range(3)]
    q, k, v = [leaf.transpose(1, 2) for leaf in leaves]
    gradient = torch.randn_like(q)
    times = []
    for number in range(13):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.autograd.grad(y, leaves, gradient)
        end.record()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=["losses", "attention", "serve"])
    parser.add_argument("--sizes", required=True, help='{"file": ..., "batch": ..., "model": {...}}')
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--mode", choices=["eager", "default", "reduce-overhead"], default="eager")
    parser.add_argument("--weights")
    parser.add_argument("--data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--attention", choices=["", *ATTENTION], default="")
    parser.add_argument("--served", action="store_true", help="losses of what is served")
    arguments = parser.parse_args()
    {"losses": losses, "attention": attention, "serve": serve}[arguments.what](arguments)


if __name__ == "__main__":
    main()
