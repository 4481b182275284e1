"""Get or compute, once, whatever is killed; stale records; who may run beside whom."""

import dataclasses
import errno
import fcntl
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from repro import engine, files, source
from repro.errors import UserError
from repro.recipe import Recipe, RecipeError, Stage, part
from repro.record import Record
from repro.store import Store, changed
from repro.trial import Heartbeat, Trial
from tests import toys
from tests.toys import parts

SEED = 1000
FORK = multiprocessing.get_context("fork")


def start(work: Callable[..., Any], *args: Any) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=work, args=args)
    process.start()
    return process


def until(true: Callable[[], object], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def logged(tmp_path: Path, **changes: Any) -> tuple[Trial, Callable[[], int]]:
    """A trial that notes every start, and the number of starts."""
    log = tmp_path / "log"
    trial = Trial(toys.recipe(toys.stage(5, **changes), model={"log": str(log)}), SEED)
    return trial, lambda: len(log.read_text().splitlines()) if log.exists() else 0


def same(a: Record, b: Record) -> bool:
    return (a.metrics, a.training, a.validation, a.status) == (b.metrics, b.training, b.validation, b.status)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


# --- get or compute


def test_computed_once_then_read(store: Store, tmp_path: Path) -> None:
    trial, starts = logged(tmp_path)
    assert store.get(trial) is None and store.stale(trial) is None
    record = store.compute(trial)
    assert record.status == "done" and store.get(trial) == record == store.compute(trial)
    assert Store(store.root).compute(trial) == record and starts() == 1
    assert [f.name for f in (store.root / "records").iterdir()] == [f"{trial.key}.json"]
    assert not list((store.root / "checkpoints").iterdir()) and not list(
        (store.root / "heartbeats").iterdir()
    )


def test_two_processes_train_one_trial_once(store: Store, tmp_path: Path) -> None:
    trial, starts = logged(tmp_path, algorithm={"slow": 0.05})
    both = [start(Store(store.root).compute, trial) for _ in range(2)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert starts() == 1 and store.get(trial) is not None


def test_two_processes_fill_many_trials_once(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    recipe = toys.recipe(toys.stage(3, algorithm={"slow": 0.02}), model={"log": str(log)})
    trials = [Trial(recipe, seed) for seed in range(5)]
    both = [start(Store(store.root).fill, part) for part in (trials, trials[::-1])]
    for process in both:
        process.join()
    assert len(log.read_text().splitlines()) == 5
    assert all(store.get(trial) for trial in trials)


def test_wrong_arguments_are_named_before_anything_runs(store: Store) -> None:
    with pytest.raises(RecipeError, match=r"stages\[0\].algorithm: .* no argument 'frozn'"):
        store.compute(Trial(toys.recipe(toys.stage(algorithm={"frozn": 1})), SEED))


@pytest.mark.parametrize("status", ["failed", "absent"])
def test_a_failure_is_retried_in_the_next_run_only(store: Store, tmp_path: Path, status: str) -> None:
    log = tmp_path / "log"
    broken = toys.stage(5, algorithm={"raise_at": 2}) if status == "failed" else toys.stage(5)
    task = {"data": str(tmp_path / "data")} if status == "absent" else {}
    trial = Trial(toys.recipe(broken, task=task, model={"log": str(log)}), SEED)
    record = store.compute(trial)
    assert record.status == status and store.get(trial) == record and store.compute(trial) == record
    store.fill([trial])  # nothing left to do
    first = len(log.read_text().splitlines()) if log.exists() else 0
    (tmp_path / "data").mkdir()
    time.sleep(0.02)  # file times are coarser than clocks
    later = Store(store.root)
    assert later.get(trial) == record
    again = later.compute(trial)
    assert again.status == ("failed" if status == "failed" else "done")
    assert len(log.read_text().splitlines()) == first + 1


# --- kills


def test_a_worker_without_its_run_trains_nothing_and_waits_for_nobody(tmp_path: Path) -> None:
    trial, starts = logged(tmp_path)
    Store(tmp_path / "store", owner=os.getppid()).fill([trial])
    assert starts() == 1, "its run is there"
    other = dataclasses.replace(trial, seed=SEED + 1)
    with pytest.raises(UserError, match="the run that this worker belonged to is gone"):
        Store(tmp_path / "store", owner=1 + os.getppid()).fill([other])
    assert starts() == 1


def test_kill_9_in_the_middle_changes_no_number(store: Store, tmp_path: Path) -> None:
    slow = {"slow": 0.03}
    stages = (toys.stage(30, validate_every=4, algorithm=slow), toys.stage(30, clip=0.1, algorithm=slow))
    trial = Trial(toys.recipe(*stages), SEED)
    whole = Store(tmp_path / "other").compute(trial)
    checkpoint = store.root / "checkpoints" / f"{trial.key}.pt"
    for kill in range(3):
        process = start(Store(store.root, checkpoint_every_s=0.0).compute, trial)
        until(checkpoint.exists)
        before = checkpoint.stat().st_mtime_ns
        until(lambda before=before: checkpoint.stat().st_mtime_ns > before)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL, f"kill {kill} came too late"
        assert store.get(trial) is None
    later = Store(store.root)
    assert later.heartbeats() == []
    record = later.compute(trial)
    assert same(whole, record) and record.environment["resumes"] >= 1
    assert not checkpoint.exists() and not list((store.root / "heartbeats").iterdir())


def test_temporary_files_of_dead_writers_are_swept(store: Store) -> None:
    gone = start(time.time)
    gone.join()
    host = files.socket.gethostname()
    dead = store.root / "records" / f".x.json.{host}.{gone.pid}.tmp"
    mine = store.root / "checkpoints" / f".x.pt.{host}.{os.getpid()}.tmp"
    elsewhere = store.root / "records" / f".x.json.elsewhere.{gone.pid}.tmp"
    odd = store.root / "records" / ".odd.tmp"
    for file in (dead, mine, elsewhere, odd):
        file.write_text("half")
    Store(store.root)
    assert not dead.exists() and mine.exists() and elsewhere.exists() and odd.exists()


def test_checkpoint_goes_only_after_the_record_is_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(toys.recipe(toys.stage(3)), SEED)
    checkpoint, write = store.root / "checkpoints" / f"{trial.key}.pt", files.write

    def full(path: Path, data: bytes, sync: bool = True) -> None:
        if path.suffix == ".json" and path.parent.name == "records":
            raise UserError("disk full")
        write(path, data, sync)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(UserError, match="disk full"):
        Store(store.root, checkpoint_every_s=0.0).compute(trial)
    assert checkpoint.exists() and store.get(trial) is None
    monkeypatch.undo()
    assert store.compute(trial).environment["resumes"] == 1 and not checkpoint.exists()


def test_a_checkpoint_that_outlived_its_record_is_swept(store: Store) -> None:
    done, failed, damaged = (
        Trial(toys.recipe(toys.stage(2, algorithm=a)), SEED + i)
        for i, a in enumerate(({}, {"raise_at": 1}, {}))
    )
    for trial in (done, failed, damaged):
        store.compute(trial)
        (store.root / "checkpoints" / f"{trial.key}.pt").write_bytes(b"left")
    (store.root / "records" / f"{damaged.key}.json").write_text("{")
    Store(store.root)
    left = {file.stem for file in (store.root / "checkpoints").iterdir()}
    assert left == {failed.key, damaged.key}


# --- disks


def test_disk_full_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    files.write(target, b"old")

    def full(_number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device; free space"):
        files.write(target, b"new")
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot make the store's folder .*; name another store"):
        Store(tmp_path / "file")


def test_a_lock_that_cannot_be_made(store: Store) -> None:
    trial = Trial(toys.recipe(toys.stage(1)), SEED)
    (store.root / "locks" / f"{trial.key}.lock").mkdir()
    with pytest.raises(UserError, match="cannot lock"):
        store.compute(trial)


@pytest.mark.parametrize("name", ["gate", "machine"])
def test_a_turn_that_cannot_be_taken(store: Store, name: str) -> None:
    (store.root / "locks" / name).mkdir()
    with pytest.raises(UserError, match=rf"cannot lock .*/locks/{name}: Is a directory; free some space or"):
        store.compute(Trial(toys.recipe(toys.stage(1)), SEED))
    (store.root / "locks" / name).rmdir()
    assert store.compute(Trial(toys.recipe(toys.stage(1)), SEED)).status == "done"


# --- damaged checkpoints


def test_a_flipped_bit_in_a_checkpoint_is_seen(store: Store) -> None:
    """torch loads it without a word, and training would go on from other weights."""
    trial = Trial(toys.recipe(toys.stage(400, algorithm={"slow": 0.01})), SEED)
    whole = Store(store.root / "other").compute(trial)
    checkpoint = store.root / "checkpoints" / f"{trial.key}.pt"
    process = start(Store(store.root, checkpoint_every_s=0.0).compute, trial)
    until(checkpoint.exists)
    process.kill()
    process.join()
    with zipfile.ZipFile(checkpoint) as parts:
        part = max(parts.infolist(), key=lambda info: info.file_size)
    damaged = bytearray(checkpoint.read_bytes())
    damaged[part.header_offset + 30 + len(part.filename) + part.file_size // 2 + 64] ^= 1
    checkpoint.write_bytes(damaged)
    with pytest.warns(UserWarning, match="the checkpoint was damaged"):
        record = store.compute(trial)
    assert same(whole, record) and record.environment["resumes"] == 0
    assert "the trial started again" in record.environment["warnings"][0]
    assert checkpoint.with_name(f"{checkpoint.name}.unreadable").read_bytes() == damaged


# --- damaged records


@pytest.mark.parametrize("damage", ["truncated", "empty", "binary", "unknown key", "wrong type", "renamed"])
def test_a_damaged_record_is_named_and_kept(store: Store, damage: str) -> None:
    trial = Trial(toys.recipe(toys.stage(2)), SEED)
    store.compute(trial)
    file = store.root / "records" / f"{trial.key}.json"
    text = file.read_text()
    data = json.loads(text)
    file.write_bytes(
        {
            "truncated": text[: len(text) // 2].encode(),
            "empty": b"",
            "binary": b"\xff\xfe\x00",
            "unknown key": json.dumps({**data, "colour": 1}).encode(),
            "wrong type": json.dumps({**data, "training": 5}).encode(),
            "renamed": json.dumps({**data, "key": "another"}).encode(),
        }[damage]
    )
    damaged = file.read_bytes()
    for read in (store.get, store.compute, lambda t: store.fill([t])):
        with pytest.raises(UserError) as caught:
            read(trial)
        message = str(caught.value)
        assert message.startswith(f"the record {file} cannot be read (") and "\n" not in message
        assert message.endswith("; delete it or move it away, and run again.")
    assert file.read_bytes() == damaged
    other = Trial(trial.recipe, SEED + 1)
    assert store.compute(other).status == "done"  # the rest of the store is unharmed


# --- stale records


NET = '''"""A network."""
from torch import nn

class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layer = nn.Linear(width, 1)

    def forward(self, x):
        """Apply it."""
        return self.layer(x).squeeze(-1) * 2
'''
MEASURE = """
def error(model, task, generator):
    batch = task.sample(8, generator)
    return {"error": (model(batch["x"]) - batch["y"]).square().mean()}
"""


class Toy:
    """A first-party package in a folder of its own, whose files the test edits."""

    def __init__(self, root: Path) -> None:
        self.root = root
        parts = Path(toys.__file__).with_name("parts.py").read_text()
        self.write("toypkg/parts.py", parts.replace("model.body.", "model.layer."))
        self.write("toypkg/net.py", NET)
        self.write("toypkg/measure.py", MEASURE)

    def write(self, name: str, text: str) -> Path:
        file = self.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        for module in [m for m in sys.modules if m.startswith("toypkg")]:
            del sys.modules[module]
        importlib.invalidate_caches()
        shutil.rmtree(self.root / "toypkg" / "__pycache__", ignore_errors=True)
        source.forget()
        return file

    def trial(self) -> Trial:
        algorithm = part("toypkg.parts.Backprop")
        stage = Stage(algorithm=algorithm, steps=12, batch=4, lr=0.01, validate_every=3)
        recipe = Recipe(
            task=part("toypkg.parts.Rule"),
            model=part("toypkg.net.Net"),
            stages=(stage,),
            measures=(part("toypkg.measure.error"),),
            validation=part("toypkg.parts.error"),
        )
        return Trial(recipe, SEED, claim="toy.claim", cell="cell")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    root = tmp_path / "code"
    root.mkdir()
    monkeypatch.setattr(source, "root", lambda: root)
    monkeypatch.syspath_prepend(str(root))
    yield Toy(root)
    source.forget()


def test_changed_code_makes_a_record_stale_and_says_where(store: Store, toy: Toy) -> None:
    record = store.compute(toy.trial())
    toy.write("toypkg/net.py", NET.replace("* 2", "* 3"))
    trial = toy.trial()
    assert trial.identity == record.key[:16] and trial.key != record.key
    assert store.get(trial) is None
    assert store.stale(trial) == (record, ("toypkg/net.py",))
    fresh = store.compute(trial)
    assert fresh.metrics != record.metrics and store.stale(trial) is None
    assert store.stale(Trial(trial.recipe, SEED + 1)) is None


def test_comments_and_docstrings_do_not(store: Store, toy: Toy) -> None:
    record = store.compute(toy.trial())
    toy.write(
        "toypkg/net.py", "# new\n" + NET.replace("Apply it.", "Apply it to x.").replace("A network", "It")
    )
    assert store.get(toy.trial()) == record


def test_files_that_come_and_go_are_named(store: Store, toy: Toy) -> None:
    record = store.compute(toy.trial())
    toy.write("toypkg/extra.py", "x = 1\n")
    toy.write("toypkg/net.py", "from toypkg import extra\n" + NET)
    trial = toy.trial()
    assert changed(record, trial) == ("toypkg/extra.py", "toypkg/net.py")
    assert store.stale(trial) is not None


def test_the_newest_stale_record_counts(store: Store, toy: Toy) -> None:
    for i, factor in enumerate(("* 2", "* 3", "* 4")):
        toy.write("toypkg/net.py", NET.replace("* 2", factor))
        if i < 2:
            newest = store.compute(toy.trial())
            os.utime(store.root / "records" / f"{newest.key}.json", (100.0 + i, 100.0 + i))
    found = store.stale(toy.trial())
    assert found is not None and found[0] == newest


def test_restamp_after_a_pure_refactor(store: Store, toy: Toy) -> None:
    record = store.compute(toy.trial())
    toy.write(
        "toypkg/net.py",
        NET.replace(
            "return self.layer(x).squeeze(-1) * 2", "y = self.layer(x)\n        return y.squeeze(-1) * 2"
        ),
    )
    trial = toy.trial()
    fresh = store.restamp(trial, steps=5)
    assert fresh.key == trial.key and store.get(trial) == fresh and same(fresh, record)
    assert fresh.sources == trial.sources
    assert fresh.environment["restamped"] == {"from": record.key, "changed": ["toypkg/net.py"], "steps": 5}
    with pytest.raises(UserError, match=r"toy\.claim cell seed 1000 has no stale record"):
        store.restamp(trial)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("net.py", "* 2", "* 2.001", "the training curve of toy.claim cell seed 1000 differs at step 1:"),
        (
            "parts.py",
            "square().mean().sqrt()",
            "square().mean()",
            "the validation curve of .* differs at step 3:",
        ),
        ("measure.py", "mean()", "sum()", r"toypkg/measure.py changed, .* a replay cannot vouch for it"),
    ],
)
def test_restamp_refuses_other_numbers(
    store: Store, toy: Toy, file: str, old: str, new: str, message: str
) -> None:
    store.compute(toy.trial())
    text = (toy.root / "toypkg" / file).read_text()
    assert old in text
    toy.write(f"toypkg/{file}", text.replace(old, new))
    with pytest.raises(UserError, match=message):
        store.restamp(toy.trial(), steps=6)
    assert store.get(toy.trial()) is None


def two_stages(toy: Toy, long: int) -> tuple[Trial, Trial]:
    """A trial of `long` steps, and one that goes on for 30 with other code."""
    first = toy.trial()
    stage = dataclasses.replace(first.recipe.stages[0], steps=long)
    other = dataclasses.replace(stage, algorithm=part("toypkg.second.Backprop"), steps=30)
    both = dataclasses.replace(first.recipe, stages=(stage, other))
    begun = Trial(dataclasses.replace(both, stages=(stage,)), SEED, kept=True)
    return begun, Trial(both, SEED, start=begun)


@pytest.mark.parametrize("saved_at", [50, 399])
@pytest.mark.parametrize("steps", [10, 100, 420])
def test_restamp_of_a_trial_that_went_on_from_another(
    tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch, saved_at: int, steps: int
) -> None:
    tick = engine._Run.tick

    def save_once(self: Any) -> None:
        tick(self)
        if self.training.done == saved_at and self.trial.kept:
            self.save()

    monkeypatch.setattr(engine._Run, "tick", save_once)
    second = (toy.root / "toypkg/parts.py").read_text()
    toy.write("toypkg/second.py", second)
    store = Store(tmp_path / "store", checkpoint_every_s=1e9)
    store.fill([two_stages(toy, 400)[1]])
    record = store.get(two_stages(toy, 400)[1])
    assert record is not None and "started_from" in record.environment
    toy.write("toypkg/net.py", NET.replace("* 2", "* 2 * 1"))
    fresh = store.restamp(two_stages(toy, 400)[1], steps=steps)
    assert same(fresh, record) and fresh.key != record.key
    toy.write("toypkg/net.py", NET.replace("* 2", "* 3"))
    with pytest.raises(UserError, match=r"the training curve of .* differs at step"):
        store.restamp(two_stages(toy, 400)[1], steps=steps)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("steps", "message"), [(10, r"second.py changed, .* runs only after"), (70, "differs at step")]
)
def test_restamp_vouches_for_no_stage_that_it_did_not_reach(
    store: Store, toy: Toy, shared: bool, steps: int, message: str
) -> None:
    def trial() -> Trial:
        begun, long = two_stages(toy, 40)
        return dataclasses.replace(long, start=begun if shared else None)

    second = (toy.root / "toypkg/parts.py").read_text()
    toy.write("toypkg/second.py", second)
    Store(store.root, checkpoint_every_s=0.0).fill([trial()])
    toy.write("toypkg/second.py", second.replace("* self.scale", '+ model(batch["x"]).square().mean()'))
    with pytest.raises(UserError, match=message):
        store.restamp(trial(), steps=steps)
    assert store.get(trial()) is None


def test_restamp_needs_a_training(store: Store, toy: Toy) -> None:
    toy.write("toypkg/count.py", "def count(generator, device):\n    return {'n': 1}\n")
    recipe = Recipe(measures=(part("toypkg.count.count"),))
    store.compute(Trial(recipe, SEED))
    toy.write("toypkg/count.py", "def count(generator, device):\n    return {'n': 1 + 0}\n")
    with pytest.raises(UserError, match="no training to replay; run it again"):
        store.restamp(Trial(recipe, SEED))


# --- filling


def hold(root: Path, trial: Trial, ready: Any, go: Any) -> None:
    with Store(root)._lock(trial, wait=True):
        ready.set()
        go.wait(60)


def test_fill_leaves_a_locked_trial_and_helps_elsewhere(store: Store) -> None:
    recipe = toys.recipe(toys.stage(2))
    locked, own, other = (Trial(recipe, seed) for seed in (1, 2, 3))
    ready, go = FORK.Event(), FORK.Event()
    holder = start(hold, store.root, locked, ready, go)
    assert ready.wait(60)
    filler = start(Store(store.root).fill, [locked, own], [other])
    until(lambda: store.get(own) and store.get(other))
    assert store.get(locked) is None and filler.is_alive()
    go.set()
    holder.join()
    filler.join()
    assert filler.exitcode == 0 and store.get(locked)


def test_fill_at_the_deadline_saves_and_stops(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BEAT_EVERY_S", 0.0)
    trial = Trial(toys.recipe(toys.stage(40, algorithm={"slow": 0.02})), SEED)
    whole = Store(tmp_path / "other").compute(trial)
    store.fill([trial], deadline=time.time() - 1)
    assert not list((store.root / "checkpoints").iterdir())
    for _ in range(200):
        store.fill([trial], deadline=time.time() + 0.4)
        if store.get(trial):
            break
        assert store.heartbeats() == []
    record = store.get(trial)
    assert record is not None and same(whole, record) and record.environment["resumes"] >= 1


# --- trials that share their first stages


def family(**longer: Any) -> tuple[Trial, Trial]:
    """A trial of one stage, and one that trains a second stage after it."""
    first = toys.stage(20, validate_every=4)
    begun = Trial(toys.recipe(first), SEED, cell="first", kept=True)
    second = toys.stage(10, algorithm={"frozen": True, **longer})
    return begun, Trial(toys.recipe(first, second), SEED, cell="second", start=begun)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that this process trains, one entry each."""
    done: list[int] = []
    once = parts.Backprop.backward
    monkeypatch.setattr(parts.Backprop, "backward", lambda *given: done.append(1) or once(*given))
    return done


def test_shared_stages_are_trained_once_and_change_no_number(tmp_path: Path, steps: list[int]) -> None:
    begun, trial = family()
    alone = Store(tmp_path / "alone").compute(dataclasses.replace(trial, start=None))
    steps.clear()
    store = Store(tmp_path / "store", checkpoint_every_s=0.0)
    store.fill([trial])
    assert len(steps) == 30, "20 shared steps once, and 10"
    record, first = store.get(trial), store.get(begun)
    assert record is not None and first is not None and first.cost["steps"] == 20
    assert (record.metrics, record.validation, record.key) == (alone.metrics, alone.validation, alone.key)
    assert record.environment["started_from"] == begun.key and "started_from" not in first.environment
    assert record.environment["resumes"] == 0 and record.cost["steps"] == 30
    assert not list((store.root / "checkpoints").iterdir())
    assert [file.stem for file in (store.root / "starts").iterdir()] == [begun.key]


def test_an_interrupted_trial_goes_on_from_its_own_checkpoint(tmp_path: Path, steps: list[int]) -> None:
    begun, trial = family(raise_at=8)
    store = Store(tmp_path / "store", checkpoint_every_s=0.0)
    store.fill([begun])
    store.compute(trial)
    assert len(steps) == 28
    (store.root / "starts" / f"{begun.key}.pt").unlink()  # no longer needed
    record = Store(store.root, checkpoint_every_s=0.0).compute(trial)
    assert len(steps) < 40 and record.environment["resumes"] == 1
    assert record.environment["started_from"] == begun.key and record.environment["warnings"] == []


def test_a_start_that_comes_too_late_is_not_claimed(tmp_path: Path) -> None:
    begun, trial = family(raise_at=8)
    store = Store(tmp_path / "store", checkpoint_every_s=0.0)
    store.compute(trial)  # from the first step, and interrupted
    store.fill([begun])
    record = Store(store.root, checkpoint_every_s=0.0).compute(trial)
    assert record.status == "done" and "started_from" not in record.environment


def flip(file: Path) -> None:
    """Change one bit of a weight."""
    raw = file.read_bytes()
    weight = torch.load(file, weights_only=True)["training"]["model"]["body.weight"].numpy().tobytes()
    at = raw.index(weight) + 2
    file.write_bytes(raw[:at] + bytes([raw[at] ^ 0x40]) + raw[at + 1 :])


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"no checkpoint"),
        lambda file: torch.save({"warnings": []}, file),
        flip,
        Path.unlink,
    ],
)
def test_without_a_whole_start_all_stages_are_trained(
    tmp_path: Path, steps: list[int], damage: Callable[[Path], object]
) -> None:
    begun, trial = family()
    store = Store(tmp_path / "store", checkpoint_every_s=0.0)
    store.fill([begun])
    damage(store.root / "starts" / f"{begun.key}.pt")
    record = store.compute(trial)
    assert len(steps) == 50 and record.status == "done" and "started_from" not in record.environment


def test_a_deterministic_trial_starts_from_deterministic_ones_only(store: Store) -> None:
    begun, _ = family()
    store.compute(begun)
    (store.root / "starts" / f"{begun.key}.pt").write_bytes(b"kept")
    assert store.has_end(begun) and store.has_end(begun, deterministic=True)
    file = store.root / "records" / f"{begun.key}.json"
    file.write_text(file.read_text().replace('"deterministic": true', '"deterministic": false'))
    assert store.has_end(begun) and not store.has_end(begun, deterministic=True)


def test_a_kill_between_record_and_keeping_loses_no_start(tmp_path: Path, steps: list[int]) -> None:
    begun, trial = family()
    store = Store(tmp_path / "store", checkpoint_every_s=0.0)

    def die_after_the_record() -> None:
        write = files.write

        def last(path: Path, data: bytes, sync: bool = True) -> None:
            write(path, data, sync)
            if path.parent.name == "records":
                os._exit(9)

        files.write = last
        store.compute(begun)

    process = start(die_after_the_record)
    process.join()
    assert process.exitcode == 9 and store.get(begun)
    Store(store.root, checkpoint_every_s=0.0).fill([trial])
    assert len(steps) == 10


def test_a_chain_of_starts_is_trained_from_its_beginning(tmp_path: Path, steps: list[int]) -> None:
    _, second = family()
    second = dataclasses.replace(second, kept=True)
    longest = toys.recipe(*second.recipe.stages, toys.stage(5))
    store = Store(tmp_path / "store", checkpoint_every_s=0.0)
    store.fill([Trial(longest, SEED, start=second)])
    assert len(steps) == 35


def test_the_time_of_a_start_is_not_counted_again(tmp_path: Path) -> None:
    first = toys.stage(20, algorithm={"slow": 0.03})
    begun = Trial(toys.recipe(first), SEED, kept=True)
    trial = Trial(toys.recipe(first, toys.stage(3)), SEED, start=begun)
    store = Store(tmp_path / "store", checkpoint_every_s=0.0)
    store.fill([trial])
    own, before = store.get(trial), store.get(begun)
    assert own is not None and before is not None and own.cost["wall_s"] < before.cost["wall_s"] / 2


def test_a_start_in_other_hands_is_waited_for(store: Store) -> None:
    begun, trial = family()
    ready, go = FORK.Event(), FORK.Event()
    holder = start(hold, store.root, begun, ready, go)
    assert ready.wait(60)
    other = Trial(toys.recipe(toys.stage(2)), SEED)
    filler = start(Store(store.root).fill, [trial, other])
    until(lambda: store.get(other))
    assert store.get(trial) is None and store.get(begun) is None and filler.is_alive()
    go.set()
    holder.join()
    filler.join()
    assert filler.exitcode == 0 and store.get(trial) and store.get(begun)


# --- heartbeats


def test_heartbeats_of_the_living(store: Store) -> None:
    trial = Trial(toys.recipe(toys.stage(400, algorithm={"slow": 0.05})), SEED, claim="a.b", cell="c")
    process = start(Store(store.root).compute, trial)
    until(store.heartbeats)
    beat = store.heartbeats()[0]
    assert (beat.key, beat.claim, beat.cell, beat.pid) == (trial.key, "a.b", "c", process.pid)
    assert beat.steps == 400 and 0 <= beat.step < 400
    process.kill()
    process.join()
    assert store.heartbeats() == [] and list((store.root / "heartbeats").iterdir())


def test_unreadable_heartbeats_are_skipped(store: Store) -> None:
    beat = dict.fromkeys((field.name for field in dataclasses.fields(Heartbeat)), 1)
    strange = (json.dumps(beat | {"pid": pid}) for pid in ("x", 10**30, None))
    for name, text in zip("abcdef", ("{", "[]", '{"x": 1}', *strange), strict=True):
        (store.root / "heartbeats" / f"{name}.json").write_text(text)
    assert store.heartbeats() == []


def test_processes_of_others_are_alive() -> None:
    assert files.alive(os.getpid()) and files.alive(1)


def test_alive_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_pid: int, _number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert files.alive(5)


def test_heartbeat_is_removed_when_the_trial_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_trial: Trial, _checkpoint: Path, report: Callable[[Heartbeat], None], *_: object) -> Record:
        raise UserError("no")

    monkeypatch.setattr(engine, "run", broken)
    with pytest.raises(UserError):
        store.compute(Trial(toys.recipe(), SEED))
    assert not list((store.root / "heartbeats").iterdir())


# --- alone


def take_turn(root: Path, log: Path, name: str, alone: bool, asked: Any, go: Any) -> None:
    def note(word: str) -> None:
        with log.open("a") as file:
            file.write(f"{name} {word}\n")

    asked.set()
    with Store(root)._turn(alone):
        note("in")
        go.wait(60)
        note("out")


def test_a_timed_trial_is_alone_and_is_not_starved(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    lines = lambda: log.read_text().splitlines()  # noqa: E731
    processes = []

    def ask(name: str, alone: bool) -> Any:
        asked, go = FORK.Event(), FORK.Event()
        processes.append(start(take_turn, store.root, log, name, alone, asked, go))
        assert asked.wait(60)
        return go

    def gate_is_shut() -> bool:
        with (store.root / "locks" / "gate").open("a") as gate:
            try:
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    first, second = ask("a", alone=False), ask("b", alone=False)
    until(lambda: len(lines()) == 2)  # two ordinary trials run side by side
    assert not gate_is_shut()
    timed = ask("timed", alone=True)
    until(gate_is_shut)
    late = ask("late", alone=False)
    time.sleep(0.3)
    assert len(lines()) == 2  # the timed trial waits for both, and the late one for the timed one
    first.set()
    until(lambda: "a out" in lines())
    time.sleep(0.1)
    assert len(lines()) == 3
    second.set()
    until(lambda: "timed in" in lines())
    time.sleep(0.3)
    assert lines()[-1] == "timed in"
    timed.set()
    late.set()
    for process in processes:
        process.join()
    assert lines()[2:] == ["a out", "b out", "timed in", "timed out", "late in", "late out"]


def test_compute_takes_the_right_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    turn = store._turn
    monkeypatch.setattr(store, "_turn", lambda alone: asked.append(alone) or turn(alone))
    store.compute(Trial(toys.measurement(), SEED, timed=True))
    store.compute(Trial(toys.measurement(), SEED))
    assert asked == [True, False]
