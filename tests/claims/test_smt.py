"""The SMT claims as data, their mechanics at smoke scale, and the verdict of the exact ones."""

from pathlib import Path

import pytest

from repro import claim as claims_module
from repro.engine import run
from repro.recipe import Recipe
from repro.source import check_arguments, root
from repro.trial import Trial

FOLDER = Path(__file__).parents[2] / "claims" / "smt"
NAMES = (
    "drift",
    "future_window",
    "gradient_flow",
    "length_extrapolation",
    "predictive_state",
    "sequential_depth",
)
CLAIMS = {name: claims_module.load(FOLDER / f"{name}.py") for name in NAMES}
PROFILES = [(n, p) for n, c in CLAIMS.items() for p in c.profiles]


def recipe_metrics(recipe, tmp_path):
    record = run(Trial(recipe=recipe, seed=3, device="cpu"), tmp_path / "checkpoint.pt", lambda beat: None)
    assert record.status == "done", record.error
    return record.metrics


@pytest.mark.parametrize(("name", "profile"), PROFILES)
def test_every_recipe_names_what_exists(name, profile):
    for recipe in CLAIMS[name].profiles[profile].cells.values():
        check_arguments(recipe, root())
        assert Recipe.from_plain(recipe.to_plain()) == recipe


@pytest.mark.parametrize("name", ["drift", "future_window", "gradient_flow", "length_extrapolation"])
def test_smoke_gives_every_number_that_the_claim_reads(name, tmp_path):
    protocol = CLAIMS[name].profiles["smoke"]
    read: dict[str, set[str]] = {}
    for criterion in protocol.criteria:
        for cell in (criterion.cell, criterion.rival):
            read.setdefault(cell, set()).add(criterion.metric)
    for shown in protocol.shown:
        read.setdefault(shown.cell, set()).add(shown.metric)
    for plot in protocol.plots:
        for line in plot.lines:
            for cell in line.drawn:
                read.setdefault(cell, set()).update(line.metrics)
    read.pop(None, None)
    for cell, metrics in read.items():
        found = recipe_metrics(protocol.cells[cell], tmp_path)
        assert metrics <= set(found), (cell, metrics - set(found))


def test_arms_share_their_first_stage_and_differ_in_one_thing():
    for profile in ("smoke", "cpu", "paper"):
        cells = CLAIMS["drift"].profiles[profile].cells
        assert all(cells[c].stages[0] == cells["smt"].stages[0] for c in ("dmt", "teacher-steps", "shuffled"))
        dmt = cells["dmt"]
        for arm, change in (("teacher-steps", {"states": "teacher"}), ("shuffled", {"targets": "shuffled"})):
            second, theirs = dmt.stages[1], cells[arm].stages[1]
            assert theirs.algorithm == second.algorithm.but(**change)
            assert (theirs.steps, theirs.batch, theirs.lr) == (second.steps, second.batch, second.lr)
        extra = CLAIMS["length_extrapolation"].profiles[profile].cells
        assert extra["dmt"] == dmt and extra["shuffled"] == cells["shuffled"]


def test_the_exact_rows_hold_and_their_sabotage_does_not(tmp_path):
    protocol = CLAIMS["predictive_state"].profiles["every"]
    found = {cell: recipe_metrics(recipe, tmp_path) for cell, recipe in protocol.cells.items()}
    for criterion in protocol.criteria:
        assert found[criterion.cell][criterion.metric] <= criterion.at_most
    judged = {c.name: c for c in protocol.criteria}
    for control in protocol.controls:
        criterion = judged[control.criterion]
        assert found[control.swap[criterion.cell]][criterion.metric] > criterion.at_most
