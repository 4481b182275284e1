"""Ours: does DAT still win when ordinary training gets as many samples?"""

from claims.dat._shared import (
    CHOICES,
    CPU,
    EARLIER,
    JUDGED,
    NOT_JUDGED,
    NOTES,
    PAPER,
    SCALES,
    TWO,
    dat_against,
)
from claims.dat.joint_l75 import AT
from repro.claim import Claim, Protocol


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile: one hybrid where the scale is reduced, two at the paper's."""
    return dat_against(
        profile,
        TWO if profile == "paper" else JUDGED,
        {
            "equal": "ordinary, at least as many samples",
            "faster": "ordinary, three times the learning rate",
        },
        AT,
    )


# Bands are those of dat.joint_l75: the hypothesis is that the order of training makes the gain, not the
# samples. Written before any run of it.
claim = Claim(
    id="dat.equal_budget",
    paper=PAPER,
    title="DAT against ordinary training with at least as many samples",
    source="not in the paper: an experiment of ours",
    statement="Hypothesis: at three times the training lengths DAT keeps both abilities (as "
    "dat.joint_l75 asks for it) and ordinary training does not, even with at least as many samples as "
    "DAT, phase 1 included.",
    profiles={name: protocol(name) for name in SCALES},
    choices=CHOICES,
    notes=(
        *NOTES,
        NOT_JUDGED,
        *EARLIER,
        "Samples and optimiser steps are as many as DAT can have (where DAT stops when it has learned, "
        "the ordinary arm goes on and has more), not equal compute: without attention a step of phase 1 "
        "costs less than one of the whole model, so the ordinary arm has more arithmetic.",
        "The ordinary arm that is judged has all its extra steps at the first learning rate and the same "
        "last ones at a tenth.",
        "What is said of the reduced scale holds for DAT and ordinary training. The arm with at least as "
        f"many samples has no stop and {CPU.delay + CPU.steps:,} steps before the last ones; the faster "
        "one has three times the learning rate and then the same last steps.",
        "Shown beside it: ordinary training for no longer than DAT's second phase, at three times the "
        "learning rate after a warm-up. What it gains, the rate gains without any delay.",
    ),
)
