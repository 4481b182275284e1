"""The claims of the SAB study as data: what they run exists, controls differ, bands can fail."""

from pathlib import Path

import pytest

from claims.sab import (
    _study,
    adding,
    attention_map,
    copy_t300,
    copy_table,
    fragility,
    gradient_paths,
    mental_updates,
    released_code,
    released_factors,
    sparsity,
)
from repro.claim import FIRST_SEED, Claim, discover
from repro.source import check_arguments, root
from repro.verdict import decide_claim
from tests.toys import made_up

CLAIMS = {
    name: claim
    for name, claim in discover(Path(__file__).parents[2] / "claims").items()
    if name.startswith("sab.") and name not in ("sab.copy_t300", "sab.transfer")
}


def protocols():
    for claim in CLAIMS.values():
        for profile, protocol in claim.profiles.items():
            yield pytest.param(protocol, id=f"{claim.id}-{profile}")


def records(claim: Claim, profile: str, values):
    """Return records, one a seed; `values(cell)` gives the metrics of a cell, each a list over seeds."""
    protocol = claim.protocol(profile)
    return {
        cell: [
            made_up(
                cell,
                recipe,
                FIRST_SEED + protocol.seed_offset + seed,
                {name: value[seed] for name, value in values(cell).items()},
            )
            for seed in range(len(next(iter(values(cell).values()))))
        ]
        for cell, recipe in protocol.cells.items()
    }


@pytest.mark.parametrize("protocol", list(protocols()))
def test_every_recipe_names_what_exists(protocol):
    for recipe in protocol.cells.values():
        check_arguments(recipe, root())


def test_gradient_paths_has_a_control_on_every_statement_and_each_must_be_red():
    protocol = gradient_paths.claim.protocol("cpu")
    assert {c.criterion for c in protocol.controls} == {
        c.name for c in protocol.criteria if c.name != "readings-differ"
    }
    right = {c.metric: [0.5 if c.name == "readings-differ" else 0.0] for c in protocol.criteria}
    same = decide_claim(
        "sab.gradient_paths", protocol, records(gradient_paths.claim, "cpu", lambda _: right), "cpu"
    )
    assert same.verdict == "inconclusive"
    assert len(same.control_failed) == len(protocol.controls)
    wrong = {c.metric: [1.0] for c in protocol.criteria}
    red = decide_claim(
        "sab.gradient_paths",
        protocol,
        records(gradient_paths.claim, "cpu", lambda cell: right if cell == "sab" else wrong),
        "cpu",
    )
    assert red.verdict == "reproduced"


def test_what_is_claimed():
    assert {name: claim.kinds for name, claim in CLAIMS.items()} == {
        "sab.adding": ("train",),
        "sab.attention_map": ("train",),
        "sab.complexity": ("count",),
        "sab.copy_table": ("train",),
        "sab.fragility": ("train",),
        "sab.gradient_paths": ("identity",),
        "sab.mental_updates": ("train",),
        "sab.released_code": ("train",),
        "sab.released_factors": ("train",),
        "sab.sparsity": ("train",),
    }


def test_cells_that_are_shared_are_the_same_trials():
    """Same recipe and same seeds: the store trains them once."""
    base = copy_t300.claim.protocol("cpu")
    table, sparse = copy_table.claim.protocol("cpu"), sparsity.claim.protocol("cpu")
    released, updates = released_code.claim.protocol("cpu"), mental_updates.claim.protocol("cpu")
    for protocol in (table, sparse, released, updates):
        assert protocol.seed_offset == base.seed_offset
    for cell in ("bptt", "tbptt", "attention"):
        assert table.cells[f"{cell}_300"] == base.cells[cell]
    for cell in ("no_retrieval", "shuffled"):
        assert table.cells[f"sab_5_5_{cell}_300"] == base.cells[cell]
    assert released.cells["no_retrieval"] == base.cells["no_retrieval"]
    factors = released_factors.claim.protocol("cpu")
    assert all(released.cells[cell] == recipe for cell, recipe in factors.cells.items())
    assert factors.seed_offset != released.seed_offset, "found on some seeds, judged on others"
    for recipe in (table.cells["sab_5_5_300"], sparse.cells["sab"], released.cells["written"]):
        assert recipe.digest == base.cells["sab"].digest
    assert updates.cells["full_1_1"] == table.cells["sab_1_1_100"]
    assert updates.cells["full_5_5"] == table.cells["sab_5_5_100"]
    maps, fragile = attention_map.claim.protocol("cpu"), fragility.claim.protocol("cpu")
    assert maps.cells["sab"] == fragile.cells["default"]


def changed(recipe, base):
    """Return the keys of model, task and stage in which two recipes of one stage differ."""
    found = set()
    for part in ("model", "task"):
        own, other = getattr(recipe, part).args, getattr(base, part).args
        found |= {key for key in own | other if own.get(key) != other.get(key)}
    own, other = recipe.to_plain()["stages"][0], base.to_plain()["stages"][0]
    return found | {key for key in own if own[key] != other[key]}


def test_each_factor_differs_from_as_written_in_itself_alone_and_all_together_in_all():
    cells = released_code.claim.protocol("cpu").cells
    written = cells["written"]
    alone = {
        **{name: set(change) for name, (_, change) in released_code.FACTORS.items()},
        "clip": {"clip"},
    }
    for name, keys in {**alone, "k_trunc": {"k_trunc"}, "k_top": {"k_top"}, "k_top_4": {"k_top"}}.items():
        assert changed(cells[name], written) == keys, name
    assert all(len(keys) == 1 for keys in alone.values()), "one factor a row"
    sizes = {"k_trunc": 2, "k_top": 5, "k_att": 2}  # --trunc 5 (reduced to 2) --topk 5
    for cell in ("released", *(f"released_but_{name}" for name in released_code.UNDONE)):
        assert {k: cells[cell].model.args[k] for k in sizes} == sizes, "the README's command"
    assert changed(cells["released"], written) == set().union(*alone.values())
    for name, (_, ours) in released_code.UNDONE.items():
        recipe = cells[f"released_but_{name}"]
        assert changed(recipe, cells["released"]) == set(ours)
        for key, value in ours.items():
            assert value == written.model.args.get(key, "additive"), "as in ours"
    for name, keys in alone.items():  # each at the value that it has alone
        for key in keys - {"clip"}:
            assert cells["released"].model.args[key] == cells[name].model.args[key]
    assert cells["released_tbptt"].stages[0].algorithm.args["k"] == 2
    assert cells["released_tbptt"].model.args["input"] == "scalar"


@pytest.mark.parametrize("name", [*released_code.FACTORS, "k_trunc", "k_top", "clip", "released"])
def test_every_factor_changes_the_first_gradient_step(name):
    """A factor switch that changes nothing would make its row of the table meaningless."""
    import torch

    from reference.algorithms.bptt import Bptt
    from reference.models.sab import SAB
    from reference.tasks.copy import Copy

    cells = released_code.cells(_study.TINY, trunc=3)
    inputs = Copy(20, symbols=3).sample(4, torch.Generator().manual_seed(0))
    steps = []
    for cell in ("written", name):
        recipe = cells[cell]
        torch.manual_seed(0)
        model = SAB(**{**recipe.model.args, "hidden": 16})
        Bptt().backward(model, inputs)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.stages[0].clip)
        moved = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None) ** 0.5
        assert norm > 0.1
        steps.append((float(norm), moved))
    assert steps[0] != steps[1]


CONTROLLED = (copy_table, mental_updates, sparsity, attention_map)


@pytest.mark.parametrize("module", CONTROLLED, ids=lambda m: m.__name__.rpartition(".")[2])
@pytest.mark.parametrize("profile", ["cpu", "paper"])
def test_a_control_is_its_arm_with_retrieval_changed_and_nothing_else(module, profile):
    protocol = module.claim.protocol(profile)
    for control in protocol.controls:
        for arm, other in control.swap.items():
            if other == "untrained":
                continue
            off = protocol.cells[other].model.args["retrieval"] == "none"
            idle = {"mental_updates", "k_top"} if off else set()
            assert changed(protocol.cells[other], protocol.cells[arm]) - idle == {"retrieval"}


@pytest.mark.parametrize("module", [released_code, released_factors])
@pytest.mark.parametrize("profile", ["cpu", "paper"])
def test_a_factor_s_control_is_a_change_that_is_no_factor_judged(module, profile):
    protocol = module.claim.protocol(profile)
    judged = {c.rival for c in protocol.criteria}
    for control in protocol.controls:
        if control.criterion != "written_learned":
            ((factor, other),) = control.swap.items()
            assert factor in judged
            assert other not in judged
            assert changed(protocol.cells[other], protocol.cells["written"]) == {"threshold"}


def test_where_nothing_is_read_k_top_and_mental_updates_make_no_difference():
    """So that one cell is the control of several arms."""
    import torch

    from reference.algorithms.bptt import Bptt
    from reference.models.sab import SAB
    from reference.tasks.copy import Copy

    batch = Copy(10, symbols=3).sample(4, torch.Generator().manual_seed(0))
    gradients = []
    for k_top, updates in ((1, "full"), (5, "none")):
        torch.manual_seed(0)
        model = SAB(10, 9, 16, k_trunc=1, k_top=k_top, k_att=1, retrieval="none", mental_updates=updates)
        Bptt().backward(model, batch)
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert gradients[0] and all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_fragility_can_come_out_not_reproduced_with_its_controls_red():
    protocol = fragility.claim.protocol("cpu")
    accuracy = next(c.metric for c in protocol.criteria if c.name == "default_learns")

    def values(cell):
        level, norm = (0.125, 5.0) if cell == "no_retrieval" else (0.99, 6.0)
        return {accuracy: [level] * protocol.seeds, "hidden_norm_last": [norm] * protocol.seeds}

    found = decide_claim("sab.fragility", protocol, records(fragility.claim, "cpu", values), "cpu")
    assert found.verdict == "not reproduced" and not found.control_failed


def test_the_dense_arm_is_searched_over_the_paper_s_learning_rates():
    protocol = sparsity.claim.protocol("paper")
    rates = {recipe.stages[0].lr for name, recipe in protocol.cells.items() if name.startswith("dense")}
    assert {min(rates), max(rates)} == {1e-5, 1e-3}
    judged = {c.rival for c in protocol.criteria if c.rival}
    assert judged == {name for name in protocol.cells if name.startswith("dense")}, "the best of them too"
    for name in judged:
        assert changed(protocol.cells[name], protocol.cells["sab"]) <= {"retrieval", "lr"}


def test_mental_updates_differ_in_nothing_else():
    cells = mental_updates.claim.protocol("cpu").cells
    for size in ("1_1", "5_5", "10_10"):
        for short, reading in mental_updates.READINGS.items():
            assert changed(cells[f"{short}_{size}"], cells[f"full_{size}"]) == {"mental_updates"}
            assert cells[f"{short}_{size}"].model.args["mental_updates"] == reading


def test_naive_choices_and_the_departures_from_algorithm_1():
    cells = fragility.claim.protocol("cpu").cells
    assert changed(cells["naive"], cells["default"]) == {"input_scale", "recurrent_scale", "clip"}
    assert {frozenset(changed(cells[name], cells["naive"])) for name in ("stored_output", "bounded_sum")} == {
        frozenset({"memory"}),
        frozenset({"denominator"}),
    }
    assert fragility.claim.protocol("cpu").seeds >= 10


def test_bands_follow_from_the_printed_numbers_and_exclude_no_gain():
    for claim in (copy_table.claim, mental_updates.claim, sparsity.claim):
        for profile in ("cpu", "paper"):
            for criterion in claim.protocol(profile).criteria:
                if criterion.rival:
                    assert criterion.at_least == pytest.approx(criterion.paper / 2, abs=1e-3)
                    assert criterion.at_least > 0
    table = {c.name: c.paper for c in copy_table.claim.protocol("paper").criteria}
    assert table["sab_5_5_beats_tbptt_300"] == pytest.approx(0.742)
    assert table["sab_5_5_beats_bptt_200"] == pytest.approx(0.44)
    assert table["sab_1_5_beats_sab_1_1_100"] == pytest.approx(0.421)
    added = {c.name: c for c in adding.claim.protocol("paper").criteria}
    assert added["beats_tbptt_200"].paper == pytest.approx(2.0e-6 / 3.0e-4, rel=1e-2)
    assert added["beats_tbptt_400"].at_most == pytest.approx((1.001e-5 / 6.8e-4) ** 0.5, rel=1e-2)


def test_adding_s_arms_share_the_unstated_choices_and_see_equal_shares_of_the_sequence():
    for size in (adding.CPU, adding.GPU, adding.FAR):
        assert size.tbptt * 4 == size.length
        stages = [recipe.stages[0] for recipe in size.arms().values()]
        assert len({(s.steps, s.batch, s.lr, s.clip) for s in stages}) == 1
        assert {(s.algorithm.args["loss"], s.algorithm.args["last"]) for s in stages} == {("mse", 1)}
    assert adding.CPU.k_trunc / adding.CPU.length == adding.GPU.k_trunc / adding.GPU.length


@pytest.mark.parametrize("name", [n for n in sorted(CLAIMS) if CLAIMS[n].kinds == ("train",)])
def test_a_model_that_makes_no_difference_reproduces_nothing(name):
    claim = CLAIMS[name]
    protocol = claim.protocol("cpu")
    metrics = {c.metric for c in protocol.criteria}
    same = records(claim, "cpu", lambda cell: {metric: [0.5, 0.51, 0.49] for metric in metrics})
    assert decide_claim(name, protocol, same, "cpu").verdict != "reproduced"
