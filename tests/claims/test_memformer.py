"""The Memformer claims as data: what they run exists, what is shared is shared, their bands can fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from repro.claim import FIRST_SEED, Claim, discover
from repro.source import check_arguments, reached, root
from repro.verdict import decide, decide_claim
from tests.toys import made_up

CLAIMS = {
    name: claim
    for name, claim in discover(Path(__file__).parents[2] / "claims").items()
    if name.startswith("memformer.")
}
EXPECTED = {
    "memformer.mrbp": ("identity", "count", "measure"),
    "memformer.memory_saving": ("count", "measure"),
    "memformer.flops_growth": ("count",),
    "memformer.flops_table": ("count",),
    "memformer.inference_speed": ("measure",),
    "memformer.forgetting_terminal_state": ("identity",),
    "memformer.image_ppl": ("train",),
    "memformer.slots": ("train",),
}


def protocols():
    for claim in CLAIMS.values():
        for profile, protocol in claim.profiles.items():
            yield pytest.param(claim, protocol, id=f"{claim.id}-{profile}")


def records(claim: Claim, profile: str, values):
    """Return records of three seeds; `values` maps a cell to the values of its seeds, or gives None."""
    protocol = claim.protocol(profile)
    found = {}
    for cell, recipe in protocol.cells.items():
        metrics = values(cell)
        if metrics is not None:
            found[cell] = [
                made_up(
                    cell, recipe, FIRST_SEED + seed, {name: value[seed] for name, value in metrics.items()}
                )
                for seed in range(3)
            ]
    return found


def test_the_claims_and_their_kinds():
    assert {name: claim.kinds for name, claim in CLAIMS.items()} == EXPECTED
    headline = {name for name, claim in CLAIMS.items() if claim.headline}
    assert headline == {"memformer.mrbp", "memformer.memory_saving"}


def test_reading_them_imports_no_torch():
    code = (
        "import sys; from pathlib import Path; from repro.claim import discover;"
        f"discover(Path({str(Path(__file__).parents[2] / 'claims')!r}));"
        "sys.exit(bool({'torch', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("claim", "protocol"), list(protocols()))
def test_every_recipe_names_what_exists_with_arguments_that_fit(claim, protocol):
    for recipe in protocol.cells.values():
        check_arguments(recipe, root())
        files = reached([part.path for part in recipe.parts], root())
        assert files
    if claim.id == "memformer.flops_table":
        names = {file.stem for file in files}
        assert {"memformer", "transformer_xl", "decoder", "flops"} <= names


@pytest.mark.parametrize("name", EXPECTED)
def test_exact_cells_are_the_same_in_every_profile(name):
    claim = CLAIMS[name]
    exact = []
    for protocol in claim.profiles.values():
        used = [c for c in protocol.criteria if c.kind in ("identity", "count")]
        cells = {cell for c in used for cell in (c.cell, c.rival) if cell}
        exact.append({cell: protocol.cells[cell].digest for cell in cells})
    assert all(one == exact[0] for one in exact)


@pytest.mark.parametrize("name", ["memformer.image_ppl", "memformer.slots"])
def test_images_are_judged_on_the_test_split_and_watched_on_the_validation_split(name):
    for protocol in CLAIMS[name].profiles.values():
        for recipe in protocol.cells.values():
            assert [measure.args["split"] for measure in recipe.measures] == ["test"]
            assert recipe.validation is not None and recipe.validation.args["split"] == "validation"


def test_choices_say_what_is_silent():
    for claim in CLAIMS.values():
        assert claim.choices, claim.id
    assert any("doesn't name" in text for text in CLAIMS["memformer.inference_speed"].choices)
    convention = CLAIMS["memformer.flops_table"].choices[0]
    assert "one for all eight" in convention and "declared before counting" in convention


def test_bands_of_the_flops_table_tell_its_rows_apart():
    criteria = {c.name: c for c in CLAIMS["memformer.flops_table"].protocol("cpu").criteria}
    assert len(criteria) == 8
    for one, other in (
        ("mnist-memformer-4-8", "mnist-memformer-4-4"),
        ("wikitext-memformer-4-16", "wikitext-memformer-4-12"),
        ("wikitext-transformer-xl-1024", "wikitext-memformer-4-16"),
        ("mnist-transformer-xl-784", "mnist-decoder"),
    ):
        a, b = criteria[one], criteria[other]
        assert not a.at_least <= b.paper <= a.at_most


@pytest.mark.parametrize(
    ("name", "cell", "value", "verdict"),
    [
        ("vanilla-growth", "vanilla", 1.05, "not reproduced"),
        ("vanilla-growth", "vanilla", 1.65, "reproduced"),
        ("transformer-xl-growth", "transformer-xl", 1.65, "not reproduced"),
        ("memformer-growth", "memformer", 1.02, "reproduced"),
    ],
)
def test_slopes_exclude_the_neighbouring_exponent(name, cell, value, verdict):
    claim = CLAIMS["memformer.flops_growth"]
    criterion = next(c for c in claim.protocol("cpu").criteria if c.name == name)
    given = records(claim, "cpu", lambda c: {"exponent": [value] * 3} if c == cell else None)
    assert decide(criterion, given).verdict == verdict


def spread(mean: float) -> dict[str, list[float]]:
    return {"perplexity": [mean - 0.004, mean, mean + 0.005]}


IMAGES = {
    "memformer": 1.96,
    "without-memory": 2.15,
    "frozen-memory": 2.15,
    "transformer-xl": 2.02,
    "lstm": 2.17,
}


def judged(changes):
    means = {**IMAGES, **changes}
    claim = CLAIMS["memformer.image_ppl"]
    given = records(claim, "cpu", lambda cell: spread(means[cell]))
    return decide_claim(claim.id, claim.protocol("cpu"), given, "cpu")


def test_memory_that_helps_is_reproduced():
    assert judged({}).verdict == "reproduced"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"without-memory": 1.965}, "not reproduced"),  # memory does nothing
        ({"memformer": 2.15}, "not reproduced"),
        ({"transformer-xl": 1.90}, "not reproduced"),
        ({"frozen-memory": 1.96}, "inconclusive"),  # the control isn't red: what helped was not the memory
    ],
)
def test_what_must_not_count_as_reproduced(changes, verdict):
    assert judged(changes).verdict == verdict


@pytest.mark.parametrize("profile", ["cpu", "smoke"])
def test_slots_and_image_ppl_share_what_they_can(profile):
    images, slots = (CLAIMS[f"memformer.{name}"].protocol(profile).cells for name in ("image_ppl", "slots"))
    assert images["memformer"].digest == slots["slots-16"].digest
    assert images["frozen-memory"].digest == slots["frozen-memory"].digest


def test_arms_differ_in_what_they_are_named_after_alone():
    for profile in ("cpu", "paper", "smoke"):
        cells = CLAIMS["memformer.image_ppl"].protocol(profile).cells
        same = [[cell.to_plain()[part] for part in ("task", "stages", "measures")] for cell in cells.values()]
        assert all(one == same[0] for one in same)
        plain = dict(cells["memformer"].model.args)
        for other, memory in (("without-memory", "off"), ("frozen-memory", "frozen")):
            assert dict(cells[other].model.args) == {**plain, "memory": memory}
