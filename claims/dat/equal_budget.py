"""Ours: does DAT still win when ordinary training gets as many samples?"""

from claims.dat._shared import (
    CHOICES,
    CPU,
    FRESH,
    NOT_JUDGED,
    NOTES,
    PAPER,
    SCALES,
    dat_against,
)
from claims.dat.joint_l75 import AT
from repro.claim import Claim, Protocol


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile; where nothing stops early there is no arm without a stop."""
    stops = SCALES[profile].until is not None
    return dat_against(
        profile,
        {
            "equal": "ordinary, as many samples",
            **({"on": "ordinary without a stop"} if stops else {}),
            "faster": "ordinary, three times the learning rate",
        },
        AT,
        stop=False,
    )


# Bands are those of dat.joint_l75: the hypothesis is that the order of training makes the gain, not the
# samples. Written before any run of it.
claim = Claim(
    id="dat.equal_budget",
    paper=PAPER,
    title="DAT against ordinary training with as many samples",
    source="not in the paper: an experiment of ours",
    statement="Hypothesis: at three times the training lengths DAT keeps both abilities (as "
    "dat.joint_l75 asks for it) and ordinary training does not, even with as many samples as DAT, "
    "phase 1 included.",
    profiles={name: protocol(name) for name in SCALES},
    choices=CHOICES,
    notes=(
        *NOTES,
        NOT_JUDGED,
        FRESH,
        "Samples and optimiser steps are equal, no arm that is judged stops before their number; that is not "
        "equal compute: without attention a step of phase 1 "
        "costs less than one of the whole model, so the ordinary arm has more arithmetic.",
        "The ordinary arm that is judged has all its extra steps at the first learning rate and the same "
        "last ones at a tenth.",
        "What is said of the reduced scale holds for the other arms: here DAT has all of its "
        f"{CPU.steps:,} steps with everything, and the arm with as many samples {CPU.delay + CPU.steps:,} "
        "before the last ones; the faster one has three times the learning rate and then the same last "
        "steps.",
        "Shown beside it: ordinary training for no longer than DAT's second phase, at three times the "
        "learning rate after a warm-up. What it gains, the rate gains without any delay.",
        "Ordinary training without a stop was added after the first seeds of the arm with as many samples "
        f"had been seen, and is only shown: all of its {CPU.steps:,} steps with everything, as DAT has them, "
        "and no steps instead of the delay. What it gains over ordinary training, the stop had taken.",
    ),
)
