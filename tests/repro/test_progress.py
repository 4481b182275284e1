import dataclasses
import io
import os
import time
from pathlib import Path

import pytest

from repro import progress
from repro.progress import Costs, Screen, Watch
from repro.record import Record
from repro.store import Store
from repro.trial import Heartbeat, Trial
from tests.repro.project import put
from tests.toys import recipe, stage

FAST, SLOW = recipe(stage(10)), recipe(stage(20))


def trial(seed: int, which: object = FAST) -> Trial:
    return Trial(recipe=which, seed=seed, claim="toy.learns", cell="good")  # type: ignore[arg-type]


def beat(of: Trial, **changes: object) -> Heartbeat:
    given = {"stage": 0, "step": 5, "steps": 20, "metric_name": "error", "metric": 0.25, "started": 100.0}
    given |= {"updated": 110.0, "seconds_left": 30.0, "pid": os.getpid(), **changes}
    return Heartbeat(key=of.key, claim=of.claim, cell=of.cell, seed=of.seed, **given)  # type: ignore[arg-type]


def record(of: Trial, wall_s: float, status: str = "done", error: str = "") -> Record:
    plain = of.recipe.to_plain()
    return Record(
        key=of.key,
        recipe=plain,
        seed=of.seed,
        device="cpu",
        device_class="cpu",
        sources={},
        status=status,
        error=error,
        cost={"wall_s": wall_s},
    )


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_says_what_runs_and_how_far_it_is() -> None:
    one = trial(1000)
    line = "toy.learns good seed 1000 | step 5 of 20 | error 0.25 | 30 s left"
    assert progress.describe(beat(one)) == line
    bare = beat(one, step=20, metric=None, seconds_left=None)
    assert progress.describe(bare) == "toy.learns good seed 1000 | measuring"
    assert progress.finished(record(one, 65), one) == "toy.learns good seed 1000 | done in 1 min 05 s"
    failed = record(one, 1, "failed", "the loss is nan.")
    assert progress.finished(failed, one) == "toy.learns good seed 1000 | failed: the loss is nan."


def test_time_left_comes_from_records_and_running_trials() -> None:
    costs = Costs()
    costs.learn(record(trial(1), 10.0), trial(1))
    costs.learn(record(trial(2), 20.0), trial(2))
    costs.learn(record(trial(3), 999.0, "failed"), trial(3))
    costs.learn(None, trial(3, SLOW))
    assert costs.of(trial(9)) == 15.0 and costs.of(trial(9, SLOW)) is None
    waiting = [trial(4), trial(5), trial(6, SLOW), trial(7, SLOW)]
    assert progress.left(waiting, [], costs, 1) == (30.0, 2)
    assert progress.left(waiting, [], costs, 2) == (15.0, 2)
    running = [beat(trial(6, SLOW))]  # 10 s behind it, 30 s left: the other of its recipe takes 40 s
    assert progress.left(waiting, running, costs, 1) == (100.0, 0)
    assert progress.left(waiting, running, costs, 100) == (40.0, 0), "no faster than the longest"
    assert progress.in_words(100, 0) == "time left: about 1 min 40 s"
    assert progress.in_words(30, 2) == "time left: at least 30 s"
    assert progress.in_words(0, 2) == "time left: unknown until the first steps"


# --- the screen


def test_status_lines_give_way_to_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    out = FakeTerminal()
    screen = Screen(out)
    assert screen.live
    screen.status(["first", "second " * 9])
    screen.line("verdict")
    screen.line("again")
    assert out.getvalue() == "first\nsecond second secon\r\x1b[1A\x1b[Jverdict\nagain\n"
    screen.status(["one"])
    with screen.alone():
        out.write("pytest\n")
    screen.status([])
    assert out.getvalue().endswith("again\none\r\x1b[Jpytest\n")


def test_no_status_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Screen(io.StringIO()).live
    monkeypatch.setenv("TERM", "dumb")
    assert not Screen(FakeTerminal()).live


def test_the_screen_is_standard_output_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.line("seen")
    screen.close()
    assert capfd.readouterr().out == "seen\n"


# --- the watch


def watch(tmp_path: Path, trials: list[Trial], out: io.StringIO, **more: object) -> tuple[Store, Watch]:
    store = Store(tmp_path)
    return store, Watch(store, trials, Screen(out), **more)  # type: ignore[arg-type]


def beats(store: Store, monkeypatch: pytest.MonkeyPatch, *some: Heartbeat) -> None:
    monkeypatch.setattr(store, "heartbeats", lambda: list(some))


def test_plain_lines_every_half_minute_and_at_each_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, trials = io.StringIO(), [trial(1000), trial(1001)]
    store, seen = watch(tmp_path, trials, out)
    stranger = beat(trial(77))
    beats(store, monkeypatch, beat(trials[0]), stranger)
    seen.look(1000.0)
    line = "  toy.learns good seed 1000 | step 5 of 20 | error 0.25 | 30 s left | "
    line += "0 of 2 trials done, time left: about 1 min 10 s\n"
    assert out.getvalue() == line
    seen.look(1029.0)
    assert out.getvalue() == line, "too early"
    seen.look(1030.0)
    assert out.getvalue() == line * 2
    put(store, trials[0])
    beats(store, monkeypatch)
    seen.look(1031.0)
    done = "  toy.learns good seed 1000 | done in 2 s | 1 of 2 trials done, time left: about 2 s\n"
    assert out.getvalue() == line * 2 + done
    put(store, trials[1], status="failed", why="broken.")
    seen.look(1032.0)
    last = "  toy.learns good seed 1001 | failed: broken. | 2 of 2 trials done\n"
    assert out.getvalue() == line * 2 + done + last


def test_a_terminal_gets_a_status_line_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    out, trials = FakeTerminal(), [trial(1000), trial(1001)]
    store, seen = watch(tmp_path, trials, out, workers=2)
    beats(store, monkeypatch, *map(beat, trials))
    seen.look(1.0)
    lines = out.getvalue().split("\n")
    assert [line.split(" | ")[0].strip() for line in lines[:2]] == [
        "toy.learns good seed 1000",
        "toy.learns good seed 1001",
    ]
    assert lines[2] == "  0 of 2 trials done, time left: about 30 s"
    beats(store, monkeypatch)
    seen.look(2.0)
    assert out.getvalue().endswith("\r\x1b[2A\x1b[J"), "wiped when nothing runs"


def test_the_plan_counts_what_is_stored_and_learns_from_older_records(tmp_path: Path) -> None:
    trials = [trial(1000), trial(1001), trial(1000, SLOW)]
    store = Store(tmp_path)
    put(store, trials[0])
    out = io.StringIO()
    plain = Watch(store, trials, Screen(out))
    assert plain.plan(trials, 1) == "trials: 3, in the store: 1, to run: 2, time left: at least 2 s"
    assert plain.plan(trials[:1], 1) == "trials: 1, in the store: 1, to run: 0"
    past = Watch(store, trials, Screen(out), past=lambda t: record(t, 60.0))
    assert past.plan(trials, 1) == "trials: 3, in the store: 1, to run: 2, time left: about 1 min 31 s"


def test_a_failed_record_of_an_earlier_run_is_tried_again(tmp_path: Path) -> None:
    out, one = io.StringIO(), trial(1000)
    store = Store(tmp_path)
    put(store, one, status="failed", why="broken.")
    seen = Watch(store, [one], Screen(out))
    seen.look(1.0)
    assert seen.waiting == [one] and out.getvalue() == ""
    put(store, one)
    seen.look(2.0)
    assert seen.waiting == [] and "done in 2 s" in out.getvalue()


def test_an_unreadable_record_does_not_stop_the_watch(tmp_path: Path) -> None:
    out, one = io.StringIO(), trial(1000)
    store = Store(tmp_path)
    seen = Watch(store, [one], Screen(out))
    (store.root / f"records/{one.key}.json").write_text("{")
    seen.look(1.0)
    assert seen.waiting == [one] and out.getvalue() == ""


def test_the_thread_looks_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOOK_EVERY_S", 0.01)
    out, trials = io.StringIO(), [trial(1000), trial(1001)]
    store, seen = watch(tmp_path, trials, out)
    seen.start()
    put(store, trials[0])
    while "seed 1000 | done" not in out.getvalue():
        time.sleep(0.005)
    put(store, dataclasses.replace(trials[1]))
    seen.stop()
    assert "2 of 2 trials done" in out.getvalue()
    assert not seen._thread.is_alive()
    seen.stop()  # a second time does nothing
