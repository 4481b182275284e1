"""A real claim at the smoke profile: kills, workers and neighbours leave the numbers of a serial run."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.repro.project import ROOT, metrics

COUNTING = """
import os
from repro.store import Store

run = Store._run

def counted(self, trial, *rest):
    with open(os.environ["TRAININGS"], "a") as log:
        log.write(f"{trial.key}\\n")
    return run(self, trial, *rest)

Store._run = counted
"""
Runs = dict[str, tuple[int, str]]


def start(folder: Path, store: str, *options: str) -> subprocess.Popen[str]:
    """Start the claim's smoke run on a store; `<store>.log` gets a line for each trial that it begins."""
    places = ["--store", str(folder / store), "--reports", str(folder / f"{store}-reports")]
    environment = {k: v for k, v in os.environ.items() if k not in ("REPRO_STORE", "PYTEST_ADDOPTS")}
    environment |= {"PYTHONPATH": f"{folder}:{ROOT}", "TRAININGS": str(folder / f"{store}.log")}
    claim = ["claims", "-m", "sab_copy_t300", "--profile", "smoke"]
    without = (
        "cacheprovider",
        "hypothesispytest",
        "unraisableexception",
        "threadexception",
    )  # slow beside torch
    plugins = ["-p", "counting", *(word for name in without for word in ("-p", f"no:{name}"))]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *claim, *plugins, *places, *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def trained(folder: Path, store: str) -> Counter[str]:
    """Return how often each trial was begun."""
    return Counter((folder / f"{store}.log").read_text().split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("acceptance")
    (made / "counting.py").write_text(COUNTING)
    return made


@pytest.fixture(scope="module")
def runs(folder: Path) -> Runs:
    """Exit status and output of every run; those on different stores go on at the same time.

    Store `whole`: one serial run, then one more after a record was cut short. Store `broken`: a run that is
    killed in its first trial, then two at once, one of them with two workers.
    """
    whole, killed = start(folder, "whole"), start(folder, "broken")
    beats = folder / "broken/heartbeats"
    while not list(beats.glob("*.json")) and killed.poll() is None:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    outputs = {"killed": killed, "serial": whole}
    found = {name: (process.wait(), process.stdout.read()) for name, process in outputs.items()}  # type: ignore[union-attr]
    (folder / "broken.log").unlink()
    record = min((folder / "whole/records").iterdir())
    text = record.read_text()
    record.write_text(text[:200])
    outputs = {
        "cut short": start(folder, "whole"),
        "workers": start(folder, "broken", "-n", "2"),
        "beside": start(folder, "broken"),
    }
    for name, process in outputs.items():
        output, _ = process.communicate(timeout=300)
        found[name] = (process.returncode, output)
    found["record"] = (record.read_text() == text[:200], str(record))
    record.write_text(text)
    return found


def test_a_serial_run_trains_each_trial_once(runs: Runs, folder: Path) -> None:
    code, output = runs["serial"]
    assert code == 0 and "3 passed" in output, output
    assert set(trained(folder, "whole").values()) == {1}
    assert set(trained(folder, "whole")) == set(metrics(folder / "whole"))


@pytest.mark.parametrize("run", ["workers", "beside"])
def test_runs_that_share_a_store_after_a_kill_pass(runs: Runs, run: str) -> None:
    code, output = runs[run]
    assert runs["killed"][0] == -signal.SIGKILL
    assert code == 0 and "3 passed" in output, output


def test_workers_and_a_kill_leave_the_numbers_of_a_serial_run(runs: Runs, folder: Path) -> None:
    assert metrics(folder / "broken") == metrics(folder / "whole")
    assert len(metrics(folder / "broken")) == 6


def test_processes_on_one_store_train_each_trial_once(runs: Runs, folder: Path) -> None:
    assert trained(folder, "broken") == Counter(dict.fromkeys(metrics(folder / "whole"), 1))


def test_a_record_that_was_cut_short_is_one_sentence_and_kept(runs: Runs) -> None:
    code, output = runs["cut short"]
    kept, record = runs["record"]
    assert code == 4 and kept
    said = [line for line in output.splitlines() if f"the record {record} cannot be read" in line]
    assert len(said) == 1 and "delete it or move it away" in said[0] and "Traceback" not in output, output
