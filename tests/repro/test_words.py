"""How numbers, bands, durations and recipes read."""

import math
from dataclasses import replace

import pytest

from repro import words
from repro.claim import FIRST_SEED, Criterion
from repro.recipe import Recipe, part
from repro.verdict import decide
from tests.toys import made_up, recipe, stage


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("exact", "exact"), (0, "0"), (0.97619, "0.9762"), (-0.01462, "−0.01462"), (12.5, "12.5"),
     (100.0, "100"), (17416, "17,416"), (2048.0, "2,048"), (4.59e-6, "4.59e-6"), (1e-9, "1e-9"),
     (4.13e10, "4.13e10"), (math.nan, "not finite"), (-math.inf, "−∞")],
)  # fmt: skip
def test_numbers_show_digits_that_say_something(value: float | str | None, text: str) -> None:
    assert words.num(value) == text


@pytest.mark.parametrize(
    ("values", "success", "text"),
    [
        ((), None, "–"),
        ((), 0.5, "–"),
        ((0.4, 0.6, 0.8), None, "0.6 [0.2628, 0.9372]"),
        ((0.4, 0.5, 0.8), 0.5, "2 of 3 seeds [0.1354, 0.983]"),
        ((0.4, 0.4, 0.4), 0.5, "0 of 3 seeds [0, 0.6316]"),
    ],
)
def test_what_was_measured_comes_with_its_interval_and_counts_as_counts(
    values: tuple[float, ...], success: float | None, text: str
) -> None:
    judged = Criterion(
        name="a", kind="train", statement="a", cell="b", metric="c", at_least=0.5, sd_floor=0.01
    )
    judged = replace(judged, success=success)
    records = [made_up("b", recipe(), FIRST_SEED + i, {"c": value}) for i, value in enumerate(values)]
    assert words.measured(decide(judged, {"b": records}), judged) == text


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ({"at_least": 0.5}, "≥ 0.5"),
        ({"at_most": -0.02}, "≤ −0.02"),
        ({"at_least": 0.25, "at_most": 0.5}, "0.25 to 0.5"),
        ({"at_least": 1, "at_most": 1}, "= 1"),
        ({"at_most": 1e-9}, "≤ 1e-9"),
        ({"at_most": 1234567}, "≤ 1,234,567"),
        (
            {"at_least": 1234.25, "at_most": 1.00001e9},
            "1,234.25 to 1.00001e9",
        ),  # every digit of a band counts
        ({"at_least": 0.5, "success": 0.99999}, "≥ 0.5 of seeds reach 0.99999"),
    ],
)
def test_a_band_shows_all_its_digits(ends: dict[str, float], text: str) -> None:
    made = Criterion(name="c", kind="train", statement="", cell="a", metric="m", sd_floor=0.1, **ends)  # type: ignore[arg-type]
    assert words.band(made) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.004, "0 s"), (0.42, "0.42 s"), (4.26, "4.3 s"), (9.97, "10 s"), (59.4, "59 s"),
     (59.6, "1 min 00 s"), (200, "3 min 20 s"), (3599.6, "1 h 00 min"), (3900, "1 h 05 min")],
)  # fmt: skip
def test_durations_read_well(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_sizes_read_well() -> None:
    sizes = [words.size(n) for n in (512, 1.5 * 2**20, 313.4 * 2**20, 20_000 * 2**20)]
    assert sizes == ["0.5 KiB", "1.5 MiB", "313 MiB", "20,000 MiB"]


def test_a_recipe_reads_as_paths_and_values() -> None:
    measure = Recipe(measures=(part("a.b.c", size=3, words=["x", "y"], nested={"on": True}),))
    assert words.settings(measure) == {
        "measures.0.path": "a.b.c",
        "measures.0.size": "3",
        "measures.0.words": '["x", "y"]',
        "measures.0.nested.on": "true",
    }


def test_differences_name_both_values() -> None:
    base = recipe(stage(20, lr=0.1), validation=None)
    assert list(words.differences(base, base)) == []
    assert list(words.differences(base, base.but(stage={"lr": 0.2}))) == [("stages.0.lr", "0.1", "0.2")]
    more = base.but(task={"noise": 1})
    assert list(words.differences(base, more)) == [("task.noise", "–", "1")]
    assert list(words.differences(more, base)) == [("task.noise", "1", "–")]
