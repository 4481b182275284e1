"""How many times faster one callable is than another, with an interval."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import stats


@dataclass(frozen=True)
class Ratio:
    """Time of the first callable over that of the second: geometric mean and its 95 % t interval over pairs.

    `seconds` are the medians of both; `pairs` says how many were timed. With one pair the interval is
    unbounded.
    """

    mean: float
    low: float
    high: float
    seconds: tuple[float, float]
    pairs: int


def time_ratio(
    first: Callable[[], object],
    second: Callable[[], object],
    pairs: int = 5,
    most: int = 50,
    width: float = 0.1,
) -> Ratio:
    """Time both in turn, in alternating order, after one run of each that doesn't count.

    At least `pairs` pairs are timed; then more, up to `most`, until the interval's half width is below
    `width` of the mean. Pairs see the same disturbances, so the ratio is steadier than either time.

    Raises ValueError if `pairs` is below 2 or above `most`.
    """
    if not 2 <= pairs <= most:
        raise ValueError(f"A time ratio needs 2 <= pairs <= most, not pairs={pairs} and most={most}.")
    first()
    second()
    times: list[tuple[float, float]] = []
    while len(times) < most:
        if len(times) % 2:
            later = seconds(second)
            times.append((seconds(first), later))
        else:
            times.append((seconds(first), seconds(second)))
        if len(times) >= pairs and log_interval(times)[1] <= math.log1p(width):
            break
    center, half = log_interval(times)
    medians = (statistics.median(a for a, _ in times), statistics.median(b for _, b in times))
    return Ratio(math.exp(center), math.exp(center - half), math.exp(center + half), medians, len(times))


def seconds(run: Callable[[], object]) -> float:
    """Return the wall time of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def busy_seconds(run: Callable[[], object]) -> float:
    """Return the seconds that one run on one thread takes, the work of a GPU finished at both ends.

    Where CUDA is in use, of the wall clock; else of processor time, which other processes don't lengthen by
    taking turns.
    """
    cuda = torch.cuda.is_initialized()
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.synchronize()
    start = clock()
    run()
    if cuda:
        torch.cuda.synchronize()
    return clock() - start


def log_interval(times: list[tuple[float, float]]) -> tuple[float, float]:
    """Return mean and half width of the 95 % t interval of log(first / second)."""
    logs = [math.log(a / b) for a, b in times]
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return statistics.fmean(logs), float(half)
