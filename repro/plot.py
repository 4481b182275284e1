"""Figures of the report, as SVG text that is the same whenever the numbers are the same.

Each seed is a thin line or dot, a band reaches from the lowest to the highest, their mean is a thick line
with markers, the paper's values are dashed and hollow.
Colours are the Okabe-Ito palette, and each line has its own marker, so that colour is never the only sign.
matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.claim import Line, Plot, Protocol
from repro.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the layout is the same everywhere
    "font.size": 10.5,
    "axes.grid": True,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 3,  # long enough for dashes to show
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and enlarged
    "svg.hashsalt": "repro",
}


@dataclass(frozen=True)
class Series:
    """One line of a figure; each curve is (x values, y values) of equal length, y without gaps."""

    label: str
    seeds: tuple[tuple[int, tuple[float, ...], tuple[float, ...]], ...] = ()
    mean: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    paper: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())


@dataclass(frozen=True)
class Picture:
    """A figure's content: the series of a line plot, or (seed, matrix) for an image."""

    plot: Plot
    series: tuple[Series, ...] = ()
    matrices: tuple[tuple[int, tuple[tuple[float, ...], ...]], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no measured value to draw."""
        return not self.matrices and not any(s.seeds for s in self.series)

    @property
    def stamp(self) -> str:
        """Digest of everything the figure shows and of this module; it is written into the SVG."""
        shown = json.dumps(asdict(self), sort_keys=True).encode()
        return "drawn from " + hashlib.sha256(Path(__file__).read_bytes() + shown).hexdigest()[:16]


def picture(plot: Plot, records: Mapping[str, Sequence[Record]]) -> Picture:
    """Return what `plot` shows of `records` (cell → records); records without the metric are left out."""
    if plot.kind == "image":
        line = plot.lines[0]
        found = [(r.seed, r.metrics.get(line.metrics[0])) for r in records.get(line.cell, ())]
        matrices = tuple((seed, _matrix(m)) for seed, m in sorted(found, key=lambda f: f[0]) if _is_matrix(m))
        return Picture(plot, matrices=matrices)
    return Picture(plot, series=tuple(_series(plot, line, records) for line in plot.lines))


def learning_plot(protocol: Protocol, records: Mapping[str, Sequence[Record]]) -> Plot | None:
    """Return the plot of one validation metric (else the training loss) of every trained cell.

    None where the protocol declares such a plot itself, or where no record has a curve.
    """
    if any(plot.learning for plot in protocol.plots):
        return None
    curves = {cell: [r.validation for r in records.get(cell, ())] for cell in protocol.cells}
    if not any(entries for found in curves.values() for entries in found):
        curves = {cell: [r.training for r in records.get(cell, ())] for cell in protocol.cells}
    names = sorted(
        {k for found in curves.values() for e in found for entry in e for k in entry} - {"stage", "step"}
    )
    if not names:
        return None
    stops = [s.stop.metric for recipe in protocol.cells.values() for s in recipe.stages if s.stop is not None]
    metric = next((name for name in (*stops, "loss") if name in names), names[0])
    return Plot(
        name="learning",
        title="While training",
        x_label="optimiser step",
        y_label=metric,
        lines=tuple(
            Line(cell=cell, metrics=(metric,), label=cell) for cell, found in curves.items() if any(found)
        ),
        learning=True,
    )


def svg(shown: Picture) -> str:
    """Return the figure as SVG text, 640 px wide; equal pictures give equal text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own matplotlibrc must not change the report
        matplotlib.rcParams.update(STYLE)
        figure = Figure(layout="constrained")
        FigureCanvasSVG(figure)
        (_image if shown.matrices else _lines)(figure, shown)
        text = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Title": shown.plot.title, "Description": shown.stamp}
        figure.savefig(text, format="svg", metadata=metadata)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _series(plot: Plot, line: Line, records: Mapping[str, Sequence[Record]]) -> Series:
    if plot.kind == "scatter":
        curve = _dot
    elif line.cells:
        curve = _cell_point
    else:
        curve = _learning_curve if plot.learning else _metric_curve
    drawn: dict[int, list[tuple[float, float]]] = {}  # seed → points
    whole: dict[int, dict[float, float]] = {}
    for cell in line.drawn:
        for record in records.get(cell, ()):
            points = [(x, y) for x, y in curve(plot, line, cell, record) if math.isfinite(y)]
            if points:
                drawn.setdefault(record.seed, []).extend(points)
                if record.status == "done":  # a failed trial's curve is shown, but is no part of the mean
                    whole.setdefault(record.seed, {}).update(points)
    seeds = [(seed, *_columns(points)) for seed, points in sorted(drawn.items())]
    mean = _mean([points for _, points in sorted(whole.items())], carry=plot.learning, gaps=bool(plot.ticks))
    stated = line.paper or ()
    paper = [(x, p) for x, p in zip(_x(plot, len(stated)), stated, strict=False) if p is not None]
    return Series(line.label, tuple(seeds), _columns(mean), _columns(paper))


def _x(plot: Plot, count: int) -> tuple[float, ...]:
    return plot.x or tuple(float(i) for i in range(count))


def _cell_point(plot: Plot, line: Line, cell: str, record: Record) -> list[tuple[float, float]]:
    return [(plot.x[line.cells.index(cell)], number(record.metrics.get(line.metrics[0])))]


def _dot(plot: Plot, line: Line, cell: str, record: Record) -> list[tuple[float, float]]:
    x, y = (number(record.metrics.get(name)) for name in line.metrics)
    return [(x, y)] if math.isfinite(x) else []


def _metric_curve(plot: Plot, line: Line, cell: str, record: Record) -> list[tuple[float, float]]:
    values = [record.metrics.get(name) for name in line.metrics]
    if len(values) == 1 and isinstance(values[0], list | tuple):
        values = list(values[0])
    return list(zip(_x(plot, len(values)), (number(v) for v in values), strict=False))


def _learning_curve(plot: Plot, line: Line, cell: str, record: Record) -> list[tuple[float, float]]:
    name = line.metrics[0]
    entries = record.validation if any(name in e for e in record.validation) else record.training
    return [(float(entry["step"]), number(entry.get(name))) for entry in entries]


def number(value: Any) -> float:
    """Return a number as float, a (nested) list of samples as their mean, anything else as NaN (a gap)."""
    if isinstance(value, list | tuple) and value:
        return sum(number(v) for v in value) / len(value)
    return float(value) if isinstance(value, int | float) else math.nan


def _mean(curves: Sequence[Mapping[float, float]], *, carry: bool, gaps: bool) -> list[tuple[float, float]]:
    """Return the mean at each x that all curves have, or with `gaps` any.

    With `carry` a curve that ended keeps its last y.
    """
    points = []
    for x in sorted({x for curve in curves for x in curve}):
        if carry:
            known = [[c[k] for k in c if k <= x] for c in curves]
            values = [k[-1] for k in known if k]
        else:
            values = [c[x] for c in curves if x in c]
        if gaps or len(values) == len(curves):
            points.append((x, sum(values) / len(values)))
    return points


def _columns(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(float(p[0]) for p in points), tuple(float(p[1]) for p in points)


def _is_matrix(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(row, list | tuple) and row and len(row) == len(value[0]) for row in value)


def _matrix(value: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(number(v) for v in row) for row in value)


def _lines(figure: Figure, shown: Picture) -> None:
    plot = shown.plot
    axes = figure.add_subplot()
    for i, series in enumerate(shown.series):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
        dots = [(x, y) for _, xs, ys in series.seeds for x, y in zip(xs, ys, strict=True)]
        if plot.ticks:
            axes.plot(*_columns(dots), color=colour, linestyle="none", marker=".", markersize=4, alpha=0.55)
            axes.plot(*series.mean, color=colour, linestyle="none", marker=marker, markersize=5,
                      label=series.label)  # fmt: skip
            continue
        if plot.kind == "scatter":
            axes.plot(*_columns(dots), color=colour, linestyle="none", marker=marker, markersize=5,
                      label=series.label)  # fmt: skip
            continue
        if len(series.seeds) > 1 and len({xs for _, xs, _ in series.seeds}) == 1:
            ends = [(min(ys), max(ys)) for ys in zip(*(ys for _, _, ys in series.seeds), strict=True)]
            axes.fill_between(series.seeds[0][1], *_columns(ends), color=colour, alpha=0.12, linewidth=0)
        for _, xs, ys in series.seeds:
            dot = "." if len(xs) < 15 else None
            axes.plot(xs, ys, color=colour, linewidth=0.8, alpha=0.55, marker=dot, markersize=4)
        if series.mean[0]:
            every = max(1, len(series.mean[0]) // 10)
            axes.plot(*series.mean, color=colour, linewidth=2.2, marker=marker, markersize=5, markevery=every,
                      label=series.label)  # fmt: skip
        if series.paper[0]:
            axes.plot(*series.paper, color=colour, linewidth=1.4, linestyle=(0, (5, 3)), marker=marker,
                      markersize=6, markerfacecolor="white", label=f"{series.label}, paper")  # fmt: skip
    if plot.level is not None:
        axes.axhline(
            plot.level, color="#555555", linewidth=1.2, linestyle=":", label=plot.level_label or None
        )
    axes.set_title(textwrap.fill(plot.title + _correlation(shown), 72), loc="left")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(textwrap.fill(plot.y_label, 40))
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    _x_ticks(axes, plot)
    entries = len(axes.get_legend_handles_labels()[1])
    longest = max((len(label) for label in axes.get_legend_handles_labels()[1]), default=0)
    columns = 3 if longest <= 20 else 2 if longest <= 34 else 1
    if entries:
        figure.legend(loc="outside lower left", ncols=columns)
    names = 1.2 if plot.ticks else 0.0
    figure.set_size_inches(6.4, 3.5 + names + 0.2 * math.ceil(entries / columns))


def _correlation(shown: Picture) -> str:
    """Return the correlation of a scatter plot's dots, in the logarithms where both axes have them."""
    xs = [x for s in shown.series for _, some, _ in s.seeds for x in some]
    ys = [y for s in shown.series for _, _, some in s.seeds for y in some]
    if shown.plot.kind != "scatter" or len(set(xs)) < 3 or len(set(ys)) < 3:
        return ""
    logs = shown.plot.log_x and shown.plot.log_y and min(*xs, *ys) > 0
    pairs = ([math.log(v) for v in xs], [math.log(v) for v in ys]) if logs else (xs, ys)
    return f": r = {statistics.correlation(*pairs):.2f}{' of logarithms' if logs else ''}, {len(xs)} runs"


def _x_ticks(axes: Axes, plot: Plot) -> None:
    """Put the ticks where the values are, by name or if their numbers do not run into each other."""
    if plot.ticks:
        axes.set_xticks(plot.x, plot.ticks, rotation=60, ha="right", rotation_mode="anchor", fontsize="small")
        return
    xs = sorted(set(plot.x))
    if plot.learning or not xs or (plot.log_x and xs[0] <= 0):
        return
    places = [math.log(x) for x in xs] if plot.log_x else list(xs)
    gaps = [b - a for a, b in itertools.pairwise(places)]
    if min(gaps, default=0) >= 0.07 * (places[-1] - places[0]):
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.set_xticks([], minor=True)


def _image(figure: Figure, shown: Picture) -> None:
    plot = shown.plot
    across = min(3, len(shown.matrices))
    down = math.ceil(len(shown.matrices) / across)
    values = [v for _, m in shown.matrices for row in m for v in row if math.isfinite(v)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    panels = list(figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat)
    for axes in panels:
        axes.set_axis_off()
    for axes, (seed, matrix) in zip(panels, shown.matrices, strict=False):
        axes.set_axis_on()
        axes.grid(False)
        drawn = axes.imshow(
            matrix, cmap="cividis", vmin=low, vmax=high, aspect="auto", interpolation="nearest"
        )
        axes.locator_params(integer=True)
        axes.set_title(f"seed {seed}", fontsize=9.5)
    figure.suptitle(textwrap.fill(plot.title, 72), fontsize=11)
    figure.supxlabel(plot.x_label, fontsize=10.5)
    figure.supylabel(plot.y_label, fontsize=10.5)
    figure.colorbar(drawn, ax=panels, shrink=0.9)
    figure.set_size_inches(6.4, 0.9 + 2.3 * down)
