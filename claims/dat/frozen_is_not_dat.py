"""Ours: attention frozen while its output takes part, against true bypass."""

from claims.dat._shared import CHOICES, FRESH, NOT_JUDGED, NOTES, PAPER, SCALES, dat_against
from claims.dat.joint_l75 import AT
from repro.claim import Claim, Protocol


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile."""
    return dat_against(
        profile,
        {"frozen": "frozen", "untaught": "phase 1 without the task"},
        AT,
    )


# Bands are those of dat.joint_l75. Written before any run of it.
claim = Claim(
    id="dat.frozen_is_not_dat",
    paper=PAPER,
    title="Frozen attention is not delayed attention",
    source="not in the paper: an experiment of ours, outcome open",
    statement="Hypothesis: at three times the training lengths leaving attention out in phase 1 keeps both "
    "abilities (as dat.joint_l75 asks for it), and freezing its parameters while its output still enters the "
    "network does not, everything else equal. With frozen attention the recurrent path learns beside, before "
    "or behind random features that change as soon as attention learns.",
    profiles={name: protocol(name) for name in SCALES},
    choices=CHOICES,
    notes=(
        *NOTES,
        NOT_JUDGED,
        FRESH,
        "The paper has no pseudocode for 'deactivating' attention; a reader may take it for freezing. "
        "The two arms differ in that alone.",
        "Shown beside them: DAT's schedule with a phase 1 that teaches every sequence another one's "
        "answers. What it still gains does not come from a recurrent path that has learned the task.",
    ),
)
