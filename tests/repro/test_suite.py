import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from repro import suite
from repro.claim import Claim, Control, Criterion, Plot, Protocol
from repro.claim import Line as PlotLine
from repro.errors import UserError
from repro.store import Store
from repro.trial import Trial
from tests.repro.project import QUICK, put, trained, write
from tests.toys import measurement, recipe, stage


def criterion(name: str, kind: str, cell: str, rival: str | None = None) -> Criterion:
    return Criterion(
        name=name, kind=kind, statement="", cell=cell, rival=rival, metric="m", at_most=1, sd_floor=0.1
    )


MIXED = Protocol(
    cells={
        name: recipe(stage(i + 1)) for i, name in enumerate(["id", "fast", "slow", "ours", "off", "plot"])
    },
    criteria=(
        criterion("exact", "identity", "id"),
        criterion("speed", "measure", "fast", "slow"),
        criterion("beats", "train", "ours", "slow"),
        criterion("low", "train", "ours"),
    ),
    controls=(Control(name="removed", criterion="beats", swap={"ours": "off"}),),
    plots=(
        Plot(
            name="p",
            title="",
            x_label="",
            y_label="",
            lines=(PlotLine(cell="plot", metrics=("m",), label=""),),
        ),
    ),
    seeds=4,
    seed_offset=100,
)


def claim(protocol: Protocol, *profiles: str) -> Claim:
    profiles = profiles or ("cpu", "smoke")
    given = {"paper": "Toys", "title": "", "source": "", "statement": ""}
    return Claim(id="toy.mixed", profiles=dict.fromkeys(profiles, protocol), **given)


# --- trials


def test_seeds_and_timing_follow_the_criteria() -> None:
    found = suite.trials(claim(MIXED), "cpu")
    assert {cell: [t.seed for t in some] for cell, some in found.items()} == {
        "id": [1100],
        **{cell: [1100, 1101, 1102, 1103] for cell in ("fast", "slow", "ours", "off", "plot")},
    }
    assert {cell for cell, some in found.items() if some[0].timed} == {"fast", "slow"}
    assert {(t.claim, t.cell) for t in found["ours"]} == {("toy.mixed", "ours")}
    assert {len(some) for some in suite.trials(claim(MIXED), "smoke").values()} == {1}
    assert {cell: len(some) for cell, some in suite.trials(claim(MIXED), "cpu", 2).items()}["ours"] == 2
    assert suite.trials(claim(MIXED), "paper") == {}


def test_a_cell_that_is_only_shown_takes_the_seeds_declared_for_it() -> None:
    few = claim(dataclasses.replace(MIXED, shown_seeds=2))

    def seeds(*given: Any) -> dict[str, int]:
        return {cell: len(some) for cell, some in suite.trials(few, *given).items()}

    assert seeds("cpu") == {"id": 1, "fast": 4, "slow": 4, "ours": 4, "off": 4, "plot": 2}
    assert set(seeds("smoke").values()) == {1}
    assert seeds("cpu", 3)["plot"] == 3, "what the user asks for holds for every cell"
    assert [t.seed for t in suite.trials(few, "cpu")["plot"]] == [1100, 1101]


def test_a_kind_needs_its_cells_its_controls_and_the_last_one_what_is_only_shown() -> None:
    assert suite.cells_of(MIXED, "identity") == ("id",)
    assert suite.cells_of(MIXED, "measure") == ("fast", "slow")
    assert suite.cells_of(MIXED, "train") == ("ours", "slow", "off", "plot")
    assert suite.work(claim(MIXED), "cpu", "measure") == (2 + 3) * 4
    assert suite.work(claim(MIXED), "paper", "train") == 0


def test_a_trial_starts_from_the_one_that_trains_most_of_its_first_stages() -> None:
    one, two, three = stage(1, algorithm={"scale": 1.0}), stage(2), stage(3)
    cells = {
        "before": recipe(one),
        "after": recipe(one, two),
        "last": recipe(one, two, three),
        "other model": recipe(one, three, model={"hidden": 9}),
        "other task": recipe(one, three, task={"noise": 0.2}),
        "other validation": recipe(one, three, validation=None),
        "other type": recipe(stage(1, algorithm={"scale": 1}), three),
        "other stages": recipe(two, three),
    }
    criteria = tuple(criterion(cell, "train", cell) for cell in cells)
    control = Control(name="c", criterion="last", swap={"last": "before"})
    found = suite.trials(claim(Protocol(cells=cells, criteria=criteria, controls=(control,))), "cpu")
    starts = {cell: some[1].start for cell, some in found.items()}
    assert {cell: trial.cell if trial else None for cell, trial in starts.items()} == {
        "before": None,
        "after": "before",
        "last": "after",
        "other model": None,
        "other task": None,
        "other validation": None,
        "other type": None,
        "other stages": None,
    }
    assert starts["last"] == found["after"][1] and starts["after"] == found["before"][1]
    assert [cell for cell, some in found.items() if some[0].kept] == ["before", "after"]
    some = [found["last"][1], found["other model"][1]]
    assert [t.cell for t in suite.with_starts(some)] == ["before", "after", "last", "other model"]


def test_first_seeds_come_first_and_shared_trials_once() -> None:
    cells = {"a": [1, 2, 3], "b": [4], "c": [5, 6]}
    assert suite.by_seed(cells) == [1, 4, 5, 2, 6, 3]  # type: ignore[arg-type, comparison-overlap]
    assert suite.by_seed(cells, ["c", "none"]) == [5, 6]  # type: ignore[arg-type, comparison-overlap]
    one = Trial(recipe=measurement(), seed=1, claim="toy.a")
    other = dataclasses.replace(one, claim="toy.b")
    assert suite.unique([one, other]) == [other]


# --- what the user asks for


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("45", 45), (" 2m", 120)]
)
def test_budgets(text: str, value: float) -> None:
    assert suite.seconds(text) == value


@pytest.mark.parametrize("text", ["", "m", "soon", "-3m", "0", "nan", "infh", "3d"])
def test_no_budgets(text: str) -> None:
    with pytest.raises(UserError, match=r"write 90s, 20m or 1\.5h"):
        suite.seconds(text)


def test_marker_expressions() -> None:
    known = ["sab", "sab_copy", "train", *(f"toy_{i}" for i in range(20))]
    for good in ("", "sab", "sab and not train", "not (sab_copy or train)", "xfail"):
        suite.check_expression(good, known)
    for bad, said in {
        "sab_copi": "there is no marker 'sab_copi'; did you mean sab_copy",
        "sab and sab.copy": "'sab.copy' is no marker; did you mean sab_copy",
        "sab or": "cannot be read",
        **dict.fromkeys(
            (
                "sab, train",
                "sab & train",
                "sab == 1",
                "'sab'",
                "sab()",
                "sab if sab else train",
                "1",
                "sab[0]",
            ),
            "cannot be read; combine markers with and, or, not",
        ),
        "qqq": "known: sab, sab_copy, toy_0",
    }.items():
        with pytest.raises(UserError, match=said.replace("(", r"\(")) as error:
            suite.check_expression(bad, known)
    assert "toy_9" not in str(error.value) and "`repro list` shows all" in str(error.value)


def test_profile_and_device_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "has_cuda", lambda: False)
    assert suite.pick_profile(None) == "cpu" and suite.pick_device(None, "paper") == "cpu"
    monkeypatch.setattr(suite, "has_cuda", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert suite.pick_profile(None) == "paper" and suite.pick_profile("smoke") == "smoke"
    assert [suite.pick_device(None, p) for p in ("smoke", "cpu", "paper")] == ["cpu", "cpu", "cuda"]
    assert suite.pick_device("cuda:0", "cpu") == "cuda:0"
    with pytest.raises(UserError, match=r"this machine has 1 CUDA device\(s\)"):
        suite.pick_device("cuda:1", "cpu")
    for wrong in ("cpu:1", "cuda:", "cuda:x", "gpu"):
        with pytest.raises(UserError, match="choose cpu, cuda or cuda:N"):
            suite.pick_device(wrong, "cpu")


def test_torch_is_asked_only_where_a_gpu_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert not suite.has_cuda()
    monkeypatch.setattr(Path, "exists", lambda self: self == Path("/dev/nvidiactl"))
    assert suite.has_cuda()


def test_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRO_STORE", raising=False)
    assert suite.store_folder(None, tmp_path) == tmp_path / ".repro"
    monkeypatch.setenv("REPRO_STORE", str(tmp_path / "other"))
    assert suite.store_folder(None, tmp_path) == tmp_path / "other"
    assert suite.store_folder("/given", tmp_path) == Path("/given")


def test_a_folder_is_made_or_named_in_the_error(tmp_path: Path) -> None:
    suite.check_folder(tmp_path / "a/b", "store", "--store")
    assert list((tmp_path / "a/b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is a file, not a folder; name another with --store"):
        suite.check_folder(tmp_path / "file", "store", "--store")
    (tmp_path / "a").chmod(0o555)
    with pytest.raises(UserError, match="read-only folder"):
        suite.check_folder(tmp_path / "a", "store", "--store")


def test_claims_are_found_by_id_or_marker(tmp_path: Path) -> None:
    write(tmp_path, quick=QUICK, learns=trained())
    claims = suite.discover(tmp_path / "claims")
    assert [c.id for c in suite.find(claims, ["toy_learns", "toy.quick"])] == ["toy.learns", "toy.quick"]
    with pytest.raises(UserError, match=r"there is no claim 'toy.quik'; did you mean toy.quick"):
        suite.find(claims, ["toy.quik"])
    known = suite.markers(claims)
    assert {"toy", "toy_quick", "toy_learns", "headline", "identity", "train"} <= set(known)
    with pytest.raises(UserError, match="no claims at"):
        suite.discover(tmp_path / "nowhere")


# --- what the store says


def test_a_cell_counts_when_all_its_seeds_are_there(tmp_path: Path) -> None:
    store, mixed = Store(tmp_path), claim(MIXED)
    trials = suite.trials(mixed, "cpu")
    for cell in ("ours", "slow", "off"):
        for trial in trials[cell]:
            put(store, trial, m={"ours": 0.0, "slow": 1.0, "off": 9.0}[cell] + trial.seed / 1e5)
    last = store.root / f"records/{trials['ours'][-1].key}.json"
    text = last.read_text()
    last.unlink()
    decision, records, changed, _stale = suite.decide(mixed, "cpu", store)
    verdicts = {d.name: d.verdict for d in decision.decisions}
    assert verdicts["low"] == "not run" and len(records["ours"]) == 3 and changed == ()
    last.write_text(text)
    decision, records, *_ = suite.decide(mixed, "cpu", store)
    verdicts = {d.name: d.verdict for d in decision.decisions}
    assert verdicts["low"] == "reproduced" and len(records["ours"]) == 4
    assert verdicts["beats"] == "reproduced" and decision.controls[0].verdict == "not reproduced"


def test_stale_records_are_named_and_not_counted(tmp_path: Path) -> None:
    store, mixed = Store(tmp_path), claim(MIXED)
    (trial,) = suite.trials(mixed, "cpu")["id"]
    put(store, trial, m=0.5)
    file = store.root / f"records/{trial.key}.json"
    old = f"{trial.identity}-000000000000"
    text = file.read_text().replace(trial.key, old).replace(trial.sources["tests/toys/parts.py"], "0" * 16)
    file.unlink()
    (store.root / f"records/{old}.json").write_text(text)
    decision, records, changed, stale = suite.decide(mixed, "cpu", store)
    assert changed == ("tests/toys/parts.py",) and records["id"] == ()
    assert [record.key for record in stale["id"]] == [old] and stale["ours"] == ()
    assert decision.verdict == "not run"


def test_a_claim_without_the_profile_is_not_run(tmp_path: Path) -> None:
    decision, records, changed, stale = suite.decide(claim(MIXED), "paper", Store(tmp_path))
    assert (decision.verdict, records, changed, stale) == ("not run", {}, (), {})
    assert decision.reason == "The claim has no paper profile; it has: cpu, smoke."


@pytest.mark.parametrize(
    ("metrics", "wrong"),
    [
        ({"m": 0.5}, ""),
        ({"m": [[1.0, 2.0], [3.0]]}, ""),
        ({"m": []}, "The metric 'm' is not finite in seed 1100 of the cell 'id'."),
        ({"m": [1.0, "x"]}, "The metric 'm' is not finite in seed 1100 of the cell 'id'."),
        ({"n": 1}, "There is no metric 'm' in seed 1100 of the cell 'id'; it has: n."),
    ],
)
def test_smoke_looks_at_the_metric(tmp_path: Path, metrics: dict, wrong: str) -> None:
    store, mixed = Store(tmp_path), claim(MIXED)
    (trial,) = suite.trials(mixed, "smoke")["id"]
    put(store, trial, **metrics)
    record = store.get(trial)
    assert record is not None
    assert suite.smoke(MIXED.criteria[0], MIXED, {"id": [record]}) == wrong
    failed = dataclasses.replace(record, status="failed", error="broken.")
    assert "The trial failed" in suite.smoke(MIXED.criteria[0], MIXED, {"id": [failed]})
    infinite = dataclasses.replace(record, metrics={"m": math.inf})
    assert "is not finite" in suite.smoke(MIXED.criteria[0], MIXED, {"id": [infinite]})


def test_the_report_shows_committed_records_where_the_store_has_none(tmp_path: Path) -> None:
    write(tmp_path, quick=QUICK)
    claims = suite.discover(tmp_path / "claims")
    full, empty, reports = Store(tmp_path / "full"), Store(tmp_path / "empty"), tmp_path / "reports"
    (trial,) = suite.trials(claims["toy.quick"], "cpu")["one"]
    put(full, trial, value=1.0)
    assert suite.write_report(claims, "cpu", full, reports, {}) == []
    committed = reports / f"cpu/records/{trial.key}.json"
    assert committed.exists()
    assert suite.write_report(claims, "cpu", empty, reports, {}) == []
    assert "reproduced" in (reports / "cpu/results.json").read_text() and committed.exists()
    assert empty.get(trial) is None, "evidence, never a cache"
    past = suite.Committed(reports / "cpu/records").past(dataclasses.replace(trial))
    assert past is not None and past.cost["wall_s"] == 2.0
    committed.write_text("{")
    (problem,) = suite.write_report(claims, "cpu", empty, reports, {})
    assert "restore it from git or delete it" in problem
