"""Losses of two small models in PyTorch, for tests/pytorch.rs.

    pip install torch && python benches/pytorch_losses.py

prints the ten losses of each program in tests/pytorch, computed in 64 bits on whole batches.
Parameters and inputs are the closed formula of tests/pytorch/formula.rs, written down here once
more; models and rates are written with PyTorch's own operators and optimizers.
"""

import math

import torch
import torch.nn.functional as F

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


def parameters(shapes):
    """Half a number for each, around one for gains; the series is the place among the names."""
    tensors = {}
    for series, name in enumerate(sorted(shapes)):
        centre = 1.0 if name.endswith("gain") else 0.0
        count = math.prod(shapes[name])
        values = [centre + 0.5 * number(series, element) for element in range(count)]
        tensors[name] = torch.tensor(values).reshape(shapes[name]).requires_grad_()
    return tensors


def groups(tensors, weight_decay):
    """Vectors are spared from weight decay."""
    tensors = tensors.values()
    return [
        {"params": [p for p in tensors if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in tensors if p.dim() == 1], "weight_decay": 0.0},
    ]


def linear(x, p, name):
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def layer_norm(x, p, name):
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.gain"], p[f"{name}.bias"])


def linear_shapes(name, width, of):
    return {f"{name}.weight": (width, of), f"{name}.bias": (width,)}


def norm_shapes(name, width):
    return {f"{name}.gain": (width,), f"{name}.bias": (width,)}


class Mlp:
    """tests/pytorch/mlp.rdl"""

    WIDTH, FROM, TO = 24, 12, 5

    def shapes(self):
        return (
            linear_shapes("hidden", self.WIDTH, self.FROM)
            | norm_shapes("normal", self.WIDTH)
            | linear_shapes("mixed", self.WIDTH, self.WIDTH)
            | linear_shapes("output", self.TO, self.WIDTH)
        )

    def inputs(self, t):
        def series(which, row):
            first = t * BATCH * row
            values = [number(INPUTS + which, first + i) for i in range(BATCH * row)]
            return torch.tensor(values).reshape(BATCH, row)

        return series(0, self.FROM), series(1, self.TO)

    def loss(self, p, x, y):
        normal = layer_norm(F.gelu(linear(x, p, "hidden")), p, "normal")
        mixed = linear(normal, p, "mixed")
        return F.mse_loss(linear(normal + F.relu(mixed), p, "output"), y)

    def optimizer(self, p):
        return torch.optim.SGD(groups(p, 0.01), lr=0.1, momentum=0.9)

    def rate(self, t):
        return 0.1 * 0.5 ** (t // 4)


class Gpt:
    """tests/pytorch/gpt.rdl"""

    SEQ, WIDTH, HEADS, VOCAB, LAYERS = 16, 32, 2, 64, 2

    def shapes(self):
        shapes = {
            "embedding.table": (self.VOCAB, self.WIDTH),
            "positions.table": (self.SEQ, self.WIDTH),
        }
        for layer in range(self.LAYERS):
            shapes |= self.layer_shapes(f"layer.{layer}")
        return (
            shapes
            | norm_shapes("layer_norm", self.WIDTH)
            | linear_shapes("linear", self.VOCAB, self.WIDTH)
        )

    def layer_shapes(self, name):
        width = self.WIDTH
        shapes = norm_shapes(f"{name}.layer_norm", width)
        for part in ["query", "key", "value", "output"]:
            shapes |= linear_shapes(f"{name}.attention.{part}", width, width)
        return (
            shapes
            | norm_shapes(f"{name}.layer_norm_1", width)
            | linear_shapes(f"{name}.linear", 4 * width, width)
            | linear_shapes(f"{name}.linear_1", width, 4 * width)
        )

    def inputs(self, t):
        def sequence(example):
            tokens = [bits(INPUTS, example) % self.VOCAB]
            for _ in range(self.SEQ):
                tokens.append((5 * tokens[-1] + 3) % self.VOCAB)
            return tokens

        rows = torch.tensor([sequence(t * BATCH + e) for e in range(BATCH)])
        return rows[:, :-1], rows[:, 1:]

    def attention(self, x, p, name):
        def heads(part):
            y = linear(x, p, f"{name}.{part}")
            return y.unflatten(-1, (self.HEADS, -1)).transpose(1, 2)

        parts = [heads(part) for part in ["query", "key", "value"]]
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return linear(y.transpose(1, 2).flatten(-2), p, f"{name}.output")

    def loss(self, p, tokens, targets):
        x = F.embedding(tokens, p["embedding.table"]) + p["positions.table"]
        for name in [f"layer.{layer}" for layer in range(self.LAYERS)]:
            h = layer_norm(x, p, f"{name}.layer_norm")
            x = x + self.attention(h, p, f"{name}.attention")
            h = layer_norm(x, p, f"{name}.layer_norm_1")
            h = F.gelu(linear(h, p, f"{name}.linear"))
            x = x + linear(h, p, f"{name}.linear_1")
        logits = linear(layer_norm(x, p, "layer_norm"), p, "linear")
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def optimizer(self, p):
        return torch.optim.AdamW(groups(p, 0.1), lr=0.01, betas=(0.9, 0.999), eps=1e-8)

    def rate(self, t):
        """A cosine from 0.01 to 0.001 over ten updates, under a ramp of three."""
        cosine = 0.001 + 0.009 * (1 + math.cos(math.pi * t / 10)) / 2
        return cosine * (t + 1) / 4 if t < 3 else cosine


def losses(model):
    """The loss of every training step, before its update."""
    p = parameters(model.shapes())
    optimizer = model.optimizer(p)
    for t in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = model.rate(t)
        optimizer.zero_grad()
        loss = model.loss(p, *model.inputs(t))
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    print("PyTorch", torch.__version__)
    for model in [Mlp(), Gpt()]:
        print(type(model).__doc__)
        for loss in losses(model):
            print(f"        {loss!r},")
