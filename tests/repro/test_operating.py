"""The operating curves keep their bounds, and the committed document is the command's."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from repro import operating
from repro.operating import BIMODAL, CLAIM, DOCS, PLACES, RULES, SEEDS, Row, main, power, simulate

DRAWS = 2000
NUMPY, MATPLOTLIB = "2.4.6", "3.11.2"  # that made the committed document and its figure


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return simulate(DRAWS, seed=7)


def test_every_rule_keeps_its_bounds(rows: list[Row]) -> None:
    slack = 3 * (0.05 * 0.95 / DRAWS) ** 0.5
    assert [row for row in rows if not row.kept] == []
    right = [row for row in rows if not row.warning]
    assert max(row.reproduced for row in right if row.distance <= 0) <= 0.05 + slack
    assert max(row.rejected for row in right if row.distance >= 0) <= 0.05 + slack
    assert min(row.reproduced for row in right if row.distance == 2 and row.n >= 5) >= 0.8 - 0.03


def test_every_rule_number_of_seeds_and_place_is_simulated(rows: list[Row]) -> None:
    expected = {(rule, n, place) for rule, _, sizes in RULES for n in sizes for place in PLACES}
    expected |= {(CLAIM, n, place) for n in SEEDS for place in PLACES}
    assert expected <= {(row.rule, row.n, row.distance) for row in rows}
    assert any(row.n == 20 for row in rows)


def test_the_rules_are_not_merely_cautious(rows: list[Row]) -> None:
    """On the end of the band the t tests use up most of their 5 %, and outside they reject."""
    means = {(row.n, row.distance): row for row in rows if row.rule == RULES[0][0]}
    assert means[5, 0.0].reproduced >= 0.03 and means[5, 0.0].rejected >= 0.03
    assert means[10, -1.0].rejected >= 0.8


def test_the_mean_of_bimodal_seeds_goes_wrong_and_the_count_does_not(rows: list[Row]) -> None:
    wrong = [row for row in rows if row.rule.startswith(BIMODAL)]
    assert max(row.reproduced for row in wrong) > 0.5 and max(row.rejected for row in wrong) > 0.5
    assert all(row.warning for row in wrong)
    counted = [row for row in rows if row.rule.startswith("the same seeds as a success count")]
    assert len(counted) == len(wrong) and not any(row.warning for row in counted)


def test_a_row_that_misses_a_bound_is_noticed() -> None:
    row = {"rule": "r", "n": 5, "draws": 10_000}
    assert not Row(distance=0.0, reproduced=0.07, rejected=0.0, **row).kept  # type: ignore[arg-type]
    assert not Row(distance=0.0, reproduced=0.0, rejected=0.07, **row).kept  # type: ignore[arg-type]
    assert not Row(distance=2.0, reproduced=0.7, rejected=0.0, **row).kept  # type: ignore[arg-type]
    assert Row(distance=2.0, reproduced=0.9, rejected=0.0, **row).kept  # type: ignore[arg-type]
    assert Row(distance=-1.0, reproduced=0.0, rejected=0.9, **row).kept  # type: ignore[arg-type]


def test_power_rises_with_distance_and_seeds() -> None:
    three, five = (power(DRAWS, [0.0, 1.0, 2.0, 4.0], n) for n in (3, 5))
    assert np.all(np.diff(three) > 0) and np.all(np.diff(five) > 0)
    assert np.all(five[1:] > three[1:])


def test_the_command_writes_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "1000", "--docs", str(tmp_path)]) == 0
    text = (tmp_path / "operating-curve.md").read_text()
    assert "--draws 1000`" in text and "0 bounds missed" in capsys.readouterr().out
    assert (tmp_path / "operating-curve.svg").read_text().lstrip().startswith("<?xml")
    main(["--draws", "1000", "--docs", str(tmp_path)])
    assert (tmp_path / "operating-curve.md").read_text() == text


def test_a_missed_bound_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = (RULES[0][0], lambda rng, draws, n, d: RULES[0][1](rng, draws, n, d + 1.0), (5,))
    monkeypatch.setattr(operating, "RULES", (eager,))
    assert main(["--draws", "1000", "--docs", str(tmp_path)]) == 1
    assert "bound missed" in capsys.readouterr().err


def test_impossible_options_give_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "operating-curve.md").mkdir()
    for options, words in (
        (["--draws", "10"], "give 1000 or more"),
        (["--docs", str(tmp_path / "none")], "there is no folder"),
        (["--draws", "1000", "--docs", str(tmp_path / "taken")], "cannot be written"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(options)
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err


def test_the_committed_document_is_what_the_command_writes(tmp_path: Path) -> None:
    """Every number of it, with the pinned libraries; else every word and every row."""
    assert main(["--docs", str(tmp_path)]) == 0
    for name, library, pinned in (("md", "numpy", NUMPY), ("svg", "matplotlib", MATPLOTLIB)):
        made, committed = ((d / f"operating-curve.{name}").read_text() for d in (tmp_path, DOCS))
        if version(library) == pinned:
            assert made == committed, f"run `python -m repro.operating` and look at the difference in {name}"
        elif name == "md":
            made, committed = (re.sub(r"[\d.]+ %", "%", text) for text in (made, committed))
            assert re.sub(" +|-+", " ", made) == re.sub(" +|-+", " ", committed)
