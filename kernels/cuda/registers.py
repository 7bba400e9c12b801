"""Compiles every CUDA source with NVRTC, without a device, and compares what its kernels use.

    python registers.py SOURCES TABLE            # fails where the table says something else
    python registers.py SOURCES TABLE --update   # writes the table

SOURCES is a folder that `cargo run -p roundelay-kernels --example cuda_sources` wrote. The table has
a line for each kernel: architecture, symbol, registers per thread, bytes of spilled registers. Both
fail where a kernel spills that may not, keeps an array in local memory that may not (a stack frame that
is not for spilled registers), or waits for each product of a warp group.
"""

import ctypes
import functools
import glob
import itertools
import os
import re
import site
import sys
from concurrent.futures import ProcessPoolExecutor

ARCHITECTURES = ["sm_80", "sm_90a"]
OPTIONS = ["--std=c++17", "-default-device", "--ptxas-options=-v"]

# Sources whose kernels a step of GPT-2, ViT or ResNet launches, its images split by pixels or not: none of
# them spills, in no type that models are trained in on GPUs.
HOT = {
    "activation", "batch_norm", "columns", "convolution", "dropout", "elementwise", "embedding", "flash",
    "flash_sm90", "grouped", "halo", "loss", "norm", "optimizer", "pixel_norm", "pool", "product", "rotary",
}
# Others that spill, and why they may.
MAY_SPILL = {
    "gelu_backward_f64_f64": "64 bits are for checks, and the slope of GELU has long polynomials in them",
}

# Hot ones with arrays in local memory, and why they may.
MAY_HAVE_FRAME = {
    "product_mixed": "it is for mixes of types that usual programs lack, and sums in 64 bits",
    "angles_f32": "sines and cosines of 64 bits look digits of 2/π up for large angles, once for all examples and heads",
}

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
# What the compiler says where it must put a wait behind every product of a warp group.
SERIALIZED = re.compile(r"wgmma\.mma_async instructions are serialized.*function '(\w+)'")


@functools.cache
def nvrtc():
    """The library of the package `nvidia-cuda-nvrtc`, once in a process."""
    roots = site.getsitepackages() + [site.getusersitepackages()]
    found = [path for root in roots for path in glob.glob(f"{root}/nvidia/cu13/lib/libnvrtc.so.13")]
    if not found:
        sys.exit("there is no libnvrtc.so.13: pip install nvidia-cuda-nvrtc==13.0.88")
    # The library looks for this one by its name, so it must be there already.
    ctypes.CDLL(found[0].replace("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(found[0])


def log(library, program):
    """What the compiler said."""
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, text)
    return text.value.decode()


def compile_source(path, architecture):
    """The compiler's log for one source; ends where it does not compile."""
    library = nvrtc()
    with open(path, "rb") as file:
        source = file.read()
    program = ctypes.c_void_p()
    name = os.path.basename(path).encode()
    library.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None)
    options = [option.encode() for option in OPTIONS + [f"--gpu-architecture={architecture}"]]
    failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    text = log(library, program)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        sys.exit(f"{path} does not compile for {architecture}:\n{text}")
    if serialized := SERIALIZED.search(text):
        sys.exit(f"{path}: in {serialized[1]} every product is waited for: {serialized[0]}")
    return text


def kernels(text):
    """Symbol, registers, spilled bytes and bytes of the stack frame of each kernel in a log."""
    symbol, spilled, frame = None, 0, 0
    for line in text.splitlines():
        if entry := ENTRY.search(line):
            symbol, spilled, frame = entry[1], 0, 0
        if found := FRAME.search(line):
            frame += int(found[1])
        if spills := SPILLS.search(line):
            spilled += int(spills[1]) + int(spills[2])
        if symbol and (used := REGISTERS.search(line)):
            yield symbol, int(used[1]), spilled, frame
            symbol = None


def used(architecture, path):
    """What the kernels of one source use, by symbol."""
    return sorted(kernels(compile_source(path, architecture)))


def table(folder):
    """All lines of the table, and source and symbol of each kernel that spills, and that has a frame without."""
    paths = sorted(glob.glob(f"{folder}/*.cu"))
    if not paths:
        sys.exit(f"there are no sources in {folder}")
    lines, spills, frames = ["architecture\tkernel\tregisters\tspilled"], set(), set()
    jobs = list(itertools.product(ARCHITECTURES, paths))
    with ProcessPoolExecutor() as pool:
        for (architecture, path), found in zip(jobs, pool.map(used, *zip(*jobs))):
            lines += [f"{architecture}\t{symbol}\t{used}\t{spilled}" for symbol, used, spilled, _ in found]
            source = os.path.basename(path).removesuffix(".cu")
            spills |= {(source, symbol) for symbol, _, spilled, _ in found if spilled}
            frames |= {(source, symbol) for symbol, _, spilled, frame in found if frame and not spilled}
    return lines, spills, frames


def is_hot(source, symbol):
    # Some sources are one file for several types and sizes of head.
    file = re.sub(r"_(bf16|f16)_\d+$", "", source)
    return file in HOT and "f64" not in symbol


def faults(spills, frames):
    """What is wrong with kernels that spill or have a frame, each a source and a symbol, in sentences."""
    hot = [f"{symbol} spills, and {source}.cu is hot" for source, symbol in spills if is_hot(source, symbol)]
    others = [symbol for source, symbol in spills if not is_hot(source, symbol)]
    unlisted = [f"{symbol} spills, and MAY_SPILL has no reason for it" for symbol in others if symbol not in MAY_SPILL]
    needless = [f"{symbol} does not spill, but is in MAY_SPILL" for symbol in MAY_SPILL if symbol not in others]
    local = [symbol for source, symbol in frames if is_hot(source, symbol)]
    framed = [
        f"{symbol} keeps an array in local memory, and MAY_HAVE_FRAME has no reason for it"
        for symbol in local
        if symbol not in MAY_HAVE_FRAME
    ]
    frameless = [f"{symbol} has no frame, but is in MAY_HAVE_FRAME" for symbol in MAY_HAVE_FRAME if symbol not in local]
    return hot + unlisted + needless + framed + frameless


def main():
    folder, path = sys.argv[1:3]
    lines, spills, frames = table(folder)
    if wrong := faults(sorted(spills), sorted(frames)):
        sys.exit("\n".join(wrong))
    if "--update" in sys.argv[3:]:
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
        return
    with open(path) as file:
        known = file.read().splitlines()
    changed = sorted(set(known) ^ set(lines), key=lambda line: line.split("\t")[:2])
    for line in changed:
        print(("found    " if line in lines else "expected ") + line)
    if changed:
        sys.exit(f"{len(changed)} lines differ from {path}; update it with --update if that is meant")
    print(f"{len(lines) - 1} kernels use what {path} says")


main()
