"""What figures are held to, apart from where they come from."""

import itertools
import statistics

# Steps whose losses are averaged before two curves are compared: single steps are noise.
WINDOW = 20

# A distance of loss curves that is none, as a part of the loss.
LITTLE = 0.002

# Targets. One that is missed is said in its row and is no error: wrong numbers alone are.
# Throughput over that of PyTorch's faster mode, by model.
SPEED, SPEEDS = 1.0, {"gpt2": 1.1}
# All memory of ours over what the frugal mode of PyTorch allocated.
MEMORY = 0.8
# The host's part of a step of GPT-2 with graphs.
HOST = 0.01
# Throughput of virtual devices over that of the synchronous replay.
VIRTUAL = 0.97
# How far the clock may lie from a measured step time. Events between calls cost some of it, and
# whole periods run without them.
CLOCK = 0.02


def times_of(rows):
    """What rows of steps took, told as the times of our steps are: by their mean. The median shows what disturbed some."""
    return {"step_s": statistics.fmean(rows), "median_s": statistics.median(rows)}


def windows(curve):
    """Means of neighbouring losses; the last window may have fewer."""
    return [statistics.fmean(curve[first:first + WINDOW]) for first in range(0, len(curve), WINDOW)]


def distance(one, other):
    """Mean and largest distance of two curves, as a part of the other one's losses, but of no less
    than their mean: where losses go to zero, their noise does not."""
    if len(one) != len(other):
        raise ValueError(f"curves of {len(one)} and of {len(other)} losses")
    mean = statistics.fmean(other)
    far = [abs(a - b) / (max(b, mean) or 1.0) for a, b in zip(windows(one), windows(other))]
    return statistics.fmean(far), max(far)


def noise(theirs):
    """How far apart two of PyTorch's curves are at most, in the mean."""
    return max(distance(one, other)[0] for one, other in itertools.permutations(theirs, 2))


def is_noise(own, noise):
    """Whether ours lies no further from PyTorch's losses in 32 bits than PyTorch's own lie apart, which
    are few: twice as far may be chance, and where they hardly differ, a little is."""
    return own <= 2 * noise + LITTLE


def known_counts(counts):
    """Kernels of a step by mode. A profile of a replayed graph may see the launch alone: a count
    below that of the mode without graphs, or with none to hold it to, is not known."""
    known = dict(counts)
    graph, plain = known.get("reduce-overhead"), known.get("default")
    if graph is not None and (plain is None or graph < plain):
        known["reduce-overhead"] = None
    return known


def at_least(value, least):
    """Whether a figure reaches its target; none is one that nobody could measure."""
    if value is None:
        return f"not known (at least {least:.2f})"
    return f"holds ({value:.3f}, at least {least:.2f})" if value >= least else f"MISSED ({value:.3f}, at least {least:.2f})"


def at_most(value, most):
    """Whether a figure stays below its target."""
    if value is None:
        return f"not known (at most {most:.2f})"
    return f"holds ({value:.3f}, at most {most:.2f})" if value <= most else f"MISSED ({value:.3f}, at most {most:.2f})"


def bounded(bound, most):
    """The same of what is only known to be no more than a bound: a high one shows nothing."""
    return at_most(bound, most) if bound <= most else f"not known (at most {bound:.3f}, target {most:.2f})"


def of_fewest(figures, judged):
    """A target that the lowest figure decides. Of one that nobody could take, only a miss is known: the
    lowest may be lower."""
    known = [figure for figure in figures if figure is not None]
    target = judged(min(known, default=None))
    return target if len(known) == len(figures) or target.startswith("MISSED") else judged(None)


def of_speed(model, ratios):
    """Of PyTorch's step times over ours, by mode: the faster one counts."""
    return of_fewest(ratios, lambda ratio: at_least(ratio, SPEEDS.get(model, SPEED)))


def of_memory(ours, theirs):
    """Of bytes, PyTorch's by mode: the frugal one counts."""
    return of_fewest(theirs, lambda least: at_most(ours / least if least else None, MEMORY))


def memory_allowed(theirs):
    """The most bytes that hold the target of memory, by PyTorch's modes that are known: one at least is."""
    return int(MEMORY * min(own for own in theirs if own))


def kept(targets):
    """How many targets hold, are missed and are not known, in words."""
    words = {"holds": "hold", "MISSED": "MISSED", "not known": "not known"}
    count = lambda word: sum(target.startswith(word) for target in targets)
    return ", ".join(f"{count(word)} {all_of_them}" for word, all_of_them in words.items())
