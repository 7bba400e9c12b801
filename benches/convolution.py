"""Time of PyTorch's convolution over ours, layer by layer of ResNet-18 on 32 x 32 images.

Build the other side first, then run with a Python that has torch:

    cargo build --release -p roundelay-kernels --example convolution
    python benches/convolution.py [threads] [batch]

Both sides use f32 and the same number of threads, and take turns; each figure is the median of
the rounds' ratios. PyTorch's gradients are timed together, as forward and backward less forward.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

ROUNDS = 7
# channels, filters, extent of the image, kernel, stride
LAYERS = [
    (3, 64, 32, 3, 1),
    (64, 64, 32, 3, 1),
    (64, 128, 32, 3, 2),
    (64, 128, 32, 1, 2),
    (128, 128, 16, 3, 1),
    (128, 256, 16, 3, 2),
    (256, 256, 8, 3, 1),
    (256, 512, 8, 3, 2),
    (512, 512, 4, 3, 1),
]


def ours(process, layer, name, threads, batch):
    channels, filters, extent, kernel, stride = layer
    numbers = [batch, extent, extent, channels, filters, kernel, stride, threads, 3]
    print(name, *numbers, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def theirs(layer, batch):
    channels, filters, extent, kernel, stride = layer
    x = torch.randn(batch, channels, extent, extent, requires_grad=True)
    convolution = torch.nn.Conv2d(
        channels, filters, kernel, stride, kernel // 2, bias=False
    )
    gradient = torch.randn_like(convolution(x))

    def least(work):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return min(times)

    forward = least(lambda: convolution(x))
    both = least(lambda: convolution(x).backward(gradient))
    return forward, both


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    torch.set_num_threads(threads)
    root = Path(__file__).resolve().parent.parent
    binary = root / "target/release/examples/convolution"
    process = subprocess.Popen(
        [binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    print(f"{'c, n, h, k, s':>20} {'forward':>8} {'all':>8} {'ours ms':>8}")
    for layer in LAYERS:
        forward, everything, ours_ms = [], [], []
        for _ in range(ROUNDS):
            f, b, w = (
                ours(process, layer, name, threads, batch)
                for name in ("forward", "backward", "weights")
            )
            torch_forward, torch_both = theirs(layer, batch)
            forward.append(torch_forward / f)
            everything.append(torch_both / (f + b + w))
            ours_ms.append(1e3 * (f + b + w))
        ratios = [statistics.median(values) for values in (forward, everything, ours_ms)]
        name = ", ".join(map(str, layer))
        print(f"{name:>20} {ratios[0]:>8.2f} {ratios[1]:>8.2f} {ratios[2]:>8.1f}")


if __name__ == "__main__":
    main()
