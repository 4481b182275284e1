"""Records survive a round trip and refuse what is no record."""

import dataclasses
import json
from typing import Any

import pytest

from repro.recipe import RecipeError
from repro.record import Record
from tests import toys

RECORD = Record(
    key="0" * 16 + "-" + "1" * 12,
    recipe=toys.recipe().to_plain(),
    seed=1000,
    device="cpu",
    device_class="cpu",
    sources={"a.py": "0123"},
    metrics={"accuracy": 0.1 + 0.2, "table": [[1, 2.5], [3.0, 1e-300]]},
    training=({"stage": 0, "step": 1, "loss": 1 / 3},),
    validation=[{"stage": 0, "step": 1, "accuracy": 0.5}],  # type: ignore[arg-type]
    cost={"wall_s": 1.5, "steps": 1, "parameters": 2, "peak_bytes": 3},
    environment={"torch": "2", "git": {"commit": "unknown", "dirty": False}},
)


def test_json_and_back_is_exact() -> None:
    text = RECORD.to_json()
    again = Record.from_json(text)
    assert again == RECORD and again.to_json() == text and text.endswith("}\n")
    assert again.metrics["accuracy"] == 0.1 + 0.2 and again.training[0]["loss"] == 1 / 3


def test_records_are_immutable() -> None:
    assert isinstance(RECORD.validation, tuple)
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECORD.seed = 2  # type: ignore[misc]


def test_status() -> None:
    assert dataclasses.replace(RECORD, status="failed", error="no").status == "failed"
    with pytest.raises(RecipeError, match="has the unknown status 'skipped'"):
        dataclasses.replace(RECORD, status="skipped")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "the record has the unknown key 'colour'"),
        ({"status": "skipped"}, "has the unknown status"),
        ({"training": 5}, "the record's training is a int"),
        ({"validation": None}, "the record's validation is a NoneType"),
        ({"metrics": []}, "the record's metrics is a list"),
        ({"seed": "1"}, "the record's seed is a str"),
        ({"key": 5}, "the record's key is a int"),
        ({"sources": None}, "the record's sources is a NoneType"),
        ({"recipe": {"measures": []}}, "a recipe needs at least one measure"),
        ({"recipe": {**toys.recipe().to_plain(), "colour": 1}}, "the recipe has the unknown key 'colour'"),
        ({"training": [1, 2]}, "the record's training curve has an entry that is no object"),
        ({"training": [{"stage": 0, "loss": 1.0}]}, "the record's training curve has a point without stage"),
        ({"validation": [{"stage": 0, "step": 1, "a": "b"}]}, "the record's validation curve has a point"),
        ({"cost": {"wall_s": float("nan")}}, "the record's cost.wall_s is nan; give a number"),
        ({"metrics": {"a": {"b": 1}}}, "the record's metric a is an object"),
        ({"metrics": {"a": [[1, {}]]}}, "the record's metric a is an object"),
        ({"validation": ["x"]}, "the record's validation curve has an entry that is no object"),
        ({"cost": {"wall_s": "soon"}}, "the record's cost.wall_s is a str; give a number"),
        ({"recipe": 5}, "the record's recipe is a int"),
    ],
)
def test_what_is_no_record(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Record.from_json(json.dumps({**json.loads(RECORD.to_json()), **change}))


@pytest.mark.parametrize("key", ["key", "recipe", "seed", "device", "device_class", "sources"])
def test_missing_keys(key: str) -> None:
    data = json.loads(RECORD.to_json())
    del data[key]
    with pytest.raises(RecipeError, match=f"the record lacks the key '{key}'"):
        Record.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "nonsense", RECORD.to_json()[:-30]])
def test_half_a_file(text: str) -> None:
    with pytest.raises(RecipeError, match=r"not a complete JSON file \(.* at line \d+\)"):
        Record.from_json(text)


@pytest.mark.parametrize("text", ["[]", "5", "null"])
def test_json_of_another_kind(text: str) -> None:
    with pytest.raises(RecipeError, match="the record must be an object"):
        Record.from_json(text)


def test_lists_without_end_are_no_record() -> None:
    with pytest.raises(RecipeError, match="lists within lists"):
        Record.from_json("[" * 200_000)
