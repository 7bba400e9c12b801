"""Losses of small models in PyTorch, for tests/command/pytorch.rs.

    pip install torch && python benches/pytorch_losses.py

prints the ten losses of each program in tests/pytorch, computed in 64 bits. Parameters and inputs
are the closed formula of tests/command/pytorch/formula.rs, written down here once more; the models stand
in pytorch_models.py, written with PyTorch's own operators, and train by its own optimizers.
"""

import math

import torch

from pytorch_models import Gpt, Gpt2, Hybrid, Llama, Mlp, Resnet, Vit

STEPS, BATCH, INPUTS = 10, 8, 1000
MASK = (1 << 64) - 1


def bits(series, element):
    """64 bits that look random (splitmix64): number `element` of a series."""
    z = ((series << 32) + element + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def number(series, element):
    """In [-1/2, 1/2), a multiple of 2^-53."""
    return (bits(series, element) >> 11) / (1 << 53) - 0.5


class Parameters:
    """Tensors by name. A first pass through the model finds out names and shapes; then each has
    half a number, around one for gains and variances; the series is the place among the names."""

    def __init__(self, model):
        self.shapes, self.tensors = {}, None
        model.loss(self, *inputs(model, 0))
        self.tensors = {
            name: self.drawn(series, name) for series, name in enumerate(sorted(self.shapes))
        }

    def __call__(self, name, *shape):
        if self.tensors is None:
            self.shapes[name] = shape
            return torch.zeros(shape)
        return self.tensors[name]

    def drawn(self, series, name):
        shape = self.shapes[name]
        centre = 1.0 if name.endswith(("gain", "variance")) else 0.0
        count = math.prod(shape)
        values = [centre + 0.5 * number(series, element) for element in range(count)]
        trained = "running" not in name
        return torch.tensor(values).reshape(shape).requires_grad_(trained)

    def groups(self, weight_decay):
        """Vectors are spared from weight decay."""
        trained = [p for p in self.tensors.values() if p.requires_grad]
        return [
            {"params": [p for p in trained if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0},
        ]


def inputs(model, t):
    """The batch of step t: numbers for real inputs, and what follows x -> 5 x + 3 for others."""
    examples = range(t * BATCH, (t + 1) * BATCH)

    def series(which, shape):
        count = math.prod(shape)
        values = [number(INPUTS + which, e * count + i) for e in examples for i in range(count)]
        return torch.tensor(values).reshape(BATCH, *shape)

    def following(which, shape):
        rows = []
        for example in examples:
            token = bits(INPUTS, example) % model.BOUND
            for place in range(which + math.prod(shape)):
                rows += [token] if place >= which else []
                token = (5 * token + 3) % model.BOUND
        return torch.tensor(rows).reshape(BATCH, *shape)

    kinds = {"real": series, "integer": following}
    return [kinds[kind](which, shape) for which, (kind, shape) in enumerate(model.INPUTS)]


def train(model, micro_batches):
    """The loss of every training step, before its update, and the trained parameters. Losses are
    the mean over micro-batches, which only batch normalisation tells from whole batches."""
    p = Parameters(model)
    optimizer, losses = model.optimizer(p), []
    for t in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = model.rate(t)
        optimizer.zero_grad()
        chunks = zip(*[tensor.chunk(micro_batches) for tensor in inputs(model, t)])
        loss = sum(model.loss(p, *chunk) for chunk in chunks) / micro_batches
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, p


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    print("PyTorch", torch.__version__)
    for model in [Mlp(), Gpt(), Resnet(), Vit(), Gpt2(), Llama(), Hybrid()]:
        print(type(model).__doc__)
        print("".join(f"        {loss!r},\n" for loss in train(model, 2)[0]), end="")
    resnet = Resnet()
    losses, p = train(resnet, 1)
    print(type(resnet).__doc__, "with one micro-batch, and then in evaluation")
    resnet.training = False
    losses.append(resnet.loss(p, *inputs(resnet, STEPS)).item())
    print("".join(f"        {loss!r},\n" for loss in losses), end="")
