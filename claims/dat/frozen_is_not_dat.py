"""Ours: attention frozen while its output takes part, against true bypass."""

from claims.dat._shared import (
    CHOICES,
    HYBRIDS,
    NOTES,
    PAPER,
    SCALES,
    WORDS,
    learned,
    parts_plot,
    parts_shown,
)
from claims.dat.joint_l75 import AT, TWO
from repro.claim import Claim, Control, Criterion, Protocol
from repro.recipe import Recipe

LEAST = 0.1  # joint accuracy: what would matter to somebody who freezes for convenience


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile."""
    scale = SCALES[profile]
    cells: dict[str, Recipe] = {}
    premises, criteria = [], []
    for a in TWO:
        kind, label, _, _ = HYBRIDS[a]
        cells |= {
            f"{a}_dat": scale.dat(kind),
            f"{a}_frozen": scale.frozen(kind),
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
    arms = {a: {f"{a}_frozen": "frozen", f"{a}_dat": "DAT"} for a in TWO}
    return Protocol(
        cells=cells,
        criteria=(*premises, *criteria),
        controls=tuple(
            Control(
                name=f"{HYBRIDS[a][1]}: attention takes part from the start",
                criterion=f"{a}_bypass_beats_frozen",
                swap={f"{a}_dat": f"{a}_ordinary"},
            )
            for a in TWO
        ),
        shown=tuple(s for a in TWO for s in parts_shown(scale, a, arms[a])),
        plots=tuple(parts_plot(scale, a, arms[a]) for a in TWO),
        scale=WORDS[profile],
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
        "The paper stops the gradients of attention 'and' its contribution; its own code is not "
        "released, so a reader may take it for freezing. The two arms differ in that alone.",
    ),
)
