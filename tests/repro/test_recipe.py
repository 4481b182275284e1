"""Recipes validate themselves, reject unknown keys at every level, and have one canonical text."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from repro.recipe import Part, Recipe, RecipeError, Stage, Stop, part
from tests import toys

ALGO = part("a.b.Algo")
GOOD: dict[str, Any] = {"algorithm": ALGO, "steps": 1, "batch": 1, "lr": 0.1}
FULL = toys.recipe(toys.stage(3, validate_every=1, stop=toys.stop()), toys.stage(2, keep_optimiser=True))


# --- parts


@pytest.mark.parametrize("path", ["a", "a.b", "a..b.c", ".a.b.c", "a.b.c.", "a.1b.c", "a.b c.d", 5, None])
def test_paths_must_be_dotted(path: Any) -> None:
    with pytest.raises(RecipeError, match=r"is not dotted; write package\.module\.Name"):
        Part(path=path)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"x": object()}, "a.b.C.x is a object; use numbers"),
        ({"x": {"y": [1, {2}]}}, "a.b.C.x.y is a set"),
        ({"x": {1: 2}}, "a.b.C.x has a key that is not a string"),
        ({"x": math.nan}, "a.b.C.x is nan; give a finite value"),
        ({"x": [math.inf]}, "a.b.C.x is inf; give a finite value"),
        ([1], "the arguments of a.b.C must be a mapping"),
    ],
)
def test_arguments_must_be_json(args: Any, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Part(path="a.b.C", args=args)
    assert str(caught.value).startswith(message)


def test_arguments_cannot_change_afterwards() -> None:
    values = [1, 2]
    one = part("a.b.C", values=values, inner={"b": 1, "a": [None, True]})
    values.append(3)
    assert one.args["values"] == (1, 2)
    with pytest.raises(TypeError):
        one.args["inner"]["b"] = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.path = "x.y.Z"  # type: ignore[misc]


def test_a_part_but() -> None:
    assert part("a.b.C", x=1, y=2).but(y=3, z=4) == part("a.b.C", x=1, y=3, z=4)
    assert part("a.b.C", path="argument").args == {"path": "argument"}


# --- stages and stops


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "Stage.steps is 0; give a whole number of at least 1"),
        ({"steps": 1.5}, "Stage.steps is 1.5; give a whole number"),
        ({"steps": True}, "Stage.steps is True; give a whole number"),
        ({"steps": "10"}, "Stage.steps is '10'; give a whole number"),
        ({"batch": 0}, "Stage.batch is 0"),
        ({"lr": 0}, "Stage.lr is 0; give a number above 0"),
        ({"lr": math.nan}, "Stage.lr is nan"),
        ({"lr": math.inf}, "Stage.lr is inf"),
        ({"lr_end": -1}, "Stage.lr_end is -1; give a number of at least 0"),
        ({"weight_decay": -0.1}, "Stage.weight_decay is -0.1"),
        ({"clip": 0}, "Stage.clip is 0; give a number above 0"),
        ({"warmup": -1}, "Stage.warmup is -1"),
        ({"validate_every": -1}, "Stage.validate_every is -1"),
        ({"optimiser": "adm"}, "the optimiser 'adm' is unknown; choose from adam, adamw, sgd"),
        ({"decay": "step"}, "the decay 'step' is unknown; choose from constant, linear, cosine"),
        ({"betas": (0.9,)}, "Stage.betas is (0.9,); give two numbers"),
        ({"betas": (0.9, 1.0)}, "Stage.betas is (0.9, 1.0); give two numbers"),
        ({"betas": 0.9}, "Stage.betas is 0.9"),
        ({"stop": Stop(metric="x", at_least=1)}, "a stage with a stop needs validate_every above 0"),
        ({"stop": {"metric": "x"}, "validate_every": 1}, "Stage.stop holds a dict"),
        ({"algorithm": "a.b.C"}, "Stage.algorithm holds a str"),
        ({"keep_optimiser": "yes"}, "Stage.keep_optimiser holds a str"),
    ],
)
def test_impossible_stages(change: dict, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Stage(**{**GOOD, **change})
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "needs exactly one of at_least and at_most"),
        ({"at_least": 1, "at_most": 2}, "needs exactly one of at_least and at_most"),
        ({"at_least": "1"}, "Stop.at_least is '1'"),
        ({"at_most": 1, "checks": 0}, "Stop.checks is 0"),
    ],
)
def test_impossible_stops(args: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Stop(**{"metric": "x", **args})


def test_a_stop_names_a_metric() -> None:
    with pytest.raises(RecipeError, match=r"Stop\.metric is 3"):
        Stop(metric=3, at_most=-2.5)  # type: ignore[arg-type]


# --- recipes


MEASURE = part("a.b.measure")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"measures": ()}, "a recipe needs at least one measure"),
        ({"measures": MEASURE}, "Recipe.measures must be a list or tuple"),
        ({"measures": ("a.b.c",)}, "Recipe.measures holds a str"),
        ({"measures": (MEASURE,), "task": "a.b.c"}, "Recipe.task holds a str"),
        ({"measures": (MEASURE,), "stages": ({},)}, "Recipe.stages holds a dict"),
        (
            {"measures": (MEASURE,), "stages": (Stage(**GOOD),)},
            "a recipe with stages needs a task and a model",
        ),
        (
            {
                "measures": (MEASURE,),
                "stages": (Stage(**GOOD, validate_every=1),),
                "task": ALGO,
                "model": ALGO,
            },
            "a recipe that validates needs a validation measure",
        ),
        (
            {
                "measures": (MEASURE,),
                "stages": (Stage(**GOOD, keep_optimiser=True),),
                "task": ALGO,
                "model": ALGO,
            },
            "a stage with keep_optimiser needs a stage before it",
        ),
        (
            {
                "measures": (MEASURE,),
                "stages": (Stage(**GOOD), Stage(**GOOD, optimiser="sgd", keep_optimiser=True)),
                "task": ALGO,
                "model": ALGO,
            },
            "a stage with keep_optimiser needs a stage before it with the same optimiser",
        ),
    ],
)
def test_impossible_recipes(args: dict, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(**args)
    assert str(caught.value).startswith(message)


def test_unknown_keywords_are_errors() -> None:
    for build in (Part, Stop, Stage, Recipe):
        with pytest.raises(TypeError, match="colour"):
            build(colour=1)


def test_but_changes_copies() -> None:
    other = FULL.but(task={"noise": 0.5}, model={"hidden": 9}, stage={"steps": 7}, algorithm={"scale": 2.0})
    assert other.task is not None and other.task.args == {"noise": 0.5}
    assert other.model is not None and other.model.args == {"hidden": 9}
    assert [s.steps for s in other.stages] == [7, 7]
    assert all(s.algorithm.args == {"scale": 2.0} for s in other.stages)
    assert FULL.task is not None and FULL.task.args == {} and [s.steps for s in FULL.stages] == [3, 2]
    assert FULL.but() == FULL
    with pytest.raises(RecipeError, match="this recipe has no model to change"):
        toys.measurement().but(model={"x": 1})


def test_parts() -> None:
    names = [p.path.rpartition(".")[2] for p in FULL.parts]
    assert names == ["Rule", "Net", "error", "Backprop", "Backprop", "error"]


# --- plain and canonical


def test_plain_and_back() -> None:
    for recipe in (FULL, toys.measurement(n=2, value=[1, [2.5, None, {"a": "b"}]])):
        again = Recipe.from_plain(json.loads(json.dumps(recipe.to_plain())))
        assert again == recipe and again.canonical == recipe.canonical and again.digest == recipe.digest


def test_equal_recipes_have_equal_text() -> None:
    one = toys.measurement(a=1, b={"x": 1, "y": 2})
    two = toys.measurement(b={"y": 2, "x": 1}, a=1)
    assert one == two and one.canonical == two.canonical
    assert Stage(**{**GOOD, "lr": 1, "clip": 2}) == Stage(**{**GOOD, "lr": 1.0, "clip": 2.0})
    texts = {toys.recipe(toys.stage(lr=lr, clip=clip)).canonical for lr, clip in ((1, 2), (1.0, 2.0))}
    assert len(texts) == 1 and " " not in texts.pop()


def test_every_field_is_part_of_the_identity() -> None:
    changes: list[dict] = [
        {"steps": 9}, {"batch": 9}, {"lr": 9.0}, {"optimiser": "adamw"}, {"betas": (0.8, 0.9)},
        {"weight_decay": 0.1}, {"clip": 1.0}, {"warmup": 3}, {"decay": "linear"}, {"lr_end": 0.1},
        {"validate_every": 3}, {"validate_every": 3, "stop": toys.stop()},
        {"validate_every": 3, "stop": toys.stop(checks=2)},
    ]  # fmt: skip
    digests = [toys.recipe(dataclasses.replace(toys.stage(), **c)).digest for c in changes]
    digests += [toys.recipe().digest, toys.recipe(toys.stage(), toys.stage()).digest]
    digests.append(toys.recipe(toys.stage(), toys.stage(keep_optimiser=True)).digest)
    assert len(set(digests)) == len(digests) and all(len(d) == 16 for d in digests)


def plain() -> dict[str, Any]:
    return json.loads(json.dumps(FULL.to_plain()))


@pytest.mark.parametrize(
    "place",
    [(), ("task",), ("measures", 0), ("stages", 1), ("stages", 0, "algorithm"), ("stages", 0, "stop")],
)
def test_unknown_keys_are_named_at_every_level(place: tuple) -> None:
    data = plain()
    target = data
    for step in place:
        target = target[step]
    target["colour"] = 1
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(data)
    where = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in place).lstrip(".") or "the recipe"
    assert str(caught.value).startswith(f"{where} has the unknown key 'colour'; known keys: ")


@pytest.mark.parametrize(
    ("place", "key", "message"),
    [
        ((), "measures", "the recipe lacks the key 'measures'; add it."),
        (("model",), "path", "model lacks the key 'path'; add it."),
        (("stages", 0), "lr", "stages[0] lacks the key 'lr'; add it."),
        (("stages", 0), "algorithm", "stages[0] lacks the key 'algorithm'; add it."),
        (("stages", 0, "stop"), "metric", "stages[0].stop lacks the key 'metric'; add it."),
    ],
)
def test_missing_keys_are_named(place: tuple, key: str, message: str) -> None:
    data = plain()
    target = data
    for step in place:
        target = target[step]
    del target[key]
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(data)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "the recipe must be an object, not int."),
        ({"measures": 5}, "measures must be a list."),
        ({"measures": [5]}, "measures[0] must be an object, not int."),
        ({"measures": [None]}, "Recipe.measures holds a NoneType"),
        ({**FULL.to_plain(), "stages": [5]}, "stages[0] must be an object, not int."),
        ({**FULL.to_plain(), "model": []}, "model must be an object, not list."),
    ],
)
def test_other_shapes(data: object, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(data)
    assert str(caught.value).startswith(message)


def test_recipes_import_no_torch() -> None:
    code = "import sys, repro.recipe, repro.record, repro.claim; print('torch' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "False", done.stderr
