"""What further claims on the copy task share; cells that are those of sab.copy_t300 have its recipes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from claims.sab._copy import GPU, HALF_WAY, SMOKE, Scale
from claims.sab.copy_t300 import SMALL as SMALL
from repro.claim import Control, Criterion, Line, Plot
from repro.recipe import Recipe, part

TINY = replace(SMOKE, multiples=(1,))
SHORT = replace(SMALL, delay=10)  # T = 100, reduced as SMALL reduces T = 300
LONG_PAPER, SHORT_PAPER = GPU, replace(GPU, delay=100)


def learned(cell: str, scale: Scale, label: str, reduced: str, paper: float | None = None) -> Criterion:
    """Return the criterion that a cell has learned the task; where the scale is reduced it is a premise."""
    return Criterion(
        name=f"{cell}_learned",
        kind="train",
        statement=f"{label} has learned the task",
        cell=cell,
        metric=scale.accuracy(),
        at_least=HALF_WAY if reduced else 0.9,
        sd_floor=0.02,
        paper=paper,
        premise=bool(reduced),
    )


def nothing_read(cell: str, without: str) -> Control:
    """Return the control of `learned`: nothing is read."""
    return Control(name=f"nothing read, {cell} learned", criterion=f"{cell}_learned", swap={cell: without})


def gain(name: str, cell: str, rival: str, scale: Scale, printed: float, statement: str) -> Criterion:
    """Return the criterion that `cell` is ahead of `rival` by at least half of what is printed."""
    return Criterion(
        name=name,
        kind="train",
        statement=f"{statement} by half of the printed gain",
        cell=cell,
        rival=rival,
        metric=scale.accuracy(),
        at_least=round(printed / 2, 4),
        sd_floor=0.03,
        paper=round(printed, 4),
    )


def traced(recipe: Recipe, scale: Scale) -> Recipe:
    """Return the recipe with SAB's inside measured: at the end, and by step of the training."""
    path = "reference.measure.sab_trace"
    sequences = min(64, scale.sequences)
    validation = part(f"{path}.validation", sequences=min(256, scale.sequences), traced=sequences)
    measures = (*recipe.measures, part(f"{path}.sab_trace", sequences=sequences))
    return replace(recipe, validation=validation, measures=measures)


# What one writes first where the paper is silent: uniform ±1/√hidden everywhere, the released code's
# clipping.
NAIVE: Mapping[str, Any] = {"model": {"input_scale": 1.0, "recurrent_scale": 1.0}, "stage": {"clip": 1.0}}


def variants(scale: Scale) -> dict[str, Recipe]:
    """Return the traced cells of sab.fragility, of which sab.attention_map has two."""
    sab = traced(scale.sab(), scale)
    naive = sab.but(**NAIVE)
    return {
        "default": sab,
        "naive": naive,
        "stored_output": naive.but(model={"memory": "output"}),
        "bounded_sum": naive.but(model={"denominator": 1.0}),
        "no_retrieval": traced(scale.sab(retrieval="none"), scale),
    }


def learning(title: str, y_label: str, metric: str, cells: Mapping[str, str], name: str) -> Plot:
    """Return the plot of a validation metric while training."""
    return Plot(
        name=name,
        title=title,
        x_label="step",
        y_label=y_label,
        learning=True,
        lines=tuple(Line(cell=cell, metrics=(metric,), label=label) for cell, label in cells.items()),
    )
