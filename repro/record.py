"""Records: what one trial left behind, as plain JSON. Immutable; metrics, curves, cost and environment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.recipe import Recipe, RecipeError, _plain, from_plain

STATUSES = ("done", "failed", "absent")


@dataclass(frozen=True, kw_only=True)
class Record:
    """The result of one trial.

    Attributes:
        key: `<identity>-<fingerprint>`: recipe, seed and device class, then the code they reach.
        recipe: the recipe as plain JSON types.
        device: cpu or cuda; `device_class` is the same, or the processor or GPU model for timings.
        sources: source file → digest of its code without comments and docstrings, for every file the recipe
            reaches.
        status: done, failed (`error` says how) or absent (a data set is missing; `error` says what to put
            where).
        metrics: name → number, or (nested) list of numbers.
        training: one entry a logged step: {"stage", "step", "loss", …}.
        validation: one entry a validation: {"stage", "step", metric: value, …}.
        cost: wall_s, steps, parameters, peak_bytes (process maximum resident set, or the CUDA allocator's
            peak).
        environment: python, torch, processor, gpu, git state, and what else was true of the machine.
    """

    key: str
    recipe: Mapping[str, Any]
    seed: int
    device: str
    device_class: str
    sources: Mapping[str, str]
    status: str = "done"
    error: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    training: tuple[Mapping[str, Any], ...] = ()
    validation: tuple[Mapping[str, Any], ...] = ()
    cost: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise RecipeError(f"the record {self.key} has the unknown status {self.status!r}.")
        for kind, names in (
            (str, ("key", "device", "device_class", "error")),
            (int, ("seed",)),
            (Mapping, ("recipe", "sources", "metrics", "cost", "environment")),
            ((list, tuple), ("training", "validation")),
        ):
            for name in names:
                if not isinstance(getattr(self, name), kind):
                    found = type(getattr(self, name)).__name__
                    raise RecipeError(f"the record's {name} is a {found}.")
        for name, entry in (("training", self.training), ("validation", self.validation)):
            if not all(isinstance(point, Mapping) for point in entry):
                raise RecipeError(f"the record's {name} curve has an entry that is no object.")
            for point in entry:
                if not {"stage", "step"} <= point.keys() or not all(map(_is_number, point.values())):
                    raise RecipeError(
                        f"the record's {name} curve has a point without stage or step, or with no number."
                    )
        for name, value in self.cost.items():
            if not _is_number(value) or not math.isfinite(value):
                found = value if _is_number(value) else f"a {type(value).__name__}"
                raise RecipeError(f"the record's cost.{name} is {found}; give a number.")
        for name, value in self.metrics.items():
            if _holds_object(value):
                raise RecipeError(f"the record's metric {name} is an object; give numbers, or lists of them.")
        object.__setattr__(self, "training", tuple(self.training))
        object.__setattr__(self, "validation", tuple(self.validation))

    def to_json(self) -> str:
        """Return the record as indented JSON text with a final newline."""
        return json.dumps(_plain(self), indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str) -> Record:
        """Read a record back.

        Raises:
            RecipeError: text that is no JSON, or keys that are unknown, missing or impossible.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise RecipeError(
                f"not a complete JSON file ({error.msg.removesuffix(' at')} at line {error.lineno})"
            ) from None
        except RecursionError:
            raise RecipeError("lists within lists without end") from None
        record = from_plain(Record, data, "the record")
        Recipe.from_plain(record.recipe)
        return record


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _holds_object(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_object, value))
    return isinstance(value, Mapping)
