"""A task, a model, an algorithm and measures small enough to train in milliseconds, and recipes of them."""

from collections.abc import Mapping
from typing import Any

from repro.recipe import Part, Recipe, Stage, Stop, part
from repro.record import Record

PARTS = "tests.toys.parts"


def stage(steps: int = 30, **changes: object) -> Stage:
    """One stage of plain gradient descent; `slow`, `explode_at`, … in `algorithm` make it misbehave."""
    algorithm = changes.pop("algorithm", {})
    assert isinstance(algorithm, dict)
    given = {"batch": 4, "lr": 0.01, **changes}
    return Stage(algorithm=part(f"{PARTS}.Backprop", **algorithm), steps=steps, **given)  # type: ignore[arg-type]


def recipe(*stages: Stage, task: dict | None = None, model: dict | None = None, **changes: object) -> Recipe:
    """A recipe that learns a noisy linear rule with dropout, so that every random stream matters."""
    given = {
        "task": part(f"{PARTS}.Rule", **(task or {})),
        "model": part(f"{PARTS}.Net", **(model or {})),
        "measures": (part(f"{PARTS}.error", size=64),),
        "validation": part(f"{PARTS}.error", size=16),
        **changes,
    }
    return Recipe(stages=stages or (stage(),), **given)  # type: ignore[arg-type]


def measurement(**args: object) -> Recipe:
    """A recipe without a model."""
    return Recipe(measures=(Part(path=f"{PARTS}.count", args=args),))


def stop(**changes: object) -> Stop:
    """Stop when the validation error is below a bound."""
    return Stop(**{"metric": "error", "at_most": 0.5, **changes})  # type: ignore[arg-type]


def made_up(cell: str, recipe: Recipe, seed: int, metrics: Mapping[str, Any]) -> Record:
    """A record of a trial that never ran, to see what a claim makes of its numbers."""
    return Record(
        key=f"{cell}-{seed}",
        recipe=recipe.to_plain(),
        seed=seed,
        device="cpu",
        device_class="cpu",
        sources={},
        metrics=metrics,
    )
