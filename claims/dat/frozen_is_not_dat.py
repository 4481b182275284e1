"""Ours: attention frozen while its output takes part, against true bypass."""

from claims.dat._shared import (
    CHOICES,
    HYBRIDS,
    NOTES,
    PAPER,
    SCALES,
    SEED_OFFSET,
    WORDS,
    learned,
    no_delay,
    parts_plot,
    parts_shown,
)
from claims.dat.joint_l75 import AT, TWO
from repro.claim import Claim, Criterion, Protocol
from repro.recipe import Recipe

LEAST = 0.1  # joint accuracy: what would matter to somebody who freezes for convenience


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile: one hybrid where the scale is reduced, two at the paper's."""
    scale = SCALES[profile]
    cells: dict[str, Recipe] = {}
    premises, criteria = [], []
    some = TWO if profile == "paper" else TWO[:1]
    for a in some:
        kind, label, _, _ = HYBRIDS[a]
        cells |= {
            f"{a}_dat": scale.dat(kind),
            f"{a}_frozen": scale.frozen(kind),
            f"{a}_untaught": scale.untaught(kind),
            f"{a}_ordinary": scale.ordinary(kind),
        }
        premises += [
            learned(scale, f"{a}_dat", f"{label}, DAT"),
            learned(scale, f"{a}_frozen", f"{label}, frozen"),
        ]
        criteria.append(
            Criterion(
                name=f"{a}_bypass_beats_frozen",
                kind="train",
                statement=f"{label}: DAT minus the schedule with frozen attention, joint at {AT} times "
                "the training lengths",
                cell=f"{a}_dat",
                rival=f"{a}_frozen",
                metric=scale.metric("joint", AT),
                at_least=LEAST,
                sd_floor=0.03,
            )
        )
    labels = {"frozen": "frozen", "untaught": "phase 1 without the task", "dat": "DAT"}
    arms = {a: {f"{a}_{arm}": label for arm, label in labels.items()} for a in some}
    return Protocol(
        cells=cells,
        criteria=(*premises, *criteria),
        controls=tuple(no_delay(c) for c in criteria),
        shown=tuple(s for a in some for s in parts_shown(scale, a, arms[a])),
        plots=tuple(parts_plot(scale, a, arms[a]) for a in some),
        scale=WORDS[profile],
        seed_offset=SEED_OFFSET if profile == "cpu" else 0,
    )


claim = Claim(
    id="dat.frozen_is_not_dat",
    paper=PAPER,
    title="Frozen attention is not delayed attention",
    source="not in the paper: an experiment of ours, outcome open",
    statement="Hypothesis: at three times the training lengths, leaving attention out in phase 1 beats "
    f"freezing its parameters while its output still enters the network, by at least {LEAST:g} joint "
    "accuracy, everything else equal. With frozen attention the recurrent path learns beside, or behind, "
    "random features that change as soon as attention learns.",
    profiles={name: protocol(name) for name in SCALES},
    choices=CHOICES,
    notes=(
        *NOTES,
        "The paper has no pseudocode for 'deactivating' attention; a reader may take it for freezing. "
        "The two arms differ in that alone.",
        "Shown beside them: DAT's schedule with a phase 1 that teaches every sequence another one's "
        "answers. What it still gains does not come from a recurrent path that has learned the task.",
    ),
)
