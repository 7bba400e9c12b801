"""Whether it is right: every kernel against its reference, by itself and under NVIDIA's sanitizers, and
NCCL."""

import concurrent.futures
import json
import os
import re
import shutil
import zlib
from pathlib import Path

from bench import attempt
from sides import Absent, Failed, Late, finished, last_words

# Kernels


# Kernels that are checked in one call; together all that `devices --check-kernels` knows.
KERNELS = {
    "products":
        "matmul affine affine_relu affine_gelu affine_gelu_tanh affine_add "
        "matmul_gelu_tanh_backward affine_gradients",
    "heads":
        "attention attention_backward",
    "stored heads":
        "scores mix mix_backward rotary",
    "convolutions":
        "conv2d conv2d_backward conv2d_weights",
    "norms":
        "softmax softmax_backward layer_norm layer_norm_backward layer_norm_parameters batch_norm "
        "batch_norm_again batch_norm_backward relu_backward_again group_norm group_norm_backward "
        "rms_norm rms_norm_backward",
    "losses":
        "cross_entropy cross_entropy_backward masked_cross_entropy masked_cross_entropy_backward "
        "linear_cross_entropy mse mse_backward accuracy",
    "optimizers":
        "squares sgd adamw",
    "activations":
        "relu relu_backward gelu gelu_backward silu silu_backward gelu_tanh gelu_tanh_backward "
        "soft_cap soft_cap_backward dropout dropout_backward",
    "sums":
        "add add_rows accumulate zero copy sum_rows multiply multiply_sum_rows scale",
    "rows":
        "embedding embedding_backward slice slice_backward slice_integers prepend",
    "pools":
        "max_pool max_pool_backward avg_pool avg_pool_backward global_pool global_pool_backward",
    "parts":
        "part embedding_part embedding_part_backward cross_entropy_part cross_entropy_join "
        "cross_entropy_part_backward norm_part_sums norm_part_squares norm_part norm_part_slopes "
        "norm_part_backward norm_part_gain",
    "pixels":
        "pixel_norm_moments pixel_norm_statistics pixel_norm pixel_norm_slopes pixel_norm_backward "
        "pixel_norm_parameters halo halo_add",
}


def kernels(bench):
    bench.compile_kernels()
    for group, names in KERNELS.items():
        attempt(bench, "kernels", group, lambda: kernels_of(bench, group, names.split()))


def check_of(bench, names, calls):
    words = ["devices", "--check-kernels", "--json", "--seed", bench.seed, "--calls", calls]
    return [bench.ours.program, *words, "--only", ",".join(names)]


def kernels_of(bench, group, names):
    """One group, so that what takes too long loses this one alone."""
    command = check_of(bench, names, 1 if bench.tiny else 12)
    done = finished(command, bench.run_limit(), bench.ours.environment)
    if not done.stdout.startswith("{") or '"rows"' not in done.stdout:
        raise Failed(done.stderr.strip()[-400:] or "the check said nothing")
    document = json.loads(done.stdout)
    rows, errors = document["rows"], []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        known = [row for row in rows if row["dtype"] == dtype and row["error"] is not None]
        if known:
            worst = max(known, key=lambda row: row["error"])
            errors.append(f"{dtype} {worst['error']:.1e} ({worst['kernel']}) of {worst['tolerance']:.1e}")
    wrong = [f"{row['kernel']} in {row['dtype']}" for row in rows if row["wrong"]]
    found = (f"{len(names)} kernels, {sum(row['calls'] for row in rows)} calls with "
             f"{sum(row['products'] for row in rows)} products by cuBLASLt {document['cublaslt']}, "
             f"{sum(row['convolutions'] for row in rows)} convolutions and "
             f"{sum(row['attentions'] for row in rows)} calls of attention by cuDNN {document['cudnn']}; "
             f"largest errors {', '.join(errors)}")
    if wrong:
        found += "; wrong: " + ", ".join(wrong)
    bench.results.add("kernels", f"{group} against references in f64, seed {bench.seed}", found,
                      "WRONG" if wrong else "right", rows=rows)


# In the order of their worth. Races and what follows them are looked for with our own products alone:
# the library's kernels are not ours to judge.
SANITIZERS = {
    "memcheck": ([], []),
    "racecheck": (["--racecheck-detect-level", "error"], ["--own-products"]),
    "synccheck": ([], ["--own-products"]),
    "initcheck": ([], ["--own-products"]),
}

# Groups that are looked at side by side, and seconds for one of them.
SANITIZING, SANITIZED = 2, 120


def sanitizer(bench):
    tool = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    if not tool:
        raise Absent("compute-sanitizer is not here")
    bench.compile_kernels()
    wanted = [(which, group) for which in SANITIZERS for group in KERNELS]
    # Of this program alone: with another one all is looked at anew.
    kept = bench.ours.work / f"sanitized-{zlib.crc32(bench.ours.program.read_bytes()):08x}"
    kept.mkdir(exist_ok=True)
    done = [(which, group) for which, group in wanted if (kept / f"{which}, {group}").exists()]
    if done:
        bench.results.add("sanitizer", "without an error in an earlier call", names_of(done))
    left = []

    def look(work):
        if bench.is_over():
            left.append(work)
        else:
            attempt(bench, "sanitizer", names_of([work]), lambda: sanitize(bench, tool, *work, kept))

    with concurrent.futures.ThreadPoolExecutor(SANITIZING) as pool:
        list(pool.map(look, (work for work in wanted if work not in done)))
    if left:
        bench.results.add("sanitizer", names_of(left), "no time was left", "missing")


def names_of(works):
    return "; ".join(f"{which} of {', '.join(group for tool, group in works if tool == which)}"
                     for which in dict.fromkeys(which for which, _ in works))


def sanitize(bench, tool, which, group, kept):
    """One group under one tool, so that what takes too long loses this one alone."""
    of_tool, of_ours = SANITIZERS[which]
    words = ["--tool", which, *of_tool, "--report-api-errors", "no", "--error-exitcode", "9"]
    command = [Path(tool), *words, *check_of(bench, KERNELS[group].split(), 1), *of_ours]
    try:
        done = finished(command, bench.timeout(SANITIZED), bench.ours.environment)
    except Late as error:
        # Slow is not wrong.
        raise Absent(str(error)) from None
    said = [line for line in done.stdout.splitlines() if "=====" in line]
    # Other codes are those of the program, and without a word of the tool nothing was looked at.
    verdict = {0: "right", 9: "WRONG"}.get(done.returncode, "FAILED") if said else "FAILED"
    found = last_words(done.stderr) if verdict == "FAILED" else said[-1].strip("= ")
    if verdict == "WRONG":
        found += f"; in {', '.join(places_of(said)) or 'no kernel that is named'}"
    elif verdict == "right":
        (kept / f"{which}, {group}").touch()
    bench.results.add("sanitizer", names_of([(which, group)]), found, verdict, said=said[:200])


def places_of(said):
    """Kernels that a report names; those of warp groups have `sm90` in their names."""
    place = re.compile(r"(?:access at|^=+ +at) (?:0x[0-9a-f]+ in )?(?:\S*:[0-9]+:)?(?:void )?(\w+)")
    found = (place.search(line) for line in said)
    return list(dict.fromkeys(match.group(1) for match in found if match))


# NCCL


def nccl(bench):
    """A communicator of one rank: whether the library is found, starts and reduces."""
    own = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"}
    words = ["devices", "--self-check", "--json", "--largest", 1, "--deadline", 90]
    try:
        told = json.loads(bench.ours.call(words, bench.run_limit(), own))
    except Failed as error:
        if "there is no NCCL" in str(error):
            raise Absent(str(error)) from None
        raise
    rows = told["rows"]
    wrong = [row["exercise"] for row in rows if row["wrong_ranks"]]
    found = f"NCCL {told['ranks'][0]['nccl']}, {len(rows)} exercises"
    found += f"; wrong: {', '.join(wrong)}" if wrong else ""
    bench.results.add("nccl", "one rank alone", found, "WRONG" if wrong or not rows else "right", rows=rows)
