"""What pytest plugin and command line share: the claims, their trials, and what the store says of them."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from repro.claim import EXACT, FIRST_SEED, KINDS, PROFILES, Claim, Criterion, Protocol
from repro.claim import discover as _discover
from repro.errors import UserError
from repro.recipe import Recipe, RecipeError
from repro.record import Record

if TYPE_CHECKING:
    from repro.store import Store
    from repro.trial import Trial
    from repro.verdict import ClaimDecision, Decision

MARKER_SYNTAX = (ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Name, ast.Load)
MOST_SEEDS = 1000
GPU_NODES = ("nvidiactl", "dxg", "kfd")  # NVIDIA, Windows' Linux, AMD: without one no torch can find a GPU


# --- claims and their names


def claims_folder() -> Path:
    """Return `claims/` of the current folder, or else the one beside the `repro` package."""
    here = Path.cwd() / "claims"
    return here if here.is_dir() else Path(__file__).resolve().parents[1] / "claims"


def discover(folder: Path) -> dict[str, Claim]:
    """Return every claim under `folder` by id.

    Raises:
        UserError: no claim, or a claim file that cannot be read; the message names the file and the line.
    """
    try:
        return _discover(folder)
    except RecipeError as error:
        cause = error.__cause__
        frames = traceback.extract_tb(cause.__traceback__ if cause else None)
        lines = [frame.lineno for frame in frames if Path(frame.filename).is_relative_to(folder)]
        raise UserError(f"{error}{f' (line {lines[-1]})' if lines else ''}") from None


def close(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" with the known words close to `word`, or else some of the known ones."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    more = ", … (`repro list` shows all)" if len(known) > 12 else ""
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known[:12])}{more}."


def find(claims: Mapping[str, Claim], names: Iterable[str]) -> list[Claim]:
    """Return the claims with these ids (or markers).

    Raises:
        UserError: an id that no claim has; the message lists close ones.
    """
    by_name = {**claims, **{c.markers[0]: c for c in claims.values()}}
    for name in names:
        if name not in by_name:
            raise UserError(f"there is no claim '{name}'; {close(name, claims)}")
    return [by_name[name] for name in names]


def markers(claims: Mapping[str, Claim]) -> dict[str, str]:
    """Return every marker with what it selects."""
    known = {kind: f"criteria of the kind {kind}" for kind in KINDS}
    known["headline"] = "headline claims"
    for claim in claims.values():
        known[claim.id.split(".")[0]] = f"claims of {claim.paper}"
        known[claim.markers[0]] = f"claim {claim.id}: {claim.title}"
    return known


def check_expression(expression: str, known: Collection[str]) -> None:
    """Check the names in a pytest marker expression.

    Raises:
        UserError: a name that is no marker, or an expression that cannot be read.
    """
    unreadable = UserError(
        f"the marker expression '{expression}' cannot be read; combine markers with and, or, not."
    )
    if not expression.strip():
        return
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise unreadable from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):  # a claim's id instead of its marker
            name = ast.unparse(node)
            raise UserError(f"'{name}' is no marker; {close(name.replace('.', '_'), known)}")
        if isinstance(node, ast.Name) and node.id not in known and node.id not in ("xfail", "skip"):
            raise UserError(f"there is no marker '{node.id}'; {close(node.id, known)}")
        if not isinstance(node, MARKER_SYNTAX):
            raise unreadable


# --- profile and device


def has_cuda() -> bool:
    """Say whether a CUDA device can be used; torch is imported only where a GPU's device file exists."""
    if sys.platform == "linux" and not any(Path("/dev", name).exists() for name in GPU_NODES):
        return False
    import torch

    return torch.cuda.is_available()


def pick_profile(profile: str | None) -> str:
    """Return `profile`, or the default: `paper` with CUDA, else `cpu`.

    Raises:
        UserError: no such profile.
    """
    if profile is None:
        return "paper" if has_cuda() else "cpu"
    if profile not in PROFILES:
        raise UserError(f"there is no profile '{profile}'; choose from {', '.join(PROFILES)}.")
    return profile


def pick_device(device: str | None, profile: str) -> str:
    """Return `device`, or the default: CUDA for `paper` where there is one, else the CPU.

    Raises:
        UserError: a device that is unknown or not there.
    """
    if device is None:
        return "cuda" if profile == "paper" and has_cuda() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (":" in device and (kind == "cpu" or not index.isdigit())):
        raise UserError(f"there is no device '{device}'; choose cpu, cuda or cuda:N.")
    if kind == "cuda":
        if not has_cuda():
            raise UserError(
                "--device cuda needs a CUDA GPU that torch can use, and there is none; "
                "use --device cpu, or see `repro doctor`."
            )
        import torch

        if index and int(index) >= torch.cuda.device_count():
            raise UserError(
                f"--device {device}: this machine has {torch.cuda.device_count()} CUDA device(s)."
            )
    return device


def check_seeds(seeds: int | None) -> None:
    """Raise UserError unless `seeds` is None or from 1 to MOST_SEEDS."""
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds {seeds} leaves nothing to run; give 1 or more (3 or more to decide).")
    if seeds is not None and seeds > MOST_SEEDS:
        raise UserError(f"--seeds {seeds} is more than anybody runs; give {MOST_SEEDS} at most.")


def seconds(text: str) -> float:
    """Return the seconds that `20m`, `90s`, `1.5h` or a plain number of seconds means.

    Raises:
        UserError: anything else, or nothing above 0.
    """
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    try:
        value = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        value = 0.0
    if not value > 0 or math.isinf(value):
        raise UserError(f"--budget {text} is no time; write 90s, 20m or 1.5h.")
    return value


def store_folder(given: str | None, base: Path) -> Path:
    """Return the store's folder: `given`, or REPRO_STORE, or `.repro` under `base`."""
    return Path(given or os.environ.get("REPRO_STORE") or base / ".repro").absolute()


def check_folder(path: Path, what: str, option: str) -> None:
    """Make the folder if need be, and write a file in it.

    A folder without any write permission is left alone, even by a superuser who could write there.

    Raises:
        UserError: it is a file, or nothing can be written there.
    """
    remedy = f"name another with {option}, or mend its permissions."
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"the {what} {path} is a file, not a folder; {remedy}")
        path.mkdir(parents=True, exist_ok=True)
        if not path.stat().st_mode & 0o222:
            raise PermissionError(13, "read-only folder")
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"the {what} {path} cannot be written ({error.strerror}); {remedy}") from None


# --- trials


def cells_of(protocol: Protocol, kind: str) -> tuple[str, ...]:
    """Return the cells that the criteria of one kind need, with those of their controls, in order of use.

    Criteria of a kind are judged together (premises, Holm's correction), so their cells are run together. The
    last kind of the protocol also takes the cells that are only shown or plotted.
    """
    used = _judged(protocol, (kind,))
    if kind == [k for k in KINDS if any(c.kind == k for c in protocol.criteria)][-1]:
        judged = _judged(protocol, KINDS)
        used += [cell for cell in protocol.cells if cell not in judged]
    return tuple(dict.fromkeys(used))


def _judged(protocol: Protocol, kinds: Collection[str]) -> list[str]:
    return [cell for c in protocol.criteria if c.kind in kinds for cell in _looked_at(c, protocol)]


def _looked_at(criterion: Criterion, protocol: Protocol) -> list[str]:
    """Return the cells of a criterion and of its controls."""
    own = [cell for cell in (criterion.cell, criterion.rival) if cell is not None]
    swaps = [control.swap for control in protocol.controls if control.criterion == criterion.name]
    return [*own, *(swap.get(cell, cell) for swap in swaps for cell in own)]


def trials(
    claim: Claim, profile: str, seeds: int | None = None, device: str = "cpu"
) -> dict[str, tuple[Trial, ...]]:
    """Return the trials of every cell of the claim's protocol; none where it has no such profile.

    A cell that only identity and count criteria look at is run once; the others with `seeds` seeds, or else
    as many as the protocol says for what is judged and what is shown (smoke: one). Cells of *measure*
    criteria are timed.
    """
    key = (id(claim), profile, seeds, device)
    if key not in _made:
        _made[key] = (claim, _trials(claim, profile, seeds, device))
    return _made[key][1]


# Trials know their fingerprint, which takes milliseconds; the claim is kept so that its id stays its own.
_made: dict[tuple[int, str, int | None, str], tuple[Claim, dict[str, tuple[Trial, ...]]]] = {}


def _trials(claim: Claim, profile: str, seeds: int | None, device: str) -> dict[str, tuple[Trial, ...]]:
    from repro.trial import Trial

    protocol = claim.protocol(profile)
    if protocol is None:
        return {}
    exact, timed = set(_judged(protocol, EXACT)), set(_judged(protocol, ("measure",)))
    once = exact - set(_judged(protocol, ("measure", "train")))
    judged = set(_judged(protocol, KINDS))
    first = FIRST_SEED + protocol.seed_offset
    starts = {cell: _start(recipe, protocol.cells) for cell, recipe in protocol.cells.items()}

    kept = {protocol.cells[start].digest for start in starts.values() if start is not None}

    def many(cell: str) -> int:
        if cell in once:
            return 1
        shown = None if cell in judged else protocol.shown_seeds
        return seeds or (1 if profile == "smoke" else shown or protocol.seeds)

    def trial(cell: str, seed: int) -> Trial:
        start = starts[cell]
        return Trial(
            recipe=protocol.cells[cell],
            seed=seed,
            device=device,
            claim=claim.id,
            cell=cell,
            timed=cell in timed,
            start=None if start is None else trial(start, seed),
            kept=protocol.cells[cell].digest in kept,
        )

    return {
        cell: tuple(trial(cell, seed) for seed in range(first, first + many(cell))) for cell in protocol.cells
    }


def _start(recipe: Recipe, cells: Mapping[str, Recipe]) -> str | None:
    """Return the cell that trains most of the first stages of `recipe`, all else equal, or None."""
    found = [
        (len(other.stages), cell)
        for cell, other in cells.items()
        if 0 < len(other.stages) < len(recipe.stages)
        and other.digest
        == dataclasses.replace(
            recipe, stages=recipe.stages[: len(other.stages)], measures=other.measures
        ).digest
    ]
    return max(found)[1] if found else None


def by_seed(cells: Mapping[str, Sequence[Trial]], names: Iterable[str] | None = None) -> list[Trial]:
    """Return the trials of some cells, first seeds first."""
    rows = [cells[name] for name in (cells if names is None else names) if name in cells]
    return [row[i] for i in range(max(map(len, rows), default=0)) for row in rows if i < len(row)]


def with_starts(some: Iterable[Trial]) -> list[Trial]:
    """Return the trials, each after those that train its first stages, without repeats of one key."""
    found: list[Trial] = []
    for trial in some:
        chain = [trial]
        while (start := chain[-1].start) is not None:
            chain.append(start)
        found += reversed(chain)
    return unique(found)


def unique(some: Iterable[Trial]) -> list[Trial]:
    """Return the trials without repeats of one key: claims may share trials."""
    return list({trial.key: trial for trial in some}.values())


def work(claim: Claim, profile: str, kind: str) -> int:
    """Return optimiser steps × batch of one seed of the kind's cells: a rough order, cheap first."""
    protocol = claim.protocol(profile)
    if protocol is None:
        return 0
    recipes = [protocol.cells[cell] for cell in cells_of(protocol, kind)]
    return sum(stage.steps * stage.batch for recipe in recipes for stage in recipe.stages)


# --- what the store says


class Committed:
    """Records committed in a report: evidence, shown and marked where the store has none; never a cache."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, trial: Trial) -> Record | None:
        """Return the committed record of a trial.

        Raises:
            UserError: a file that cannot be read.
        """
        file = self._folder / f"{trial.key}.json"
        return self._read(file) if file.is_file() else None

    def past(self, trial: Trial) -> Record | None:
        """Return a record of the trial under whatever code, to estimate what it costs.

        Raises:
            UserError: a file that cannot be read.
        """
        files = sorted(self._folder.glob(f"{trial.identity}-*.json"))
        return self._read(files[-1]) if files else None

    @staticmethod
    def _read(file: Path) -> Record:
        try:
            return Record.from_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read: {error}; restore it from git or delete it.") from None

    def stale(self, trial: Trial) -> tuple[Record, tuple[str, ...]] | None:
        """Return a committed record made with other code, and the source files that changed since.

        Raises:
            UserError: a file that cannot be read.
        """
        from repro.store import changed

        record = self.past(trial)
        return None if record is None or record.key == trial.key else (record, changed(record, trial))


class Judged(NamedTuple):
    """What the store says of a claim.

    Attributes:
        decision: the verdict.
        records: cell → its records, by seed.
        changed: source files that changed since the stale records were made (empty: none is stale).
        stale: cell → the newest records of the seeds that have none of today's code: shown, never judged.
    """

    decision: ClaimDecision
    records: dict[str, tuple[Record, ...]]
    changed: tuple[str, ...]
    stale: dict[str, tuple[Record, ...]]


def decide(
    claim: Claim, profile: str, store: Store | Committed, seeds: int | None = None, device: str = "cpu"
) -> Judged:
    """Judge a claim from what the store holds; nothing is trained.

    A cell counts once all its seeds are there: a verdict never depends on where a run happened to stop.

    Raises:
        UserError: a record that cannot be read.
    """
    from repro import verdict

    protocol = claim.protocol(profile)
    if protocol is None:
        known = ", ".join(claim.profiles)
        reason = f"The claim has no {profile} profile; it has: {known}."
        none = verdict.ClaimDecision(id=claim.id, verdict="not run", reason=reason, decisions=(), controls=())
        return Judged(none, {}, (), {})
    wanted = trials(claim, profile, seeds, device)
    found: dict[str, tuple[Record, ...]] = {}
    stale: dict[str, tuple[Record, ...]] = {}
    changed: set[str] = set()
    for cell, some in wanted.items():
        records, old = [], []
        for trial in some:
            record = store.get(trial)
            if record is not None:
                records.append(record)
            elif (past := store.stale(trial)) is not None:
                old.append(past[0])
                changed.update(past[1])
        found[cell], stale[cell] = tuple(records), tuple(old)
    whole = {cell: records for cell, records in found.items() if len(records) == len(wanted[cell])}
    decision = verdict.decide_claim(claim.id, protocol, whole, profile)
    return Judged(decision, found, tuple(sorted(changed)), stale)


def write_report(
    claims: Mapping[str, Claim],
    profile: str,
    store: Store,
    reports: Path,
    seeds: Mapping[str, int | None],
    device: str = "cpu",
) -> list[str]:
    """Write the report of a profile from what the store holds.

    A claim without any record in the store is shown from the records committed in the report, and marked.

    Args:
        seeds: claim id → seeds a cell, where it is not the protocol's number.

    Returns:
        What could not be read, one sentence each.

    Raises:
        UserError: the report cannot be written.
    """
    from repro import report, trial

    found: dict[str, Judged] = {}
    evidence, problems = set(), []
    committed = Committed(reports / profile / "records")
    for claim in claims.values():
        try:
            judged = decide(claim, profile, store, seeds.get(claim.id), device)
            if not any(judged.records.values()) and not judged.changed:
                judged = decide(claim, profile, committed, None, device)
                if any(judged.records.values()):
                    evidence.add(claim.id)
            found[claim.id] = judged
        except UserError as error:
            problems.append(str(error))
            protocol = claim.protocol(profile)
            if protocol is not None:
                nothing = report.undecided(claim, protocol, profile)
                said = f"Not judged: {error}"
                found[claim.id] = Judged(dataclasses.replace(nothing, reason=said), {}, (), {})
    report.write(
        reports,
        profile,
        list(claims.values()),
        decisions={name: judged.decision for name, judged in found.items()},
        records={name: judged.records for name, judged in found.items()},
        stale={name: (judged.changed, judged.stale) for name, judged in found.items() if judged.changed},
        environment=trial.environment(device),
        evidence=frozenset(evidence),
    )
    return list(dict.fromkeys(problems))


def crashed(criterion: Criterion, protocol: Protocol, records: Mapping[str, Sequence[Record]]) -> bool:
    """Return whether a trial that the criterion or its controls look at failed: an error, not a skip."""
    looked_at = _looked_at(criterion, protocol)
    return any(record.status == "failed" for cell in looked_at for record in records.get(cell, ()))


def smoke(criterion: Criterion, protocol: Protocol, records: Mapping[str, Sequence[Record]]) -> str:
    """Return what is wrong with the mechanics of a criterion, or nothing: its metric is there and finite."""
    for cell in dict.fromkeys(_looked_at(criterion, protocol)):
        for record in records.get(cell, ()):
            where = f"seed {record.seed} of the cell '{cell}'"
            if record.status == "failed":
                return f"The trial failed, {where}: {record.error}"
            if criterion.metric not in record.metrics:
                known = ", ".join(sorted(record.metrics)) or "none"
                return f"There is no metric '{criterion.metric}' in {where}; it has: {known}."
            values = list(_numbers(record.metrics[criterion.metric]))
            if not values or not all(math.isfinite(value) for value in values):
                return f"The metric '{criterion.metric}' is not finite in {where}."
    return ""


def _numbers(value: Any) -> Iterable[float]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    else:
        yield value if isinstance(value, int | float) else math.nan


def absent(records: Iterable[Record]) -> str:
    """Return why a data set is missing, or nothing."""
    return next((record.error for record in records if record.status == "absent"), "")


def unproven(claim: Claim, store: Store, reports: Path) -> str:
    """Return which record of the claim's known deviation is neither in store nor reports, or nothing."""
    folders = [store.root / "records", *(reports / profile / "records" for profile in PROFILES)]
    for key in claim.known_deviation.records if claim.known_deviation else ():
        if not any((folder / f"{key}.json").is_file() for folder in folders):
            return (
                f"The known deviation of {claim.id} rests on the record {key}, which is neither in the store "
                f"nor under {reports}; put it there or correct the key."
            )
    return ""


def outcome(claim: Claim, decision: Decision, whole: ClaimDecision) -> tuple[str, str]:
    """Return what pytest makes of a criterion: pass, fail, xfail, inconclusive or not run, and why."""
    if decision.control_failed:
        return "fail", decision.reason
    if decision.verdict == "not reproduced":
        if claim.known_deviation is not None:
            return "xfail", claim.known_deviation.reason
        return "fail", decision.reason
    if claim.known_deviation is not None and whole.verdict == "reproduced":
        return (
            "fail",
            "The claim reproduces although it has a known_deviation; remove that from the claim file.",
        )
    if decision.verdict == "reproduced":
        return "pass", decision.reason
    return decision.verdict, decision.reason
