"""Claims refuse what cannot mean anything, and are found by themselves."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.claim import (
    ALPHA,
    Claim,
    Control,
    Criterion,
    KnownDeviation,
    Line,
    Plot,
    Protocol,
    Shown,
    decidable,
    discover,
    load,
)
from repro.recipe import Recipe, RecipeError, part
from repro.rules import binomial_test

RECIPE = Recipe(measures=(part("reference.measure.accuracy.accuracy"),))
TRAIN: dict[str, Any] = {
    "name": "solves",
    "kind": "train",
    "statement": "it solves the task",
    "cell": "sab",
    "metric": "accuracy",
    "at_least": 0.9,
    "sd_floor": 0.01,
}
EXACT: dict[str, Any] = {**TRAIN, "name": "equal", "kind": "identity", "sd_floor": 0.0}
CONTROL: dict[str, Any] = {"name": "off", "criterion": "solves", "swap": {"sab": "blind"}}
PROTOCOL: dict[str, Any] = {
    "cells": {"sab": RECIPE, "blind": RECIPE},
    "criteria": (Criterion(**TRAIN),),
    "controls": (Control(**CONTROL),),
}
PLOT: dict[str, Any] = {"name": "p", "title": "t", "x_label": "x", "y_label": "y", "x": (1.0, 2.0)}
CLAIM: dict[str, Any] = {
    "id": "sab.copy",
    "paper": "SAB",
    "title": "Copy",
    "source": "Table 1",
    "statement": "SAB copies",
    "profiles": {"cpu": Protocol(**PROTOCOL)},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "trained"}, "the kind 'trained' is unknown; choose from identity, count, measure, train"),
        ({"at_least": None}, "has no band and could not fail"),
        ({"at_least": 0.9, "at_most": 0.8}, "empty band"),
        ({"at_least": math.nan}, "at_least is nan; give a finite number"),
        ({"at_least": -math.inf}, "at_least is -inf; give a finite number"),
        ({"at_most": "1"}, "at_most is '1'; give a finite number"),
        ({"at_least": True}, "at_least is True; give a finite number"),
        ({"sd_floor": 0.0}, "declare sd_floor above 0"),
        ({"sd_floor": -1.0}, "declare sd_floor above 0"),
        ({"sd_floor": math.inf}, "sd_floor is inf"),
        ({"success": 0.9, "rival": "lstm"}, "success counts are for a train criterion without a rival"),
        ({"success": 0.9, "kind": "count"}, "success counts are for a train criterion without a rival"),
        ({"success": 0.9, "at_least": 1.0}, "its band is on a probability; keep it between 0 and 1"),
        ({"success": 90.0, "at_least": 50}, "its band is on a probability"),
        ({"ratio": True}, "is a ratio; name its rival"),
        ({"ratio": True, "kind": "count"}, "is a ratio; name its rival"),
        ({"ratio": True, "rival": "lstm", "at_least": 0.0}, "keep its band above 0"),
    ],
)
def test_a_criterion_that_cannot_be_judged_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as error:
        Criterion(**{**TRAIN, **changes})
    assert words in str(error.value)
    assert "'solves'" in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"at_least": 0},
        {"success": 0.9, "at_least": 0.5, "sd_floor": 0.0},
        {"ratio": True, "rival": "lstm"},
        {"ratio": True, "kind": "measure", "sd_floor": 0.0},  # samples that are ratios already
    ],
)
def test_a_criterion_that_can_be_judged_is_accepted(changes: dict[str, Any]) -> None:
    assert Criterion(**{**TRAIN, **changes}).name == "solves"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"criteria": ()}, "at least one criterion"),
        ({"criteria": (Criterion(**{**TRAIN, "premise": True}),)}, "a criterion that is no premise"),
        ({"seeds": 0}, "at least one seed"),
        ({"shown_seeds": 0}, "shown_seeds must be 1 to 3, the protocol's seeds."),
        ({"shown_seeds": 4}, "shown_seeds must be 1 to 3, the protocol's seeds."),
        ({"criteria": (Criterion(**TRAIN), Criterion(**TRAIN))}, "two criteria share a name: solves"),
        ({"controls": (Control(**CONTROL), Control(**CONTROL))}, "two controls share a name: off"),
        ({"cells": {"sab": RECIPE}}, "control 'off' names the cell 'blind'; known cells: sab."),
        (
            {"criteria": (Criterion(**{**TRAIN, "cell": "sba"}),)},
            "criterion 'solves' names the cell 'sba'",
        ),
        (
            {"criteria": (Criterion(**{**TRAIN, "rival": "lstm"}),)},
            "criterion 'solves' names the cell 'lstm'",
        ),
        ({"shown": (Shown(cell="x", metric="m", label="l"),)}, "a shown number names the cell 'x'"),
        (
            {
                "plots": (
                    Plot(
                        name="p",
                        title="t",
                        x_label="x",
                        y_label="y",
                        lines=(Line(cell="x", metrics=("m",), label="l"),),
                    ),
                )
            },
            "plot 'p' names the cell 'x'",
        ),
        (
            {"plots": (Plot(**{**PLOT, "lines": (Line(cells=("sab", "x"), metrics=("m",), label="l"),)}),)},
            "plot 'p' names the cell 'x'; known cells: sab, blind.",
        ),
        (
            {"controls": (Control(**{**CONTROL, "criterion": "slves"}),)},
            "control 'off' judges 'slves', which is no criterion",
        ),
        (
            {"controls": (Control(**{**CONTROL, "swap": {"blind": "sab"}}),)},
            "swaps no cell that 'solves' looks at",
        ),
        (
            {"controls": (Control(**{**CONTROL, "swap": {"sab": "sab"}}),)},
            "swaps no cell that 'solves' looks at",
        ),
        (
            {
                "criteria": (Criterion(**TRAIN, rival="blind"),),
                "controls": (Control(**CONTROL),),
            },
            "control 'off' compares 'blind' with itself: it fails whatever is measured",
        ),
        ({"controls": ()}, "a trained claim needs a control on a train criterion"),
    ],
)
def test_a_protocol_that_cannot_be_judged_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as error:
        Protocol(**{**PROTOCOL, **changes})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("line", "plot", "words"),
    [
        ({}, {}, "the line 'l' needs either a cell or cells"),
        ({"cell": "a", "cells": ("a", "b")}, {}, "the line 'l' needs either a cell or cells"),
        ({"cells": ("a", "a")}, {}, "the line 'l' names a cell twice"),
        ({"cells": ("a", "b"), "metrics": ("m", "n")}, {}, "the line 'l' has 2 metrics"),
        ({"cell": "a", "metrics": ()}, {}, "the line 'l' has 0 metrics"),
        ({"cells": ("a",)}, {}, "plot 'p': the line 'l' has 1 cells for 2 x values; give one cell an x"),
        ({"cells": ("a", "b")}, {"x": ()}, "has 2 cells for 0 x values"),
        ({"cells": ("a", "b")}, {"learning": True}, "only a line over x draws several cells"),
        ({"cells": ("a", "b")}, {"kind": "image"}, "only a line over x draws several cells"),
        ({"cell": "a"}, {"kind": "scatter"}, "needs one cell and two metrics, x and y"),
        ({"cell": "a"}, {"kind": "dots"}, "the kind 'dots' is none of line, image, scatter"),
    ],
)
def test_a_line_that_cannot_be_drawn_is_refused(
    line: dict[str, Any], plot: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError) as error:
        Plot(**{**PLOT, **plot, "lines": (Line(**{"metrics": ("m",), "label": "l", **line}),)})
    assert words in str(error.value)


def test_exact_criteria_need_no_control() -> None:
    assert Protocol(cells={"sab": RECIPE}, criteria=(Criterion(**EXACT),)).controls == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "sab"}, "the claim id 'sab' is not of the form paper.name"),
        ({"id": "sab.copy.t300"}, "is not of the form paper.name"),
        ({"id": "sab.copy-t300"}, "is not of the form paper.name"),
        ({"profiles": {}}, "has the profiles []"),
        (
            {"profiles": {"huge": Protocol(**PROTOCOL)}},
            "has the profiles ['huge']; use ['cpu', 'paper', 'smoke']",
        ),
        (
            {"profiles": {"every": Protocol(**PROTOCOL), "cpu": Protocol(**PROTOCOL)}},
            "has the profiles ['cpu', 'every']; use ['every']",
        ),
        (
            {"profiles": {"every": Protocol(**PROTOCOL)}},
            "only identity and count criteria share one protocol",
        ),
    ],
)
def test_a_claim_that_cannot_mean_anything_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as error:
        Claim(**{**CLAIM, **changes})
    assert words in str(error.value)


COUNT = Criterion(**{**TRAIN, "success": 0.9, "at_least": 0.5, "sd_floor": 0.0})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 2}, "2 seeds never decide the train criterion 'solves'; declare 3 or more."),
        (
            {"seeds": 3, "criteria": (COUNT,)},
            "no count of successes in 3 seeds could both reproduce and reject the criterion 'solves'; "
            "declare 5 seeds.",
        ),
        (  # 0.7 to the 9th is the first power below 0.05
            {"seeds": 3, "criteria": (dataclasses.replace(COUNT, at_least=0.7),)},
            "could both reproduce and reject the criterion 'solves'; declare 9 seeds.",
        ),
        (
            {"seeds": 3, "criteria": (dataclasses.replace(COUNT, premise=True), Criterion(**EXACT))},
            "no count of successes in 3 seeds could reproduce the criterion 'solves'; declare 5 seeds.",
        ),
        (
            {"seeds": 5, "criteria": (dataclasses.replace(COUNT, at_least=0.5, at_most=0.5),)},
            "could both reproduce and reject the criterion 'solves'; move the ends of its band",
        ),
    ],
)
def test_too_few_seeds_to_decide_are_refused_except_at_smoke(changes: dict[str, Any], words: str) -> None:
    few = Protocol(**{**PROTOCOL, **changes})
    for profile in ("cpu", "paper"):
        with pytest.raises(RecipeError) as error:
            Claim(**{**CLAIM, "profiles": {profile: few}})
        assert f"claim sab.copy, profile {profile}: " in str(error.value) and words in str(error.value)
    assert Claim(**{**CLAIM, "profiles": {"smoke": few}}).protocol("smoke") is few


def test_counts_that_no_outcome_could_reject_beside_others_are_refused() -> None:
    pair = (COUNT, dataclasses.replace(COUNT, name="other"))
    alone, both = (Protocol(**{**PROTOCOL, "seeds": 5, "criteria": c}) for c in ((COUNT,), pair))
    assert Claim(**{**CLAIM, "profiles": {"cpu": alone}}).protocol("cpu") is alone
    with pytest.raises(RecipeError, match=r"no count of successes in 5 seeds .* declare 6 seeds"):
        Claim(**{**CLAIM, "profiles": {"cpu": both}})


def test_what_seeds_can_decide_agrees_with_the_test_that_decides() -> None:
    for low, high in ((0.5, None), (None, 0.5), (0.3, None), (None, 0.1), (0.2, 0.8), (0.01, 0.6)):
        for n in range(1, 14):
            test = binomial_test(np.arange(n + 1), n, low, high)
            one = dataclasses.replace(COUNT, at_least=low, at_most=high)
            holds, fails = bool((test.p_holds <= ALPHA).any()), bool((test.p_fails <= ALPHA).any())
            assert decidable(one, n) == (holds and fails), (low, high, n)
            assert decidable(dataclasses.replace(one, premise=True), n) == holds, (low, high, n)
            many = bool((test.p_fails * 4 <= ALPHA).any())
            assert decidable(one, n, 4) == (holds and many), "Holm's correction over four criteria"


def test_a_known_deviation_needs_evidence() -> None:
    for records, factor in (((), "sab.released_code"), (("key",), "")):
        with pytest.raises(RecipeError, match="needs record keys and a one-factor run"):
            KnownDeviation(reason="it does not learn", records=records, one_factor=factor)
    assert KnownDeviation(reason="r", records=("key",), one_factor="sab.released_code").reason == "r"


def test_claims_are_frozen_all_the_way_down() -> None:
    claim = Claim(**CLAIM)
    protocol = claim.profiles["cpu"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.id = "sab.other"  # type: ignore[misc]
    for mapping in (claim.profiles, protocol.cells, protocol.controls[0].swap):
        with pytest.raises(TypeError):
            mapping["cpu"] = None  # type: ignore[index]


def test_profiles_kinds_and_markers() -> None:
    both = Protocol(**{**PROTOCOL, "criteria": (Criterion(**TRAIN), Criterion(**EXACT))})
    claim = Claim(**{**CLAIM, "profiles": {"cpu": both}, "headline": True})
    assert claim.protocol("cpu") is both and claim.protocol("paper") is None
    assert claim.kinds == ("identity", "train")
    assert claim.markers == ("sab_copy", "sab", "headline")
    assert Claim(**CLAIM).markers == ("sab_copy", "sab")
    exact = Protocol(cells={"sab": RECIPE}, criteria=(Criterion(**EXACT),))
    every = Claim(**{**CLAIM, "profiles": {"every": exact}})
    assert all(every.protocol(profile) is exact for profile in ("smoke", "cpu", "paper"))


# --- claim files

FILE = """
from repro.claim import Claim, Criterion, Protocol
from repro.recipe import Recipe, part

claim = Claim(
    id="{id}", paper="SAB", title="t", source="s", statement="s",
    profiles={{"every": Protocol(
        cells={{"a": Recipe(measures=(part("reference.measure.accuracy.accuracy"),))}},
        criteria=(Criterion(name="c", kind="count", statement="s", cell="a", metric="m", at_most=1),),
    )}},
)
"""


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_claims_are_found_in_file_order_and_helpers_are_not_claims(tmp_path: Path) -> None:
    write(tmp_path, "sab/copy.py", FILE.format(id="sab.copy"))
    write(tmp_path, "sab/adding.py", FILE.format(id="sab.adding"))
    write(tmp_path, "dat/joint.py", FILE.format(id="dat.joint"))
    write(tmp_path, "sab/_common.py", "raise SystemError")
    write(tmp_path, "sab/__init__.py", "")
    assert list(discover(tmp_path)) == ["dat.joint", "sab.adding", "sab.copy"]
    assert discover(tmp_path)["sab.copy"] is discover(tmp_path)["sab.copy"]


def test_folders_without_claims_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no claims at .*: run from the project's root"):
        discover(tmp_path / "none")
    with pytest.raises(RecipeError, match="no claims under"):
        discover(tmp_path)


def test_a_known_deviation_that_no_claim_explains_is_refused(tmp_path: Path) -> None:
    deviation = 'known_deviation=KnownDeviation(reason="r", records=("k",), one_factor="sab.{}"),\n)'
    text = FILE.format(id="sab.copy").replace("Criterion,", "Criterion, KnownDeviation,")
    file = write(tmp_path, "sab/copy.py", text.removesuffix(")\n") + deviation.format("released"))
    with pytest.raises(RecipeError, match=r"claim sab\.copy explains its known deviation by 'sab\.released'"):
        discover(tmp_path)
    write(tmp_path, "sab/other.py", FILE.format(id="sab.released"))
    assert list(discover(tmp_path)) == ["sab.copy", "sab.released"]
    assert load(file).known_deviation is not None


def test_two_claims_with_one_id_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "sab/a.py", FILE.format(id="sab.copy"))
    write(tmp_path, "sab/b.py", FILE.format(id="sab.copy"))
    with pytest.raises(RecipeError, match=r"two claims share the id sab.copy: rename the one in .*b\.py"):
        discover(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "defines no claim: give it a variable `claim`"),
        ("claim = 1", "defines no claim: give it a variable `claim`"),
        (FILE.format(id="sab.copy").replace("at_most=1", "at_mst=1"), "unexpected keyword argument 'at_mst'"),
        (
            FILE.format(id="sab.copy").replace("at_most=1", "at_most='1'"),
            "at_most is '1'; give a finite number",
        ),
        (FILE.format(id="sab.copy") + "\nimport repro.nothing", "No module named 'repro.nothing'"),
        ("claim = (", "was never closed"),
    ],
)
def test_a_file_without_a_usable_claim_is_named_in_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    file = write(tmp_path, "sab/copy.py", text)
    for _ in range(2):  # a broken module must not linger
        with pytest.raises(RecipeError) as error:
            load(file)
        assert words in str(error.value) and str(file) in str(error.value)
        assert "\n" not in str(error.value)


def test_a_mended_file_loads(tmp_path: Path) -> None:
    file = write(tmp_path, "sab/copy.py", "claim = None.x")
    with pytest.raises(RecipeError):
        load(file)
    file.write_text(FILE.format(id="sab.copy"))
    assert load(file).id == "sab.copy"


def test_reading_claims_imports_no_heavy_library(tmp_path: Path) -> None:
    write(tmp_path, "sab/copy.py", FILE.format(id="sab.copy"))
    code = (
        "import sys; from pathlib import Path; import repro.verdict; from repro.claim import discover;"
        f"discover(Path({str(tmp_path)!r}));"
        "print([m for m in ('torch', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
