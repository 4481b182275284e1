"""How often the verdict rules are right: simulated values through the rules that decide.

`python -m repro.operating` writes docs/operating-curve.md and its figure, and exits with 1 where a rule
misses its bound: *reproduced* at most 5 % of the time when the truth is on the end of the band or outside,
*not reproduced* at most 5 % when it is on the end or inside, and *reproduced* at least 80 % of the time with
five seeds when the truth lies two standard deviations inside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator

from repro.claim import ALPHA
from repro.rules import (
    Array,
    Codes,
    Tested,
    binomial_test,
    decided,
    holm,
    ratio_test,
    t_test,
    together,
)

DOCS = Path(__file__).parent.parent / "docs"
SEED = 20250924
POWER = 0.8
SEEDS = (3, 5, 10)
DISTANCES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
LOG_SD = 0.1  # standard deviation of simulated ratios on the log scale
STEP = 0.24  # distance of a success probability from its band end, 0.5

Draw = Callable[[Generator, int, int, float], Tested]  # generator, draws, n, distance inside the band


@dataclass(frozen=True, kw_only=True)
class Row:
    """One simulated situation.

    Attributes:
        distance: of the truth from the band's end, in standard deviations of a seed (success counts: in steps
            of STEP on the probability); negative outside.
        reproduced, rejected: shares of the draws that came out *reproduced* and *not reproduced*.
        draws: how many there were.
        warning: the rule is misused and keeps no bound.
    """

    rule: str
    n: int
    distance: float
    reproduced: float
    rejected: float
    draws: int
    warning: bool = False

    @property
    def kept(self) -> bool:
        """Whether the bounds are kept, allowing three standard errors of the simulation."""
        slack = 3 * np.sqrt(ALPHA * (1 - ALPHA) / self.draws)
        low_power = POWER - 3 * np.sqrt(POWER * (1 - POWER) / self.draws)
        powered = self.distance == 2 and self.n >= 5
        return self.warning or (
            (self.distance > 0 or self.reproduced <= ALPHA + slack)
            and (self.distance < 0 or self.rejected <= ALPHA + slack)
            and (not powered or self.reproduced >= low_power)
        )


def _mean(rng: Generator, draws: int, n: int, distance: float) -> Tested:
    return t_test(distance + rng.standard_normal((draws, n)), 0.0, None, sd_floor=0.1)


def _mean_on_floor(rng: Generator, draws: int, n: int, distance: float) -> Tested:
    return t_test(distance + rng.standard_normal((draws, n)), 0.0, None, sd_floor=1.0)


def _paired(rng: Generator, draws: int, n: int, distance: float) -> Array:
    """Return cell − rival: seeds differ by 5, the two arms of one seed by 1."""
    seed = 5 * rng.standard_normal((draws, n))
    cell, rival = (seed + np.sqrt(0.5) * rng.standard_normal((draws, n)) for _ in range(2))
    return distance + cell - rival


def _difference(rng: Generator, draws: int, n: int, distance: float) -> Tested:
    return t_test(_paired(rng, draws, n, distance), 0.0, None, sd_floor=0.1)


def _ratio(rng: Generator, draws: int, n: int, distance: float) -> Tested:
    ratios = np.exp(LOG_SD * _paired(rng, draws, n, distance))
    return ratio_test(ratios, 1.0, None, sd_floor=0.1 * LOG_SD)


def _two_ends(rng: Generator, draws: int, n: int, distance: float) -> Tested:
    return t_test(distance + rng.standard_normal((draws, n)), 0.0, 4.0, sd_floor=0.1)


def _measure(rng: Generator, draws: int, n: int, distance: float) -> Tested:
    return ratio_test(np.exp(LOG_SD * (distance + rng.standard_normal((draws, n)))), 1.0, None)


def _success(rng: Generator, draws: int, n: int, distance: float) -> Tested:
    return binomial_test(rng.binomial(n, 0.5 + STEP * distance, draws), n, 0.5, None)


def _three(rng: Generator, draws: int, n: int, distance: float) -> Codes:
    """Return verdicts on claims with three independent criteria; with the truth outside, two still hold."""
    distances = [distance, *([2.0, 2.0] if distance < 0 else [distance, distance])]
    tests = [_mean(rng, draws, n, d) for d in distances]
    p_holds, p_fails = (np.stack([getattr(t, p) for t in tests], axis=-1) for p in ("p_holds", "p_fails"))
    return together(decided(p_holds, holm(p_fails)))


RULES: tuple[tuple[str, Draw, tuple[int, ...]], ...] = (
    ("train: mean of seeds", _mean, SEEDS),
    ("train: mean of seeds, sd_floor equal to the true standard deviation", _mean_on_floor, SEEDS),
    ("train: difference paired by seed, seeds five times as far apart as their pairs", _difference, SEEDS),
    ("train: ratio paired by seed, log scale", _ratio, SEEDS),
    ("train: mean of seeds, band with two ends four standard deviations apart", _two_ends, SEEDS),
    ("train: success count, probability at least 0.5", _success, SEEDS),
    ("measure: ratios of timings, log scale", _measure, (20,)),
)
CLAIM = "claim: three criteria on means of seeds, Holm"
BIMODAL = "seeds that learn (1.0) or do not (0.2)"
DRIFT = 0.7
PLACES = (-1.0, 0.0, 1.0, 2.0)


def simulate(draws: int, seed: int = SEED) -> list[Row]:
    """Return a row for every rule, number of seeds and place of the truth, then the warnings."""
    rng = np.random.default_rng(seed)
    rows = []
    for rule, draw, sizes in RULES:
        for n in sizes:
            for place in PLACES:
                test = draw(rng, draws, n, place)
                rows.append(_row(rule, n, place, decided(test.p_holds, test.p_fails)))
    rows += [_row(CLAIM, n, place, _three(rng, draws, n, place)) for n in SEEDS for place in PLACES]
    return rows + list(_misuses(rng, draws))


def _row(rule: str, n: int, distance: float, codes: Codes, warning: bool = False) -> Row:
    return Row(
        rule=rule,
        n=n,
        distance=distance,
        reproduced=float((codes == 1).mean()),
        rejected=float((codes == -1).mean()),
        draws=codes.size,
        warning=warning,
    )


def _misuses(rng: Generator, draws: int) -> Iterator[Row]:
    """Yield what a rule says where it is misused, and the right rule; the truth is on the end of the band."""
    for learns, band in ((0.875, 0.9), (0.125, 0.3)):
        for n in SEEDS:
            learned = rng.random((draws, n)) < learns
            values = np.where(learned, 1.0, 0.2) + 0.01 * rng.standard_normal((draws, n))
            test = t_test(values, band, None, sd_floor=0.02)
            name = f"{BIMODAL}, judged by their mean: at least {band:g}"
            yield _row(name, n, 0.0, decided(test.p_holds, test.p_fails), warning=True)
            test = binomial_test((values >= 0.6).sum(-1), n, learns, None)
            name = f"the same seeds as a success count: probability at least {learns:g}"
            yield _row(name, n, 0.0, decided(test.p_holds, test.p_fails))
    noise = rng.standard_normal((draws, 20))
    for i in range(1, 20):
        noise[:, i] = DRIFT * noise[:, i - 1] + np.sqrt(1 - DRIFT**2) * noise[:, i]
    test = ratio_test(np.exp(LOG_SD * noise), 1.0, None)
    name = f"ratios of timings that drift (correlation {DRIFT:g} from one to the next)"
    yield _row(name, 20, 0.0, decided(test.p_holds, test.p_fails), warning=True)


def power(draws: int, distances: Sequence[float], n: int, seed: int = SEED) -> Array:
    """Return the share of *reproduced* at each distance inside the band, in standard deviations of a seed."""
    rng = np.random.default_rng(seed)
    tests = [_mean(rng, draws, n, distance) for distance in distances]
    return np.array([(decided(test.p_holds, test.p_fails) == 1).mean() for test in tests])


def render(rows: Sequence[Row], curves: dict[int, Array], fine: dict[int, Array], grid: Array) -> str:
    """Return the document as Markdown.

    Args:
        rows: what `simulate` returned.
        curves: seeds → power at DISTANCES.
        fine: seeds → power at `grid`, to read off the distance of 80 %.
    """
    draws = rows[0].draws
    reached = {n: _reach(fine[n], grid) for n in SEEDS}
    return f"""# How often the verdicts are right

Generated by `python -m repro.operating --draws {draws}`; do not edit. Every share is of {draws:,} simulated
claims that went through the functions that decide real ones (`repro/rules.py`); its standard error is at most
{_percent(0.5 / draws**0.5)}, near 5 % about {_percent((ALPHA * (1 - ALPHA) / draws) ** 0.5)}.

## What an author of a claim should know

- Put the end of a band well away from the number you expect. With one end, *reproduced* is 80 % likely from
  {reached[3]} seed standard deviations inside with 3 seeds, {reached[5]} with 5, {reached[10]} with 10. A
  control must lie as far outside to come out red. Nearer, most verdicts are *inconclusive*, not wrong.
- Every criterion of a claim must hold by itself: three criteria need more room than one.
- A `sd_floor` above the true standard deviation makes both verdicts rarer, never more often wrong.
- Where seeds either learn or do not, judge success counts. The mean of three seeds that all learned has
  almost no spread and claims far too much: see "Where a rule is misused".
- Success counts need five seeds. Three of three only show a probability above 0.37, and no band can be both
  reproduced by three successes and rejected by three failures: no control could be red.
- Beside other criteria a count has to survive Holm's correction to be rejected: of a probability of at least
  0.5 that takes six seeds with two or three criteria, seven with up to six, eight with up to twelve.
- Repeated timings must be independent: interleave what is compared. Drifting timings are judged wrongly.

## Power against distance

Share of *reproduced*, one criterion on the mean of n seeds, truth inside a band with one end, by distance
from it in standard deviations (sd) of a seed.

{_markdown(["n", *(f"{d:g} sd" for d in DISTANCES)], [[n, *map(_percent, curves[n])] for n in SEEDS])}

![Power against distance](operating-curve.svg)

## Errors and power of every rule

Each entry is *reproduced* / *not reproduced*; the rest is *inconclusive*. The truth lies outside the band, on
its end, or inside; sd: standard deviation of a seed, of a pair, or of a timing's logarithm. For success
counts the truth is a probability of {0.5 - STEP:g}, 0.5, {0.5 + STEP:g} and {0.5 + 2 * STEP:g}.
Of a claim's three criteria one lies outside in the first column, the other two 2 sd inside; in the other
columns all three lie at the same place.

{_markdown(["rule", "n", "1 sd outside", "on the end", "1 sd inside", "2 sd inside"], _pivot(rows))}

## Where a rule is misused

The truth is exactly on the end of the band, so both verdicts should be given at most 5 % of the time.

{_markdown(["what", "n", "reproduced", "not reproduced"], _misused(rows))}

## What success counts can show

One-sided 95 % limits of the success probability. A criterion with a control needs a band "at least p" with p
in the last column: success in every seed reproduces it, failure in every seed rejects it.

{_markdown(["n", "all succeed", "all but one succeed", "none succeeds", "p"], _counts())}
"""


def _pivot(rows: Sequence[Row]) -> list[list[object]]:
    bounds = ["≤ 5 % / –", "≤ 5 % / ≤ 5 %", "– / ≤ 5 %", "≥ 80 % from n = 5 / ≤ 5 %"]
    lines: list[list[object]] = [["*bound*", "", *bounds]]
    names = [rule for rule, _, _ in RULES] + [CLAIM]
    kept = [row for row in rows if row.rule in names]
    for i in range(0, len(kept), len(PLACES)):
        some = kept[i : i + len(PLACES)]
        shares = [f"{_percent(row.reproduced)} / {_percent(row.rejected)}" for row in some]
        lines.append([some[0].rule, some[0].n, *shares])
    return lines


def _misused(rows: Sequence[Row]) -> list[list[object]]:
    names = [rule for rule, _, _ in RULES] + [CLAIM]
    return [
        [
            f"**{row.rule}**" if row.warning else row.rule,
            row.n,
            _percent(row.reproduced),
            _percent(row.rejected),
        ]
        for row in rows
        if row.rule not in names
    ]


def _counts() -> list[list[object]]:
    lines: list[list[object]] = []
    for n in (3, 4, 5, 7, 10):
        test = binomial_test([0, n - 1, n], n, 0.5, None)
        none, most, every = test.high[0], test.low[1], test.low[2]
        possible = f"{none:.3f} to {every:.3f}" if none <= every else "no such band"
        lines.append([n, f"> {every:.3f}", f"> {most:.3f}", f"< {none:.3f}", possible])
    return lines


def _reach(shares: Array, grid: Array) -> str:
    """Return the first distance from which the power is at least POWER."""
    return f"{grid[np.flatnonzero(shares < POWER)[-1] + 1]:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _markdown(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    from tabulate import tabulate

    return tabulate(lines, head, tablefmt="github", disable_numparse=True)


def _draw(fine: dict[int, Array], grid: Array, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"svg.hashsalt": "operating", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
        for n, shares in fine.items():
            axes.plot(grid, shares, label=f"{n} seeds")
        axes.axhline(POWER, color="grey", linewidth=0.8, linestyle=":")
        axes.axhline(ALPHA, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xlabel="distance of the truth inside the band, seed standard deviations")
        axes.set(ylabel="share reproduced", ylim=(0, 1.02), xlim=(0, grid[-1]))
        axes.legend(frameon=False)
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the document and its figure; return 1 where a rule misses its bound, else 0."""
    parser = argparse.ArgumentParser(prog="python -m repro.operating", description="Regenerate the document.")
    parser.add_argument("--draws", type=int, default=10_000, help="simulated claims a row")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder to write to")
    options = parser.parse_args(arguments)
    if options.draws < 1000:
        parser.error(f"--draws {options.draws} is too few to tell 5 % from 10 %; give 1000 or more.")
    if not options.docs.is_dir():
        parser.error(f"there is no folder {options.docs}; name one with --docs.")
    rows = simulate(options.draws)
    grid = np.linspace(0, 5, 51)
    fine = {n: power(options.draws, grid.tolist(), n) for n in SEEDS}
    curves = {n: power(options.draws, DISTANCES, n) for n in SEEDS}
    file = options.docs / "operating-curve.md"
    try:
        file.write_text(render(rows, curves, fine, grid))
        _draw(fine, grid, options.docs / "operating-curve.svg")
    except OSError as error:
        parser.error(f"{options.docs} cannot be written ({error.strerror}); name a folder with --docs.")
    broken = [row for row in rows if not row.kept]
    for row in broken:
        print(f"bound missed: {row}", file=sys.stderr)
    print(f"{file}: {len(rows)} rows, {len(broken)} bounds missed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
