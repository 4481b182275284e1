"""The SAB claims: what their cells are, that arms differ in what they say, and that their mechanics work."""

import pytest

from claims.sab import _copy, copy_t300, transfer
from repro import plan
from repro.source import check_arguments, root


@pytest.mark.parametrize("claim", [copy_t300.claim, transfer.claim], ids=lambda c: c.id)
@pytest.mark.parametrize("profile", ["smoke", "cpu", "paper"])
def test_every_recipe_names_what_exists(claim, profile):
    for recipe in claim.protocol(profile).cells.values():
        check_arguments(recipe, root())


@pytest.mark.parametrize("scale", [_copy.SMOKE, _copy.CPU, _copy.GPU])
def test_controls_differ_from_sab_in_one_factor(scale):
    arms = scale.arms()
    for name in ("no_retrieval", "shuffled"):
        sab, control = arms["sab"].to_plain(), arms[name].to_plain()
        changed = {
            key
            for key in sab["model"]["args"] | control["model"]["args"]
            if sab["model"]["args"].get(key) != control["model"]["args"].get(key)
        }
        assert changed == {"retrieval"}
        assert {k: v for k, v in sab.items() if k != "model"} == {
            k: v for k, v in control.items() if k != "model"
        }


@pytest.mark.parametrize("scale", [_copy.CPU, _copy.GPU])
def test_every_arm_gets_the_same_unstated_choices(scale):
    shared = ("inputs", "outputs", "hidden", "input", "input_scale", "recurrent_scale")
    arms = scale.arms().values()
    assert len({tuple(arm.model.args[name] for name in shared) for arm in arms}) == 1
    assert len({(s.steps, s.batch, s.lr, s.clip, s.stop) for arm in arms for s in arm.stages}) == 1


def test_local_horizon_shrinks_with_the_delay():
    assert _copy.CPU.tbptt / _copy.CPU.delay == _copy.GPU.tbptt / _copy.GPU.delay == 20 / 300


def test_bands_exclude_the_rivals():
    """No band of a gain admits 0, and none of an accuracy admits what the paper prints for the best rival."""
    best_rival = {"keeps_4x": 0.21, "keeps_20x": 0.12}
    for claim in (copy_t300.claim, transfer.claim):
        for profile in ("cpu", "paper"):
            for criterion in claim.protocol(profile).criteria:
                learned = 0.6 if criterion.premise and profile == "cpu" else 0.85
                least = 0.15 if criterion.rival else best_rival.get(criterion.name, learned)
                assert criterion.at_least > least


def test_reduced_arms_differ_between_the_claims_in_budget_and_test_delays_only():
    copy, other = copy_t300.claim.protocol("cpu").cells, transfer.claim.protocol("cpu").cells
    for name in ("sab", "bptt", "attention", "no_retrieval", "shuffled"):
        assert (copy[name].model, copy[name].task) == (other[name].model, other[name].task)
        assert copy[name].stages[0].algorithm == other[name].stages[0].algorithm


def test_table_5_is_the_paper_s():
    four = {c.name: c.paper for c in transfer.claim.protocol("paper").criteria}
    assert four["beats_bptt_4x"] == pytest.approx(0.54)
    assert four["beats_attention_20x"] == pytest.approx(0.35)


def test_the_plan_counts_the_recurrent_products_of_every_arm():
    """FLOPs of the LSTM by hand: no gradient into inputs, none into the state before the first step."""
    scale, arms = _copy.SMOKE, _copy.SMOKE.arms()
    gates, rows = 4 * scale.hidden, scale.batch * (scale.delay + 2 * scale.symbols)
    lstm = 2 * rows * gates * 9 * 2 + 2 * gates * scale.hidden * (3 * rows - scale.batch)
    head = 3 * 2 * rows * scale.hidden * 9
    counted = {name: plan.count(arms[name]) for name in ("bptt", "sab", "attention")}
    assert counted["bptt"].flops == pytest.approx(scale.steps * (lstm + head), rel=0.02)
    assert counted["sab"].flops > counted["bptt"].flops
    forward = 2 * rows * (gates * (9 + scale.hidden) + 2 * scale.hidden * (scale.hidden + 9))
    assert counted["attention"].flops > 1.5 * scale.steps * forward
