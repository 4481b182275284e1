"""The SMT claims as data, their mechanics at smoke scale, and the verdict of the exact ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from repro import claim as claims_module
from repro.claim import FIRST_SEED
from repro.engine import run
from repro.recipe import Recipe, Stage, part
from repro.source import check_arguments, root
from repro.trial import Trial
from repro.verdict import decide_claim
from tests.toys import made_up

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
        assert all(
            cells[c].stages[0] == cells["smt"].stages[0]
            for c in ("dmt", "teacher-steps", "shuffled", "readout-only")
        )
        dmt = cells["dmt"]
        for arm, change in (
            ("teacher-steps", {"states": "teacher"}),
            ("shuffled", {"targets": "shuffled"}),
            ("readout-only", {"dynamics": 0.0}),
        ):
            second, theirs = dmt.stages[1], cells[arm].stages[1]
            assert theirs == replace(second, algorithm=second.algorithm.but(**change))
        for arm in ("smt", "dmt", "teacher-steps", "shuffled", "readout-only"):
            readers = {measure.args["readout"] for measure in cells[arm].measures}
            assert readers == {"decoder" if arm == "smt" else "readout"}, arm
        longer = CLAIMS["length_extrapolation"].profiles[profile].cells
        first, second = longer["dmt"].stages
        assert longer["shuffled"].stages == (
            first,
            replace(second, algorithm=second.algorithm.but(targets="shuffled")),
        )
        untaught = replace(first, algorithm=first.algorithm.but(dynamics=0.0))
        assert longer["untaught"] == replace(longer["smt"], stages=(untaught,))


def test_the_paper_profile_trains_as_the_paper_and_its_code_do():
    common = {"batch": 32, "optimiser": "adamw", "betas": (0.9, 0.95), "weight_decay": 0.01, "clip": 1.0}
    first = Stage(
        algorithm=part("reference.algorithms.smt.SupervisedMemory", splits=None),
        steps=20_000,
        lr=3e-4,
        warmup=200,
        **common,
    )
    second = Stage(
        algorithm=part("reference.algorithms.dmt.DaggerMemory", every=1),
        steps=1_500,
        lr=3e-5,
        warmup=15,
        decay="cosine",
        **common,
    )
    assert CLAIMS["drift"].profiles["paper"].cells["dmt"].stages == (first, second)
    for name, profile in PROFILES:
        for recipe in CLAIMS[name].profiles[profile].cells.values():
            for stage in recipe.stages:
                found = (stage.optimiser, stage.betas, stage.weight_decay, stage.clip)
                assert found == ("adamw", (0.9, 0.95), 0.01, 1.0)


@pytest.mark.parametrize("profile", ["smoke", "cpu", "paper"])
def test_the_gradients_differ_in_path_length_and_scale_alone(profile):
    cells = dict(CLAIMS["gradient_flow"].profiles[profile].cells)
    bptt = cells["bptt"]
    (measure,) = bptt.measures
    assert measure.args["path"] == "unrolled" and measure.args["gains"] == (0.5, 1, 2, 4)
    assert bptt.task.args["length"] == {"smoke": 8, "cpu": 64, "paper": 64}[profile]
    assert cells == {
        "bptt": bptt,
        "smt": replace(bptt, measures=(measure.but(path="decoder"),)),
        "bptt-short": replace(bptt, task=bptt.task.but(length=3)),
        "bptt-large": replace(bptt, measures=(measure.but(gains=(8,)),)),
    }


def test_costs_are_counted_at_the_papers_size_and_with_every_shortcut_taken_away():
    protocol = CLAIMS["sequential_depth"].profiles["every"]
    cells = protocol.cells
    size = {"width": 256, "heads": 8, "memory": 16}
    layers = {"encoder_layers": 8, "decoder_layers": 4, "updater_layers": 8}
    other = {"group_per_prefix": True, "through_time": True, "fused": False, "inference": "teacher"}
    (counted,), (ways,) = cells["counted"].measures, cells["other-ways"].measures
    assert dict(counted.args) == {**size, **layers, "lengths": (8, 12, 16, 20)}
    assert ways == counted.but(**other, dmt_steps=0)
    assert {shown.metric for shown in protocol.shown} == {"run_smt", "run_dmt", "run_bptt", "run_ratio"}
    drawn = {metric for plot in protocol.plots for line in plot.lines for metric in line.metrics}
    assert drawn == {"depth_bptt", "depth_dmt", "depth_smt_all", "depth_smt"}


@pytest.mark.parametrize("profile", ["smoke", "cpu", "paper"])
def test_the_windows_differ_in_window_and_dynamics_gradient_alone(profile):
    cells = dict(CLAIMS["future_window"].profiles[profile].cells)
    base = cells["joint-1"]
    smt_step, dmt_step = base.stages
    assert dict(smt_step.algorithm.args) == {"future": 1, "joint": True} and not dmt_step.algorithm.args
    assert "readout" not in base.measures[0].args or base.measures[0].args["readout"] == "readout"
    windows = {int(name.split("-")[1]) for name in cells if name.startswith("joint")}
    assert windows >= {1, base.task.args["length"]}
    expected = {
        f"{arm}-{window}": replace(
            base,
            stages=(
                replace(smt_step, algorithm=smt_step.algorithm.but(future=window, joint=joint)),
                dmt_step,
            ),
        )
        for window in windows
        for arm, joint in (("joint", True), ("detached", False))
    }
    assert {name: cells[name] for name in expected} == expected
    for arm in ("joint", "detached"):
        before = cells[f"{arm}-1-before"]
        assert before.stages == expected[f"{arm}-1"].stages[:1]
        assert before.measures[0].args["readout"] == "decoder"
    first, second = cells["untaught"].stages
    assert first.algorithm.args["dynamics"] == 0 == second.algorithm.args["dynamics"]
    assert first.algorithm.args["future"] == 1 and cells["untaught"].measures == base.measures


def test_the_exact_rows_hold_and_their_sabotage_does_not(tmp_path):
    protocol = CLAIMS["predictive_state"].profiles["every"]
    found = {cell: recipe_metrics(recipe, tmp_path) for cell, recipe in protocol.cells.items()}
    for criterion in protocol.criteria:
        assert found[criterion.cell][criterion.metric] <= criterion.at_most <= 1e-12
    judged = {c.name: c for c in protocol.criteria}
    for control in protocol.controls:
        criterion = judged[control.criterion]
        assert found[control.swap[criterion.cell]][criterion.metric] > criterion.at_most


# What a run in which the claim holds leaves behind, by claim and cell.
CLEAN, BROKEN = (
    {"teacher_moved": 0, "updater_from_readout": 0},
    {"teacher_moved": 9, "updater_from_readout": 1},
)
COUNTED = {  # Table 1
    "degree_depth_bptt": 1,
    "degree_depth_smt": 0,
    "degree_depth_smt_all": 0,
    "degree_depth_dmt": 1,
    "degree_saved_bptt": 1,
    "degree_saved_smt": 1,
    "degree_flops_bptt": 1,
    "degree_flops_smt": 2,
    "degree_credit_bptt": 1,
    "degree_credit_smt": 0,
    "degree_credit_dmt": 0,
    "degree_state": 0,
    "product_smt": 0,
    "product_bptt": 9_000,
    "largest_state": 4096,
    "run_growth": 1.3,
}
OTHER_WAYS = {
    "degree_depth_smt_all": 1,
    "degree_credit_dmt": 1,
    "degree_saved_smt": 2,
    "degree_state": 1,
    "product_smt": 90,
    "largest_state": 19,
    "run_growth": 1.0,
}
HOLDS = {
    "drift": {
        "smt": {"teacher_accuracy": 0.97, "doublings": 3.0, "late_drift": 0.9, "loss": 0.58},
        "dmt": {"late_drift": 0.1, "loss": 0.2},
        "teacher-steps": {"late_drift": 0.3},
        "shuffled": {"late_drift": 1.0},
        "readout-only": {},
        "isolation": CLEAN,
        "isolation-broken": BROKEN,
    },
    "length_extrapolation": {
        "dmt": {"teacher_accuracy": 0.92, "lead_at_384": 0.8, "excess_at_384": 0.1, "gain_at_48": -0.1},
        "untaught": {"excess_at_384": 0.9, "lead_at_384": -1.0},
    },
    "future_window": {
        "joint-1": {"teacher_accuracy": 0.99, "loss": 0.1},
        "joint-4": {"loss": 0.1},
        "joint-32": {"teacher_accuracy": 0.99, "loss": 0.1},
        "detached-1": {"teacher_accuracy": 0.99, "loss": 1.7},
        "detached-32": {"teacher_accuracy": 0.99, "loss": 0.1},
        "untaught": {"teacher_accuracy": 0.99, "loss": 2.2},
        "isolation": {"encoder_from_dynamics": 0},
        "isolation-broken": {"encoder_from_dynamics": 0.1},
    },
    "gradient_flow": {
        "bptt": {"worst_span": 9.0},
        "smt": {"worst_span": 1.0},
        "bptt-short": {"worst_span": 0.5},
        "bptt-large": {"worst_span": 50.0},
    },
    "sequential_depth": {"counted": COUNTED, "other-ways": {**COUNTED, **OTHER_WAYS}},
}


def verdict(name, changes):
    """Return the claim's verdict on two cores when its runs left HOLDS, with some numbers changed.

    A tuple has a number for every seed.
    """
    protocol = CLAIMS[name].protocol("cpu")
    cells = {cell: metrics | changes.get(cell, {}) for cell, metrics in HOLDS[name].items()}
    records = {
        cell: [
            made_up(
                cell,
                protocol.cells[cell],
                FIRST_SEED + seed,
                {k: v[seed] if isinstance(v, tuple) else v for k, v in metrics.items()},
            )
            for seed in range(protocol.seeds)
        ]
        for cell, metrics in cells.items()
    }
    return decide_claim(name, protocol, records, "cpu").verdict


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        *((name, {}, "reproduced") for name in HOLDS),
        ("drift", {"dmt": {"late_drift": 0.4}}, "not reproduced"),
        ("drift", {"teacher-steps": {"late_drift": 0.05}}, "not reproduced"),
        ("drift", {"dmt": {"loss": 1.2}}, "not reproduced"),
        ("drift", {"isolation": {"teacher_moved": 1}}, "not reproduced"),
        ("drift", {"smt": {"doublings": 0.1}}, "inconclusive"),
        ("drift", {"smt": {"late_drift": 0.1}}, "inconclusive"),  # a control that is not red
        ("drift", {"shuffled": {"late_drift": 0.1}}, "inconclusive"),
        # Close to a band: RIVAL, LEAVES, NEAR, IMPROVED.
        ("drift", {"teacher-steps": {"late_drift": 0.095}}, "not reproduced"),
        ("drift", {"smt": {"doublings": 0.9}}, "inconclusive"),
        ("drift", {"dmt": {"late_drift": 0.25}, "teacher-steps": {"late_drift": 0.5}}, "not reproduced"),
        ("drift", {"dmt": {"loss": 0.58}}, "not reproduced"),
        ("drift", {"smt": {"late_drift": 0.22}, "teacher-steps": {"late_drift": 0.3}}, "inconclusive"),
        ("length_extrapolation", {"dmt": {"lead_at_384": -0.1}}, "not reproduced"),
        ("length_extrapolation", {"dmt": {"lead_at_384": 0.01}}, "not reproduced"),
        ("length_extrapolation", {"dmt": {"excess_at_384": 0.4}}, "not reproduced"),
        ("length_extrapolation", {"dmt": {"gain_at_48": 0.1}}, "not reproduced"),
        ("length_extrapolation", {"dmt": {"teacher_accuracy": 0.5}}, "inconclusive"),
        ("length_extrapolation", {"untaught": {"excess_at_384": 0.1}}, "inconclusive"),
        ("length_extrapolation", {"untaught": {"lead_at_384": 0.3}}, "inconclusive"),
        ("future_window", {"joint-1": {"loss": 0.78}}, "not reproduced"),
        ("future_window", {"joint-1": {"loss": 1.9}}, "not reproduced"),
        ("future_window", {"untaught": {"loss": 0.3}}, "inconclusive"),
        ("future_window", {"untaught": {"teacher_accuracy": 0.1}}, "inconclusive"),
        ("future_window", {"joint-32": {"loss": 0.78}}, "not reproduced"),
        ("future_window", {"joint-32": {"loss": 1.9}}, "not reproduced"),
        ("future_window", {"joint-4": {"loss": 1.9}}, "inconclusive"),  # a control that is not red
        ("future_window", {"detached-32": {"loss": 1.9}}, "not reproduced"),
        ("future_window", {"detached-1": {"loss": 0.78}}, "not reproduced"),
        ("future_window", {"detached-1": {"loss": (0.2, 1.8, 1.7, 0.3)}}, "inconclusive"),  # either way
        ("future_window", {"detached-1": {"loss": 0.1}}, "not reproduced"),
        ("future_window", {"detached-1": {"teacher_accuracy": 0.2}}, "inconclusive"),  # learned nothing
        ("future_window", {"joint-32": {"teacher_accuracy": 0.2}}, "inconclusive"),
        ("gradient_flow", {"bptt": {"worst_span": 1.0}}, "not reproduced"),
        ("gradient_flow", {"smt": {"worst_span": 2.5}}, "not reproduced"),
        ("gradient_flow", {"bptt-short": {"worst_span": 3.0}}, "inconclusive"),
        ("gradient_flow", {"bptt-large": {"worst_span": 1.0}}, "inconclusive"),
        *(("sequential_depth", {"counted": {name: -1}}, "not reproduced") for name in COUNTED),
        ("sequential_depth", {"counted": {"largest_state": 4097}}, "not reproduced"),
        ("sequential_depth", {"counted": {"run_growth": 2.0}}, "not reproduced"),
        # Each control in turn is not red.
        *(("sequential_depth", {"other-ways": {name: COUNTED[name]}}, "inconclusive") for name in OTHER_WAYS),
    ],
)
def test_the_bands_tell_the_claim_from_its_rivals(name, changes, expected):
    assert verdict(name, changes) == expected


def test_drift_is_the_headline_and_reading_claims_is_enough_to_know_it():
    assert [name for name in NAMES if CLAIMS[name].headline] == ["drift"]
