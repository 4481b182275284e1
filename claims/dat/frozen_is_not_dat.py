"""Ours: attention frozen while its output takes part, against true bypass."""

from claims.dat._shared import CHOICES, EARLIER, NOT_JUDGED, NOTES, PAPER, SCALES, TWO, dat_against
from claims.dat.joint_l75 import AT
from repro.claim import Claim, Protocol

LEAST = 0.25  # joint accuracy: what would matter to somebody who freezes for convenience


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile: one hybrid where the scale is reduced, two at the paper's."""
    return dat_against(
        profile,
        TWO if profile == "paper" else TWO[:1],
        {"frozen": "frozen", "untaught": "phase 1 without the task"},
        rival="frozen",
        name="bypass_beats_frozen",
        statement="DAT minus the schedule with frozen attention",
        at_least=lambda _scale, _arch: LEAST,
        multiple=AT,
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
        *NOT_JUDGED,
        *EARLIER,
        "The paper has no pseudocode for 'deactivating' attention; a reader may take it for freezing. "
        "The two arms differ in that alone.",
        "Shown beside them: DAT's schedule with a phase 1 that teaches every sequence another one's "
        "answers. What it still gains does not come from a recurrent path that has learned the task.",
    ),
)
