"""The arithmetic of verdicts: pure functions of arrays, over any number of leading axes.

`repro.verdict` calls them on one claim's records, `repro.operating` on thousands of simulated ones: the
simulation judges the very rules that decide. Every test is one-sided at ALPHA against each end of the band:

- A criterion *holds* when "outside" is rejected at every end. All must be, so nothing is corrected.
- It *fails* when "inside" is rejected at some end; with two ends the smaller p-value is doubled.

The interval is two-sided at 1 − 2·ALPHA = 90 %: its ends are the one-sided 95 % limits, so that it lies
inside the band exactly when the criterion holds, and (one end, one criterion) outside exactly when it fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from repro.claim import ALPHA

Array = NDArray[np.float64]
Codes = NDArray[np.int_]  # 1 reproduced, −1 not reproduced, 0 neither


@dataclass(frozen=True)
class Tested:
    """One test an entry; every array has the shape of the leading axes.

    Attributes:
        measured: mean, or share of successes.
        low, high: the interval, 90 % two-sided.
        p_holds: p-value against "the truth lies outside the band".
        p_fails: p-value against "the truth lies inside the band".
    """

    measured: Array
    low: Array
    high: Array
    p_holds: Array
    p_fails: Array


def t_test(values: ArrayLike, at_least: float | None, at_most: float | None, sd_floor: float = 0.0) -> Tested:
    """Test the mean of `values`, shape (..., n) with n at least 2, against a band with at least one end.

    The standard deviation is at least `sd_floor`, and at least the resolution of the numbers, so that equal
    values on the end of a band decide nothing.
    """
    from scipy.special import stdtr, stdtrit

    values = np.asarray(values, dtype=np.float64)
    n = values.shape[-1]
    mean = values.mean(-1)
    resolution = 1e-12 * np.abs(values).max(-1) + 1e-150
    error = np.maximum(np.maximum(values.std(-1, ddof=1), sd_floor), resolution) / np.sqrt(n)
    reach = stdtrit(n - 1, 1 - ALPHA) * error
    ends = []  # a pair an end: p-value against "outside", p-value against "inside"
    if at_least is not None:
        t = (mean - at_least) / error
        ends.append((stdtr(n - 1, -t), stdtr(n - 1, t)))
    if at_most is not None:
        t = (at_most - mean) / error
        ends.append((stdtr(n - 1, -t), stdtr(n - 1, t)))
    return Tested(mean, mean - reach, mean + reach, *_over(ends))


def ratio_test(
    values: ArrayLike, at_least: float | None, at_most: float | None, sd_floor: float = 0.0
) -> Tested:
    """Test the geometric mean of `values`, all above 0, by a t test of their logarithms.

    `sd_floor` is on the log scale (0.1 is about 10 %); the ends of the band are above 0 and not logarithms.
    """
    low_end, high_end = (None if end is None else float(np.log(end)) for end in (at_least, at_most))
    test = t_test(np.log(values), low_end, high_end, sd_floor)
    measured, low, high = (np.exp(np.minimum(x, 700.0)) for x in (test.measured, test.low, test.high))
    return Tested(measured, low, high, test.p_holds, test.p_fails)


def binomial_test(successes: ArrayLike, n: int, at_least: float | None, at_most: float | None) -> Tested:
    """Test the success probability behind `successes` out of `n` against a band with at least one end.

    Exact: the limits are Clopper and Pearson's, each one-sided at 95 %.
    """
    from scipy.special import bdtr, bdtrc, betaincinv

    k = np.asarray(successes, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, ALPHA), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - ALPHA), 1.0)
    ends = []
    if at_least is not None:
        ends.append((bdtrc(k - 1, n, at_least), bdtr(k, n, at_least)))
    if at_most is not None:
        ends.append((bdtr(k, n, at_most), bdtrc(k - 1, n, at_most)))
    return Tested(k / n, low, high, *_over(ends))


def _over(ends: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Combine the ends of a band: every one must hold, any one may fail."""
    holds = np.max([p for p, _ in ends], axis=0)
    fails = np.min([p for _, p in ends], axis=0) * len(ends)
    return holds, np.minimum(fails, 1.0)


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values of `p`, shape (..., m): reject those at most ALPHA."""
    p = np.asarray(p, dtype=np.float64)
    m = p.shape[-1]
    order = np.argsort(p, axis=-1, kind="stable")
    steps = np.take_along_axis(p, order, axis=-1) * np.arange(m, 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(steps, axis=-1), 1.0)
    back = np.empty_like(adjusted)
    np.put_along_axis(back, order, adjusted, axis=-1)
    return back


def decided(p_holds: ArrayLike, p_fails: ArrayLike) -> Codes:
    """Return 1 where a criterion is reproduced, −1 where it is not, 0 where neither is shown."""
    return (np.asarray(p_holds) <= ALPHA).astype(int) - (np.asarray(p_fails) <= ALPHA).astype(int)


def together(decisions: ArrayLike) -> Codes:
    """Return what criteria decided as 1, −1 or 0, shape (..., m), decide of their claim: shape (...)."""
    decisions = np.asarray(decisions)
    return np.where((decisions == 1).all(-1), 1, np.where((decisions == -1).any(-1), -1, 0))
