import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro import cli, plan, suite
from repro.claim import PROFILES
from repro.store import Store
from tests.repro.project import DEVIATION, QUICK, ROOT, fill, trained, write


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPRO_STORE", raising=False)
    monkeypatch.setattr(suite, "has_cuda", lambda: False)
    write(tmp_path, quick=QUICK, learns=trained())
    return tmp_path


Out = pytest.CaptureFixture[str]


# --- list and show


def test_list(project: Path, capsys: Out) -> None:
    assert cli.main(["list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["toy.learns", "train", "cpu,", "smoke", "it", "learns"] in rows
    assert ["*", "toy.quick", "identity", "every", "one", "is", "one"] in rows
    assert cli.main(["list", "--json"]) == 0
    entries = {entry["id"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["toy.learns"]["criteria"] == {p: ["learns", "gains"] for p in ("cpu", "smoke")}
    assert entries["toy.quick"]["markers"] == ["toy_quick", "toy", "headline"]
    assert entries["toy.quick"]["kinds"] == ["identity"] and entries["toy.quick"]["known_deviation"] is None


def test_show(project: Path, capsys: Out) -> None:
    write(project, learns=trained(DEVIATION=DEVIATION))
    assert cli.main(["show", "toy.learns", "toy_quick"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "toy.learns: it learns",
        "known deviation: toys differ",
        "--- profile cpu: a toy",
        "learns train error of good ≤ 1.4 0.1 the error is low",
        "gains train error of good − off ≤ −0.1 – training helps",
        "no_learning learns good → off",
        "model.path tests.toys.parts.Net",
        "off stages.0.lr: 0.1 → 1e-09",
        "extra stages.0.steps: 20 → 5",
        "toy.quick: one is one",
        "is_one identity value of one = 1 – the value is 1",
        "run it: repro run toy.quick or: pytest claims -m toy_quick",
    ):
        assert line in lines, line
    assert "Traceback" not in out


@pytest.mark.parametrize("command", ["show", "plan", "run", "restamp"])
def test_an_unknown_claim(project: Path, capsys: Out, command: str) -> None:
    assert cli.main([command, "toy.lerns"]) == 2
    out, err = capsys.readouterr()
    assert err == "repro: there is no claim 'toy.lerns'; did you mean toy.learns?\n" and out == ""


def test_list_and_show_are_quick_and_never_import_torch(project: Path) -> None:
    code = "import sys; from repro.cli import main; main(sys.argv[1:]); "
    code += "print(sorted({'torch', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for arguments in (["list"], ["show", "toy.learns", "toy.quick"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "[]", done.stdout


def test_a_pipe_that_closes_is_no_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert cli.main(["list"]) == 0


def test_mistakes_in_the_command_line(project: Path, capsys: Out) -> None:
    for arguments in (["nothing"], ["list", "--huge"], []):
        with pytest.raises(SystemExit) as exit:
            cli.main(arguments)
        assert exit.value.code == 2
    capsys.readouterr()
    for options, said in (
        (["--profile", "huge"], "there is no profile 'huge'"),
        (["--seeds", "0"], "--seeds 0 leaves nothing to run"),
        (["--seeds", "1000000000"], "give 1000 at most"),
        (["--rate", "inf"], "--rate inf is no speed"),
        (["--store", "x" * 300], "cannot be written (File name too long)"),
        (["--device", "cuda"], "--device cuda needs a CUDA GPU"),
        (["--rate", "0"], "--rate 0 is no speed"),
        (["--store", "pytest.ini"], "is a file, not a folder"),
    ):
        assert cli.main(["plan", "toy.quick", *options]) == 2
        err = capsys.readouterr().err
        assert err.startswith("repro: ") and said in err and err.count("\n") == 1


def test_the_exit_statuses_are_in_the_help(capsys: Out) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert "exit status:" in out and "restamp" in out


# --- plan and run


def test_plan_shows_trials_time_and_memory_and_runs_nothing(
    project: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan.Counter, "count", lambda self, recipe: plan.count(recipe))  # in this process
    store = fill(project, "toy.quick")
    assert cli.main(["plan", "toy.learns", "toy.quick", "--rate", "1000"]) == 0
    out, err = capsys.readouterr()
    assert "counting a step of toy.learns good" in err and "toy.quick" not in err
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    # 3 inputs, 8 hidden, 1 output, batch 4, 20 steps; the input needs no gradient
    flops = 20 * 2 * 4 * (2 * (3 * 8 + 8) + 8)
    assert rows["good"][:5] == ["good", "3", "0", "20", f"{flops:.3g}"]
    assert rows["good"][5:8] == ["12", "s", "(FLOPs)"] and rows["good"][-2:] == ["and", "2"]
    assert rows["one"][:4] == ["one", "1", "1", "0"] and "(records)" in rows["one"]
    assert "still to run: 1 min 18 s of one worker." in out and "taken at 1,000 FLOP/s (--rate)" in out
    assert len(list((store.root / "records").iterdir())) == 1
    assert cli.main(["plan", "toy.learns", "--profile", "paper"]) == 0
    out, err = capsys.readouterr()
    assert "toy.learns: no paper profile; it has: cpu, smoke." in out and not err


def test_plan_counts_shared_stages_once(project: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan.Counter, "count", lambda self, recipe: plan.count(recipe))
    longer = "recipe(*good.stages, stage(10), task={}, validation=None)"
    write(project, learns=trained().replace("recipe(stage(5), validation=None)", longer))
    assert cli.main(["plan", "toy.learns", "--rate", "1000"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["good"][3] == "20" and rows["extra"][3] == "10"
    assert float(rows["good"][4]) == pytest.approx(2 * float(rows["extra"][4]), rel=0.01)
    assert " ".join(rows["extra"][-5:]) == "after the stages of good"


def test_plan_says_what_it_does_not_know(project: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan.Counter, "count", lambda *_: plan.Estimate(None, None, "unknown: too long"))
    fill(project, "toy.learns")
    for file in (project / ".repro/records").iterdir():
        if '"steps": 5' in file.read_text():
            file.unlink()
    assert cli.main(["plan", "toy.learns"]) == 0
    out = capsys.readouterr().out
    assert "unknown: too long" in out and "2 s (records)" in out
    assert "still to run: 0 s of one worker and 3 trials of unknown length." in out


def test_run_hands_over_to_pytest(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def execv(program: str, arguments: list[str]) -> None:
        seen.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(SystemExit):
        cli.main(["run", "toy.quick", "toy.learns", "--profile", "smoke", "-n", "2"])
    folder = str(project / "claims")
    assert seen[0][1:] == [
        *("-m", "pytest", folder, "-m", "toy_quick or toy_learns", "--profile", "smoke", "-n", "2")
    ]


# --- report


def test_report_rebuilds_from_the_store_and_trains_nothing(
    project: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "fill", None)
    monkeypatch.setattr(Store, "compute", None)
    fill(project, "toy.learns")
    assert cli.main(["report"]) == 0
    reports = [f"report: {project / 'reports' / profile / 'README.md'}" for profile in ("smoke", "cpu")]
    assert capsys.readouterr().out.splitlines() == reports, "the toy's recipes are those of both profiles"
    rows = json.loads((project / "reports/cpu/results.json").read_text())["claims"]
    assert {row["id"]: row["verdict"] for row in rows} == {"toy.learns": "reproduced", "toy.quick": "not run"}
    assert [p for p in PROFILES if (project / "reports" / p).exists()] == ["smoke", "cpu"]
    assert cli.main(["report", "--profile", "paper", "--reports", "other"]) == 0
    assert [p for p in PROFILES if (project / "other" / p).exists()] == ["paper"]


def test_report_names_what_it_cannot_read(project: Path, capsys: Out) -> None:
    store = fill(project, "toy.quick")
    (file,) = (store.root / "records").iterdir()
    file.write_text("{")
    assert cli.main(["report"]) == 2
    assert f"the record {file} cannot be read" in capsys.readouterr().err
    said = [
        row for row in (project / "reports/cpu/README.md").read_text().splitlines() if "Not judged" in row
    ]
    assert said and f"the record {file} cannot be read" in said[0]


def test_report_leaves_a_report_alone_when_an_option_is_wrong(project: Path, capsys: Out) -> None:
    fill(project, "toy.quick")
    assert cli.main(["report", "--profile", "cpu"]) == 0
    before = {file: file.read_bytes() for file in (project / "reports").rglob("*") if file.is_file()}
    for options in (["--device", "foo"], ["--profile", ""], ["--seeds", "0"], ["--device", "cuda"]):
        assert cli.main(["report", "--profile", "cpu", "--store", "empty", *options]) == 2
    assert before == {file: file.read_bytes() for file in (project / "reports").rglob("*") if file.is_file()}
    assert "there is no device 'foo'" in capsys.readouterr().err
    assert cli.main(["restamp", "toy.quick", "--steps", "0"]) == 2


def test_a_terminal_without_our_signs_gets_their_codes(project: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        [sys.executable, "-m", "repro.cli", "show", "toy.quick"], env=environment, capture_output=True
    )
    assert shown.returncode == 0 and b"\\u2013" in shown.stdout, shown.stderr  # "–" for what is missing


# --- doctor


def checks(out: str) -> dict[str, str]:
    return {line.split(":")[0].split(maxsplit=1)[1].strip(): line for line in out.splitlines()}


def test_doctor_on_a_sound_machine(project: Path, capsys: Out) -> None:
    fill(project, "toy.quick")
    assert cli.main(["doctor"]) == 0
    found = checks(capsys.readouterr().out)
    assert all(line.startswith("ok ") for line in found.values())
    assert set(found) == {
        *("python", "torch", "cuda", "compiler", "cores", "disk space", "claims", "store", "records"),
        *("stale records", "reports"),
    }
    assert "none; the default profile is cpu" in found["cuda"] and "1, all readable" in found["records"]


def test_doctor_finds_what_is_wrong_and_says_what_to_do(
    project: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(project, "toy.learns")
    first, second, *_ = sorted((store.root / "records").iterdir())
    first.write_text("{")
    stale = second.name.split("-")[0] + "-000000000000"
    text = second.read_text().replace(second.stem, stale)
    (store.root / f"records/{stale}.json").write_text(text.replace('"repro/engine.py"', '"repro/gone.py"'))
    second.unlink()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.0")
    (project / "reports").touch()
    assert cli.main(["doctor"]) == 1
    found = checks(capsys.readouterr().out)
    problems = {name: line for name, line in found.items() if line.startswith("problem ")}
    assert set(problems) == {"torch", "records", "stale records", "reports"}
    assert "1.0, but constraints.txt pins" in problems["torch"] and "make setup" in problems["torch"]
    assert f"1 of 9 cannot be read: {first}; delete" in problems["records"]
    assert "toy.learns (repro/engine.py, repro/gone.py changed)" in problems["stale records"]
    assert "repro restamp" in problems["stale records"]
    assert "is a file, not a folder" in problems["reports"]


def test_doctor_with_no_claims_no_store_and_no_torch(
    project: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import PackageNotFoundError

    def version(name: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.version", version)
    monkeypatch.setattr(cli.shutil, "which", lambda name: None)
    (project / "claims/toy/quick.py").write_text("claim = 1\n")
    assert cli.main(["doctor", "--store", "pytest.ini"]) == 1
    found = checks(capsys.readouterr().out)
    problems = [name for name, line in found.items() if line.startswith("problem ")]
    assert problems == ["torch", "claims", "store"]
    assert "not installed; run `make setup`" in found["torch"]
    assert "slower" in found["compiler"]


def test_the_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "has_cuda", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda i: f"GPU {i}")
    assert cli._cuda() == "GPU 0, GPU 1; the default profile is paper"


# --- restamp


def test_restamp_tells_what_became_of_each_record(
    project: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    from repro.errors import UserError

    seen: list[tuple[str, int, int]] = []

    def restamp(self: Store, trial: object, steps: int = 100) -> None:
        seen.append((trial.cell, trial.seed, steps))  # type: ignore[attr-defined]
        if trial.cell == "off":  # type: ignore[attr-defined]
            raise UserError("the curve differs.")

    monkeypatch.setattr(Store, "restamp", restamp)
    stale = lambda self, trial: None if trial.cell == "extra" else (None, ())  # noqa: E731
    monkeypatch.setattr(Store, "stale", stale)
    assert cli.main(["restamp", "toy.learns", "--seeds", "1", "--steps", "7"]) == 1
    out = capsys.readouterr().out
    assert seen == [("good", 1000, 7), ("off", 1000, 7)]
    assert "restamped  toy.learns good seed 1000" in out
    assert "toy.learns off seed 1000: the curve differs." in out and "1 restamped, 1 not." in out
    monkeypatch.setattr(Store, "stale", lambda self, trial: None)
    assert cli.main(["restamp", "toy.learns"]) == 0
    assert "0 restamped, 0 not." in capsys.readouterr().out
