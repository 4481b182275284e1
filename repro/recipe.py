"""Recipes: frozen, self-validating data that say how one number is obtained.

A recipe names what it runs by dotted path (`reference.models.sab.SAB`), resolved only when a trial runs, so
that reading recipes never imports torch. Its canonical JSON is its identity.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, TypeVar

OPTIMISERS = ("adam", "adamw", "sgd")
DECAYS = ("constant", "linear", "cosine")


class RecipeError(ValueError):
    """A recipe or claim that cannot mean anything; the message is one sentence with the remedy."""


def _frozen(value: Any, where: str) -> Any:
    """Return `value` with every container made immutable; raise RecipeError if it is not JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        if isinstance(value, float) and not math.isfinite(value):
            raise RecipeError(f"{where} is {value}; give a finite value.")
        return value
    if isinstance(value, list | tuple):
        return tuple(_frozen(item, where) for item in value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise RecipeError(f"{where} has a key that is not a string; use string keys.")
        return MappingProxyType({key: _frozen(value[key], f"{where}.{key}") for key in sorted(value)})
    raise RecipeError(
        f"{where} is a {type(value).__name__}; use numbers, strings, booleans, lists or mappings."
    )


def _plain(value: Any) -> Any:
    """Return `value` as plain JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


T = TypeVar("T")


def from_plain(cls: type[T], data: object, where: str) -> T:
    """Build `cls` from a JSON object, rejecting unknown and missing keys by name.

    Raises:
        RecipeError: `data` is no object, has a key that `cls` lacks, or lacks one that `cls` requires.
    """
    if not isinstance(data, Mapping):
        raise RecipeError(f"{where} must be an object, not {type(data).__name__}.")
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise RecipeError(f"{where} has the unknown key '{unknown[0]}'; known keys: {', '.join(known)}.")
    required = {n for n, f in known.items() if f.default is f.default_factory is dataclasses.MISSING}
    missing = sorted(required - set(data))
    if missing:
        raise RecipeError(f"{where} lacks the key '{missing[0]}'; add it.")
    return cls(**data)


def _number(where: str, value: object, *, low: float, whole: bool = False, open_low: bool = False) -> None:
    """Raise RecipeError unless `value` is a (whole) number of at least (above, if `open_low`) `low`."""
    kinds = int if whole else (int | float)
    ok = isinstance(value, kinds) and not isinstance(value, bool)
    ok = ok and math.isfinite(value)  # type: ignore[arg-type]
    if not ok or not (value > low if open_low else value >= low):  # type: ignore[operator]
        word = "a whole number" if whole else "a number"
        raise RecipeError(
            f"{where} is {value!r}; give {word} {'above' if open_low else 'of at least'} {low:g}."
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """Something a recipe runs: the dotted path of a class or function and its keyword arguments."""

    path: str
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if (
            not isinstance(self.path, str)
            or self.path.count(".") < 2
            or not all(name.isidentifier() for name in self.path.split("."))
        ):
            raise RecipeError(f"the path {self.path!r} is not dotted; write package.module.Name.")
        if not isinstance(self.args, Mapping):
            raise RecipeError(f"the arguments of {self.path} must be a mapping.")
        object.__setattr__(self, "args", _frozen(self.args, self.path))

    def but(self, **changes: Any) -> Part:
        """Return the same part with some arguments changed."""
        return Part(path=self.path, args={**self.args, **changes})


def part(path: str, /, **args: Any) -> Part:
    """Return `Part(path, args)`: `part("reference.tasks.copy.Copy", delay=30)`."""
    return Part(path=path, args=args)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Early stopping, read from the validation stream: the same rule for every arm of a claim.

    Training of the stage ends once `metric` has been at least (or at most) the bound in `checks` validations
    in a row.
    """

    metric: str
    at_least: float | None = None
    at_most: float | None = None
    checks: int = 1

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise RecipeError(f"the stop on '{self.metric}' needs exactly one of at_least and at_most.")
        if not isinstance(self.metric, str):
            raise RecipeError(f"Stop.metric is {self.metric!r}; give the name of a validation metric.")
        for name in ("at_least", "at_most"):
            if getattr(self, name) is not None:
                _number(f"Stop.{name}", getattr(self, name), low=-math.inf)
        _number("Stop.checks", self.checks, low=1, whole=True)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One training stage: an algorithm, its optimiser and schedule.

    Attributes:
        algorithm: class whose `backward(model, batch)` leaves gradients in `.grad` and returns metrics.
        steps: optimiser steps at most.
        batch: sequences a step.
        optimiser: adam, adamw or sgd; `lr`, `betas`, `weight_decay` as torch has them.
        clip: bound on the global gradient norm; None for no clipping.
        warmup: steps over which the learning rate rises linearly from 0.
        decay: what the learning rate does after the warm-up until `steps`: constant, linear or cosine to
            `lr_end`.
        keep_optimiser: carry the moments of the stage before (parameters that had no gradient have none yet).
        validate_every: steps between validations; 0 for none.
        stop: early stopping, or None.
    """

    algorithm: Part
    steps: int
    batch: int
    lr: float
    optimiser: str = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float | None = None
    warmup: int = 0
    decay: str = "constant"
    lr_end: float = 0.0
    keep_optimiser: bool = False
    validate_every: int = 0
    stop: Stop | None = None

    def __post_init__(self) -> None:
        _number("Stage.steps", self.steps, low=1, whole=True)
        _number("Stage.batch", self.batch, low=1, whole=True)
        _number("Stage.lr", self.lr, low=0, open_low=True)
        _number("Stage.lr_end", self.lr_end, low=0)
        _number("Stage.weight_decay", self.weight_decay, low=0)
        _number("Stage.warmup", self.warmup, low=0, whole=True)
        _number("Stage.validate_every", self.validate_every, low=0, whole=True)
        if self.clip is not None:
            _number("Stage.clip", self.clip, low=0, open_low=True)
        betas = self.betas if isinstance(self.betas, list | tuple) else ()
        if len(betas) != 2 or not all(isinstance(b, int | float) and 0 <= b < 1 for b in betas):
            raise RecipeError(f"Stage.betas is {self.betas!r}; give two numbers from 0 to below 1.")
        if self.optimiser not in OPTIMISERS:
            raise RecipeError(
                f"the optimiser {self.optimiser!r} is unknown; choose from {', '.join(OPTIMISERS)}."
            )
        if self.decay not in DECAYS:
            raise RecipeError(f"the decay {self.decay!r} is unknown; choose from {', '.join(DECAYS)}.")
        if self.stop is not None and not self.validate_every:
            raise RecipeError("a stage with a stop needs validate_every above 0.")
        for name, kind in (("algorithm", Part), ("stop", Stop | None), ("keep_optimiser", bool)):
            if not isinstance(getattr(self, name), kind):
                found = type(getattr(self, name)).__name__
                raise RecipeError(f"Stage.{name} holds a {found}; see repro.recipe.")
        object.__setattr__(self, "betas", tuple(float(b) for b in betas))
        for name in ("lr", "lr_end", "weight_decay", "clip"):  # 1 and 1.0 are one recipe
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one number is obtained: task, model, stages and measures.

    Without stages and model it is a measurement: its measures are called as `fn(generator=, device=,
    **args)`; with a model as `fn(model=, task=, generator=, **args)`. Three random streams: training,
    validation (early stopping) and judgement (the measures).
    """

    measures: tuple[Part, ...]
    task: Part | None = None
    model: Part | None = None
    stages: tuple[Stage, ...] = ()
    validation: Part | None = None

    def __post_init__(self) -> None:
        for name in ("measures", "stages"):
            if not isinstance(getattr(self, name), list | tuple):
                raise RecipeError(f"Recipe.{name} must be a list or tuple.")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for where, value, kind in [
            *[("measures", m, Part) for m in self.measures],
            *[("stages", s, Stage) for s in self.stages],
            *[(n, getattr(self, n), Part | None) for n in ("task", "model", "validation")],
        ]:
            if not isinstance(value, kind):
                raise RecipeError(f"Recipe.{where} holds a {type(value).__name__}; see repro.recipe.")
        if not self.measures:
            raise RecipeError("a recipe needs at least one measure.")
        if self.stages and (self.task is None or self.model is None):
            raise RecipeError("a recipe with stages needs a task and a model.")
        if any(stage.validate_every for stage in self.stages) and self.validation is None:
            raise RecipeError("a recipe that validates needs a validation measure.")
        for before, stage in zip((None, *self.stages), self.stages, strict=False):
            if stage.keep_optimiser and (before is None or before.optimiser != stage.optimiser):
                raise RecipeError(
                    "a stage with keep_optimiser needs a stage before it with the same optimiser."
                )

    @property
    def parts(self) -> tuple[Part, ...]:
        """Everything the recipe runs."""
        some = (self.task, self.model, self.validation, *(s.algorithm for s in self.stages), *self.measures)
        return tuple(p for p in some if p is not None)

    def but(
        self,
        *,
        task: Mapping[str, Any] | None = None,
        model: Mapping[str, Any] | None = None,
        stage: Mapping[str, Any] | None = None,
        algorithm: Mapping[str, Any] | None = None,
    ) -> Recipe:
        """Return the recipe with arguments of task, model, every stage or every algorithm changed.

        The tool for controls and one-factor rows: `recipe.but(model={"retrieval": "none"})`.
        """
        changes: dict[str, Any] = {}
        if task is not None:
            changes["task"] = _some(self.task, "task").but(**task)
        if model is not None:
            changes["model"] = _some(self.model, "model").but(**model)
        if stage is not None or algorithm is not None:
            changes["stages"] = tuple(
                dataclasses.replace(s, **(stage or {}), algorithm=s.algorithm.but(**(algorithm or {})))
                for s in self.stages
            )
        return dataclasses.replace(self, **changes)

    def to_plain(self) -> dict[str, Any]:
        """Return the recipe as plain JSON types."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain

    @property
    def canonical(self) -> str:
        """Canonical JSON: sorted keys, no spaces; equal recipes have equal text."""
        return json.dumps(self.to_plain(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    @staticmethod
    def from_plain(data: object) -> Recipe:
        """Read a recipe back; the inverse of `to_plain`.

        Raises:
            RecipeError: an unknown, missing or impossible key at any level.
        """

        def a_part(value: object, where: str) -> Part | None:
            return None if value is None else from_plain(Part, value, where)

        def a_stage(value: object, where: str) -> Stage:
            if isinstance(value, Mapping):
                stop = value.get("stop")
                value = {
                    **value,
                    **(
                        {"algorithm": a_part(value["algorithm"], f"{where}.algorithm")}
                        if "algorithm" in value
                        else {}
                    ),
                    **({"stop": from_plain(Stop, stop, f"{where}.stop")} if stop is not None else {}),
                }
            return from_plain(Stage, value, where)

        if isinstance(data, Mapping):
            built: dict[str, Any] = dict(data)
            for name in ("task", "model", "validation"):
                if name in built:
                    built[name] = a_part(built[name], name)
            for name, read in (("measures", a_part), ("stages", a_stage)):
                if name in built:
                    if not isinstance(built[name], list | tuple):
                        raise RecipeError(f"{name} must be a list.")
                    built[name] = tuple(read(v, f"{name}[{i}]") for i, v in enumerate(built[name]))
            data = built
        return from_plain(Recipe, data, "the recipe")


def _some(value: Part | None, name: str) -> Part:
    if value is None:
        raise RecipeError(f"this recipe has no {name} to change.")
    return value
