"""Runs of pytest on toy claims: inside this process, and in others where workers and kills are the point."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro import plugin, suite
from repro.store import Store
from tests.repro.project import DEVIATION, QUICK, ROOT, fill, metrics, trained, write

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run pytest on the toy claims in this process; return its exit status and everything it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.delenv("REPRO_STORE", raising=False)
    # workers get the path of the start of this process; the script `pytest` starts without the root in it
    monkeypatch.setattr("xdist.workermanage._sys_path", [str(ROOT), *sys.path])

    def call(*arguments: str, paths: tuple[str, ...] = ("claims",)) -> tuple[int, str]:
        capfd.readouterr()
        code = pytest.main([*paths, *arguments])
        out, err = capfd.readouterr()
        return int(code), out + err

    return call


def results(folder: Path, claim: str, profile: str = "cpu") -> dict:
    rows = json.loads((folder / f"reports/{profile}/results.json").read_text())["claims"]
    return next(row for row in rows if row["id"] == claim)


# --- what a run does


def test_a_run_plans_trains_judges_and_reports(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained(), quick=QUICK)
    code, out = run()
    assert code == 0
    order = ["plan: 2 claims, 3 criteria, profile cpu on cpu", "trials: 9, in the store: 0, to run: 9"]
    order += ["toy.quick one seed 1000 | done", "PASS toy.quick::is_one | reproduced: 1, band: = 1"]
    order += ["toy.quick | reproduced at profile cpu", "toy.learns good seed 1002 | done"]
    order += ["PASS toy.learns::learns | reproduced: ", "toy.learns | reproduced at profile cpu"]
    order += ["reduced scale; paper scale not run", "· gains", f"report: {Path('reports/cpu/README.md')}"]
    places = [out.find(text) for text in order]
    assert -1 not in places and places == sorted(places), out
    row = results(tmp_path, "toy.learns")
    assert row["verdict"] == "reproduced" and row["controls"][0]["verdict"] == "not reproduced"
    assert [s["seed"] for s in row["criteria"][0]["seeds"]] == [1000, 1001, 1002]
    assert len(metrics(tmp_path / ".repro")) == 10

    files = {f: f.stat().st_mtime_ns for f in (tmp_path / ".repro/records").iterdir()}
    code, out = run("-q")
    assert code == 0 and "in the store: 10, to run: 0" in out and "3 passed" in out and "done in" not in out
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / ".repro/records").iterdir()} == files


def test_verbose_output_keeps_whole_lines(run: Run, tmp_path: Path) -> None:
    write(tmp_path, quick=QUICK)
    code, out = run("-v")
    assert code == 0
    assert "PASS toy.quick::is_one | reproduced: 1, band: = 1" in out.splitlines()


@pytest.mark.parametrize(
    ("changes", "code", "counts", "said"),
    [
        ({"AT_MOST": 0.01}, 1, "1 failed, 1 passed", "not reproduced: Mean"),
        ({"AT_MOST": 0.01, "DEVIATION": DEVIATION}, 0, "1 passed, 1 xfailed", "XFAIL toy.learns::learns"),
        ({"DEVIATION": DEVIATION}, 1, "2 failed", "reproduces although it has a known_deviation"),
        ({"CONTROL": "twin"}, 1, "1 failed, 1 passed", "The control 'no_learning' is not red (reproduced)"),
        ({"METRIC": "wrong"}, 0, "1 passed, 1 skipped", "inconclusive: There is no metric 'wrong'"),
    ],
)
def test_outcomes(
    run: Run, tmp_path: Path, changes: dict[str, object], code: int, counts: str, said: str
) -> None:
    write(tmp_path, learns=trained(**changes))
    store = fill(tmp_path, "toy.learns")
    (store.root / "records/0-0.json").write_text(next((store.root / "records").iterdir()).read_text())
    found, out = run("-q")
    assert (found, counts in out, said in out, "Traceback" in out) == (code, True, True, False), out
    assert "in the store: 12" in out or "in the store: 9" in out, "nothing is trained"


def test_a_known_deviation_whose_record_is_nowhere_is_no_excuse(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained(AT_MOST=0.01, DEVIATION=DEVIATION))
    store = fill(tmp_path, "toy.learns")
    code, out = run("-q")
    said = (
        "The known deviation of toy.learns rests on the record 0-0, which is neither in the store nor under"
    )
    assert code == 1 and "1 failed, 1 passed" in out and said in out and "Traceback" not in out
    committed = tmp_path / "reports/paper/records"
    committed.mkdir(parents=True)
    (committed / "0-0.json").write_text(next((store.root / "records").iterdir()).read_text())
    code, out = run("-q")
    assert code == 0 and "1 passed, 1 xfailed" in out


@pytest.mark.parametrize(
    ("changes", "status", "counts", "said"),
    [
        (
            {"TASK": {"data": "toys"}},
            0,
            "2 skipped",
            "not run: The cell 'good' cannot run: the data set is missing",
        ),
        (
            {"ALGORITHM": {"raise_at": 3}},
            1,
            "2 failed",
            "inconclusive: The trial failed, seed 1000 of 'good'",
        ),
    ],
)
def test_trials_without_metrics(
    run: Run, tmp_path: Path, changes: dict[str, object], status: int, counts: str, said: str
) -> None:
    write(tmp_path, learns=trained(**changes))
    code, out = run("-q")
    assert code == status and counts in out and said in out and "Traceback" not in out


def test_inconclusive_skips_and_fails_only_when_asked(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained())
    fill(tmp_path, "toy.learns")
    code, out = run("--seeds", "2")
    assert code == 0 and "2 skipped" in out and "fewer than 3 never decide" in out
    assert "note: --seeds 2 decides no trained claim; that takes 3 or more" in out
    assert results(tmp_path, "toy.learns")["verdict"] == "inconclusive"
    code, out = run("--seeds", "2", "--strict-verdicts")
    assert code == 1 and "2 failed" in out and "FAIL toy.learns::learns | inconclusive" in out


def test_smoke_judges_mechanics_only(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained(AT_MOST=0.01), quick=QUICK)
    code, out = run("--profile", "smoke")
    assert code == 0 and "3 passed" in out and "mechanics work" in out
    assert {results(tmp_path, f"toy.{c}", "smoke")["verdict"] for c in ("learns", "quick")} == {"not run"}
    assert len(metrics(tmp_path / ".repro")) == 4, "one seed a cell"


@pytest.mark.parametrize(
    ("changes", "counts", "said"),
    [
        ({"METRIC": "wrong"}, "1 failed, 1 passed", "no metric 'wrong' in seed 1000 of the cell 'good'"),
        ({"ALGORITHM": {"explode_at": 2}}, "2 failed", "The trial failed, seed 1000 of the cell 'good'"),
        ({"TASK": {"data": "toys"}}, "2 skipped", "the data set is missing: unpack it to toys"),
    ],
)
def test_smoke_shows_broken_mechanics(
    run: Run, tmp_path: Path, changes: dict[str, object], counts: str, said: str
) -> None:
    write(tmp_path, learns=trained(**changes))
    code, out = run("--profile", "smoke", "-q")
    assert (
        code == (1 if "failed" in counts else 0) and counts in out and said in out and "Traceback" not in out
    )


def test_a_claim_without_the_profile_is_skipped(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained())
    code, out = run("--profile", "paper")
    assert code == 0 and "2 skipped" in out and "the claim has no paper profile; it has: cpu, smoke." in out


def test_markers_paths_and_node_ids_select(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained(), quick=QUICK)
    for arguments, paths in (
        (("-m", "toy and identity"), ("claims",)),
        (("-m", "headline or toy_nothing", "-k", "nothing"), ("claims",)),
        (("-m", "toy_quick"), ("claims",)),
        ((), ("claims/toy/quick.py",)),
        ((), ("claims/toy/quick.py::toy.quick::is_one",)),
    ):
        code, out = run("--collect-only", "-q", *arguments, paths=paths)
        if "toy_nothing" in " ".join(arguments):
            assert code == 4 and "no marker 'toy_nothing'" in out
        else:
            assert code == 0 and "claims/toy/quick.py::toy.quick::is_one" in out, out
            assert "learns" not in out and "plan:" not in out


def test_only_the_claims_folder_wakes_the_plugin(run: Run, tmp_path: Path) -> None:
    write(tmp_path, quick=QUICK)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_ordinary.py").write_text("def test_ordinary():\n    pass\n")
    for paths in (("tests",), (), ("claims", "tests")):
        code, out = run("--profile", "huge", "-m", "not sab_typo", paths=paths)
        assert code == 0 and "1 passed" in out and "plan:" not in out
    assert not (tmp_path / ".repro").exists() and not (tmp_path / "reports").exists()


def test_cheap_things_come_first(run: Run, tmp_path: Path) -> None:
    long = trained("along").replace("stage(20", "stage(400")
    write(tmp_path, along=long, learns=trained(), quick=QUICK)
    _, out = run("--collect-only", "-q")
    names = [line.split("::")[1] for line in out.splitlines() if "::" in line]
    assert names == ["toy.quick", "toy.learns", "toy.learns", "toy.along", "toy.along"]


# --- stopping and going on


class OnceItRuns(float):
    """A deadline that passes when the store has a trial beyond its first step."""

    store: Store

    def __le__(self, now: float) -> bool:
        return any(beat.step > 0 for beat in self.store.heartbeats())


def test_budget_skips_and_the_next_run_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, learns=trained(ALGORITHM={"slow": 0.1}), quick=QUICK)
    fill_store = Store.fill

    def sooner(self: Store, trials: list, deadline: float | None, **rest: object) -> None:
        if deadline is not None:
            assert time.time() < deadline < time.time() + 3600
            deadline = OnceItRuns(deadline)
            deadline.store = self
        fill_store(self, trials, deadline=deadline, **rest)

    monkeypatch.setattr(Store, "fill", sooner)
    code, out = run("--budget", "1h", "--seeds", "1", "--store", "broken")
    assert code == 0 and "the budget of 1h is spent and 3 of 3 trials are missing" in out
    assert "1 passed, 2 skipped" in out
    assert list((tmp_path / "broken/checkpoints").iterdir()), "the trial in progress is kept"
    assert results(tmp_path, "toy.learns")["verdict"] == "not run"
    assert "fewer than 3 never decide" in run("--seeds", "1", "--store", "broken", "-q")[1]
    run("--seeds", "1", "--store", "whole", "-q")
    assert metrics(tmp_path / "broken") == metrics(tmp_path / "whole")
    records = [json.loads(f.read_text()) for f in (tmp_path / "broken/records").iterdir()]
    assert max(r["environment"]["resumes"] for r in records) >= 1, "from the checkpoint"


def test_an_interrupt_leaves_a_true_partial_report(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, learns=trained(), quick=QUICK)
    fill_store = Store.fill

    def interrupted(self: Store, trials: list, **rest: object) -> None:
        if trials[0].claim == "toy.learns":
            raise KeyboardInterrupt
        fill_store(self, trials, **rest)

    monkeypatch.setattr(Store, "fill", interrupted)
    code, _ = run()
    assert code == pytest.ExitCode.INTERRUPTED
    assert results(tmp_path, "toy.quick")["verdict"] == "reproduced"
    assert results(tmp_path, "toy.learns")["verdict"] == "not run"


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "pytest", "claims", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_killed_and_parallel_runs_give_the_serial_numbers(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained(ALGORITHM={"slow": 0.02}), quick=QUICK)
    assert run("-q", "--store", "serial")[0] == 0
    process = start(tmp_path, "-n", "2", "--store", "other")
    records = tmp_path / "other/records"
    while process.poll() is None and len(list(records.glob("*.json"))) < 3:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    stored = metrics(tmp_path / "other")
    assert 3 <= len(stored) < 10, "killed in the middle"

    process = start(tmp_path, "-n", "2", "--store", "other")
    out, _ = process.communicate()
    assert process.returncode == 0, out
    for text in ("all with 2 workers: trials: 10", "| done in", "PASS toy.learns::gains", "3 passed"):
        assert text in out, out
    assert metrics(tmp_path / "other") == metrics(tmp_path / "serial")
    assert results(tmp_path, "toy.learns")["verdict"] == "reproduced"


def test_workers_stop_at_a_checkpoint_when_their_run_is_killed(tmp_path: Path) -> None:
    write(tmp_path, learns=trained(ALGORITHM={"slow": 0.5}))
    process = start(tmp_path, "-n", "2")
    beats = tmp_path / ".repro/heartbeats"
    while process.poll() is None and len(list(beats.glob("*.json"))) < 2:
        time.sleep(0.05)
    process.terminate()  # the controller alone
    process.communicate(timeout=60)  # its workers hold the pipe as long as they live
    assert not list(beats.glob("*.json")) and not list((tmp_path / ".repro/records").glob("*.json"))
    assert len(list((tmp_path / ".repro/checkpoints").glob("*.pt"))) == 2, "nothing lost"


# --- mistakes: one sentence each


def one_sentence(code: int, out: str, fragment: str) -> None:
    said = [line for line in out.splitlines() if line.startswith("ERROR: ")]
    assert code == pytest.ExitCode.USAGE_ERROR, out
    assert len(said) == 1 and fragment in said[0], out
    assert "Traceback" not in out and "INTERNALERROR" not in out


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("-m", "toy_quik"), "there is no marker 'toy_quik'; did you mean toy_quick"),
        (("-m", "not toy.quick"), "'toy.quick' is no marker; did you mean toy_quick"),
        (("-m", "toy_quick learns"), "cannot be read; combine markers with and, or, not"),
        (("--profile", "huge"), "there is no profile 'huge'; choose from smoke, cpu, paper."),
        (("--device", "cuda"), "--device cuda needs a CUDA GPU"),
        (("--device", "tpu"), "there is no device 'tpu'; choose cpu, cuda or cuda:N."),
        (("--seeds", "0"), "--seeds 0 leaves nothing to run; give 1 or more"),
        (("--budget", "soon"), "--budget soon is no time; write 90s, 20m or 1.5h."),
        (("--store", "pytest.ini"), "is a file, not a folder; name another with --store"),
        (("--reports", "pytest.ini/x"), "cannot be written (Not a directory); name another with --reports"),
        (("--reports", "locked"), "cannot be written (read-only folder); name another with --reports"),
    ],
)
def test_mistakes_in_options(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str, arguments: tuple, fragment: str
) -> None:
    monkeypatch.setattr(suite, "has_cuda", lambda: False)
    write(tmp_path, quick=QUICK)
    (tmp_path / "locked").mkdir(mode=0o555)
    one_sentence(*run("-n", workers, *arguments), fragment)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_truncated_record(run: Run, tmp_path: Path, workers: str) -> None:
    write(tmp_path, quick=QUICK)
    assert run("-q")[0] == 0
    (file,) = (tmp_path / ".repro/records").iterdir()
    file.write_text(file.read_text()[:100])
    code, out = run("-n", workers)
    one_sentence(code, out, f"the record {file} cannot be read")
    assert "delete it or move it away" in out and file.exists()


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        (
            'cell="good", metric',
            'cell="god", metric',
            "learns.py defines no usable claim: criterion 'learns' names the cell 'god'",
        ),
        ("lr=0.1", "lr=-1", "Stage.lr is -1; give a number above 0. (line 5)"),
        (
            "good = recipe(",
            "good = = recipe(",
            "learns.py defines no usable claim: invalid syntax (learns.py, line 5)",
        ),
        (
            "good = recipe(",
            "good = recip(",
            "learns.py defines no usable claim: name 'recip' is not defined (line 5)",
        ),
        ("task={}", 'task={"widht": 3}', "widht"),
    ],
)
def test_mistakes_in_a_claim_file(run: Run, tmp_path: Path, old: str, new: str, fragment: str) -> None:
    text = trained()
    assert old in text
    write(tmp_path, learns=text.replace(old, new, 1))
    one_sentence(*run(), fragment)


def test_a_misspelt_argument_under_two_workers(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained(TASK={"widht": 3}))
    one_sentence(*run("-n", "2"), "widht")


def test_a_problem_while_a_trial_runs_fails_its_items_with_the_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from repro.errors import UserError

    def full(self: Store, *arguments: object, **rest: object) -> None:
        raise UserError("the disk is full; free some space.")

    monkeypatch.setattr(Store, "fill", full)
    write(tmp_path, quick=QUICK)
    code, out = run()
    assert code == 1 and "toy.quick::is_one: the disk is full; free some space." in out
    assert "Traceback" not in out and "plugin.py" not in out


def test_a_bug_of_ours_shows_its_traceback(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "outcome", lambda *_: 1 / 0)
    write(tmp_path, quick=QUICK)
    code, out = run()
    assert code == 1 and "ZeroDivisionError" in out and "plugin.py" in out


def test_a_report_that_cannot_be_written_at_the_end_is_a_problem(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, quick=QUICK)
    (tmp_path / "reports/cpu").mkdir(parents=True)
    (tmp_path / "reports/cpu/README.md").mkdir()
    code, out = run()
    assert code == 1 and "1 passed" in out
    assert len([line for line in out.splitlines() if line.startswith("problem: ")]) == 1


def test_an_unreadable_record_of_another_claim_is_a_problem(run: Run, tmp_path: Path) -> None:
    write(tmp_path, learns=trained(), quick=QUICK)
    assert run("-q", "-m", "toy_quick")[0] == 0
    (file,) = (tmp_path / ".repro/records").iterdir()
    file.write_text("{")
    code, out = run("-m", "toy_learns")
    assert code == 1 and "2 passed" in out and f"problem: the record {file} cannot be read" in out
    assert results(tmp_path, "toy.learns")["verdict"] == "reproduced"


# --- workers


def test_a_killed_worker_s_report_says_what_to_do() -> None:
    report = pytest.TestReport("a::b", ("a", 0, "b"), {}, "failed", "worker 'gw0' crashed", "???")
    plugin.Show.pytest_handlecrashitem(None, report)  # type: ignore[arg-type]
    said = str(report.longrepr)
    assert said.startswith("worker 'gw0' crashed: it was killed") and "the same command goes on" in said


@pytest.mark.parametrize(
    ("worker", "visible", "gpu"),
    [
        ("gw0", "4,5", "4"),
        ("gw1", "4,5", "5"),
        ("gw2", "4,5", "4"),
        ("gw3", "GPU-a", "GPU-a"),
        ("gw0", "", ""),
    ],
)
def test_a_worker_takes_one_of_the_callers_gpus(worker: str, visible: str, gpu: str) -> None:
    assert plugin.pick_gpu(worker, visible) == gpu


@pytest.mark.parametrize(
    ("options", "gpus", "workers"),
    [
        ({"profile": None, "device": None}, 3, 3),
        ({"profile": "cpu", "device": None}, 3, len(os.sched_getaffinity(0))),
        ({"profile": None, "device": "cuda:1"}, 3, 1),
        ({"profile": "huge", "device": None}, 0, 1),
    ],
)
def test_auto_means_a_worker_a_gpu_or_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, gpus: int, workers: int
) -> None:
    monkeypatch.setattr(suite, "has_cuda", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    where = SimpleNamespace(dir=tmp_path)
    config = SimpleNamespace(
        rootpath=tmp_path, invocation_params=where, args=["claims"], option=SimpleNamespace(**options)
    )
    assert plugin.pytest_xdist_auto_num_workers(config) == workers  # type: ignore[arg-type]
    config.args = ["tests"]
    assert plugin.pytest_xdist_auto_num_workers(config) is None  # type: ignore[arg-type]


def test_without_a_choice_the_machines_gpus_are_taken_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [Path("/dev") / name for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")]
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(nodes))
    assert [plugin.pick_gpu(f"gw{i}", None) for i in range(3)] == ["0", "1", "0"]
