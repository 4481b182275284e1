"""The store: records by key, got or computed under a lock per trial.

A folder of plain files that any number of processes share:

    records/<key>.json       one file a record, whole or absent
    checkpoints/<key>.pt     where an interrupted trial goes on
    starts/<key>.pt          the last checkpoint of a trial that others go on from; may be deleted
    heartbeats/<key>.json    where a running trial stands
    locks/                   one file lock a trial; `gate` and `machine` keep timed trials alone
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import itertools
import json
import os
import time
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from repro import files, source
from repro.errors import UserError
from repro.recipe import RecipeError
from repro.record import Record
from repro.trial import Heartbeat, Trial

WENT_ON = "went on from the last checkpoint of "
LOOK_AGAIN_S = 0.3  # pause when every trial that is left is in other hands


class OutOfTimeError(UserError):
    """The deadline passed while a trial ran; it goes on from its checkpoint next time."""


class Store:
    """Records under `root`; trials write a checkpoint every `checkpoint_every_s` seconds.

    Args:
        owner: process that started this one, to run trials for it: when it is gone, a trial ends at its
            checkpoint. None for a process that works for itself.

    Raises:
        UserError: the folder cannot be made or written.
    """

    def __init__(self, root: Path, checkpoint_every_s: float = 30.0, owner: int | None = None) -> None:
        self.root, self.checkpoint_every_s, self.owner = Path(root), checkpoint_every_s, owner
        self.opened = time.time()
        for name in ("records", "checkpoints", "starts", "heartbeats", "locks"):
            folder = self.root / name
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"cannot make the store's folder {folder}: {error.strerror}; name another store."
                ) from None
            files.sweep(folder)
        for checkpoint in (self.root / "checkpoints").glob(
            "*.pt"
        ):  # left by a kill after the record was there
            with suppress(UserError):
                record = self._read(self._file(checkpoint.stem))
                if record is not None and record.status == "done":
                    with suppress(FileNotFoundError):  # another process did it, or its own
                        checkpoint.replace(self.root / "starts" / checkpoint.name)

    # --- reading

    def get(self, trial: Trial) -> Record | None:
        """Return the record of exactly this trial and code, of whatever status, or None.

        Raises:
            UserError: a record that cannot be read; nothing is deleted.
        """
        return self._read(self._file(trial.key))

    def stale(self, trial: Trial) -> tuple[Record, tuple[str, ...]] | None:
        """Return the newest record of the same trial under other code, and the source files that differ.

        None where there is no such record, or where there is one of exactly this code.

        Raises:
            UserError: a record that cannot be read.
        """
        if self._file(trial.key).exists():
            return None
        others = sorted((self.root / "records").glob(f"{trial.identity}-*.json"), key=_modified)
        record = self._read(others[-1]) if others else None
        if record is None:
            return None
        return record, changed(record, trial)

    def heartbeats(self) -> list[Heartbeat]:
        """Return where running trials stand; those of dead processes do not count."""
        beats = []
        for file in sorted((self.root / "heartbeats").glob("*.json")):
            try:
                beat = Heartbeat(**json.loads(file.read_text()))
                if files.alive(beat.pid):
                    beats.append(beat)
            except (OSError, ValueError, TypeError, OverflowError):  # removed meanwhile, or not ours
                continue
        return beats

    def _file(self, key: str) -> Path:
        return self.root / "records" / f"{key}.json"

    def _read(self, file: Path) -> Record | None:
        try:
            record = Record.from_json(file.read_text())
            if record.key != file.stem:
                raise RecipeError(f"it holds the record {record.key}")
        except FileNotFoundError:
            return None
        except (RecipeError, OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
            raise UserError(
                f"the record {file} cannot be read ({reason}); delete it or move it away, and run again."
            ) from None
        return record

    def _settled(self, trial: Trial) -> Record | None:
        """Return the record unless the trial should run: a failed one counts in the run that made it."""
        record = self.get(trial)
        if record is None or record.status == "done" or _modified(self._file(trial.key)) >= self.opened:
            return record
        return None

    # --- computing

    def compute(self, trial: Trial, deterministic: bool = False) -> Record:
        """Return the trial's record; train it if it is not there, or if it failed in an earlier run.

        Two processes that ask for one trial train it once: the second waits for the first.

        Raises:
            UserError: the store or the machine does not allow it.
            RecipeError: the recipe's arguments do not fit its code.
        """
        record = self._attempt(trial, deterministic, wait=True, deadline=None)
        assert record is not None
        return record

    def fill(
        self,
        trials: Sequence[Trial],
        help_with: Iterable[Trial] = (),
        deadline: float | None = None,
        deterministic: bool = False,
    ) -> None:
        """Work until all of `trials` are in the store, or `deadline` (as time.time() counts) has passed.

        A trial in another process's hands is left to it: the others are tried, then one of `help_with`. At
        the deadline a trial in training writes its checkpoint and stops. A trial's start comes before it.

        Raises:
            UserError, RecipeError: as `compute`.
        """
        helping = tuple(help_with)
        while waiting := [trial for trial in trials if self._settled(trial) is None]:
            self._check_owner()
            worked = False
            for trial in itertools.chain(waiting, helping):
                if deadline is not None and time.time() >= deadline:
                    return
                while trial.start is not None and self._settled(trial.start) is None:
                    trial = trial.start
                if self._settled(trial) is not None:
                    continue
                try:
                    worked = self._attempt(trial, deterministic, wait=False, deadline=deadline) is not None
                except OutOfTimeError:
                    return
                if worked:
                    break
            if not worked:
                time.sleep(LOOK_AGAIN_S)

    def _attempt(
        self, trial: Trial, deterministic: bool, *, wait: bool, deadline: float | None
    ) -> Record | None:
        """Get or compute under the trial's lock; None if another process holds it and we do not wait."""
        record = self._settled(trial)
        if record is not None:
            return record
        source.check_arguments(trial.recipe, source.root())
        with self._lock(trial, wait) as held:
            if not held:
                return None
            record = self._settled(trial)  # another process may have finished it meanwhile
            if record is None:
                with self._turn(alone=trial.timed):
                    record = self._run(trial, deterministic, deadline)
            return record

    def _run(self, trial: Trial, deterministic: bool, deadline: float | None) -> Record:
        """Run the trial, store its record, and only then drop its checkpoint."""
        from repro import engine

        checkpoint = self.root / "checkpoints" / f"{trial.key}.pt"
        heartbeat = self.root / "heartbeats" / f"{trial.key}.json"

        def report(beat: Heartbeat) -> None:
            if deadline is not None and beat.updated >= deadline:
                raise OutOfTimeError("the time is up; run again to go on from the checkpoint.")
            self._check_owner()
            files.write(heartbeat, json.dumps(dataclasses.asdict(beat)).encode(), sync=False)

        damage = _set_aside(checkpoint)
        if trial.start is not None and not checkpoint.exists() and self.has_end(trial.start, deterministic):
            _hand_on(self._kept(trial.start), checkpoint)
        try:
            record = engine.run(trial, checkpoint, report, deterministic, self.checkpoint_every_s)
            record = dataclasses.replace(record, environment=_told(record.environment, damage))
            files.write(self._file(trial.key), record.to_json().encode())
            if record.status == "done":
                if trial.kept:
                    with suppress(FileNotFoundError):  # shorter than the time between two checkpoints
                        checkpoint.replace(self._kept(trial))
                checkpoint.unlink(missing_ok=True)
        finally:
            heartbeat.unlink(missing_ok=True)
        return record

    def _check_owner(self) -> None:
        if self.owner is not None and os.getppid() != self.owner:
            raise UserError("the run that this worker belonged to is gone; run again to go on.")

    def has_end(self, trial: Trial, deterministic: bool = False) -> bool:
        """Whether other trials can go on from the end of this one, deterministic ones if that is asked."""
        record = self.get(trial)
        exact = record is not None and bool(record.environment.get("deterministic"))
        return self._kept(trial).exists() and (exact or not deterministic)

    def _kept(self, trial: Trial) -> Path:
        return self.root / "starts" / f"{trial.key}.pt"

    @contextmanager
    def _lock(self, trial: Trial, wait: bool) -> Iterator[bool]:
        """Hold the trial's lock; yields whether we have it. It ends with the process, however that ends."""
        lock = FileLock(self.root / "locks" / f"{trial.key}.lock")
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            yield False
            return
        except OSError as error:
            raise _unlockable(lock.lock_file, error) from None
        try:
            yield True
        finally:
            lock.release()

    @contextmanager
    def _turn(self, alone: bool) -> Iterator[None]:
        """Run beside others, or (`alone`) with none beside.

        Whoever runs alone closes the gate until it is done: nobody enters while it waits for those inside.
        """
        locks = self.root / "locks"
        with ExitStack() as opened:
            try:
                gate, machine = (opened.enter_context((locks / n).open("a")) for n in ("gate", "machine"))
                fcntl.flock(gate, fcntl.LOCK_EX)
                fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
                if not alone:
                    fcntl.flock(gate, fcntl.LOCK_UN)
            except OSError as error:
                raise _unlockable(error.filename or str(locks), error) from None
            yield

    # --- after a refactor

    def restamp(self, trial: Trial, steps: int = 100) -> Record:
        """Give a stale record the key of today's code, if a replay shows that the code still does the same.

        The first `steps` steps (at least up to the first point of the stored curve) are trained again: their
        points of the training and validation curve must equal the stored ones bit for bit.

        Raises:
            UserError: no stale record, no training to replay, a changed measure (which no replay reaches), or
                a replay that differs.
        """
        from repro import engine

        found = self.stale(trial)
        if found is None:
            raise UserError(f"{_name(trial)} has no stale record to restamp; nothing was changed.")
        record, differing = found
        if record.status != "done" or not record.training:
            raise UserError(f"{_name(trial)} has no training to replay; run it again instead.")
        measured = _reached_only_by_measures(trial)
        if judging := [file for file in differing if file in measured]:
            raise UserError(
                f"{judging[0]} changed, which measures {_name(trial)} beside its training; a replay cannot "
                "vouch for it: run the trial again."
            )
        shared = trial.start if "started_from" in record.environment else None
        strict = bool(record.environment.get("deterministic"))
        with self._lock(trial, wait=True), self._turn(alone=False):
            training, validation = engine.replay(trial, steps, strict)
            before = engine.replay(shared, steps, strict)[0] if shared is not None else []
        unseen = set(trial.sources) - set(_trains(trial, training[-1]["stage"] + 1))
        if hidden := [file for file in differing if file in unseen]:
            raise UserError(
                f"{hidden[0]} changed, which {_name(trial)} runs only after the {training[-1]['step']} steps "
                "that were replayed; replay more (--steps), or run the trial again."
            )
        mine = {**_intervals(before), **_intervals(training)}
        replayed = training[-1]["step"]
        theirs = {at: point for at, point in _intervals(record.training).items() if at[2] <= replayed}
        if shared is not None:  # the points change their width where the trial went on from the other
            theirs = {at: point for at, point in theirs.items() if at in mine}
        for what, ours, stored in (
            ("training", [mine.get(at) for at in theirs], list(theirs.values())),
            ("validation", validation, list(record.validation[: len(validation)])),
        ):
            for now, was in itertools.zip_longest(ours, stored):
                if now != was:
                    raise UserError(
                        f"the {what} curve of {_name(trial)} differs at step {(now or was)['step']}: "
                        "the change is no pure refactor; run the trial again."
                    )
        restamped = {"from": record.key, "changed": list(differing), "steps": training[-1]["step"]}
        fresh = dataclasses.replace(
            record,
            key=trial.key,
            sources=dict(trial.sources),
            environment={**record.environment, "restamped": restamped},
        )
        files.write(self._file(trial.key), fresh.to_json().encode())
        return fresh


def changed(record: Record, trial: Trial) -> tuple[str, ...]:
    """Return the source files whose code differs between a record and the trial as it is now."""
    now = trial.sources
    return tuple(sorted(f for f in {*now, *record.sources} if now.get(f) != record.sources.get(f)))


def _hand_on(start: Path, checkpoint: Path) -> None:
    """Make a checkpoint of another trial's, without the seconds and interruptions that the other had.

    One that cannot be read, or whose parts do not have their checksums, is left alone: training begins at the
    first step then. Where it came from is among its warnings, which last as long as the training itself.
    """
    import torch

    buffer = io.BytesIO()
    if not _whole(start):
        return
    try:
        saved = torch.load(start, weights_only=True, map_location="cpu")
        said = [*(w for w in saved["warnings"] if not w.startswith(WENT_ON)), f"{WENT_ON}{start.stem}"]
        torch.save({**saved, "wall_s": 0.0, "resumes": -1, "warnings": said}, buffer)
    except Exception:  # whatever a damaged file makes of itself
        return
    files.write(checkpoint, buffer.getvalue())


def _whole(file: Path) -> bool:
    """Whether all parts of a checkpoint have their checksums, which torch does not compare when it loads."""
    try:
        with zipfile.ZipFile(file) as parts:
            return parts.testzip() is None
    except Exception:  # whatever a damaged file makes of itself
        return False


def _set_aside(checkpoint: Path) -> list[str]:
    """Rename a damaged checkpoint, so that training begins at the first step, and say so."""
    if not checkpoint.is_file() or _whole(checkpoint):
        return []
    aside = checkpoint.with_name(f"{checkpoint.name}.unreadable")
    checkpoint.replace(aside)
    said = f"the checkpoint was damaged; it is now {aside.name}, and the trial started again."
    warnings.warn(said, stacklevel=2)  # pytest shows it at the end of the run
    return [said]


def _told(environment: Mapping[str, Any], more: Sequence[str]) -> dict[str, Any]:
    """Return a record's environment with `more` warnings, and apart from them the trial it went on from."""
    every = [*environment["warnings"], *more]
    found = [w.removeprefix(WENT_ON) for w in every if w.startswith(WENT_ON)]
    said = {"started_from": found[-1]} if found else {}
    return {**environment, **said, "warnings": [w for w in every if not w.startswith(WENT_ON)]}


def _unlockable(file: str, error: OSError) -> UserError:
    return UserError(
        f"cannot lock {file}: {error.strerror}; free some space or name a store that can be written."
    )


def _trains(trial: Trial, stages: int | None = None) -> Mapping[str, str]:
    """Return the source files that training reaches, in the first `stages` stages."""
    recipe = trial.recipe
    some = [recipe.task, recipe.model, *(stage.algorithm for stage in recipe.stages[:stages])]
    return source.fingerprint(recipe, source.root(), [part for part in some if part is not None])


def _reached_only_by_measures(trial: Trial) -> set[str]:
    """Return the source files that measures or validation reach and the training itself does not."""
    return set(trial.sources) - set(_trains(trial))


def _intervals(points: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int, int], Mapping[str, Any]]:
    """Return the points of a training curve by stage, and the steps that they begin after and end at."""
    ends = [0, *(point["step"] for point in points)]
    return {(p["stage"], begin, p["step"]): p for begin, p in zip(ends, points, strict=False)}


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _name(trial: Trial) -> str:
    return f"{trial.claim} {trial.cell} seed {trial.seed}".strip()
