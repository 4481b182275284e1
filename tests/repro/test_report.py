"""The report, against a golden copy rendered from the records in golden/records.

After a wanted change: `REPRO_GOLDEN=write pytest tests/repro/test_report.py`, then look at the difference.
"""

import dataclasses
import errno
import json
import math
import multiprocessing
import os
import re
import shutil
import socket
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from repro import plot, report
from repro.claim import VERDICTS, Claim, Control, Criterion, KnownDeviation, Line, Plot, Protocol, Shown
from repro.errors import UserError
from repro.recipe import Recipe, Stage, Stop, part
from repro.record import Record
from repro.verdict import decide_claim

GOLDEN = Path(__file__).parent / "golden"
MATPLOTLIB = "3.11.2"  # that drew the golden figures
DEVIATION = "00000000000000aa-00000000000a.json"
CRITERION_KEYS = {
    "name",
    "kind",
    "verdict",
    "reason",
    "measured",
    "interval",
    "band",
    "paper",
    "scale",
    "seeds",
}
WRITE = os.environ.get("REPRO_GOLDEN") == "write"
ENVIRONMENT = {
    "python": "3.11.2",
    "torch": "2.13.0",
    "processor": "Example CPU @ 2 GHz",
    "gpu": "",
    "threads": 1,
}

STAGE = Stage(
    algorithm=part("reference.algorithms.bptt.Bptt"),
    steps=2000,
    batch=64,
    lr=1e-3,
    validate_every=500,
    stop=Stop(metric="accuracy", at_least=0.99),
)
OURS = Recipe(
    task=part("reference.tasks.recall.Recall", delay=30),
    model=part("reference.models.memory.Memory", hidden=64, memory="sparse"),
    stages=(STAGE,),
    validation=part("reference.measure.accuracy.accuracy"),
    measures=(part("reference.measure.accuracy.by_delay", delays=[30, 60, 120]),),
)
RECALL = Protocol(
    cells={
        "ours": OURS,
        "short": OURS.but(model={"memory": "none"}, algorithm={"steps": 5}),
        "no reads": OURS.but(model={"reads": 0}),
    },
    criteria=(
        Criterion(
            name="it learns",
            kind="train",
            statement="Ours solves the task.",
            cell="ours",
            metric="at_30",
            at_least=0.9,
            sd_floor=0.01,
            paper=0.999,
            premise=True,
        ),
        Criterion(
            name="beats short",
            kind="train",
            statement="Ours beats short credit at equal steps.",
            cell="ours",
            rival="short",
            metric="at_30",
            at_least=0.2,
            sd_floor=0.02,
            paper=0.742,
        ),
        Criterion(
            name="carries over",
            kind="train",
            statement="Ours still works at four times the delay.",
            cell="ours",
            metric="at_120",
            success=0.5,
            at_least=0.5,
            paper="0.75|0.83",
        ),
    ),
    controls=(Control(name="reads removed", criterion="beats short", swap={"ours": "no reads"}),),
    shown=(
        Shown(cell="short", metric="at_120", label="short credit at 120", paper=0.12),
        Shown(cell="ours", rival="short", metric="at_120", label="gain at 120"),
        Shown(cell="ours", rival="ours", metric="at_120", label="equal in every seed"),
    ),
    plots=(
        Plot(
            name="delay",
            title="Accuracy by delay",
            x_label="delay",
            y_label="accuracy",
            x=(30, 60, 120),
            log_x=True,
            level=0.125,
            level_label="chance",
            lines=(
                Line(
                    cell="ours", metrics=("at_30", "at_60", "at_120"), label="ours", paper=(0.999, 0.95, None)
                ),
                Line(
                    cell="short",
                    metrics=("at_30", "at_60", "at_120"),
                    label="short credit",
                    paper=(0.257, 0.21, 0.12),
                ),
            ),
        ),
        Plot(
            name="attention",
            title="Where it reads",
            x_label="memory",
            y_label="output step",
            kind="image",
            lines=(Line(cell="ours", metrics=("map",), label="ours"),),
        ),
    ),
    seeds=6,
    scale="delay 30 in place of 300, 2,000 steps in place of 50,000, for every arm",
)
SPEED = Recipe(measures=(part("reference.measure.timing.step", batch=64),))
WORKING = Criterion(
    name="error",
    kind="train",
    statement="The error is small.",
    cell="adds",
    metric="mse",
    at_most=1e-4,
    sd_floor=1e-6,
    paper=4.59e-6,
)
ADDS = OURS.but(task={"kind": "adding"})
PAPER = {"paper": "A Toy Paper, arXiv:0000.00000", "source": "Table 1, p. 7"}
CLAIMS = (
    Claim(
        id="toy.recall",
        title="Memory recalls across long delays",
        profiles={"cpu": RECALL, "paper": RECALL},
        statement="At delay 300 ours reaches 99.9 %, short credit 25.7 %.",
        headline=True,
        choices=("Initial scale: 0.1, the same for every arm.",),
        notes=("The text says 0.75, the table 0.83.",),
        **PAPER,
    ),
    Claim(
        id="toy.identity",
        title="Reads are exact",
        statement="The gradient of a read equals its weight.",
        profiles={
            "every": Protocol(
                cells={"reads": Recipe(measures=(part("reference.measure.paths.reads"),))},
                criteria=(
                    Criterion(
                        name="gradient",
                        kind="identity",
                        statement="Largest deviation in float64.",
                        cell="reads",
                        metric="deviation",
                        at_most=1e-9,
                        paper="exact",
                    ),
                    Criterion(
                        name="memory",
                        kind="count",
                        statement="Bytes a step.",
                        cell="reads",
                        metric="bytes",
                        at_least=2048,
                        at_most=2048,
                        paper=2048,
                    ),
                ),
            ),
        },
        **PAPER,
    ),
    Claim(
        id="toy.speed",
        title="A step is fast",
        statement="A step takes a fifth of the time.",
        profiles={
            "cpu": Protocol(
                cells={
                    "fast": SPEED,
                    "plain": Recipe(measures=(part("reference.measure.timing.step", batch=32),)),
                },
                criteria=(
                    Criterion(
                        name="time",
                        kind="measure",
                        statement="Time of a step over the plain one's.",
                        cell="fast",
                        rival="plain",
                        ratio=True,
                        metric="seconds",
                        at_most=0.2,
                        sd_floor=0.01,
                        paper=0.17,
                    ),
                ),
            )
        },
        **PAPER,
    ),
    Claim(
        id="toy.adding",
        title="Adding",
        statement="The error is 4.59e-6.",
        profiles={
            "cpu": Protocol(
                cells={"adds": ADDS, "blind": ADDS.but(model={"reads": 0})},
                criteria=(WORKING,),
                controls=(Control(name="blind", criterion="error", swap={"adds": "blind"}),),
            )
        },
        **PAPER,
    ),
    Claim(
        id="toy.noise",
        title="Noise does not matter",
        statement="The same at any noise.",
        profiles={
            "cpu": Protocol(
                cells={"noisy": OURS.but(task={"noise": 0.3}), "off": OURS.but(task={"noise": 9.0})},
                criteria=(
                    Criterion(
                        name="noisy",
                        kind="train",
                        statement="Accuracy under noise.",
                        cell="noisy",
                        metric="at_30",
                        at_least=0.9,
                        sd_floor=0.01,
                        paper=0.98,
                    ),
                ),
                controls=(Control(name="only noise", criterion="noisy", swap={"noisy": "off"}),),
            )
        },
        known_deviation=KnownDeviation(
            reason="the printed noise is a variance",
            one_factor="toy.recall",
            records=("00000000000000aa-00000000000a",),
        ),
        **PAPER,
    ),
    Claim(
        id="toy.images",
        title="Images",
        statement="Digits at 1.555.",
        profiles={
            "cpu": Protocol(
                cells={"digits": OURS.but(task={"data": "digits"}), "none": OURS.but(task={"data": "zeros"})},
                criteria=(
                    Criterion(
                        name="digits",
                        kind="train",
                        statement="Perplexity.",
                        cell="digits",
                        metric="at_30",
                        at_most=1.6,
                        sd_floor=0.01,
                        paper=1.555,
                    ),
                ),
                controls=(Control(name="zeros", criterion="digits", swap={"digits": "none"}),),
            )
        },
        **PAPER,
    ),
    Claim(
        id="toy.large", title="Large models", statement="Only at scale.", profiles={"paper": RECALL}, **PAPER
    ),
    Claim(
        id="toy.later", title="Not run yet", statement="Like the first.", profiles={"cpu": RECALL}, **PAPER
    ),
)
RUN = [c for c in CLAIMS if c.id not in ("toy.large", "toy.later")]


def fixture_records() -> dict[str, dict[str, list[Record]]]:
    """Claim id → cell → the committed records with the cell's recipe, by seed."""
    found = [Record.from_json(f.read_text()) for f in sorted((GOLDEN / "records").glob("*.json"))]
    by_recipe: dict[str, list[Record]] = {}
    for record in sorted(found, key=lambda r: r.seed):
        by_recipe.setdefault(Recipe.from_plain(record.recipe).canonical, []).append(record)
    return {
        claim.id: {
            name: by_recipe.get(recipe.canonical, []) for name, recipe in claim.protocol("cpu").cells.items()
        }
        for claim in RUN
    }


def render(folder: Path, records=None, claims=CLAIMS, profile="cpu", **changes) -> None:
    records = fixture_records() if records is None else records
    by_id = {c.id: c for c in CLAIMS}
    given = {
        "decisions": {
            name: decide_claim(name, by_id[name].protocol(profile), cells, profile)
            for name, cells in records.items()
        },
        "stale": {"toy.noise": (("reference/models/memory.py",), {})},
        "environment": ENVIRONMENT,
        "evidence": frozenset({"toy.noise"}),
        **changes,
    }
    report.write(folder, profile, claims, records=records, **given)


def results(folder: Path, profile="cpu") -> dict:
    return json.loads((folder / profile / "results.json").read_text())


def rekey(record: Record, fingerprint: str) -> Record:
    return dataclasses.replace(record, key=f"{record.key.partition('-')[0]}-{fingerprint}")


def content(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A report written once into a folder that already held the record of a known deviation."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "cpu" / "records").mkdir(parents=True)
    shutil.copy(GOLDEN / "records" / DEVIATION, folder / "cpu" / "records")
    render(folder)
    return folder


@pytest.fixture(autouse=True)
def drawn(monkeypatch) -> list[str]:
    """Put a stub in the place of every figure that a test draws (`written` has the real ones); its names."""
    names: list[str] = []

    def svg(shown: plot.Picture) -> str:
        names.append(shown.plot.name)
        return f"<svg>{shown.stamp}</svg>"

    monkeypatch.setattr(plot, "svg", svg)
    return names


@pytest.fixture
def reports(written, tmp_path) -> Path:
    """A copy of that report to change."""
    return shutil.copytree(written, tmp_path / "reports")


# --- the golden copy


def test_the_report_equals_its_golden_copy(written):
    got = {name: data for name, data in content(written).items() if not name.startswith("cpu/records/")}
    if WRITE:
        shutil.rmtree(GOLDEN / "reports", ignore_errors=True)
        for name, data in got.items():
            (GOLDEN / "reports" / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / "reports" / name).write_bytes(data)
    wanted = content(GOLDEN / "reports")
    assert sorted(got) == sorted(wanted)
    for name in wanted:
        if name.endswith(".json"):  # processors differ in the last digit of a float
            assert near(json.loads(got[name]), json.loads(wanted[name])), name
        elif not name.endswith(".svg") or version("matplotlib") == MATPLOTLIB:
            assert got[name].decode() == wanted[name].decode(), (
                f"{name}: see the top of {Path(__file__).name}"
            )


def near(got, wanted):
    """Whether two JSON values are equal but for the rounding of floats."""
    if isinstance(wanted, dict):
        return list(got) == list(wanted) and all(near(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(near, got, wanted))
    if isinstance(wanted, float):
        return math.isclose(got, wanted, rel_tol=1e-12)
    return got == wanted


def test_near_is_near_and_no_further():
    value = {"a": [1.0, "x", None, 3], "b": 0.1}
    assert near(value, {"a": [1.0 + 1e-15, "x", None, 3], "b": 0.1})
    for other in ({"a": [1.0, "x", None, 4], "b": 0.1}, {"a": [1.0, "x", None], "b": 0.1}, {"b": 0.1}):
        assert not near(value, other) and not near({"a": 1.0}, {"a": 1.0 + 1e-9})


def test_the_records_are_copied_byte_for_byte(written):
    assert content(written / "cpu" / "records") == content(GOLDEN / "records")


def test_every_link_and_figure_of_the_report_is_there(written):
    for readme in (written / "README.md", written / "cpu" / "README.md"):
        text = readme.read_text()
        targets = re.findall(r"\]\(([^)]+)\)", text)
        headings = {line[3:].replace(".", "").lower() for line in text.splitlines() if line.startswith("## ")}
        assert targets
        for target in targets:
            file, _, anchor = target.partition("#")
            assert (readme.parent / file).exists(), target
            if not file:
                assert anchor in headings, target


def test_tables_are_at_most_eight_columns_wide(written):
    lines = (written / "cpu" / "README.md").read_text().splitlines()
    assert max(line.replace("\\|", "").count("|") - 1 for line in lines if line.startswith("|")) == 8


def test_results_have_exactly_the_keys_of_the_contract(written):
    data = results(written)
    assert list(data) == ["profile", "environment", "claims"]
    assert data["profile"] == "cpu" and data["environment"] == ENVIRONMENT
    assert [c["id"] for c in data["claims"]] == [c.id for c in CLAIMS]
    for claim in data["claims"]:
        assert set(claim) == {"id", "kinds", "verdict", "stale", "cost_s", "criteria", "controls"}
        assert claim["verdict"] in VERDICTS and isinstance(claim["stale"], bool)
        for c in claim["criteria"]:
            assert set(c) == CRITERION_KEYS | {"records"}
            assert c["verdict"] in VERDICTS and c["reason"] and len(c["band"]) == 2
        for c in claim["controls"]:
            assert set(c) == {"name", "verdict", "measured", "seeds", "records"}
        for c in claim["criteria"] + claim["controls"]:
            assert all(set(seed) == {"seed", "value"} for seed in c["seeds"])
            assert all((written / "cpu" / "records" / f"{key}.json").is_file() for key in c["records"])


def test_results_hold_the_numbers_of_the_decisions(written):
    rows = {c["id"]: c for c in results(written)["claims"]}
    recall = rows["toy.recall"]
    learns, beats, _ = recall["criteria"]
    ours = fixture_records()["toy.recall"]["ours"]
    assert learns["seeds"] == [{"seed": r.seed, "value": r.metrics["at_30"]} for r in ours]
    assert learns["measured"] == pytest.approx(sum(r.metrics["at_30"] for r in ours) / 6)
    assert learns["interval"][0] < learns["measured"] < learns["interval"][1]
    assert learns["band"] == [0.9, None] and learns["paper"] == 0.999
    assert learns["scale"] == f"reduced scale; paper scale not run: {RECALL.scale}"
    assert {r.key for r in ours} < set(beats["records"]) and len(beats["records"]) == 12
    assert recall["controls"][0]["verdict"] == "not reproduced"
    used = [r for cell in fixture_records()["toy.recall"].values() for r in cell]
    assert recall["cost_s"] == pytest.approx(sum(r.cost["wall_s"] for r in used))
    assert {c["scale"] for c in rows["toy.identity"]["criteria"]} == {"one recipe for every profile"}
    assert [name for name, row in rows.items() if row["stale"]] == ["toy.noise"]
    assert rows["toy.large"]["criteria"] == [] and rows["toy.large"]["verdict"] == "not run"
    assert [c["verdict"] for c in rows["toy.later"]["criteria"]] == ["not run"] * 3


# --- what is said of a claim


def test_a_partial_report_is_a_true_report(tmp_path):
    records = fixture_records()
    some = {
        "toy.recall": {"ours": records["toy.recall"]["ours"][:2]},
        "toy.identity": records["toy.identity"],
    }
    render(tmp_path, some, stale={}, evidence=frozenset())
    verdicts = {c["id"]: c["verdict"] for c in results(tmp_path)["claims"]}
    assert verdicts.pop("toy.identity") == "reproduced" and set(verdicts.values()) == {"not run"}
    text = (tmp_path / "cpu" / "README.md").read_text()
    assert "1 reproduced, 7 not run." in text
    assert "The cell 'short' has no record yet" in text
    assert "Stale" not in text and "committed" not in text


def test_without_any_record_every_claim_is_not_run(tmp_path):
    render(tmp_path, {}, decisions={}, stale={}, evidence=frozenset())
    assert {c["verdict"] for c in results(tmp_path)["claims"]} == {"not run"}
    assert "| [toy.later](#toylater)" in (tmp_path / "cpu" / "README.md").read_text()


def test_a_control_that_is_not_red_is_shouted(tmp_path):
    records = fixture_records()["toy.recall"]
    ours = [dataclasses.replace(r, recipe=RECALL.cells["no reads"].to_plain()) for r in records["ours"]]
    render(tmp_path, {"toy.recall": {**records, "no reads": ours}})
    text = (tmp_path / "cpu" / "README.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| reads removed"))
    assert row.split("|")[-2].strip() == "**no**"
    assert "- reads removed: Mean" in text


def test_a_smoke_run_leaves_the_index_as_it_is(reports):
    before = (reports / "README.md").read_text()
    records = {"toy.recall": fixture_records()["toy.recall"]}
    claim = dataclasses.replace(CLAIMS[0], profiles={"smoke": RECALL})
    decision = decide_claim(claim.id, RECALL, records[claim.id], "smoke")
    report.write(reports, "smoke", [claim], {claim.id: decision}, records, {}, ENVIRONMENT)
    assert (reports / "smoke" / "README.md").is_file()
    assert (reports / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("profile", "label"), [("smoke", "mechanics only; no verdict"), ("paper", "paper scale")]
)
def test_other_profiles_have_their_own_label(tmp_path, profile, label):
    records = {"toy.recall": fixture_records()["toy.recall"]}
    claim = dataclasses.replace(CLAIMS[0], profiles={profile: RECALL})
    decision = decide_claim(claim.id, RECALL, records[claim.id], profile)
    report.write(tmp_path, profile, [claim], {claim.id: decision}, records, {}, ENVIRONMENT)
    text = (tmp_path / profile / "README.md").read_text()
    assert f"** · {label}. " in text and "reduced scale" not in text
    assert results(tmp_path, profile)["claims"][0]["criteria"][0]["scale"].startswith(label)


def test_the_last_values_of_stale_records_are_shown_marked_and_judge_nothing(tmp_path):
    records = fixture_records()["toy.recall"]
    fresh = {**records, "short": records["short"][:4]}
    old = {"short": [rekey(r, "1" * 12) for r in records["short"][4:]]}
    partial = {**fresh, "short": ()}  # what suite.decide counts: a cell that lacks seeds does not
    decision = decide_claim("toy.recall", RECALL, {k: v for k, v in partial.items() if v}, "cpu")
    stale = {"toy.recall": (("reference/models/memory.py",), old)}
    render(tmp_path, {"toy.recall": fresh}, decisions={"toy.recall": decision}, stale=stale)
    text = (tmp_path / "cpu" / "README.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| at_30") and "| short" in line)
    cells = [cell.strip() for cell in row.split("|")[3:-1]]
    assert cells[4:] == [f"{report.num(r.metrics['at_30'])} (stale)" for r in old["short"]]
    assert [cell.endswith("(stale)") for cell in cells[:4]] == [False] * 4
    assert "Stale values come from the code before the change" in text
    row = results(tmp_path)["claims"][0]
    assert row["stale"] and row["verdict"] == "not run"
    assert not {r.key for r in old["short"]} & {key for c in row["criteria"] for key in c["records"]}


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (6, None),
        (3, "Judged with 6 seeds, the protocol declares 3. Seeds added after a look at fewer are a second"),
        (8, "Judged with 6 seeds, the protocol declares 8.\n"),
    ],
)
def test_another_number_of_seeds_than_declared_is_said(tmp_path, declared, said):
    records = {"toy.recall": fixture_records()["toy.recall"]}
    protocol = dataclasses.replace(RECALL, seeds=declared, criteria=RECALL.criteria[:2])
    claim = dataclasses.replace(CLAIMS[0], profiles={"cpu": protocol})
    decision = decide_claim(claim.id, protocol, records[claim.id], "cpu")
    report.write(tmp_path, "cpu", [claim], {claim.id: decision}, records, {}, ENVIRONMENT)
    text = (tmp_path / "cpu" / "README.md").read_text()
    assert ("Judged with" in text) == (said is not None) and (said is None or said in text)


def test_a_known_deviation_without_its_record_has_no_dead_link(tmp_path):
    render(tmp_path)
    text = (tmp_path / "cpu" / "README.md").read_text()
    key = DEVIATION.removesuffix(".json")
    assert f"Shown by `{key}` (not among these records)" in text and f"(records/{DEVIATION})" not in text


def test_more_seeds_than_fit_go_into_a_second_table(tmp_path):
    records = fixture_records()["toy.identity"]["reads"]
    many = [dataclasses.replace(records[0], key=f"{i:016x}-0", seed=1000 + i) for i in range(8)]
    render(tmp_path, {"toy.identity": {"reads": many}})
    lines = (tmp_path / "cpu" / "README.md").read_text().splitlines()
    heads = [line for line in lines if "seed 100" in line]
    assert ["seed 1005" in head for head in heads] == [True, False]
    assert "seed 1007" in heads[1]


def test_a_value_that_is_not_finite_is_null_in_the_results(tmp_path):
    decision = decide_claim(
        "toy.identity", CLAIMS[1].protocol("cpu"), fixture_records()["toy.identity"], "cpu"
    )
    first = dataclasses.replace(
        decision.decisions[0], interval=(-math.inf, 2.0), measured=math.nan, seeds=((1000, math.nan),)
    )
    decision = dataclasses.replace(decision, decisions=(first, *decision.decisions[1:]))
    render(tmp_path, decisions={"toy.identity": decision})
    row = results(tmp_path)["claims"][1]["criteria"][0]
    assert row["interval"] == [None, 2.0] and row["measured"] is None
    assert row["seeds"] == [{"seed": 1000, "value": None}]
    assert "not finite [−∞, 2]" in (tmp_path / "cpu" / "README.md").read_text()


# --- files


def test_writing_the_same_again_changes_and_draws_nothing(reports, drawn):
    before = {f: f.stat().st_mtime_ns for f in reports.rglob("*") if f.is_file()}
    render(reports)
    assert {f: f.stat().st_mtime_ns for f in reports.rglob("*") if f.is_file()} == before
    assert drawn == []


def test_only_the_figures_whose_data_changed_are_drawn(reports, drawn):
    records = fixture_records()
    first, *rest = records["toy.recall"]["ours"]
    first = dataclasses.replace(first, metrics={**first.metrics, "at_60": 0.5})
    render(reports, {**records, "toy.recall": {**records["toy.recall"], "ours": [first, *rest]}})
    assert drawn == ["delay"]


def test_a_figure_that_is_gone_from_the_claim_is_removed(reports):
    claim = dataclasses.replace(
        CLAIMS[0], profiles={"cpu": dataclasses.replace(RECALL, plots=RECALL.plots[:1])}, notes=()
    )
    render(reports, claims=(claim, *CLAIMS[1:]))
    names = [f.name for f in sorted((reports / "cpu" / "plots").iterdir()) if "recall" in f.name]
    assert names == ["toy.recall-delay.svg", "toy.recall-learning.svg"]


def test_superseded_records_leave_and_other_claims_evidence_stays(reports):
    records = fixture_records()
    folder = reports / "cpu" / "records"
    before = {f.name for f in folder.iterdir()}
    fresh = {cell: [rekey(r, "1" * 12) for r in found] for cell, found in records["toy.recall"].items()}
    render(reports, {"toy.recall": fresh, "toy.noise": records["toy.noise"]})
    now = {f.name for f in folder.iterdir()}
    old = {f"{r.key}.json" for found in records["toy.recall"].values() for r in found}
    assert before - now == old
    assert now - before == {f"{r.key}.json" for found in fresh.values() for r in found}


def test_a_changed_recipe_leaves_no_record_of_the_old_one(reports):
    records = fixture_records()
    (old,) = records["toy.identity"]["reads"]
    new = dataclasses.replace(old, key="1" * 16 + "-" + "2" * 12)
    render(reports, {**records, "toy.identity": {"reads": [new]}})
    names = {f.stem for f in (reports / "cpu" / "records").iterdir()}
    assert new.key in names and old.key not in names


def test_evidence_and_known_deviations_are_never_removed(reports):
    records = fixture_records()
    before = content(reports / "cpu" / "records")
    fewer = {cell: found[:1] for cell, found in records["toy.noise"].items()}
    render(reports, {**records, "toy.noise": fewer}, evidence=frozenset({"toy.noise"}))
    assert content(reports / "cpu" / "records") == before
    some = {"ours": records["toy.recall"]["ours"][:1]}  # a run that has only just begun
    render(reports, {**records, "toy.recall": some})
    assert content(reports / "cpu" / "records") == before
    render(reports, {**records, "toy.noise": {"noisy": (), "off": ()}}, evidence=frozenset())
    assert content(reports / "cpu" / "records") == before


def test_the_index_shows_every_profile(reports):
    other = [dataclasses.replace(CLAIMS[1], id="toy.other")]
    report.write(reports, "paper", other, {}, {}, {}, ENVIRONMENT)
    text = (reports / "README.md").read_text()
    assert "[cpu](cpu/README.md)" in text and "[paper](paper/README.md)" in text
    row = next(line for line in text.splitlines() if "`toy.other`" in line)
    assert [cell.strip() for cell in row.split("|")[2:4]] == ["–", "[not run](paper/README.md#toyother)"]


def test_what_a_killed_writer_left_is_swept(reports):
    left = reports / "cpu" / f".README.md.{socket.gethostname()}.4194304.tmp"  # no process has this number
    left.write_text("half a rep")
    render(reports)
    assert not left.exists() and not list(reports.rglob(".*"))


def _write_often(folder: Path, names: list[str], go) -> None:
    records = {name: cells for name, cells in fixture_records().items() if name in names}
    go.wait()
    for _ in range(4):
        render(folder, records)


def test_two_processes_at_once_never_leave_half_a_file(reports):
    fork = multiprocessing.get_context("fork")
    go = fork.Event()
    halves = (["toy.recall", "toy.speed"], ["toy.identity", "toy.adding", "toy.noise"])
    writers = [fork.Process(target=_write_often, args=(reports, half, go)) for half in halves]
    for writer in writers:
        writer.start()
    go.set()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(len([c for c in results(reports)["claims"] if c["verdict"] != "not run"]))
        assert (reports / "cpu" / "README.md").read_text().rstrip().endswith("threads: 1")
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen <= {2, 3, 5}
    assert not list(reports.rglob(".*"))


def test_ten_claims_of_real_size_are_written_quickly(tmp_path):
    curve = tuple({"stage": 0, "step": 10 * i, "loss": 1 / (1 + i), "accuracy": i / 200} for i in range(200))
    many = [dataclasses.replace(CLAIMS[0], id=f"toy.number{i}") for i in range(10)]
    found = fixture_records()["toy.recall"]
    records = {
        claim.id: {
            cell: [
                dataclasses.replace(r, key=f"{i}{r.key}", training=curve, validation=curve[::10])
                for r in some
            ]
            for cell, some in found.items()
        }
        for i, claim in enumerate(many)
    }
    decisions = {c.id: decide_claim(c.id, RECALL, records[c.id], "cpu") for c in many}
    report.write(tmp_path, "cpu", many, decisions, records, {}, ENVIRONMENT)
    start = time.process_time()
    report.write(tmp_path, "cpu", many, decisions, records, {}, ENVIRONMENT)
    assert time.process_time() - start < 1.5


def test_a_record_that_was_cut_short_in_the_report_is_written_anew(reports):
    file = next(f for f in (reports / "cpu" / "records").iterdir() if f.name != DEVIATION)
    whole = file.read_bytes()
    for broken in (whole[:100], whole.replace(b'"seed": 1', b'"seed": 2')):
        file.write_bytes(broken)
        render(reports)
        assert file.read_bytes() == whole


# --- mistakes


def test_a_reports_folder_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "reports").write_text("")
    with pytest.raises(
        UserError, match=r"reports folder .*reports cannot be written \(.*\): .*--reports DIR\.$"
    ):
        render(tmp_path / "reports")


def test_a_full_disk_is_one_sentence_and_leaves_the_old_report(reports, monkeypatch):
    before = content(reports)

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        render(reports, stale={})
    assert content(reports) == before


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"claims": 3}',
        "{}",
        '{"claims": [{"id": "x"}]}',
        '{"claims": [{"id": "x", "verdict": "fine", "stale": false, "criteria": [], "controls": []}]}',
        '{"claims": [{"id": "x", "verdict": "not run", "stale": false, "criteria": [{}], "controls": []}]}',
    ],
)
def test_a_broken_results_file_is_one_sentence(reports, text):
    (reports / "cpu" / "results.json").write_text(text)
    with pytest.raises(UserError, match=r"cpu/results\.json is not a results file: delete it"):
        render(reports)
