"""Verdicts: pure functions of records.

A criterion by itself (`decide`) is judged at ALPHA by the tests in `repro.rules`. A claim (`decide_claim`)
adds what no criterion can see alone: Holm's correction for "not reproduced", premises, and controls that must
be red.

Scales. With `ratio` set everything happens on the log scale: the values (cell / rival by seed, or, in a
*measure* criterion without a rival, samples that are ratios already), their standard deviation and
`sd_floor`; the mean is then the geometric mean. Otherwise on the plain scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from repro import rules, words
from repro.claim import ALPHA, EXACT, FIRST_SEED, LEAST, Control, Criterion, Protocol
from repro.record import Record
from repro.words import num

Records = Mapping[str, Sequence[Record]]  # cell → its records, one a seed


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the records say about one criterion.

    Attributes:
        measured: mean over seeds or samples (geometric for a ratio), share of successes, or for identity and
            count the value nearest to leaving the band; None where it cannot be computed.
        interval: two-sided 90 % interval, whose ends are the one-sided 95 % limits: inside the band exactly
            when the criterion holds. None for identity and count, and for the mean of a single value.
        band: (at_least, at_most).
        margin: distance of `measured` to the nearest end of the band; negative outside.
        p_holds, p_fails: p-values against "outside" and against "inside", before Holm; 0 or 1 for identity
            and count; None where the records do not suffice for a test.
        seeds: (seed, value); the value of a seed with several samples is their mean (for identity and count:
            the one nearest to leaving the band).
        records: keys of the records looked at.
        control_failed: names of this criterion's controls that are not red.
    """

    name: str
    kind: str
    verdict: str
    reason: str
    measured: float | None
    interval: tuple[float, float] | None
    band: tuple[float | None, float | None]
    paper: float | str | None
    margin: float | None
    p_holds: float | None
    p_fails: float | None
    seeds: tuple[tuple[int, float], ...]
    records: tuple[str, ...]
    premise: bool
    control_failed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ControlDecision:
    """What the criterion says with the mechanism removed. Good (red) is the verdict *not reproduced*."""

    name: str
    criterion: str
    verdict: str
    reason: str
    measured: float | None
    interval: tuple[float, float] | None
    seeds: tuple[tuple[int, float], ...]
    records: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ClaimDecision:
    """The verdict on a claim, its criteria and its controls.

    Attributes:
        control_failed: names of controls that are not red: the claim is *inconclusive* and pytest fails.
    """

    id: str
    verdict: str
    reason: str
    decisions: tuple[Decision, ...]
    controls: tuple[ControlDecision, ...]
    control_failed: tuple[str, ...] = ()


def decide(criterion: Criterion, records: Records) -> Decision:
    """Judge one criterion by itself: no Holm, no premise, no control. Never raises on what a record holds."""
    evidence = _evidence(criterion, records)
    samples = evidence.samples
    decision = Decision(
        name=criterion.name,
        kind=criterion.kind,
        verdict="inconclusive",
        reason="",
        measured=None,
        interval=None,
        band=(criterion.at_least, criterion.at_most),
        paper=criterion.paper,
        margin=None,
        p_holds=None,
        p_fails=None,
        seeds=tuple((seed, _one(criterion, samples[seed])) for seed in sorted(samples)),
        records=tuple(dict.fromkeys(evidence.keys)),
        premise=criterion.premise,
    )
    if evidence.absent:
        return replace(decision, verdict="not run", reason=_sentences(evidence.absent))
    if evidence.broken:
        return replace(decision, reason=_sentences(evidence.broken + evidence.notes))
    values = [value for seed in sorted(samples) for value in samples[seed]]
    judge = _exact if criterion.kind in EXACT else _tested
    decision = judge(criterion, decision, values)
    return replace(decision, reason=_sentences([decision.reason, *evidence.notes]))


def decide_claim(claim_id: str, protocol: Protocol, records: Records, profile: str) -> ClaimDecision:
    """Judge every criterion and control of a protocol, and the claim.

    Holm's family is every criterion of the protocol that is no premise, whether its records exist yet or not.
    A control or premise that has not run leaves the criteria that depend on it *not run*. Identity and count
    criteria depend on no premise. Controls count once their criterion has enough records for a test.
    """
    alone = {c.name: decide(c, records) for c in protocol.criteria}
    controls = tuple(_control(c, protocol, records) for c in protocol.controls)
    if profile == "smoke":
        reason = "The smoke profile checks mechanics only."
        return ClaimDecision(
            id=claim_id,
            verdict="not run",
            reason=reason,
            decisions=tuple(replace(d, verdict="not run", reason=reason) for d in alone.values()),
            controls=tuple(replace(c, verdict="not run", reason=reason) for c in controls),
        )
    decisions = [_guarded(d, controls) for d in _corrected(list(alone.values()))]
    premises = [d for d in decisions if d.premise]
    decisions = [_supposed(d, premises) for d in decisions]
    verdict, reason = _claim_verdict(list(alone.values()), decisions, controls)
    return ClaimDecision(
        id=claim_id,
        verdict=verdict,
        reason=reason,
        decisions=tuple(decisions),
        controls=controls,
        control_failed=tuple(c.name for c in controls if any(c.name in d.control_failed for d in decisions)),
    )


# --- from records to values


@dataclass
class _Evidence:
    """Samples by seed, and what is wrong with the records, in sentences."""

    samples: dict[int, list[float]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # → not run
    broken: list[str] = field(default_factory=list)  # → inconclusive
    notes: list[str] = field(default_factory=list)


def _evidence(criterion: Criterion, records: Records) -> _Evidence:
    """Read the criterion's samples: those of its cell, paired by seed with its rival's where it has one."""
    found = _Evidence()
    own = _of_cell(criterion, criterion.cell, records, found)
    pairs: dict[int, list[tuple[float, float | None]]] = {}
    if criterion.rival is None:
        for seed, values in own.items():
            pairs[seed] = [(value, None) for value in values]
    else:
        other = _of_cell(criterion, criterion.rival, records, found)
        for seed in sorted(own.keys() | other.keys()):
            lone = criterion.cell if seed in own else criterion.rival
            if seed not in own or seed not in other:
                found.notes.append(f"Seed {seed} of '{lone}' has no partner and is not counted")
            elif len(own[seed]) != len(other[seed]):
                counts = f"{len(own[seed])} and {len(other[seed])}"
                found.broken.append(f"Seed {seed} has {counts} samples, which do not pair up")
            else:
                pairs[seed] = list(zip(own[seed], other[seed], strict=True))
    for seed, both in pairs.items():
        if criterion.ratio and not all(a > 0 and (b is None or b > 0) for a, b in both):
            found.broken.append(f"Seed {seed} has a value that is not above 0, so there is no ratio")
            continue
        found.samples[seed] = [a if b is None else a / b if criterion.ratio else a - b for a, b in both]
    if not (found.samples or found.absent or found.broken):
        found.broken.append(f"No seed is in both '{criterion.cell}' and '{criterion.rival}'")
    return found


def _of_cell(criterion: Criterion, cell: str, records: Records, found: _Evidence) -> dict[int, list[float]]:
    """Return the metric's samples in `cell` by seed; write what is wrong into `found`."""
    by_seed = {record.seed: record for record in records.get(cell, ())}
    if criterion.kind == "train":
        for seed in [seed for seed in by_seed if seed < FIRST_SEED]:
            del by_seed[seed]
            found.notes.append(f"Seed {seed} of '{cell}' belongs to pilots and is not counted")
    if not by_seed:
        found.absent.append(f"The cell '{cell}' has no record yet")
    samples = {}
    for seed, record in sorted(by_seed.items()):
        found.keys.append(record.key)
        where = f"seed {seed} of '{cell}'"
        if record.status == "absent":
            found.absent.append(f"The cell '{cell}' cannot run: {record.error}")
        elif record.status == "failed":
            found.broken.append(f"The trial failed, {where}: {record.error}")
        elif criterion.metric not in record.metrics:
            known = ", ".join(sorted(record.metrics)) or "none"
            found.broken.append(f"There is no metric '{criterion.metric}' in {where}; it has: {known}")
        else:
            values = _flat(record.metrics[criterion.metric])
            if not values or not all(isinstance(value, int | float) for value in values):
                found.broken.append(f"The metric '{criterion.metric}' is no number in {where}")
            elif not all(math.isfinite(value) for value in values):
                found.broken.append(f"The metric '{criterion.metric}' is not finite in {where}")
            elif criterion.kind == "train" and len(values) != 1:
                found.broken.append(f"The metric '{criterion.metric}' is not one number in {where}")
            else:
                samples[seed] = [float(value) for value in values]
    return samples


def _flat(value: Any) -> list[Any]:
    """Return a number, or a nested list of numbers, as a flat list."""
    if isinstance(value, list | tuple):
        return [item for part in value for item in _flat(part)]
    return [value]


def _one(criterion: Criterion, values: list[float]) -> float:
    """Return the number shown for a seed with these samples."""
    if criterion.kind in EXACT:
        return min(values, key=lambda value: _margin(criterion, value))
    if criterion.ratio:
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


# --- from values to a decision


def _exact(criterion: Criterion, decision: Decision, values: list[float]) -> Decision:
    """Identity and count: every value inside the band, ends included."""
    worst = _one(criterion, values)
    inside = _margin(criterion, worst) >= 0
    count = f"{len(values)} values, the worst" if len(values) > 1 else "The value"
    where = f"{'inside' if inside else 'outside'} the band ({words.band(criterion)})"
    return replace(
        decision,
        verdict="reproduced" if inside else "not reproduced",
        reason=f"{count} {num(worst, digits=6)}: {where}",
        measured=worst,
        margin=_margin(criterion, worst),
        p_holds=0.0 if inside else 1.0,
        p_fails=1.0 if inside else 0.0,
    )


def _tested(criterion: Criterion, decision: Decision, values: list[float]) -> Decision:
    """Train and measure: the one-sided tests of `repro.rules`."""
    n = len(values)
    noun = ("seed" if criterion.kind == "train" else "sample") + ("s" if n > 1 else "")
    few = f"only {n} {noun}; fewer than {LEAST} never decide"
    if n < 2 and criterion.success is None:
        return replace(decision, measured=values[0], margin=_margin(criterion, values[0]), reason=few)
    low, high = criterion.at_least, criterion.at_most
    if (k := criterion.successes(values)) is not None:
        test = rules.binomial_test(k, n, low, high)
        what = f"{k} of {n} {noun} with '{criterion.metric}' at least {num(criterion.success)}"
    elif criterion.ratio:
        test = rules.ratio_test(values, low, high, criterion.sd_floor)
        what = f"Geometric mean {num(float(test.measured))} of {n} {noun}"
    else:
        test = rules.t_test(values, low, high, criterion.sd_floor)
        what = f"Mean {num(float(test.measured))} of {n} {noun}"
    measured, interval = float(test.measured), (float(test.low), float(test.high))
    spread = f"{what}, 90 % interval {num(interval[0])} to {num(interval[1])}"
    decision = replace(decision, measured=measured, interval=interval, margin=_margin(criterion, measured))
    if n < LEAST:
        return replace(decision, reason=f"{spread}, but {few}")
    p_holds, p_fails = float(test.p_holds), float(test.p_fails)
    verdict, how = {
        1: ("reproduced", f"inside the band ({words.band(criterion)}), p = {num(p_holds, digits=2)}"),
        -1: ("not reproduced", f"outside the band ({words.band(criterion)}), p = {num(p_fails, digits=2)}"),
        0: ("inconclusive", f"not clearly inside or outside the band ({words.band(criterion)})"),
    }[int(rules.decided(p_holds, p_fails))]
    return replace(decision, verdict=verdict, reason=f"{spread}: {how}", p_holds=p_holds, p_fails=p_fails)


def _margin(criterion: Criterion, value: float) -> float:
    """Return the distance of `value` to the nearest end of the band, negative outside."""
    ends = []
    if criterion.at_least is not None:
        ends.append(value - criterion.at_least)
    if criterion.at_most is not None:
        ends.append(criterion.at_most - value)
    return min(ends)


def _sentences(parts: Sequence[str]) -> str:
    """Join parts into sentences, each with one full stop."""
    return " ".join(part.rstrip(". ") + "." for part in dict.fromkeys(parts) if part)


# --- from decisions to the claim


def _control(control: Control, protocol: Protocol, records: Records) -> ControlDecision:
    """Judge the control's criterion with its cells swapped."""
    target = next(c for c in protocol.criteria if c.name == control.criterion)
    found = decide(control.swapped(target), records)
    return ControlDecision(
        name=control.name,
        criterion=control.criterion,
        verdict=found.verdict,
        reason=found.reason,
        measured=found.measured,
        interval=found.interval,
        seeds=found.seeds,
        records=found.records,
    )


def _corrected(decisions: list[Decision]) -> list[Decision]:
    """Withdraw each "not reproduced" that does not survive Holm over the criteria that are no premises."""
    family = [d for d in decisions if not d.premise]
    adjusted = rules.holm([1.0 if d.p_fails is None else d.p_fails for d in family])
    p = {d.name: float(value) for d, value in zip(family, adjusted, strict=True)}
    return [
        replace(
            d,
            verdict="inconclusive",
            reason=f"{d.reason} But p = {num(p[d.name], digits=2)} with Holm's correction over "
            f"{len(family)} criteria.",
        )
        if d.verdict == "not reproduced" and p.get(d.name, 0.0) > ALPHA
        else d
        for d in decisions
    ]


def _guarded(decision: Decision, controls: Sequence[ControlDecision]) -> Decision:
    """Withdraw a decision whose control is not red: a check that cannot fail proves nothing."""
    if decision.p_fails is None:
        return decision
    mine = [c for c in controls if c.criterion == decision.name and c.verdict != "not reproduced"]
    failed = [c for c in mine if c.verdict != "not run"]
    if failed:
        names = tuple(c.name for c in failed)
        return replace(
            decision,
            verdict="inconclusive",
            reason=f"{_not_red(failed)} The criterion itself: {decision.reason}",
            control_failed=names,
        )
    if mine:
        reason = f"The control '{mine[0].name}' has not run: {mine[0].reason}"
        return replace(decision, verdict="not run", reason=reason)
    return decision


def _not_red(failed: Sequence[ControlDecision]) -> str:
    return " ".join(f"The control '{c.name}' is not red ({c.verdict}): {c.reason}" for c in failed)


def _supposed(decision: Decision, premises: Sequence[Decision]) -> Decision:
    """Suspend a decision whose premise does not hold; a premise itself is never *not reproduced*."""
    if decision.premise:
        if decision.verdict == "not reproduced":
            reason = f"The premise does not hold at this scale: {decision.reason}"
            return replace(decision, verdict="inconclusive", reason=reason)
        return decision
    if decision.kind in EXACT or decision.verdict == "not run":
        return decision
    for premise in premises:
        if premise.verdict != "reproduced":
            verdict = "not run" if premise.verdict == "not run" else "inconclusive"
            return replace(decision, verdict=verdict, reason=f"{_premise(premise)} {decision.reason}")
    return decision


def _premise(premise: Decision) -> str:
    return f"The premise '{premise.name}' is not shown to hold ({premise.verdict})."


def _claim_verdict(
    alone: Sequence[Decision], decisions: Sequence[Decision], controls: Sequence[ControlDecision]
) -> tuple[str, str]:
    """Return the claim's verdict and the reason."""
    for kind, item in [("criterion", d) for d in alone] + [("control", c) for c in controls]:
        if item.verdict == "not run":
            return "not run", f"The {kind} '{item.name}' has not run: {item.reason}"
    failed = {name for d in decisions for name in d.control_failed}
    if failed:
        return "inconclusive", _not_red([c for c in controls if c.name in failed])
    for premise in (d for d in decisions if d.premise and d.verdict != "reproduced"):
        return "inconclusive", f"{_premise(premise)} {premise.reason}"
    judged = [d for d in decisions if not d.premise]
    codes = [{"reproduced": 1, "not reproduced": -1}.get(d.verdict, 0) for d in judged]
    code = int(rules.together(codes))
    if code == 1:
        reason = "Every criterion holds" + (" and every control is red." if controls else ".")
        return "reproduced", reason
    wanted = "not reproduced" if code == -1 else "inconclusive"
    first = next(d for d in judged if d.verdict == wanted)
    return wanted, f"The criterion '{first.name}' is {wanted}: {first.reason}"
