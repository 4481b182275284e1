"""How numbers, bands, durations and recipes read: the same in the report, on the terminal and in reasons."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from repro.claim import Criterion
from repro.recipe import Recipe

if TYPE_CHECKING:  # it words its reasons with what is here
    from repro.verdict import ControlDecision, Decision

NOTHING = "–"


def num(value: float | str | None, digits: int = 4) -> str:
    """Return a number with at most `digits` digits after its first: 0.9762, 12.5, 1,234, 4.59e-6."""
    if value is None or isinstance(value, str):
        return value or NOTHING
    if not math.isfinite(value):
        return "not finite" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        text = f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:,.{digits}g}"
    else:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return text.replace("-", "−") if text.startswith("-") else text


def found(decision: Decision | ControlDecision, criterion: Criterion) -> str:
    """Return what was measured: `0.93`, or how many seeds succeeded where they are counted."""
    k = criterion.successes(value for _, value in decision.seeds)
    if k is None or decision.measured is None:
        return num(decision.measured)
    return f"{k} of {len(decision.seeds)} seeds"


def measured(decision: Decision | ControlDecision, criterion: Criterion) -> str:
    """Return what was measured with its interval: `0.93 [0.91, 0.95]`, `7 of 8 seeds [0.53, 0.99]`."""
    text, interval = found(decision, criterion), decision.interval
    return text if interval is None else f"{text} [{num(interval[0])}, {num(interval[1])}]"


def band(criterion: Criterion) -> str:
    """Return a criterion's band with all its digits: `≥ 0.9`, `0.4 to 0.6`, `≥ 0.5 of seeds reach 0.9`."""
    low, high = (
        None if end is None else num(end, digits=12) for end in (criterion.at_least, criterion.at_most)
    )
    if low is not None and high is not None:
        text = f"= {low}" if low == high else f"{low} to {high}"
    else:
        text = f"≤ {high}" if low is None else f"≥ {low}"
    return text if criterion.success is None else f"{text} of seeds reach {num(criterion.success, digits=12)}"


def duration(seconds: float) -> str:
    """Return a duration: `0.42 s`, `45 s`, `3 min 20 s`, `1 h 05 min`."""
    if seconds < 9.95:
        return f"{round(seconds, 2):.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: float) -> str:
    """Return a number of bytes: `310 MiB`, `1.5 MiB`, `0.5 KiB`."""
    if count < 2**20:
        return f"{count / 2**10:,.1f} KiB"
    return f"{count / 2**20:,.{0 if count >= 10 * 2**20 else 1}f} MiB"


def flat(data: object, name: str = "") -> dict[str, Any]:
    """Return nested mappings and lists of mappings as `path → value`; `args` levels are left out."""
    if isinstance(data, list | tuple) and any(isinstance(item, Mapping) for item in data):
        data = {str(i): item for i, item in enumerate(data)}
    if not isinstance(data, Mapping):
        return {name: data}
    found: dict[str, Any] = {}
    for key, value in data.items():
        found.update(flat(value, name if key == "args" else f"{name}.{key}" if name else key))
    return found


def settings(recipe: Recipe) -> dict[str, str]:
    """Return what a recipe sets, not what it leaves open, as `path → value`: `model.hidden` → `128`."""
    found = flat(recipe.to_plain())
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in found.items() if v not in (None, [])}


def differences(base: Recipe, other: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield path, value in `base` and value in `other` wherever two recipes differ; what is unset is –."""
    ours, theirs = settings(base), settings(other)
    for key in dict.fromkeys((*ours, *theirs)):
        if ours.get(key) != theirs.get(key):
            yield key, ours.get(key, NOTHING), theirs.get(key, NOTHING)
