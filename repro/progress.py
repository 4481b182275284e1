"""Live progress: what is running, how far it is, how long it will take.

Trials, in whatever process, leave heartbeat files in the store. In the process that owns the terminal a
thread reads them and shows claim, cell, seed, step, metric and time left: on a terminal in lines that it
rewrites, elsewhere in plain ones.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from repro.errors import UserError
from repro.words import duration

if TYPE_CHECKING:
    from repro.record import Record
    from repro.store import Store
    from repro.trial import Heartbeat, Trial

PLAIN_EVERY_S = 30.0  # between plain lines about one trial
LOOK_EVERY_S = 1.0  # between looks at the heartbeats


class Costs:
    """Seconds that a trial of a recipe takes, learned from records and from running trials."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def learn(self, record: Record | None, trial: Trial) -> None:
        """Take in what a finished trial cost."""
        wall = record.cost.get("wall_s") if record is not None and record.status == "done" else None
        if isinstance(wall, int | float):
            self._seen.setdefault(trial.recipe.digest, []).append(float(wall))

    def of(self, trial: Trial) -> float | None:
        """Return the mean seconds of finished trials of this recipe, or None where there is none."""
        seen = self._seen.get(trial.recipe.digest)
        return sum(seen) / len(seen) if seen else None


def left(
    waiting: Sequence[Trial], beats: Sequence[Heartbeat], costs: Costs, workers: int
) -> tuple[float, int]:
    """Return the seconds that the waiting trials still take, and how many of them have no estimate."""
    running = {beat.key: beat for beat in beats}
    live = {
        trial.recipe.digest: beat.updated - beat.started + beat.seconds_left
        for trial in waiting
        if (beat := running.get(trial.key)) is not None and beat.seconds_left is not None
    }
    total, longest, unknown = 0.0, 0.0, 0
    for trial in waiting:
        beat = running.get(trial.key)
        known = costs.of(trial) or live.get(trial.recipe.digest)
        seconds = beat.seconds_left if beat is not None and beat.seconds_left is not None else known
        if seconds is None:
            unknown += 1
        else:
            total += seconds
            longest = max(longest, seconds)
    return max(total / max(workers, 1), longest), unknown


def in_words(seconds: float, unknown: int) -> str:
    """Return an estimate for people; unknown parts make it a lower bound."""
    if not unknown:
        return f"time left: about {duration(seconds)}"
    return f"time left: {f'at least {duration(seconds)}' if seconds else 'unknown until the first steps'}"


def describe(beat: Heartbeat) -> str:
    """Return one line about a running trial."""
    where = f"step {beat.step} of {beat.steps}" if beat.step < beat.steps else "measuring"
    parts = [f"{beat.claim} {beat.cell} seed {beat.seed}", where]
    if beat.metric is not None:
        parts.append(f"{beat.metric_name} {beat.metric:.4g}")
    if beat.seconds_left is not None:
        parts.append(f"{duration(beat.seconds_left)} left")
    return " | ".join(parts)


def finished(record: Record, trial: Trial) -> str:
    """Return one line about a trial that has its record."""
    name = f"{trial.claim} {trial.cell} seed {trial.seed}"
    if record.status != "done":
        return f"{name} | {record.status}: {record.error}"
    wall = record.cost.get("wall_s")
    return f"{name} | done" + (f" in {duration(wall)}" if isinstance(wall, int | float) else "")


class Screen:
    """The terminal itself, below pytest's capture: whole lines, and status lines that give way to them."""

    def __init__(self, file: IO[str] | None = None) -> None:
        """Write to `file`, or to what is standard output now, even if that is redirected later."""
        self.file = file or os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
        self.live = self.file.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = 0
        self._lock = threading.RLock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wipe the status lines and keep the thread away while somebody else writes."""
        with self._lock:
            self._wipe()
            yield

    def line(self, text: str) -> None:
        """Write a line that stays."""
        with self.alone():
            self._write(text + "\n")

    def status(self, lines: Sequence[str]) -> None:
        """Replace the status lines."""
        with self.alone():
            width = shutil.get_terminal_size().columns - 1
            self._write("\n".join(line[:width] for line in lines))
            self._shown = len(lines)

    def close(self) -> None:
        """Wipe the status lines and close the file."""
        with self.alone():
            self.file.close()

    def _wipe(self) -> None:
        if self._shown:
            up = f"\x1b[{self._shown - 1}A" if self._shown > 1 else ""
            self._write(f"\r{up}\x1b[J")
            self._shown = 0

    def _write(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()


class Watch:
    """The thread that follows the trials of a run."""

    def __init__(
        self,
        store: Store,
        trials: Sequence[Trial],
        screen: Screen,
        workers: int = 1,
        past: Callable[[Trial], Record | None] = lambda trial: None,
    ) -> None:
        """Look at what is stored; `past` gives older records, which only say what a trial costs.

        Raises:
            UserError: a record that cannot be read.
        """
        self._store, self._screen, self._workers = store, screen, workers
        self._all = len(trials)
        self.costs = Costs()
        self.waiting: list[Trial] = []
        self._unfinished: dict[str, Record] = {}  # failed or without data in an earlier run: tried again
        for trial in trials:
            record = store.get(trial)
            if record is None or record.status != "done":
                self.waiting.append(trial)
            if record is not None and record.status != "done":
                self._unfinished[trial.key] = record
            self.costs.learn(record or (store.stale(trial) or (None,))[0] or past(trial), trial)
        self._told: dict[str, float] = {}
        self._looking = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def plan(self, trials: Sequence[Trial], workers: int) -> str:
        """Return how many of the run's trials these are, how many are stored, how long the rest takes."""
        keys = {trial.key for trial in self.waiting}
        waiting = [trial for trial in trials if trial.key in keys]
        text = f"trials: {len(trials)}, in the store: {len(trials) - len(waiting)}, to run: {len(waiting)}"
        return f"{text}, {in_words(*left(waiting, [], self.costs, workers))}" if waiting else text

    def start(self) -> None:
        """Start to watch; a run with nothing to do needs no thread."""
        if self.waiting:
            self._thread.start()

    def stop(self) -> None:
        """Stop after a last look."""
        if not self._stop.is_set() and self._thread.is_alive():
            self._stop.set()
            self._thread.join()
            self.look(time.time())
            self._screen.status([])

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.look(time.time())

    def look(self, now: float) -> None:
        """Show what has changed: finished trials, then the running ones."""
        with self._looking:
            self._look(now)

    def _look(self, now: float) -> None:
        for trial in list(self.waiting):
            if (record := self._read(trial)) is not None:
                self.waiting.remove(trial)
                self.costs.learn(record, trial)
                self._screen.line(f"  {finished(record, trial)} | {self._whole([])}")
        ours = {trial.key for trial in self.waiting}
        beats = [beat for beat in self._store.heartbeats() if beat.key in ours]
        if self._screen.live:
            lines = [f"  {describe(beat)}" for beat in beats]
            self._screen.status([*lines, f"  {self._whole(beats)}"] if lines else [])
            return
        for beat in beats:
            if now - self._told.get(beat.key, 0.0) >= PLAIN_EVERY_S:
                self._told[beat.key] = now
                self._screen.line(f"  {describe(beat)} | {self._whole(beats)}")

    def _read(self, trial: Trial) -> Record | None:
        try:
            record = self._store.get(trial)
        except UserError:  # the item that needs the trial reports it
            return None
        return None if record == self._unfinished.get(trial.key) else record

    def _whole(self, beats: Sequence[Heartbeat]) -> str:
        done = f"{self._all - len(self.waiting)} of {self._all} trials done"
        if not self.waiting:
            return done
        return f"{done}, {in_words(*left(self.waiting, beats, self.costs, self._workers))}"
