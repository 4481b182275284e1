"""Ours: does DAT still win when ordinary training gets as many samples?"""

from claims.dat._shared import (
    CHOICES,
    HYBRIDS,
    NOTES,
    PAPER,
    SCALES,
    SEED_OFFSET,
    WORDS,
    learned,
    least_gain,
    no_delay,
    parts_plot,
    parts_shown,
)
from claims.dat.joint_l75 import AT, TWO
from repro.claim import Claim, Criterion, Protocol
from repro.recipe import Recipe


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile."""
    scale = SCALES[profile]
    cells: dict[str, Recipe] = {}
    premises, criteria = [], []
    for a in TWO:
        kind, label, _, _ = HYBRIDS[a]
        cells |= {
            f"{a}_dat": scale.dat(kind),
            f"{a}_equal": scale.equal_budget(kind),
            f"{a}_ordinary": scale.ordinary(kind),
        }
        premises += [
            learned(scale, f"{a}_dat", f"{label}, DAT"),
            learned(scale, f"{a}_equal", f"{label}, ordinary with as many samples"),
        ]
        criteria.append(
            Criterion(
                name=f"{a}_survives",
                kind="train",
                statement=f"{label}: DAT minus ordinary with as many samples, joint at {AT} times the "
                "training lengths",
                cell=f"{a}_dat",
                rival=f"{a}_equal",
                metric=scale.metric("joint", AT),
                at_least=least_gain(scale, a, AT),
                sd_floor=0.03,
            )
        )
    arms = {a: {f"{a}_equal": "ordinary, as many samples", f"{a}_dat": "DAT"} for a in TWO}
    return Protocol(
        cells=cells,
        criteria=(*premises, *criteria),
        controls=tuple(no_delay(c) for c in criteria),
        shown=tuple(s for a in TWO for s in parts_shown(scale, a, arms[a])),
        plots=tuple(parts_plot(scale, a, arms[a]) for a in TWO),
        scale=WORDS[profile],
        seed_offset=SEED_OFFSET if profile == "cpu" else 0,
    )


# Bands are those of the gain in dat.joint_l75: the hypothesis is that the order of training makes it, not the
# samples. Written before any run.
claim = Claim(
    id="dat.equal_budget",
    paper=PAPER,
    title="DAT against ordinary training with as many samples",
    source="not in the paper: an experiment of ours",
    statement="Hypothesis: the gain of DAT at three times the training lengths (as dat.joint_l75 asks "
    "for it) stands when ordinary training gets the same number of samples, phase 1 included.",
    profiles={name: protocol(name) for name in SCALES},
    choices=CHOICES,
    notes=(
        *NOTES,
        "Equal samples and optimiser steps, not equal compute: without attention a step of phase 1 costs "
        "less than one of the whole model, so the ordinary arm has more arithmetic.",
        "The ordinary arm has all its extra steps at the first learning rate and the same last ones at a "
        "tenth.",
    ),
)
