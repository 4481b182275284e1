"""Claims: what a paper states, the recipes that yield our numbers, and what decides between them."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType

from repro.recipe import Recipe, RecipeError

KINDS = ("identity", "count", "measure", "train")
PROFILES = ("smoke", "cpu", "paper")
PLOTS = ("line", "image", "scatter")
EXACT = ("identity", "count")  # kinds with one recipe for every profile
FIRST_SEED = 1000  # seeds below belong to pilots and never enter a verdict
ALPHA = 0.05  # level of every one-sided test
LEAST = 3  # seeds (train) or samples (measure) that it takes to decide
VERDICTS = ("reproduced", "not reproduced", "inconclusive", "not run")


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One condition on the records, written before the runs it judges.

    The value of a seed is `metric` of `cell`; with a `rival` it is the difference cell − rival paired by
    seed, or the ratio cell / rival where `ratio` is set (a *measure* may lack a rival: its samples are ratios
    then). Ratios are judged on the log scale, and so is their `sd_floor`. The band is [at_least, at_most],
    either end open.

    kind decides the rule:
        identity, count: every value lies inside the band.
        measure: the metric is a list of repeated samples (or one number a seed): t interval over all of them.
        train: t interval over seeds with standard deviation at least `sd_floor`; with `success` set, a seed
            counts as a success when its value is at least `success` and the band is on the success
            probability, with exact binomial limits.

    A `premise` that does not hold makes the claim inconclusive: its subject did not happen at this scale.
    """

    name: str
    kind: str
    statement: str
    cell: str
    metric: str
    rival: str | None = None
    ratio: bool = False
    at_least: float | None = None
    at_most: float | None = None
    sd_floor: float = 0.0
    success: float | None = None
    paper: float | str | None = None
    premise: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RecipeError(
                f"criterion '{self.name}': the kind {self.kind!r} is unknown; choose from {', '.join(KINDS)}."
            )
        for word in ("at_least", "at_most", "sd_floor", "success"):
            value = getattr(self, word)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value)):
                raise RecipeError(f"criterion '{self.name}': {word} is {value!r}; give a finite number.")
        if self.at_least is None and self.at_most is None:
            raise RecipeError(
                f"criterion '{self.name}' has no band and could not fail; give at_least or at_most."
            )
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise RecipeError(f"criterion '{self.name}' has an empty band; at_least must not exceed at_most.")
        if self.kind == "train" and self.success is None and not self.sd_floor > 0:
            raise RecipeError(
                f"criterion '{self.name}' trains; declare sd_floor above 0 (equal seeds are no certainty)."
            )
        if self.success is not None and (self.kind != "train" or self.rival is not None):
            raise RecipeError(
                f"criterion '{self.name}': success counts are for a train criterion without a rival."
            )
        ends = [end for end in (self.at_least, self.at_most) if end is not None]
        if self.success is not None and not all(0 < end < 1 for end in ends):
            raise RecipeError(
                f"criterion '{self.name}': its band is on a probability; keep it between 0 and 1."
            )
        if self.ratio and self.rival is None and self.kind != "measure":
            raise RecipeError(f"criterion '{self.name}' is a ratio; name its rival.")
        if self.ratio and not all(end > 0 for end in ends):
            raise RecipeError(f"criterion '{self.name}' is a ratio; keep its band above 0.")

    def successes(self, values: Iterable[float]) -> int | None:
        """Return how many of `values` reach `success`; None where seeds are not counted."""
        return None if self.success is None else sum(value >= self.success for value in values)


@dataclass(frozen=True, kw_only=True)
class Control:
    """The claimed mechanism removed: `criterion` judged with cells swapped; must come out *not reproduced*.

    Attributes:
        swap: cell the criterion names → cell that takes its place.
    """

    name: str
    criterion: str
    swap: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "swap", MappingProxyType(dict(self.swap)))

    def swapped(self, criterion: Criterion) -> Criterion:
        """Return `criterion` with the control's cells in place of its own."""
        rival = None if criterion.rival is None else self.swap.get(criterion.rival, criterion.rival)
        return replace(criterion, cell=self.swap.get(criterion.cell, criterion.cell), rival=rival)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A number shown beside the verdict without being judged.

    With a `rival` it is the difference cell − rival, paired by seed, with its 90 % interval.
    """

    cell: str
    metric: str
    label: str
    paper: float | str | None = None
    rival: str | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a plot, in one of three forms.

    - `metrics` of one `cell`, in the order of the plot's x values;
    - one list metric of one `cell`;
    - one metric of several `cells`, one cell for each of the plot's x values (an x is a recipe of its own).
    """

    cell: str = ""
    metrics: tuple[str, ...]
    label: str
    cells: tuple[str, ...] = ()
    paper: tuple[float | None, ...] | None = None

    def __post_init__(self) -> None:
        if bool(self.cell) == bool(self.cells):
            raise RecipeError(f"the line '{self.label}' needs either a cell or cells, and not both.")
        if len(set(self.cells)) != len(self.cells):
            raise RecipeError(f"the line '{self.label}' names a cell twice; give each x its own.")
        if not self.metrics or (self.cells and len(self.metrics) > 1):
            raise RecipeError(
                f"the line '{self.label}' has {len(self.metrics)} metrics; a line over cells has one."
            )

    @property
    def drawn(self) -> tuple[str, ...]:
        """Every cell that the line draws."""
        return self.cells or (self.cell,)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure of the report: lines over x (mean, every seed; paper values dashed), an image, or dots.

    Attributes:
        x: x values, one for each entry of a line's metrics (or of its one list metric; empty: 0, 1, 2, …).
        ticks: names of the x values, which are then no scale: dots, and no lines between them.
        kind: line, image (the first line's one metric is a matrix), or scatter (a dot a seed: a line's two
            metrics are its x and its y).
        learning: take x and y from the validation curve of the records instead: `metrics` then names the
            validation metric and x is the step.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x: tuple[float, ...] = ()
    ticks: tuple[str, ...] = ()
    kind: str = "line"
    learning: bool = False
    log_x: bool = False
    log_y: bool = False
    level: float | None = None  # a horizontal line, such as chance
    level_label: str = ""

    def __post_init__(self) -> None:
        if self.kind not in PLOTS:
            raise RecipeError(f"plot '{self.name}': the kind {self.kind!r} is none of {', '.join(PLOTS)}.")
        if self.ticks and len(self.ticks) != len(self.x):
            raise RecipeError(f"plot '{self.name}' names {len(self.ticks)} of {len(self.x)} x values.")
        for line in self.lines:
            if self.kind == "scatter" and (line.cells or len(line.metrics) != 2):
                raise RecipeError(
                    f"plot '{self.name}': the line '{line.label}' needs one cell and two metrics, x and y."
                )
            if line.cells and (self.learning or self.kind == "image"):
                raise RecipeError(
                    f"plot '{self.name}': only a line over x draws several cells; name one cell."
                )
            if line.cells and len(line.cells) != len(self.x):
                raise RecipeError(
                    f"plot '{self.name}': the line '{line.label}' has {len(line.cells)} cells for "
                    f"{len(self.x)} x values; give one cell an x."
                )


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What one profile runs: cells, criteria, controls.

    Attributes:
        cells: name → recipe. A trained cell is run with `seeds` seeds from FIRST_SEED (+ `seed_offset`) on.
            Beyond smoke, train criteria need LEAST seeds, and success counts as many as can decide them.
        shown_seeds: how many of these seeds a cell takes that no criterion or control looks at; None: all.
        scale: what is reduced against the paper, in words ("" at the paper's scale).
        seed_offset: set when a band was changed after a run: fresh seeds, and the claim file says why.
    """

    cells: Mapping[str, Recipe]
    criteria: tuple[Criterion, ...]
    controls: tuple[Control, ...] = ()
    shown: tuple[Shown, ...] = ()
    plots: tuple[Plot, ...] = ()
    seeds: int = 3
    shown_seeds: int | None = None
    scale: str = ""
    seed_offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", MappingProxyType(dict(self.cells)))
        if not self.criteria:
            raise RecipeError("a protocol needs at least one criterion.")
        if self.seeds < 1:
            raise RecipeError("a protocol needs at least one seed.")
        if self.shown_seeds is not None and not 1 <= self.shown_seeds <= self.seeds:
            raise RecipeError(f"shown_seeds must be 1 to {self.seeds}, the protocol's seeds.")
        if type(self.seed_offset) is not int or self.seed_offset < 0 or self.seed_offset % 100:
            raise RecipeError("seed_offset must be 0, 100, 200, …: fresh seeds overlap with no others.")
        if all(c.premise for c in self.criteria):
            raise RecipeError("a protocol needs a criterion that is no premise.")
        names = [c.name for c in self.criteria]
        if len(set(names)) != len(names):
            raise RecipeError(f"two criteria share a name: {', '.join(sorted(names))}.")
        if len({c.name for c in self.controls}) != len(self.controls):
            raise RecipeError(
                f"two controls share a name: {', '.join(sorted(c.name for c in self.controls))}."
            )
        used = [
            (f"criterion '{c.name}'", n) for c in self.criteria for n in (c.cell, c.rival) if n is not None
        ]
        used += [(f"control '{c.name}'", n) for c in self.controls for pair in c.swap.items() for n in pair]
        used += [("a shown number", n) for s in self.shown for n in (s.cell, s.rival) if n is not None]
        used += [(f"plot '{p.name}'", cell) for p in self.plots for line in p.lines for cell in line.drawn]
        for where, cell in used:
            if cell not in self.cells:
                raise RecipeError(f"{where} names the cell '{cell}'; known cells: {', '.join(self.cells)}.")
        judged = {c.name: c for c in self.criteria}
        for control in self.controls:
            if control.criterion not in judged:
                raise RecipeError(
                    f"control '{control.name}' judges '{control.criterion}', which is no criterion."
                )
            target = judged[control.criterion]
            swapped = control.swapped(target)
            if swapped == target:
                raise RecipeError(f"control '{control.name}' swaps no cell that '{target.name}' looks at.")
            if swapped.cell == swapped.rival:
                raise RecipeError(
                    f"control '{control.name}' compares '{swapped.cell}' with itself: it fails whatever is "
                    "measured."
                )
        trained = [c for c in self.criteria if c.kind == "train" and not c.premise]
        if trained and not any(judged[c.criterion].kind == "train" for c in self.controls):
            raise RecipeError("a trained claim needs a control on a train criterion.")


@dataclass(frozen=True, kw_only=True)
class KnownDeviation:
    """Why a claim is known not to reproduce: evidence, not an excuse.

    Attributes:
        reason: one sentence.
        records: keys of committed records that show it.
        one_factor: id of the claim whose one-factor run explains it.
    """

    reason: str
    records: tuple[str, ...]
    one_factor: str

    def __post_init__(self) -> None:
        if not self.records or not self.one_factor:
            raise RecipeError("a known deviation needs record keys and a one-factor run that shows it.")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper. A claim file defines one, as the module variable `claim`.

    Attributes:
        id: `paper.name`; the pytest marker is the id with `.` → `_`.
        paper: title and arXiv number.
        source: table or figure, page.
        statement: what the paper says, with its numbers.
        profiles: profile → protocol. A claim whose criteria are all identity or count gives one protocol
            under "every", used at each profile.
        choices: where the paper is silent: what we chose and why, one sentence each.
        notes: contradictions in the paper, and what a reader should know.
        headline: part of `make claims`.
    """

    id: str
    paper: str
    title: str
    source: str
    statement: str
    profiles: Mapping[str, Protocol]
    choices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    headline: bool = False
    known_deviation: KnownDeviation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", MappingProxyType(dict(self.profiles)))
        head, _, tail = self.id.partition(".")
        if not head.isidentifier() or not tail.isidentifier():
            raise RecipeError(f"the claim id {self.id!r} is not of the form paper.name.")
        known = {"every"} if "every" in self.profiles else set(PROFILES)
        if not self.profiles or set(self.profiles) - known:
            raise RecipeError(
                f"claim {self.id} has the profiles {sorted(self.profiles)}; use {sorted(known)}."
            )
        if "every" in self.profiles and any(c.kind not in EXACT for c in self.profiles["every"].criteria):
            raise RecipeError(
                f"claim {self.id}: only identity and count criteria share one protocol for every profile."
            )

        for profile, protocol in self.profiles.items():
            for criterion in protocol.criteria:
                if profile != "smoke" and (wrong := _undecidable(criterion, protocol)):
                    raise RecipeError(f"claim {self.id}, profile {profile}: {wrong}")

    def protocol(self, profile: str) -> Protocol | None:
        """Return the protocol of `profile`, or None where the claim has none."""
        return self.profiles.get("every") or self.profiles.get(profile)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the claim's criteria, in the order of KINDS."""
        found = {c.kind for p in self.profiles.values() for c in p.criteria}
        return tuple(kind for kind in KINDS if kind in found)

    @property
    def markers(self) -> tuple[str, ...]:
        """Pytest markers of the whole claim; each item adds the kind of its criterion."""
        return (self.id.replace(".", "_"), self.id.split(".")[0], *(("headline",) if self.headline else ()))


def _undecidable(criterion: Criterion, protocol: Protocol) -> str:
    """Return why no outcome of the protocol's seeds could decide a train criterion, or nothing."""
    if criterion.kind != "train":
        return ""
    seeds, tests = protocol.seeds, sum(not c.premise for c in protocol.criteria)
    if seeds < LEAST:
        return f"{seeds} seeds never decide the train criterion '{criterion.name}'; declare {LEAST} or more."
    if criterion.success is None or decidable(criterion, seeds, tests):
        return ""
    enough = next((n for n in range(seeds, 200) if decidable(criterion, n, tests)), None)
    remedy = (
        f"declare {enough} seeds" if enough else "move the ends of its band away from each other, 0 and 1"
    )
    return (
        f"no count of successes in {seeds} seeds could {'' if criterion.premise else 'both '}reproduce"
        f"{'' if criterion.premise else ' and reject'} the criterion '{criterion.name}'; {remedy}."
    )


def decidable(criterion: Criterion, n: int, tests: int = 1) -> bool:
    """Return whether n seeds can reproduce a success count and, unless it is a premise, can reject it.

    To be rejected it has to survive Holm's correction as the clearest of the protocol's `tests` criteria.
    The tests are those of `repro.rules.binomial_test`, in plain Python: reading claims loads no library.
    """

    def tails(p: float) -> tuple[list[float], list[float]]:
        """Return P(at most k) and P(at least k) of n tries at p, for k = 0 … n."""
        shares = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        return list(accumulate(shares)), list(accumulate(shares[::-1]))[::-1]

    ends = []  # a pair an end: p-values against "outside" and against "inside", by number of successes
    if criterion.at_least is not None:
        ends.append(tails(criterion.at_least)[::-1])
    if criterion.at_most is not None:
        ends.append(tails(criterion.at_most))
    holds = any(max(end[0][k] for end in ends) <= ALPHA for k in range(n + 1))
    fails = any(min(end[1][k] for end in ends) * len(ends) * tests <= ALPHA for k in range(n + 1))
    return holds and (fails or criterion.premise)


def discover(root: Path) -> dict[str, Claim]:
    """Return every claim under `root` (`<paper>/<file>.py` with a variable `claim`), by id, in file order.

    Files whose name starts with an underscore are helpers of their folder, not claims.

    Raises:
        RecipeError: a folder that is missing or holds no claim, a file without one, two with one id, or a
            known deviation that is explained by no claim there is.
    """
    if not root.is_dir():
        raise RecipeError(f"no claims at {root}: run from the project's root, or name the folder.")
    found: dict[str, Claim] = {}
    for file in sorted(root.glob("*/*.py")):
        if file.name.startswith("_"):
            continue
        claim = load(file)
        if claim.id in found:
            raise RecipeError(f"two claims share the id {claim.id}: rename the one in {file}.")
        found[claim.id] = claim
    if not found:
        raise RecipeError(f"no claims under {root}: expected <paper>/<claim>.py files.")
    for claim in found.values():
        if claim.known_deviation and claim.known_deviation.one_factor not in found:
            raise RecipeError(
                f"claim {claim.id} explains its known deviation by '{claim.known_deviation.one_factor}', "
                "which is no claim; name one that `repro list` shows."
            )
    return found


def load(file: Path) -> Claim:
    """Return the claim that `file` defines as the variable `claim`.

    Raises:
        RecipeError: the file defines no claim, or running it raises an error.
    """
    name = f"{file.parent.parent.name}.{file.parent.name}.{file.stem}"
    if name not in sys.modules or getattr(sys.modules[name], "__file__", None) != str(file):
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise RecipeError(f"{file} defines no usable claim: {error}") from error
    claim = getattr(sys.modules[name], "claim", None)
    if not isinstance(claim, Claim):
        raise RecipeError(f"{file} defines no claim: give it a variable `claim` (a repro.claim.Claim).")
    return claim
