"""The programs of tests/pytorch in PyTorch; pytorch_losses.py trains them.

Parameters are asked for by name and shape: p("head.weight", rows, columns).
"""

import math

import torch
import torch.nn.functional as F


def linear(x, p, name, width, bias=True):
    vector = p(f"{name}.bias", width) if bias else None
    return F.linear(x, p(f"{name}.weight", width, x.shape[-1]), vector)


def layer_norm(x, p, name):
    width = x.shape[-1]
    return F.layer_norm(x, (width,), p(f"{name}.gain", width), p(f"{name}.bias", width))


def rms_norm(x, p, name):
    width = x.shape[-1]
    return F.rms_norm(x, (width,), p(f"{name}.gain", width), eps=1e-5)


def conv2d(x, p, name, filters, kernel=3, stride=1, padding=None, groups=1, bias=True):
    """Images here are (batch, channels, height, width); weights keep channels last."""
    weight = p(f"{name}.weight", filters, kernel, kernel, x.shape[1] // groups)
    vector = p(f"{name}.bias", filters) if bias else None
    padding = kernel // 2 if padding is None else padding
    return F.conv2d(x, weight.permute(0, 3, 1, 2), vector, stride, padding, groups=groups)


def channels_first(images):
    return images.permute(0, 3, 1, 2)


def channels_last(images):
    return images.permute(0, 2, 3, 1)


def attention(x, p, name, heads, key_heads=None, bias=True, turn=None, **seen):
    """`turn` is applied to the heads of queries and keys."""
    width, key_heads = x.shape[-1], key_heads or heads

    def part(role, heads_of_part):
        y = linear(x, p, f"{name}.{role}", width // heads * heads_of_part, bias)
        return y.unflatten(-1, (heads_of_part, -1)).transpose(1, 2)

    query, key, value = part("query", heads), part("key", key_heads), part("value", key_heads)
    if turn:
        query, key = turn(query), turn(key)
    return attended([query, key, value], x, p, name, bias, **seen)


def packed_attention(x, p, name, heads, key_heads, **seen):
    """For every key head the queries of its heads, its key and its value side by side."""
    depth, group = x.shape[-1] // heads, heads // key_heads
    y = linear(x, p, f"{name}.query_key_value", depth * (heads + 2 * key_heads))
    y = y.unflatten(-1, (key_heads, group + 2, depth)).permute(0, 2, 3, 1, 4)
    query, key, value = y.split([group, 1, 1], dim=2)
    three = [query.flatten(1, 2), key.squeeze(2), value.squeeze(2)]
    return attended(three, x, p, name, True, **seen)


def attended(three, x, p, name, bias, **seen):
    y = F.scaled_dot_product_attention(*three, enable_gqa=True, **seen)
    return linear(y.transpose(1, 2).flatten(-2), p, f"{name}.output", x.shape[-1], bias)


def rotated(x):
    """Rotary positions as in Llama: the second half of a head belongs to the first."""
    position, depth = torch.arange(x.shape[-2]), x.shape[-1]
    frequency = 10000.0 ** (-torch.arange(0, depth, 2) / depth)
    angle = torch.outer(position, frequency).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat([-second, first], dim=-1) * angle.sin()


def near(size, window, causal):
    """The mask of who sees whom at distances below `window`."""
    distance = torch.arange(size)[:, None] - torch.arange(size)[None, :]
    return (distance.abs() < window) & ((distance >= 0) | (not causal))


def transformer_layer(x, p, name, heads, **seen):
    width = x.shape[-1]
    h = layer_norm(x, p, f"{name}.layer_norm")
    x = x + attention(h, p, f"{name}.attention", heads, **seen)
    h = layer_norm(x, p, f"{name}.layer_norm_1")
    h = F.gelu(linear(h, p, f"{name}.linear", 4 * width))
    return x + linear(h, p, f"{name}.linear_1", width)


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Adamw:
    """Along a cosine from 0.01 to 0.001 over ten updates, under a ramp of three."""

    def optimizer(self, p):
        return torch.optim.AdamW(p.groups(0.1), lr=0.01, betas=(0.9, 0.999), eps=1e-8)

    def rate(self, t):
        cosine = 0.001 + 0.009 * (1 + math.cos(math.pi * t / 10)) / 2
        return cosine * (t + 1) / 4 if t < 3 else cosine


class Sgd:
    """With momentum; the rate is halved every four updates."""

    def optimizer(self, p):
        return torch.optim.SGD(p.groups(0.01), lr=self.RATE, momentum=0.9)

    def rate(self, t):
        return self.RATE * 0.5 ** (t // 4)


class Mlp(Sgd):
    """tests/pytorch/mlp.rdl"""

    RATE = 0.1
    INPUTS = [("real", (12,)), ("real", (5,))]

    def loss(self, p, x, y):
        normal = layer_norm(F.gelu(linear(x, p, "hidden", 24)), p, "normal")
        mixed = linear(normal, p, "mixed", 24)
        return F.mse_loss(linear(normal + F.relu(mixed), p, "output", 5), y)


class Gpt(Adamw):
    """tests/pytorch/gpt.rdl"""

    SEQ, BOUND, WIDTH = 16, 64, 32
    INPUTS = [("integer", (SEQ,))] * 2

    def loss(self, p, tokens, targets):
        x = F.embedding(tokens, p("embedding.table", self.BOUND, self.WIDTH))
        x = x + p("positions.table", self.SEQ, self.WIDTH)
        for layer in range(2):
            x = transformer_layer(x, p, f"layer.{layer}", 2, is_causal=True)
        logits = linear(layer_norm(x, p, "layer_norm"), p, "linear", self.BOUND)
        return token_loss(logits, targets)


class Gpt2(Adamw):
    """tests/pytorch/gpt2.rdl"""

    SEQ, BOUND, WIDTH = 12, 64, 16
    INPUTS = [("integer", (SEQ,))] * 2

    def loss(self, p, tokens, targets):
        table = p("table", self.BOUND, self.WIDTH)
        x = F.embedding(tokens, table) + p("positions.table", self.SEQ, self.WIDTH)
        for layer in range(2):
            x = transformer_layer(x, p, f"layer.{layer}", 4, is_causal=True)
        return token_loss(F.linear(layer_norm(x, p, "layer_norm"), table), targets)


class Llama(Adamw):
    """tests/pytorch/llama.rdl"""

    SEQ, BOUND, WIDTH = 12, 64, 16
    INPUTS = [("integer", (SEQ,))] * 2

    def loss(self, p, tokens, targets):
        x = F.embedding(tokens, p("x.table", self.BOUND, self.WIDTH))
        for name in ["layer.0", "layer.1"]:
            h = rms_norm(x, p, f"{name}.h")
            seen = {"is_causal": True, "turn": rotated}
            x = x + attention(h, p, f"{name}.attention", 4, key_heads=2, bias=False, **seen)
            x = x + self.gated(rms_norm(x, p, f"{name}.rms_norm"), p, f"{name}.gated")
        logits = linear(rms_norm(x, p, "rms_norm"), p, "head", self.BOUND, bias=False)
        return token_loss(logits, targets)

    def gated(self, x, p, name):
        gate, up = (linear(x, p, f"{name}.{part}", 40, bias=False) for part in ["gate", "up"])
        return linear(F.silu(gate) * up, p, f"{name}.output", self.WIDTH, bias=False)


class Vit(Adamw):
    """tests/pytorch/vit.rdl"""

    BOUND, WIDTH = 12, 16
    INPUTS = [("real", (8, 8, 3)), ("integer", ())]

    def loss(self, p, images, targets):
        x = channels_first(images)
        x = conv2d(x, p, "patch", self.WIDTH, kernel=4, stride=4, padding=0)
        x = x.flatten(2).transpose(1, 2)
        token = p("token.token", self.WIDTH).expand(len(x), 1, -1)
        x = torch.cat([token, x], dim=1) + p("positions.table", 5, self.WIDTH)
        for layer in range(2):
            x = transformer_layer(x, p, f"layer.{layer}", 2)
        x = layer_norm(x, p, "layer_norm")[:, 0]
        return F.cross_entropy(linear(x, p, "head", self.BOUND), targets)


class Resnet(Sgd):
    """tests/pytorch/resnet.rdl"""

    RATE, BOUND = 0.005, 12
    INPUTS = [("real", (8, 8, 3)), ("integer", ())]
    training = True

    def loss(self, p, images, targets):
        x = F.relu(self.normal_conv(channels_first(images), p, "stem", 4))
        stages = zip(["one", "two", "three", "four"], [4, 6, 8, 8], [1, 2, 2, 2])
        for name, filters, stride in stages:
            x = self.block(x, p, f"{name}_a", filters, stride)
            x = self.block(x, p, f"{name}_b", filters, 1)
        x = x.mean(dim=(2, 3))
        return F.cross_entropy(linear(x, p, "head", self.BOUND), targets)

    def block(self, x, p, name, filters, stride):
        y = F.relu(self.normal_conv(x, p, f"{name}.first", filters, stride=stride))
        y = self.normal_conv(y, p, f"{name}.second", filters)
        if stride > 1:
            x = self.normal_conv(x, p, f"{name}.skip", filters, kernel=1, stride=stride)
        return F.relu(y + x)

    def normal_conv(self, x, p, name, filters, **how):
        x = conv2d(x, p, name, filters, bias=False, **how)
        roles = ["running_mean", "running_variance", "gain", "bias"]
        numbers = [p(f"{name}_norm.{role}", filters) for role in roles]
        return F.batch_norm(x, *numbers, training=self.training, momentum=0.1, eps=1e-5)


class Hybrid(Adamw):
    """tests/pytorch/hybrid.rdl"""

    BOUND, WIDTH = 12, 8
    INPUTS = [("real", (8, 8, 3)), ("integer", ())]

    def loss(self, p, images, targets):
        x = conv2d(channels_first(images), p, "stem", self.WIDTH, kernel=5, stride=2)
        numbers = [p(f"stem_norm.{role}", self.WIDTH) for role in ["gain", "bias"]]
        x = F.silu(F.group_norm(x, 4, *numbers, eps=1e-5))
        x = F.max_pool2d(x, 3, stride=1, padding=1)
        x = conv2d(x, p, "grouped", 2 * self.WIDTH, groups=4)
        x = conv2d(F.avg_pool2d(x, 2), p, "even", self.WIDTH, kernel=2, padding=1)
        x = channels_last(x).flatten(1, 2)
        h, mask = rms_norm(x, p, "rms_norm"), near(9, 3, causal=False)
        x = x + attention(h, p, "attention", 2, key_heads=1, attn_mask=mask)
        h, mask = rms_norm(x, p, "rms_norm_1"), near(9, 2, causal=True)
        x = x + packed_attention(h, p, "attention_1", 4, 2, attn_mask=mask)
        return F.cross_entropy(linear(x.flatten(1), p, "head", self.BOUND), targets)
