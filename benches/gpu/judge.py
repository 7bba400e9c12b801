"""What figures are held to, apart from where they come from."""

import statistics

# Steps whose losses are averaged before two curves are compared: single steps are noise.
WINDOW = 20

# What the clock is to predict a step time within; events between calls cost some of it, and whole
# periods run without them, so that more is a figure and no error of a kernel.
CLOCK_TARGET = 0.02


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


def known_counts(counts):
    """Kernels of a step by mode. A profile of a replayed graph may see the launch alone: a count
    below that of the mode without graphs, or with none to hold it to, is not known."""
    known = dict(counts)
    graph, plain = known.get("reduce-overhead"), known.get("default")
    if graph is not None and (plain is None or graph < plain):
        known["reduce-overhead"] = None
    return known


def of_clock(error):
    """In words and as a verdict how far a predicted step time lies from the measured one."""
    if abs(error) < CLOCK_TARGET:
        return f"{error:+.2%}", "right"
    return f"{error:+.2%}, above the target of {CLOCK_TARGET:.0%}", ""
