"""Fits the polynomial by which `function.h` computes the normal distribution of numbers of 16 bits.

    python normal.py    # prints the constants, and the largest relative errors

For a from 0 to 13.25, behind which exp(-a^2/2) is less than 2^-126:

    Phi(-a) = exp(-a^2/2) t P(t),    t = 1 / (1 + p a)

P has the least largest relative error among the polynomials of its degree (Remez's exchange), p the
best of hundredths.
"""

import math
import struct

DEGREE = 7
END = 13.25
POINTS = 4000


def scaled_tail(a):
    """Phi(-a) exp(a^2/2)."""
    return 0.5 * math.erfc(a / math.sqrt(2)) * math.exp(a * a / 2)


def solve(rows, right):
    """The solution of a system of linear equations, by elimination with pivots."""
    count = len(right)
    system = [row + [value] for row, value in zip(rows, right)]
    for i in range(count):
        pivot = max(range(i, count), key=lambda r: abs(system[r][i]))
        system[i], system[pivot] = system[pivot], system[i]
        for r in range(i + 1, count):
            factor = system[r][i] / system[i][i]
            system[r] = [x - factor * y for x, y in zip(system[r], system[i])]
    solution = [0.0] * count
    for i in reversed(range(count)):
        known = sum(system[i][c] * solution[c] for c in range(i + 1, count))
        solution[i] = (system[i][count] - known) / system[i][i]
    return solution


def extremes(errors):
    """Where the error is largest, between one change of its sign and the next."""
    found = [0]
    for i, error in enumerate(errors):
        if (error > 0) != (errors[found[-1]] > 0):
            found.append(i)
        elif abs(error) > abs(errors[found[-1]]):
            found[-1] = i
    return found


def fit(p):
    """Factors of 1, t, t^2, ... and the largest relative error."""
    last = 1 / (1 + p * END)
    points = []
    for i in range(POINTS + 1):
        t = (1 + last) / 2 - (1 - last) / 2 * math.cos(math.pi * i / POINTS)
        points.append((t, scaled_tail((1 / t - 1) / p) / t))
    count = DEGREE + 2
    chosen = [i * POINTS // (count - 1) for i in range(count)]
    for _ in range(30):
        rows = [
            [points[at][0] ** k / points[at][1] for k in range(DEGREE + 1)] + [(-1.0) ** i]
            for i, at in enumerate(chosen)
        ]
        factors = solve(rows, [1.0] * count)[:-1]
        errors = [sum(c * t**k for k, c in enumerate(factors)) / value - 1 for t, value in points]
        better = extremes(errors)
        if better == chosen or len(better) != count:
            break
        chosen = better
    return factors, max(map(abs, errors))


def single(x):
    """The nearest number of 32 bits."""
    return struct.unpack("f", struct.pack("f", x))[0]


def computed(p, factors, a):
    """Phi(-a) exp(a^2/2) as 32 bits give it, but for the reciprocal's error."""
    t = single(1 / single(1 + p * a))
    total = factors[-1]
    for factor in reversed(factors[:-1]):
        total = single(total * t + factor)
    return single(t * total)


def main():
    p = min((i / 100 for i in range(15, 45)), key=lambda p: fit(p)[1])
    factors, error = fit(p)
    rounded = [single(factor) for factor in factors]
    grid = [single(i * END / 100_000) for i in range(100_001)]
    found = max(abs(computed(single(p), rounded, a) / scaled_tail(a) - 1) for a in grid)
    print(f"p = {p}")
    for power, factor in reversed(list(enumerate(rounded))):
        print(f"t^{power}: {factor:.9g}")
    print(f"relative error: {error:.2g}, in 32 bits {found:.2g}")


main()
