"""The models of benches/pytorch.py, as PyTorch users write them: fused projections, scaled dot
product attention, channels-last images, fused optimizers. Sizes are those of the .rdl files
beside this one."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def training(model, optimizer, batches, loss_of, compiled):
    """One training step per call, over batches made beforehand."""
    model.train()

    def loss(*batch):
        return loss_of(model, *batch)

    if compiled:
        loss = torch.compile(loss)
    turn = 0

    def step():
        nonlocal turn
        value = loss(*batches[turn % len(batches)])
        turn += 1
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        return value.item()

    return step


def adamw(model, rate):
    """Decays matrices alone."""
    split = lambda wide: [p for p in model.parameters() if (p.dim() > 1) == wide]
    groups = [
        {"params": split(True), "weight_decay": 0.1},
        {"params": split(False), "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        b, s, n = x.shape
        split = lambda t: t.view(b, s, self.heads, n // self.heads).transpose(1, 2)
        q, k, v = map(split, self.inputs(x).split(n, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(y.transpose(1, 2).reshape(b, s, n))


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.before_feed_forward = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.down(F.gelu(self.up(self.before_feed_forward(x))))


class Gpt(nn.Module):
    VOCAB, WIDTH, HEADS, LAYERS, SEQUENCE, BATCH = 1024, 256, 4, 4, 128, 8

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(self.VOCAB, self.WIDTH)
        self.positions = nn.Parameter(torch.randn(self.SEQUENCE, self.WIDTH) * 0.02)
        blocks = (Block(self.WIDTH, self.HEADS, True) for _ in range(self.LAYERS))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(self.WIDTH)
        self.output = nn.Linear(self.WIDTH, self.VOCAB)

    def forward(self, tokens):
        return self.output(self.norm(self.blocks(self.tokens(tokens) + self.positions)))


def gpt(compiled):
    model = Gpt()
    shape = (Gpt.BATCH, Gpt.SEQUENCE)
    draw = lambda: torch.randint(0, Gpt.VOCAB, shape)
    batches = [(draw(), draw()) for _ in range(16)]

    def loss(model, tokens, targets):
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    return Gpt.BATCH, training(model, adamw(model, 3e-4), batches, loss, compiled)


class Vit(nn.Module):
    SIZE, PATCH, WIDTH, HEADS, LAYERS, CLASSES, BATCH = 32, 4, 192, 3, 6, 10, 64

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, self.WIDTH, self.PATCH, stride=self.PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, self.WIDTH))
        length = (self.SIZE // self.PATCH) ** 2 + 1
        self.positions = nn.Parameter(torch.randn(length, self.WIDTH) * 0.02)
        blocks = (Block(self.WIDTH, self.HEADS, False) for _ in range(self.LAYERS))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(self.WIDTH)
        self.output = nn.Linear(self.WIDTH, self.CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        token = self.class_token.expand(len(x), -1, -1)
        x = self.blocks(torch.cat([token, x], dim=1) + self.positions)
        return self.output(self.norm(x[:, 0]))


def vit(compiled):
    model = Vit()
    batches = [(images(Vit.BATCH, Vit.SIZE), classes(Vit.BATCH)) for _ in range(4)]
    step = training(model, adamw(model, 3e-4), batches, class_loss, compiled)
    return Vit.BATCH, step


def images(batch, size):
    return torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)


def classes(batch):
    return torch.randint(0, 10, (batch,))


def class_loss(model, images, targets):
    return F.cross_entropy(model(images), targets)


class Residual(nn.Module):
    """Two 3x3 convolutions beside the identity, or beside a 1x1 one where the shape changes."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        conv = lambda c, kernel, stride: nn.Conv2d(
            c, filters, kernel, stride, padding=kernel // 2, bias=False
        )
        self.body = nn.Sequential(
            conv(channels, 3, stride),
            nn.BatchNorm2d(filters),
            nn.ReLU(inplace=True),
            conv(filters, 3, 1),
            nn.BatchNorm2d(filters),
        )
        same = channels == filters and stride == 1
        projection = nn.Sequential(conv(channels, 1, stride), nn.BatchNorm2d(filters))
        self.beside = nn.Identity() if same else projection

    def forward(self, x):
        return F.relu(self.body(x) + self.beside(x))


def resnet18(compiled):
    """The form for 32x32 images: a 3x3 stem without pooling, widths 64 to 512."""
    layers = [
        nn.Conv2d(3, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    channels = 64
    for filters, stride in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        layers += [Residual(channels, filters, stride), Residual(filters, filters, 1)]
        channels = filters
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, foreach=True
    )
    batches = [(images(64, 32), classes(64)) for _ in range(4)]
    return 64, training(model, optimizer, batches, class_loss, compiled)


MODELS = {"gpt": gpt, "vit": vit, "resnet18": resnet18}
