"""The report that people look at before they read: markdown tables and figures, and `results.json`.

A pure function of claims, decisions and records: it decides nothing, trains nothing, and writes the same text
whenever those are the same. Files are put in place by renaming, so that a reader never meets half of one.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from repro import files, plot, words
from repro.claim import EXACT, PROFILES, VERDICTS, Claim, Criterion, Plot, Protocol
from repro.errors import UserError
from repro.record import Record
from repro.rules import t_test
from repro.words import NOTHING, num

if TYPE_CHECKING:
    from repro.verdict import ClaimDecision, ControlDecision, Decision

LABELS = {
    "smoke": "mechanics only; no verdict",
    "cpu": "reduced scale; paper scale not run",
    "paper": "paper scale",
}
EXACT_LABEL = "one recipe for every profile"
SEED_COLUMNS = 6  # seeds in one row of a table; more go into a further table


@dataclass(frozen=True)
class _View:
    """What the report knows of one claim at one profile."""

    claim: Claim
    profile: str
    protocol: Protocol | None
    decision: ClaimDecision | None
    records: Mapping[str, Sequence[Record]]  # cell → one record a seed
    changed: tuple[str, ...]  # source files, since the stale records were made
    stale: Mapping[str, Sequence[Record]]  # cell → records that count in no verdict
    folder: Path
    committed: bool  # shown from the records of the reports folder, not from the store

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def verdict(self) -> str:
        return self.decision.verdict if self.decision else "not run"

    @property
    def reason(self) -> str:
        if self.decision:
            return self.decision.reason
        return f"The claim has recipes for {', '.join(self.claim.profiles)} only, not for {self.profile}."

    @property
    def used(self) -> dict[str, Record]:
        """Records by key, each once, in the order of the cells."""
        return {r.key: r for cell in self.records.values() for r in cell}

    @property
    def label(self) -> str:
        """What every verdict of this claim must say about its scale."""
        kinds = [c.kind for c in self.protocol.criteria] if self.protocol else []
        return EXACT_LABEL if kinds and set(kinds) <= set(EXACT) else LABELS[self.profile]

    @property
    def marks(self) -> str:
        """What to bear in mind about the verdict, in brackets."""
        said = {
            "known deviation": self.claim.known_deviation is not None and self.verdict == "not reproduced",
            "stale": bool(self.changed),
            "from committed records": self.committed,
        }
        found = ", ".join(word for word, holds in said.items() if holds)
        return f" ({found})" if found else ""

    def criterion(self, name: str) -> Criterion:
        assert self.protocol is not None
        return next(c for c in self.protocol.criteria if c.name == name)

    def scale(self, criterion: Criterion) -> str:
        """Return the scale label of one criterion's verdict, with what is reduced."""
        assert self.protocol is not None
        if criterion.kind in EXACT:
            return EXACT_LABEL
        return LABELS[self.profile] + (f": {self.protocol.scale}" if self.protocol.scale else "")


def write(
    reports: Path,
    profile: str,
    claims: Sequence[Claim],
    decisions: Mapping[str, ClaimDecision],
    records: Mapping[str, Mapping[str, Sequence[Record]]],
    stale: Mapping[str, tuple[tuple[str, ...], Mapping[str, Sequence[Record]]]],
    environment: Mapping[str, Any],
    evidence: frozenset[str] = frozenset(),
) -> None:
    """Write README.md, results.json, plots/ and records/ of one profile, and the index over profiles.

    Two processes may call this at once: they take turns. Files whose content would not change are left alone.

    Args:
        reports: the reports folder; made if it is missing.
        profile: smoke, cpu or paper.
        claims: every claim there is, in the order of the report. One that is not here leaves the report.
        decisions: claim id → decision; a claim without one is listed as *not run*.
        records: claim id → cell → records, one a seed.
        stale: claim id → source files that changed since its stale records were made, and those records by
            cell; they are shown and marked.
        environment: of the machine that writes the report.
        evidence: ids of claims that are shown from the records committed in the reports folder.

    Raises:
        UserError: the folder cannot be written, or a file in it cannot be read.
    """
    from filelock import FileLock

    views = []
    for claim in claims:
        protocol = claim.protocol(profile)
        decision = decisions.get(claim.id) or (undecided(claim, protocol, profile) if protocol else None)
        view = _View(
            claim=claim,
            profile=profile,
            protocol=protocol,
            decision=decision,
            records=records.get(claim.id, {}),
            changed=stale[claim.id][0] if claim.id in stale else (),
            stale=stale[claim.id][1] if claim.id in stale else {},
            folder=reports / profile,
            committed=claim.id in evidence,
        )
        views.append(view)
    # The lock lies outside the reports folder, so that it is never committed.
    place = hashlib.sha256(str(reports.resolve()).encode()).hexdigest()[:16]
    lock = Path(tempfile.gettempdir()) / f"repro-report-{getpass.getuser()}-{place}.lock"
    try:
        with FileLock(lock, timeout=60):
            _write(reports, profile, views, environment)
    except OSError as error:
        raise UserError(
            f"the reports folder {reports} cannot be written ({error.strerror or error}): "
            "make it writable or free some space, or name another one with --reports DIR."
        ) from None


def undecided(claim: Claim, protocol: Protocol, profile: str) -> ClaimDecision:
    """Return the decision of a claim of which nothing has run."""
    from repro.verdict import decide_claim

    return decide_claim(claim.id, protocol, {}, profile)


def _write(reports: Path, profile: str, views: Sequence[_View], environment: Mapping[str, Any]) -> None:
    folder = reports / profile
    for name in ("plots", "records"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for place in (reports, folder, folder / "plots", folder / "records"):
        files.sweep(place)
    superseded = _superseded(folder, views)
    figures = {view.id: _figures(view, folder / "plots") for view in views}
    for view in views:
        for record in view.used.values():
            _put_record(folder / "records" / f"{record.key}.json", record)
    _put(folder / "README.md", _readme(profile, views, figures, environment))
    _put(folder / "results.json", _json(_results(profile, views, environment)))
    if profile != "smoke" or not (reports / "README.md").exists():  # smoke has nothing to say to an index
        _put(reports / "README.md", _index(reports))
    kept = {name for some in figures.values() for name, _ in some}
    for file in (folder / "plots").glob("*.svg"):
        if file.name not in kept:
            file.unlink()
    for key in superseded:
        (folder / "records" / f"{key}.json").unlink(missing_ok=True)


def _put(file: Path, text: str) -> None:
    """Write a file, unless it says the same already."""
    data = text.encode()
    if not file.is_file() or file.read_bytes() != data:
        files.write(file, data, sync=False)


def _put_record(file: Path, record: Record) -> None:
    """Write a record, unless the file holds it already: reading takes a tenth of the time of writing."""
    try:
        same = Record.from_json(file.read_text(encoding="utf-8")) == record
    except (FileNotFoundError, ValueError):
        same = False
    if not same:
        _put(file, record.to_json())


def _json(data: object) -> str:
    return json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _read_results(file: Path) -> dict[str, Any]:
    """Return results.json, or what an absent one stands for."""
    if not file.is_file():
        return {"claims": []}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        for row in data["claims"]:
            complete = row["verdict"] in VERDICTS and isinstance(row["id"], str) and "stale" in row
            keys = [key for judged in (*row["criteria"], *row["controls"]) for key in judged["records"]]
            if not complete or not all(isinstance(key, str) for key in keys):
                raise ValueError
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{file} is not a results file: delete it, and the next run writes it anew."
        ) from None
    return dict(data)


def _superseded(folder: Path, views: Sequence[_View]) -> set[str]:
    """Return the keys of records that only an earlier state of the claims decided now needed.

    Records of claims that are not run or shown from committed records, and those that a known deviation rests
    on, are never among them.
    """
    fresh = {v.id: v for v in views if v.verdict != "not run" and not v.committed}
    before = {
        key
        for row in _read_results(folder / "results.json")["claims"]
        if row["id"] in fresh
        for judged in (*row["criteria"], *row["controls"])
        for key in judged["records"]
    }
    identities = {key.partition("-")[0] for v in fresh.values() for key in v.used}
    before |= {f.stem for f in (folder / "records").glob("*.json") if f.stem.partition("-")[0] in identities}
    needed = {key for v in views for key in v.used}
    needed |= {key for v in views if v.claim.known_deviation for key in v.claim.known_deviation.records}
    return before - needed


# Results


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _cost(records: Iterable[Record]) -> float:
    """Return the wall time of the records in seconds, each counted once."""
    return round(sum(r.cost.get("wall_s", 0.0) for r in {r.key: r for r in records}.values()), 1)


def _results(profile: str, views: Sequence[_View], environment: Mapping[str, Any]) -> dict[str, Any]:
    def judged(d: Decision | ControlDecision) -> dict[str, Any]:
        return {
            "measured": None if d.measured is None else _finite(d.measured),
            "seeds": [{"seed": seed, "value": _finite(value)} for seed, value in d.seeds],
            "records": list(d.records),
        }

    def criterion(view: _View, d: Decision) -> dict[str, Any]:
        return {
            "name": d.name,
            "kind": d.kind,
            "verdict": d.verdict,
            "reason": d.reason,
            "interval": None if d.interval is None else [_finite(end) for end in d.interval],
            "band": list(d.band),
            "paper": d.paper,
            "scale": view.scale(view.criterion(d.name)),
            **judged(d),
        }

    def row(view: _View) -> dict[str, Any]:
        d = view.decision
        return {
            "id": view.id,
            "kinds": list(view.claim.kinds),
            "verdict": view.verdict,
            "stale": bool(view.changed),
            "cost_s": _cost(view.used.values()),
            "criteria": [criterion(view, one) for one in d.decisions] if d else [],
            "controls": [{"name": c.name, "verdict": c.verdict, **judged(c)} for c in d.controls]
            if d
            else [],
        }

    return {"profile": profile, "environment": dict(environment), "claims": [row(view) for view in views]}


def _computing(records: Path) -> float:
    """Return the wall time in seconds of the records in a folder; each counts once, unreadable ones not."""
    total = 0.0
    for file in sorted(records.glob("*.json")):
        with suppress(ValueError):
            total += Record.from_json(file.read_text(encoding="utf-8")).cost.get("wall_s", 0.0)
    return total


def _index(reports: Path) -> str:
    rows: list[list[object]] = []
    verdicts: dict[str, dict[str, str]] = {}
    found = [p for p in PROFILES if (reports / p / "results.json").is_file()]
    for profile in found:
        claims = _read_results(reports / profile / "results.json")["claims"]
        count = [sum(c["verdict"] == word for c in claims) for word in VERDICTS]
        cost = _computing(reports / profile / "records")
        rows.append([f"[{profile}]({profile}/README.md)", LABELS[profile], *count, words.duration(cost)])
        for c in claims:
            anchor = f"{profile}/README.md#{_anchor(c['id'])}"
            mark = " (stale)" if c["stale"] else ""
            verdicts.setdefault(c["id"], {})[profile] = f"[{c['verdict']}]({anchor}){mark}"
    table = [[f"`{name}`", *(of.get(p, NOTHING) for p in found)] for name, of in verdicts.items()]
    index = _join(
        "# Reports",
        "One folder a profile: tables, figures and every record behind them.",
        _table(["profile", "scale", *VERDICTS, "cost"], rows),
        "## Every claim",
        _table(["claim", *found], table),
    )
    return index + "\n"


# Markdown


def _join(*blocks: str) -> str:
    """Return the blocks that say something, with a blank line between them."""
    return "\n\n".join(block for block in blocks if block)


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return tabulate(cells, headers=list(headers), tablefmt="github", disable_numparse=True)


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _anchor(heading: str) -> str:
    return heading.replace(".", "").lower()


def _metric(record: Record | None, metric: str) -> str:
    """Return one table cell: a number, the mean of samples, the shape of a matrix, or why there is none."""
    if record is None:
        return NOTHING
    if record.status != "done":
        return "failed" if record.status == "failed" else "no data set"
    value = record.metrics.get(metric)
    if not isinstance(value, list | tuple):
        return num(value)
    if value and isinstance(value[0], list | tuple):
        return f"{len(value)} × {len(value[0])} matrix"
    return f"{num(sum(value) / len(value))} (mean of {len(value)})" if value else NOTHING


def _readme(
    profile: str,
    views: Sequence[_View],
    figures: Mapping[str, Sequence[tuple[str, Plot]]],
    environment: Mapping[str, Any],
) -> str:
    total = _cost(r for v in views for r in v.used.values())
    counts = [(sum(v.verdict == word for v in views), word) for word in VERDICTS]
    rows = []
    for v in views:
        cost = words.duration(_cost(v.used.values())) if v.used else NOTHING
        scale = " at reduced scale" if v.label == LABELS["cpu"] and v.verdict != "not run" else ""
        kinds, verdict = ", ".join(v.claim.kinds), f"**{v.verdict}**{scale}{v.marks}"
        rows.append([f"[{v.id}](#{_anchor(v.id)})", kinds, verdict, _phrase(v), cost])
    meaning = {
        "smoke": "This profile only shows that everything runs, in seconds: it gives no verdict.",
        "cpu": "Every verdict on a measure or train criterion is at **reduced scale; paper scale not run**. "
        "Identity and count criteria have one recipe for every profile.",
        "paper": "The paper's scale and bands.",
    }[profile]
    marks = {
        "*Stale*: the code has changed since these records were made; the claim's section says where.": any(
            v.changed for v in views
        ),
        "*From committed records*: not run here, but shown from the records in this folder.": any(
            v.committed for v in views
        ),
    }
    readme = _join(
        f"# Claims at the profile `{profile}`",
        meaning,
        f"{', '.join(f'{n} {word}' for n, word in counts if n)}. The records behind this report took "
        f"{words.duration(total)} of computing (records that claims share counted once).",
        _table(["claim", "kinds", "verdict", "measured vs. paper", "cost"], rows),
        *(text for text, holds in marks.items() if holds),
        *(_section(view, figures[view.id]) for view in views),
        "## This report",
        f"`pytest claims --profile {profile}` runs every claim. `repro report --profile {profile}` writes "
        "this report from what the store holds and trains nothing. It was last written on:",
        _bullets(f"{k}: {v}" for k, v in words.flat(environment).items() if v not in (None, "")),
    )
    return readme + "\n"


def _phrase(view: _View) -> str:
    """Return measured and paper value of the criterion that says most about the claim's verdict."""
    found = [d for d in (view.decision.decisions if view.decision else ()) if d.measured is not None]
    if not found:
        return NOTHING
    d = min(found, key=lambda d: (d.verdict != view.verdict, d.premise, d.kind == "identity"))
    paper = f"paper {num(d.paper)}" if d.paper is not None else "no paper value"
    return f"{d.name}: {words.found(d, view.criterion(d.name))} ({paper})"


def _section(view: _View, figures: Sequence[tuple[str, Plot]]) -> str:
    claim, protocol, decision = view.claim, view.protocol, view.decision
    head = _join(
        f"## {claim.id}",
        f"**{claim.title}** · {claim.paper}, {claim.source}",
        f"> {claim.statement}",
        f"**Verdict: {view.verdict}**{view.marks} · {view.label}. {_sentence(view.reason)}",
        f"Stale: {', '.join(f'`{f}`' for f in view.changed)} changed since these records were made."
        if view.changed
        else "",
        _other_seeds(view),
        _deviation(view),
        f"Run it{' again' if view.used else ''}: "
        f"`pytest claims -m {claim.markers[0]} --profile {view.profile}`",
    )
    silent = _titled("Where the paper is silent, we chose", _bullets(claim.choices))
    notes = _titled("Notes", _bullets(claim.notes))
    if protocol is None or decision is None:
        return _join(head, silent, notes)
    return _join(
        head,
        f"What is reduced against the paper: {_sentence(protocol.scale)}" if protocol.scale else "",
        _criteria(view, decision),
        _controls(view, protocol, decision),
        *(f"![{p.title}: {p.y_label} over {p.x_label}](plots/{name})" for name, p in figures),
        _legend([p for _, p in figures]),
        _titled("Every seed", _seeds(view, protocol)),
        _failures(view),
        _titled("Shown, not judged", _shown(view, protocol)),
        _titled("What one seed cost", _costs(view)),
        silent,
        notes,
        _differences(protocol),
        _background(view, protocol),
    )


def _legend(plots: Sequence[Plot]) -> str:
    """Return how to read the figures."""
    lines = [p for p in plots if p.kind == "line"]
    said = {
        "thin: each seed, band: from the lowest to the highest; thick: their mean": bool(lines),
        "dashed, hollow: the paper": any(line.paper for p in lines for line in p.lines),
        "a seed that stopped early counts in the mean with its last value": any(p.learning for p in lines),
    }
    return _sentence("; ".join(text for text, holds in said.items() if holds))


def _titled(title: str, body: str) -> str:
    return f"{title}:\n\n{body}" if body else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") or not text else ".")


def _deviation(view: _View) -> str:
    known = view.claim.known_deviation
    if known is None:
        return ""
    keys = ", ".join(
        f"[{key}](records/{key}.json)"
        if (view.folder / "records" / f"{key}.json").is_file()
        else f"`{key}` (not among these records)"
        for key in known.records
    )
    return f"Known deviation: {_sentence(known.reason)} Shown by {keys}, explained by `{known.one_factor}`."


def _other_seeds(view: _View) -> str:
    """Return how many seeds judged the claim, where the protocol declares another number."""
    if view.protocol is None or view.verdict == "not run":
        return ""
    cells = [c.cell for c in view.protocol.criteria if c.kind not in EXACT]
    seeds, declared = max((len(view.records.get(cell, ())) for cell in cells), default=0), view.protocol.seeds
    if seeds in (0, declared):
        return ""
    said = f"Judged with {seeds} seed{'s' if seeds > 1 else ''}, the protocol declares {declared}."
    if seeds < declared:
        return said
    return f"{said} Seeds added after a look at fewer are a second look, which no test here corrects for."


def _criteria(view: _View, decision: ClaimDecision) -> str:
    rows, details = [], []
    for d in decision.decisions:
        c = view.criterion(d.name)
        rows.append(
            [
                d.name,
                d.kind,
                num(d.paper),
                words.measured(d, c),
                words.band(c),
                num(d.margin),
                d.verdict,
            ]
        )
        premise = "; a premise: without it the claim is about nothing" if d.premise else ""
        reason = f" {_sentence(d.reason)}" if view.used else ""  # nothing has run: said once, above
        details.append(f"{d.name} ({_looks_at(c)}{premise}): {_sentence(c.statement)}{reason}")
    headers = ["criterion", "kind", "paper", "measured [90 % interval]", "band", "margin", "verdict"]
    return _join(_table(headers, rows), _bullets(details))


def _looks_at(c: Criterion) -> str:
    between = " / " if c.ratio else " − "
    return f"`{c.metric}` of `{c.cell}`" + (f"{between}`{c.rival}`" if c.rival else "")


def _controls(view: _View, protocol: Protocol, decision: ClaimDecision) -> str:
    rows, details = [], []
    swaps = {c.name: c.swap for c in protocol.controls}
    for c in decision.controls:
        swap = ", ".join(f"{new} for {old}" for old, new in swaps[c.name].items())
        rows.append(
            [
                c.name,
                swap,
                c.criterion,
                words.measured(c, view.criterion(c.criterion)),
                c.verdict,
                _as_it_must_be(c),
            ]
        )
        if c.verdict != "not reproduced" and view.used:
            details.append(f"{c.name}: {_sentence(c.reason)}")
    headers = ["control", "puts", "into", "measured [90 % interval]", "verdict", "as it must be"]
    table = _join(_table(headers, rows), _bullets(details))
    return _titled("Controls: the mechanism removed, which must come out *not reproduced*", table)


def _as_it_must_be(control: ControlDecision) -> str:
    return {"not reproduced": "yes", "not run": NOTHING}.get(control.verdict, "**no**")


def _seeds(view: _View, protocol: Protocol) -> str:
    """Return one row a metric and cell that a criterion, control or shown number looks at; stale marked."""
    criteria = {c.name: c for c in protocol.criteria}
    looks = [(c.metric, cell) for c in protocol.criteria for cell in (c.cell, c.rival)]
    looks += [(criteria[c.criterion].metric, cell) for c in protocol.controls for cell in c.swap.values()]
    looks += [(s.metric, s.cell) for s in protocol.shown]
    metrics = dict.fromkeys(metric for metric, _ in looks)
    found = {(cell, r.seed): r for cell, records in view.records.items() for r in records}
    stale = {(cell, r.seed): r for cell, records in view.stale.items() for r in records}
    seeds = sorted({seed for _, seed in {**found, **stale}})

    def value(cell: str, seed: int, metric: str) -> str:
        if (cell, seed) not in found and (cell, seed) in stale:
            return f"{_metric(stale[cell, seed], metric)} (stale)"
        return _metric(found.get((cell, seed)), metric)

    tables = []
    for start in range(0, len(seeds), SEED_COLUMNS):
        some = seeds[start : start + SEED_COLUMNS]
        rows = [
            [metric, cell, *(value(cell, seed, metric) for seed in some)]
            for metric in metrics
            for cell in protocol.cells
            if (metric, cell) in looks
        ]
        tables.append(_table(["metric", "cell", *(f"seed {seed}" for seed in some)], rows))
    marked = "Stale values come from the code before the change; no verdict, mean or figure counts them."
    return _join(*tables, marked if stale else "")


def _shown(view: _View, protocol: Protocol) -> str:
    rows = []
    for s in protocol.shown if view.used else ():
        found = _by_seed(view, s.cell, s.metric)
        if s.rival is not None:
            rival = _by_seed(view, s.rival, s.metric)
            found = {seed: found[seed] - rival[seed] for seed in found if seed in rival}
        values = list(found.values())
        mean = num(sum(values) / len(values)) if values else NOTHING
        spread = f"{num(min(values))} to {num(max(values))}" if len(values) > 1 else NOTHING
        if s.rival is not None and len(set(values)) > 1:
            test = t_test(values, 0.0, None)
            mean += f" [{num(float(test.low))}, {num(float(test.high))}]"
        cell = s.cell if s.rival is None else f"{s.cell} − {s.rival}"
        rows.append([s.label, cell, num(s.paper), mean, spread, len(values)])
    return _table(["number", "cell", "paper", "mean", "over seeds", "seeds"], rows)


def _by_seed(view: _View, cell: str, metric: str) -> dict[int, float]:
    """Return seed → number of every trial of a cell that is done and has it."""
    done = [r for r in view.records.get(cell, ()) if r.status == "done"]
    numbers = {r.seed: plot.number(r.metrics.get(metric)) for r in done}
    return {seed: value for seed, value in numbers.items() if math.isfinite(value)}


def _span(values: Sequence[float], say: Any) -> str:
    """Return `say(value)` where all values read alike, else `lowest to highest`."""
    if not values:
        return NOTHING
    low, high = say(min(values)), say(max(values))
    return str(low) if low == high else f"{low} to {high}"


def _costs(view: _View) -> str:
    columns = [("wall_s", words.duration), ("steps", num), ("parameters", num), ("peak_bytes", words.size)]
    rows = []
    for cell, found in view.records.items():
        if found:
            spans = [
                _span([r.cost[k] for r in found if r.cost.get(k) is not None], say) for k, say in columns
            ]
            rows.append([cell, len(found), *spans])
    table = _table(["cell", "seeds", "wall time", "steps", "parameters", "process peak"], rows)
    shared = [
        f"`{c}`" for c, found in view.records.items() if any("started_from" in r.environment for r in found)
    ]
    if not shared:
        return table
    return _join(
        table,
        f"Went on from trials that had trained their first stages: {', '.join(shared)}. Their steps are all "
        "steps, their wall time is that of the later ones.",
    )


def _differences(protocol: Protocol) -> str:
    """Return the one-factor view: what each cell's recipe changes in the first one's."""
    (first, recipe), *others = protocol.cells.items()
    items = []
    for name, other in others:
        changes = "; ".join(f"{k} `{old}` → `{new}`" for k, old, new in words.differences(recipe, other))
        items.append(f"`{name}`: {changes or 'the same recipe'}")
    return _titled(f"What the cells change in the recipe of `{first}`", _bullets(items))


def _background(view: _View, protocol: Protocol) -> str:
    """Return, folded, the first cell's recipe, the environments and the records."""
    first, recipe = next(iter(protocol.cells.items()))
    settings = [f"{k} = {v}" for k, v in words.settings(recipe).items()]
    records = [
        f"`{cell}`: {', '.join(f'[{r.seed}](records/{r.key}.json)' for r in found)}"
        for cell, found in view.records.items()
        if found
    ]
    return _join(
        "<details><summary>Recipe, environment and records</summary>",
        f"Recipe of `{first}`:",
        "\n".join(["```", *settings, "```"]),
        _titled("Environment", _environments(view)),
        _titled("Records by cell and seed", _bullets(records)),
        "</details>",
    )


def _environments(view: _View) -> str:
    lines: dict[str, int] = {}
    for record in view.used.values():
        flat = {"device": record.device, **words.flat(record.environment)}
        flat.pop("started_from", None)  # differs by seed; the costs say it
        line = ", ".join(f"{name} {value}" for name, value in flat.items() if value not in (None, ""))
        lines[line] = lines.get(line, 0) + 1
    return _bullets(f"{n} record{'s' if n > 1 else ''}: {line}" for line, n in lines.items())


def _failures(view: _View) -> str:
    reasons: dict[str, list[str]] = {}
    for cell, found in view.records.items():
        for r in (r for r in found if r.status != "done"):
            reasons.setdefault(f"`{cell}`, {r.status}: {_sentence(r.error)}", []).append(str(r.seed))
    items = [f"{reason} (seed {', '.join(seeds)})" for reason, seeds in reasons.items()]
    return _titled("Trials that gave no number", _bullets(items))


def _figures(view: _View, folder: Path) -> list[tuple[str, Plot]]:
    """Draw the claim's figures whose data changed; return file name and plot of each."""
    if view.protocol is None or not view.used:
        return []
    automatic = plot.learning_plot(view.protocol, view.records)
    figures = []
    for one in (*view.protocol.plots, *([automatic] if automatic else [])):
        shown = plot.picture(one, view.records)
        if shown.empty:
            continue
        name = f"{view.id}-{''.join(c if c.isalnum() else '_' for c in one.name)}.svg"
        file = folder / name
        if not file.is_file() or shown.stamp not in file.read_text(encoding="utf-8")[:4000]:
            _put(file, plot.svg(shown))
        figures.append((name, one))
    return figures
