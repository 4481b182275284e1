"""Verdict rules on synthetic records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from repro import rules
from repro.claim import FIRST_SEED, Control, Criterion, Protocol
from repro.recipe import Recipe, part
from repro.record import Record
from repro.verdict import ClaimDecision, Decision, decide, decide_claim
from tests.toys import made_up

RECIPE = Recipe(measures=(part("reference.measure.accuracy.accuracy"),))


def record(cell: str, seed: int, metrics: Mapping[str, Any], status: str = "done", error: str = "") -> Record:
    return replace(made_up(cell, RECIPE, seed, metrics), status=status, error=error)


def records(cell: str, values: Sequence[Any], first: int = FIRST_SEED) -> list[Record]:
    return [record(cell, first + i, {"accuracy": value}) for i, value in enumerate(values)]


def criterion(**changes: Any) -> Criterion:
    plain = {
        "name": "solves",
        "kind": "train",
        "statement": "it solves the task",
        "cell": "sab",
        "metric": "accuracy",
        "at_least": 0.9,
        "sd_floor": 0.01,
    }
    return Criterion(**{**plain, **changes})


def judge(values: Sequence[Any], **changes: Any) -> Decision:
    return decide(criterion(**changes), {"sab": records("sab", values)})


# --- one mean


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.99, 0.98, 0.985], "reproduced"),
        ([0.70, 0.71, 0.69], "not reproduced"),
        ([0.90, 0.89, 0.91], "inconclusive"),  # on the band
        ([0.99, 0.60, 0.95], "inconclusive"),  # spread over it
        ([0.97, 0.96, 0.98, 0.97, 0.96], "reproduced"),
        ([0.95, 0.5, 0.6, 0.55, 0.52], "not reproduced"),
    ],
)
def test_a_mean_inside_on_and_outside_a_band(values: list[float], verdict: str) -> None:
    found = judge(values)
    assert found.verdict == verdict
    assert found.measured == pytest.approx(np.mean(values))
    assert found.margin == pytest.approx(np.mean(values) - 0.9)
    assert found.seeds == tuple((FIRST_SEED + i, v) for i, v in enumerate(values))
    assert found.records == tuple(f"sab-{FIRST_SEED + i}" for i in range(len(values)))
    low, high = found.interval or (math.nan, math.nan)
    assert (low >= 0.9) == (verdict == "reproduced")
    assert (high <= 0.9) == (verdict == "not reproduced")


def test_the_p_values_are_those_of_scipy() -> None:
    values = [0.93, 0.95, 0.91, 0.97]
    found = judge(values, sd_floor=1e-6)
    greater = stats.ttest_1samp(values, 0.9, alternative="greater")
    assert found.p_holds == pytest.approx(greater.pvalue)
    assert found.p_fails == pytest.approx(1 - greater.pvalue)
    assert found.interval == pytest.approx(tuple(stats.ttest_1samp(values, 0).confidence_interval(0.9)))


@pytest.mark.parametrize("values", [[0.99], [0.99, 0.99], [0.1], [0.1, 0.1]])
@pytest.mark.parametrize("changes", [{}, {"success": 0.9, "at_least": 0.5}])
def test_fewer_than_three_seeds_never_decide(values: list[float], changes: dict[str, Any]) -> None:
    found = judge(values, **changes)
    assert found.verdict == "inconclusive"
    assert "fewer than 3" in found.reason
    assert f"only {len(values)} seed" in found.reason
    assert found.p_holds is None and found.p_fails is None
    assert found.measured is not None
    assert (found.interval is None) == (len(values) == 1 and not changes)


def test_equal_seeds_are_no_certainty() -> None:
    near, far = 0.9 + 0.01, 0.9 + 0.02
    assert judge([near] * 3, sd_floor=0.01).verdict == "inconclusive"
    assert judge([far] * 3, sd_floor=0.01).verdict == "reproduced"
    assert judge([far] * 3, sd_floor=0.03).verdict == "inconclusive"
    found = judge([far] * 3, sd_floor=0.01)
    reach = stats.t.ppf(0.95, 2) * 0.01 / math.sqrt(3)
    assert found.interval == pytest.approx((far - reach, far + reach))


def test_a_large_spread_is_not_narrowed_by_the_floor() -> None:
    assert judge([0.99, 0.6, 0.95], sd_floor=0.01).interval == judge([0.99, 0.6, 0.95], sd_floor=0.1).interval


def test_accuracy_of_exactly_one() -> None:
    assert judge([1.0, 1.0, 1.0]).verdict == "reproduced"
    assert judge([1.0, 1.0, 1.0], at_least=1.0).verdict == "inconclusive"  # a mean cannot exceed the end


def test_a_band_with_two_ends() -> None:
    band = {"at_least": 0.2, "at_most": 0.4, "sd_floor": 0.01}
    assert judge([0.30, 0.31, 0.29], **band).verdict == "reproduced"
    assert judge([0.39, 0.41, 0.40], **band).verdict == "inconclusive"
    assert judge([0.60, 0.61, 0.59], **band).verdict == "not reproduced"
    assert judge([0.05, 0.06, 0.04], **band).verdict == "not reproduced"
    found = judge([0.42, 0.45, 0.48], **band)
    assert found.p_fails == pytest.approx(
        2 * stats.ttest_1samp([0.42, 0.45, 0.48], 0.4, alternative="greater").pvalue
    )
    assert found.margin == pytest.approx(-0.05)
    assert "0.2 to 0.4" in found.reason


def test_an_upper_band() -> None:
    assert judge([0.1, 0.11, 0.12], at_least=None, at_most=0.5).verdict == "reproduced"
    assert judge([0.9, 0.91, 0.92], at_least=None, at_most=0.5).verdict == "not reproduced"
    assert "≤ 0.5" in judge([0.9, 0.91, 0.92], at_least=None, at_most=0.5).reason


def test_the_interval_and_the_verdict_agree_on_random_seeds() -> None:
    rng = np.random.default_rng(0)
    verdicts = set()
    for _ in range(300):
        n = int(rng.integers(3, 7))
        found = judge(list(rng.normal(0.9 + rng.normal(0, 0.1), 0.05, n)))
        low, high = found.interval or (math.nan, math.nan)
        expected = "reproduced" if low > 0.9 else "not reproduced" if high < 0.9 else "inconclusive"
        assert found.verdict == expected
        verdicts.add(found.verdict)
    assert len(verdicts) == 3


# --- success counts


def test_bimodal_seeds_are_counted() -> None:
    band = {"success": 0.9, "at_least": 0.5}
    all_five = judge([1.0] * 5, **band)
    assert all_five.verdict == "reproduced"
    assert all_five.measured == 1.0
    assert all_five.interval == pytest.approx((0.05**0.2, 1.0))
    assert judge([1.0, 1.0, 1.0, 1.0, 0.2], **band).verdict == "inconclusive"
    none = judge([0.2] * 5, **band)
    assert none.verdict == "not reproduced"
    assert none.interval == pytest.approx((0.0, 1 - 0.05**0.2))
    assert none.seeds == tuple((FIRST_SEED + i, 0.2) for i in range(5))
    assert "0 of 5 seeds" in none.reason


def test_three_successes_of_three_show_no_more_than_a_third() -> None:
    assert judge([1.0] * 3, success=0.9, at_least=0.36).verdict == "reproduced"
    assert judge([1.0] * 3, success=0.9, at_least=0.37).verdict == "inconclusive"


def test_a_value_on_the_threshold_is_a_success() -> None:
    assert judge([0.9] * 5, success=0.9, at_least=0.5).verdict == "reproduced"


def test_counts_agree_with_scipys_exact_test() -> None:
    for n in (3, 5, 10):
        for k in range(n + 1):
            for p in (0.1, 0.5, 0.8):
                test = rules.binomial_test(k, n, p, None)
                assert test.p_holds == pytest.approx(stats.binomtest(k, n, p, "greater").pvalue)
                assert test.p_fails == pytest.approx(stats.binomtest(k, n, p, "less").pvalue)
                interval = stats.binomtest(k, n).proportion_ci(0.9, "exact")
                assert (test.low, test.high) == pytest.approx((interval.low, interval.high))
                upper = rules.binomial_test(k, n, None, p)
                assert (upper.p_holds, upper.p_fails) == pytest.approx((test.p_fails, test.p_holds))


# --- rivals


def test_pairs_decide_where_the_seeds_differ_more_than_the_arms() -> None:
    base = [0.2, 0.9, 0.5, 0.7]
    ours = records("sab", [v + d for v, d in zip(base, [0.11, 0.10, 0.09, 0.10], strict=True)])
    found = decide(criterion(rival="lstm", at_least=0.05), {"sab": ours, "lstm": records("lstm", base)})
    assert found.verdict == "reproduced"
    assert found.measured == pytest.approx(0.1)
    assert set(found.records) == {f"{cell}-{FIRST_SEED + i}" for cell in ("sab", "lstm") for i in range(4)}
    shuffled = records("lstm", [base[i] for i in (1, 2, 3, 0)])
    unpaired = decide(criterion(rival="lstm", at_least=0.05), {"sab": ours, "lstm": shuffled})
    assert unpaired.verdict == "inconclusive"


def test_a_ratio_is_judged_on_the_log_scale() -> None:
    cells = {"sab": records("sab", [8.0, 8.4, 7.6]), "lstm": records("lstm", [1.0, 2.0, 0.5])}
    found = decide(criterion(rival="lstm", ratio=True, at_least=1.0), cells)
    logs = np.log([8.0, 4.2, 15.2])
    assert found.measured == pytest.approx(float(np.exp(logs.mean())))
    expected = np.exp(stats.ttest_1samp(logs, 0).confidence_interval(0.9))
    assert found.interval == pytest.approx(tuple(expected))
    assert found.verdict == "reproduced"
    assert [value for _, value in found.seeds] == pytest.approx([8.0, 4.2, 15.2])
    assert (
        decide(criterion(rival="lstm", ratio=True, at_least=1.0, sd_floor=3.0), cells).verdict
        == "inconclusive"
    )


def test_a_ratio_of_values_that_are_not_above_0_is_inconclusive() -> None:
    cells = {"sab": records("sab", [8.0, 8.4, 7.6]), "lstm": records("lstm", [1.0, 0.0, 0.5])}
    found = decide(criterion(rival="lstm", ratio=True, at_least=1.0), cells)
    assert found.verdict == "inconclusive"
    assert f"Seed {FIRST_SEED + 1} has a value that is not above 0" in found.reason


def test_a_wild_ratio_has_a_finite_interval() -> None:
    cells = {"sab": records("sab", [1e-200, 1.0, 1e200]), "lstm": records("lstm", [1.0] * 3)}
    found = decide(criterion(rival="lstm", ratio=True, at_least=1.0), cells)
    assert found.interval is not None and all(map(math.isfinite, found.interval))


def test_seeds_without_a_partner_are_not_counted_and_said() -> None:
    cells = {"sab": records("sab", [0.9] * 5), "lstm": records("lstm", [0.1] * 3)}
    found = decide(criterion(rival="lstm", at_least=0.5), cells)
    assert found.verdict == "reproduced"
    assert [seed for seed, _ in found.seeds] == [FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2]
    assert f"Seed {FIRST_SEED + 4} of 'sab' has no partner and is not counted." in found.reason
    lone = {"sab": records("sab", [0.9] * 3), "lstm": records("lstm", [0.1] * 3, first=FIRST_SEED + 3)}
    nothing = decide(criterion(rival="lstm", at_least=0.5), lone)
    assert nothing.verdict == "inconclusive"
    assert "No seed is in both 'sab' and 'lstm'." in nothing.reason


def test_pilot_seeds_never_enter() -> None:
    cells = {"sab": records("sab", [0.1] * 3, first=0) + records("sab", [0.99] * 3)}
    found = decide(criterion(), cells)
    assert found.verdict == "reproduced"
    assert "Seed 0 of 'sab' belongs to pilots" in found.reason
    assert decide(criterion(), {"sab": records("sab", [0.99] * 3, first=0)}).verdict == "not run"


# --- what is wrong with records


def test_cells_without_records_are_not_run() -> None:
    for cells in ({}, {"sab": []}, {"lstm": records("lstm", [0.1] * 3)}):
        found = decide(criterion(rival="lstm", at_least=0.5), cells)
        assert found.verdict == "not run"
        assert "The cell 'sab' has no record yet." in found.reason
        assert found.measured is None and found.interval is None


def test_an_absent_data_set_is_not_run_and_says_what_to_put_where() -> None:
    absent = record("sab", FIRST_SEED, {}, "absent", "Put enwik8 into data/.")
    found = decide(criterion(), {"sab": [absent, *records("sab", [1.0] * 3, FIRST_SEED + 1)]})
    assert found.verdict == "not run"
    assert "Put enwik8 into data/." in found.reason


def test_a_failed_trial_is_inconclusive_and_named() -> None:
    failed = record("sab", FIRST_SEED + 3, {}, "failed", "the loss is not finite at step 12.")
    found = decide(criterion(), {"sab": [*records("sab", [1.0] * 3), failed]})
    assert found.verdict == "inconclusive"
    assert f"seed {FIRST_SEED + 3} of 'sab': the loss is not finite at step 12." in found.reason
    assert found.measured is None and found.p_holds is None
    assert len(found.seeds) == 3 and len(found.records) == 4


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "is not finite"),
        (math.inf, "is not finite"),
        ("0.9", "is no number"),
        (None, "is no number"),
        ([], "is no number"),
        ([0.9, 0.9], "is not one number"),
    ],
)
def test_a_metric_that_cannot_be_judged_gives_a_sentence(value: Any, words: str) -> None:
    found = judge([1.0, value, 1.0])
    assert found.verdict == "inconclusive"
    assert f"'accuracy' {words} in seed {FIRST_SEED + 1} of 'sab'." in found.reason


def test_a_missing_metric_gives_a_sentence_with_those_there_are() -> None:
    found = judge([1.0] * 3, metric="acuracy")
    assert found.verdict == "inconclusive"
    assert f"no metric 'acuracy' in seed {FIRST_SEED} of 'sab'; it has: accuracy." in found.reason


# --- identity, count, measure


@pytest.mark.parametrize("kind", ["identity", "count"])
def test_exact_kinds_want_every_value_inside(kind: str) -> None:
    band = {"kind": kind, "at_least": None, "at_most": 1e-9, "sd_floor": 0.0}
    assert judge([1e-12], **band).verdict == "reproduced"
    assert judge([1e-9], **band).verdict == "reproduced"  # the end belongs to the band
    found = judge([1e-12, [1e-13, [2e-9]]], **band)
    assert found.verdict == "not reproduced"
    assert found.measured == 2e-9 and found.interval is None
    assert found.margin == pytest.approx(-1e-9)
    assert found.seeds[1] == (FIRST_SEED + 1, 2e-9)
    assert "3 values, the worst 2e-9: outside" in found.reason


def test_exact_kinds_with_a_rival() -> None:
    cells = {"sab": records("sab", [10.0]), "lstm": records("lstm", [4.0])}
    exact = {"kind": "count", "rival": "lstm", "ratio": True, "at_least": 2.5, "at_most": 2.5}
    found = decide(criterion(**exact), cells)
    assert (found.verdict, found.measured) == ("reproduced", 2.5)
    apart = {**cells, "lstm": records("lstm", [4.0], first=7)}
    assert decide(criterion(**exact), apart).verdict == "inconclusive"


def test_a_measure_pools_its_samples() -> None:
    band = {"kind": "measure", "at_least": 2.0, "sd_floor": 0.0}
    found = judge([[2.4, 2.6, 2.5], [2.5, 2.4]], **band)
    assert found.verdict == "reproduced"
    assert "Mean 2.48 of 5 samples" in found.reason
    assert found.seeds == ((FIRST_SEED, 2.5), (FIRST_SEED + 1, 2.45))
    assert judge([[2.5, 2.5]], **band).verdict == "inconclusive"
    assert judge([2.5, 2.4, 2.6], **band).verdict == "reproduced"
    assert judge([[2.5, 2.5, 2.5]], **band).verdict == "reproduced"  # counted bytes do not vary
    assert judge([[2.0, 2.0, 2.0]], **band).verdict == "inconclusive"
    assert judge([[0.0, 0.0, 0.0]], **band).verdict == "not reproduced"


def test_a_measure_of_ratios_uses_the_log_scale() -> None:
    samples = [1.0, 2.0, 4.0, 8.0]
    found = judge([samples], kind="measure", ratio=True, at_least=1.0, sd_floor=0.0)
    assert found.measured == pytest.approx(2**1.5)
    assert found.seeds[0][1] == pytest.approx(2**1.5)
    assert "Geometric mean" in found.reason


def test_samples_of_a_measure_pair_up_or_say_so() -> None:
    cells = {"sab": records("sab", [[3.0, 3.1, 3.2]]), "lstm": records("lstm", [[1.0, 1.1, 1.2]])}
    plain = {"kind": "measure", "rival": "lstm", "at_least": 1.0, "sd_floor": 0.0}
    assert decide(criterion(**plain), cells).measured == pytest.approx(2.0)
    cells["lstm"] = records("lstm", [[1.0, 1.1]])
    found = decide(criterion(**plain), cells)
    assert found.verdict == "inconclusive"
    assert "3 and 2 samples, which do not pair up" in found.reason


# --- claims

CELLS = dict.fromkeys(("sab", "lstm", "blind", "exact"), RECIPE)
BEATS = criterion(name="beats", rival="lstm", at_least=0.3)
SOLVES = criterion(name="solves", premise=True)
RED = Control(name="retrieval off", criterion="beats", swap={"sab": "blind"})
GOOD = {
    "sab": records("sab", [0.97, 0.98, 0.96]),
    "lstm": records("lstm", [0.2, 0.21, 0.22]),
    "blind": records("blind", [0.2, 0.22, 0.21]),
}


def claim(
    cells: Mapping[str, Sequence[Record]],
    *criteria: Criterion,
    controls: tuple[Control, ...] = (RED,),
    profile: str = "cpu",
) -> ClaimDecision:
    protocol = Protocol(cells=CELLS, criteria=criteria or (SOLVES, BEATS), controls=controls)
    return decide_claim("sab.copy", protocol, cells, profile)


def by_name(found: ClaimDecision, name: str) -> Decision:
    return next(d for d in found.decisions if d.name == name)


def test_a_claim_is_reproduced_when_all_holds_and_the_control_is_red() -> None:
    found = claim(GOOD)
    assert found.verdict == "reproduced"
    assert found.reason == "Every criterion holds and every control is red."
    assert [d.verdict for d in found.decisions] == ["reproduced", "reproduced"]
    assert [c.verdict for c in found.controls] == ["not reproduced"]
    assert found.controls[0].measured == pytest.approx(0.0, abs=1e-12)
    assert found.controls[0].records[0] == f"blind-{FIRST_SEED}"
    assert found.control_failed == ()


def test_a_rejected_criterion_rejects_the_claim() -> None:
    found = claim({**GOOD, "lstm": records("lstm", [0.9, 0.91, 0.92])})
    assert found.verdict == "not reproduced"
    assert "The criterion 'beats' is not reproduced: Mean" in found.reason


@pytest.mark.parametrize("blind", [[0.97, 0.96, 0.98], [0.5, 0.51, 0.55]])
def test_a_control_that_is_not_red_makes_the_claim_inconclusive_and_is_flagged(blind: list[float]) -> None:
    found = claim({**GOOD, "blind": records("blind", blind)})
    assert found.verdict == "inconclusive"
    assert found.control_failed == ("retrieval off",)
    assert "The control 'retrieval off' is not red" in found.reason
    assert by_name(found, "beats").verdict == "inconclusive"
    assert by_name(found, "beats").control_failed == ("retrieval off",)
    assert by_name(found, "solves").verdict == "reproduced"
    assert by_name(found, "solves").control_failed == ()


def test_a_control_that_crashed_is_not_red() -> None:
    crashed = record("blind", FIRST_SEED + 2, {}, "failed", "out of memory")
    found = claim({**GOOD, "blind": [*GOOD["blind"][:2], crashed]})
    assert found.verdict == "inconclusive"
    assert found.control_failed == ("retrieval off",)
    assert "out of memory" in found.reason


def test_a_control_is_not_asked_before_its_criterion_can_be_judged() -> None:
    few = {cell: some[:2] for cell, some in GOOD.items()}
    found = claim({**few, "blind": few["sab"]})
    assert found.verdict == "inconclusive"
    assert found.control_failed == ()
    assert "fewer than 3" in found.reason


def test_a_control_may_swap_the_rival() -> None:
    swapped = Control(name="the wrong way round", criterion="beats", swap={"lstm": "sab", "sab": "lstm"})
    found = claim(GOOD, controls=(swapped,))
    assert found.verdict == "reproduced"
    assert found.controls[0].measured == pytest.approx(-0.76)


def test_cells_that_are_missing_leave_the_claim_not_run() -> None:
    for missing, words in (
        ("sab", "The criterion 'solves' has not run: The cell 'sab' has no record yet."),
        ("lstm", "The criterion 'beats' has not run: The cell 'lstm' has no record yet."),
        ("blind", "The control 'retrieval off' has not run: The cell 'blind' has no record yet."),
    ):
        found = claim({cell: some for cell, some in GOOD.items() if cell != missing})
        assert found.verdict == "not run"
        assert found.reason == words
        assert by_name(found, "beats").verdict == "not run"
        assert found.control_failed == ()


def test_nothing_is_decided_at_smoke() -> None:
    for cells in (GOOD, {**GOOD, "blind": GOOD["sab"]}, {}):
        found = claim(cells, profile="smoke")
        assert found.verdict == "not run"
        assert {d.verdict for d in found.decisions} == {c.verdict for c in found.controls} == {"not run"}
        assert found.control_failed == ()
    assert by_name(claim(GOOD, profile="smoke"), "solves").measured == pytest.approx(0.97)


@pytest.mark.parametrize("solves", [[0.5, 0.51, 0.52], [0.9, 0.95, 0.85]])
def test_a_premise_that_does_not_hold_suspends_the_claim(solves: list[float]) -> None:
    exact = criterion(name="exact", kind="identity", cell="exact", sd_floor=0.0)
    cells = {**GOOD, "sab": records("sab", solves), "exact": records("exact", [0.95])}
    found = claim(cells, SOLVES, BEATS, exact)
    assert found.verdict == "inconclusive"
    assert "The premise 'solves' is not shown to hold" in found.reason
    assert by_name(found, "beats").verdict == "inconclusive"
    assert "'solves'" in by_name(found, "beats").reason
    assert by_name(found, "solves").verdict == "inconclusive"
    assert by_name(found, "exact").verdict == "reproduced"  # mathematics does not depend on training


def test_a_rejected_criterion_does_not_count_against_a_failed_premise() -> None:
    cells = {**GOOD, "sab": records("sab", [0.3, 0.31, 0.32])}
    found = claim(cells)
    assert found.verdict == "inconclusive"
    assert "does not hold at this scale" in by_name(found, "solves").reason
    assert "not reproduced" not in {d.verdict for d in found.decisions}


def values_with(p: float, at_least: float = 0.9) -> list[float]:
    """Three seeds whose one-sided p-value against 'inside' is `p`."""
    sd = 0.1
    shift = stats.t.ppf(p, 2) * sd / math.sqrt(3)
    return [at_least + shift + d for d in (-sd, 0.0, sd)]


def holm_claim(*ps: float, premise: float | None = None) -> ClaimDecision:
    criteria = [criterion(name=f"c{i}", cell=f"cell{i}") for i in range(len(ps))]
    cells = {f"cell{i}": records(f"cell{i}", values_with(p)) for i, p in enumerate(ps)}
    if premise is not None:
        criteria.append(criterion(name="premise", cell="premise", premise=True))
        cells["premise"] = records("premise", values_with(premise))
    cells["red"] = records("red", [0.1, 0.11, 0.12])
    protocol = Protocol(
        cells=dict.fromkeys(cells, RECIPE),
        criteria=tuple(criteria),
        controls=(Control(name="red", criterion="c0", swap={"cell0": "red"}),),
    )
    return decide_claim("sab.copy", protocol, cells, "cpu")


@pytest.mark.parametrize(
    ("ps", "verdicts"),
    [
        ((0.03,), ["not reproduced"]),
        ((0.03, 0.03), ["inconclusive", "inconclusive"]),
        ((0.02, 0.03), ["not reproduced", "not reproduced"]),
        ((0.02, 0.5), ["not reproduced", "inconclusive"]),
        ((0.03, 0.5), ["inconclusive", "inconclusive"]),
        ((0.01, 0.03, 0.5), ["not reproduced", "inconclusive", "inconclusive"]),
        ((0.02, 0.99), ["not reproduced", "reproduced"]),
    ],
)
def test_holm_decides_not_reproduced(ps: tuple[float, ...], verdicts: list[str]) -> None:
    found = holm_claim(*ps)
    assert [d.verdict for d in found.decisions] == verdicts
    assert found.verdict == ("not reproduced" if "not reproduced" in verdicts else "inconclusive")
    assert [d.p_fails for d in found.decisions] == pytest.approx(list(ps))
    if ps == (0.03, 0.03):
        assert "But p = 0.06 with Holm's correction over 2 criteria." in found.decisions[0].reason


def test_a_premise_is_not_in_holms_family() -> None:
    assert holm_claim(0.03, premise=1 - 1e-6).verdict == "not reproduced"
    assert holm_claim(0.03, 0.5, premise=1 - 1e-6).verdict == "inconclusive"


def test_a_criterion_without_records_still_counts_in_holms_family() -> None:
    criteria = (criterion(name="a", cell="sab"), criterion(name="b", cell="lstm"))
    control = Control(name="red", criterion="a", swap={"sab": "blind"})
    protocol = Protocol(cells=CELLS, criteria=criteria, controls=(control,))
    cells = {"sab": records("sab", values_with(0.03)), "blind": records("blind", [0.1, 0.11, 0.12])}
    found = decide_claim("sab.copy", protocol, cells, "cpu")
    assert [d.verdict for d in found.decisions] == ["inconclusive", "not run"]
    assert found.verdict == "not run"


def test_holm_is_scipys_step_down() -> None:
    assert rules.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert rules.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert rules.holm([[0.01, 0.02], [0.04, 0.01]]) == pytest.approx(np.array([[0.02, 0.02], [0.04, 0.02]]))


def test_records_and_arrays_are_judged_alike() -> None:
    """The simulation in repro.operating calls `rules`; claims of records must come out the same."""
    rng = np.random.default_rng(1)
    values = rng.normal(0.9, 0.1, (150, 2, 3)) + rng.choice([-0.3, 0.0, 0.3], (150, 2, 1))
    test = rules.t_test(values, 0.9, None, 0.01)
    codes = rules.decided(test.p_holds, rules.holm(test.p_fails))
    words = {1: "reproduced", 0: "inconclusive", -1: "not reproduced"}
    protocol = Protocol(
        cells=CELLS,
        criteria=(criterion(name="a", cell="sab"), criterion(name="b", cell="lstm")),
        controls=(Control(name="red", criterion="a", swap={"sab": "blind"}),),
    )
    red = records("blind", [0.1, 0.11, 0.12])
    for draw, code, whole in zip(values, codes, rules.together(codes), strict=True):
        cells = {"sab": records("sab", list(draw[0])), "lstm": records("lstm", list(draw[1])), "blind": red}
        found = decide_claim("sab.copy", protocol, cells, "cpu")
        assert [d.verdict for d in found.decisions] == [words[int(c)] for c in code]
        assert found.verdict == words[int(whole)]
    assert set(map(int, rules.together(codes))) == {-1, 0, 1}
