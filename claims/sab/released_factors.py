"""The two factors that stood out in sab.released_code, judged on seeds that were not looked at."""

from claims.sab._copy import CHOICES, PAPER, Scale
from claims.sab._study import SHORT_PAPER, SMALL, TINY, learned, learning
from claims.sab.released_code import cells, costs, harmless
from repro.claim import Claim, Protocol, Shown

UNSEEN = 400  # seed offset: sab.released_code found the factors on 1300 to 1307
FACTORS = {
    "input_scale": "input weights at uniform ±1/√hidden",
    "score": "the released score, whose ranking ignores the query",
}


def protocol(scale: Scale, trunc: int, reduced: str = "") -> Protocol:
    """Return the protocol: as written ahead of either factor alone by a quarter of what a user missed."""
    every, accuracy = cells(scale, trunc), scale.accuracy()
    return Protocol(
        cells={name: every[name] for name in ("written", *FACTORS, "threshold")},
        criteria=(
            learned("written", scale, "SAB as written", reduced, 1.0),
            *(
                costs(
                    f"{name}_alone_loses",
                    scale,
                    name,
                    f"As written ahead of one change, {words}: a quarter of the reported 38 points",
                    share=0.25,
                )
                for name, words in FACTORS.items()
            ),
        ),
        controls=tuple(harmless(f"{name}_alone_loses", name) for name in FACTORS),
        shown=tuple(
            Shown(cell=name, metric=accuracy, label=words)
            for name, words in {
                "written": "as written",
                **FACTORS,
                "threshold": "the released threshold",
            }.items()
        ),
        plots=(
            learning(
                "Accuracy while training",
                "validation accuracy",
                "accuracy",
                {"written": "as written", "input_scale": "input scale", "score": "score"},
                "learning",
            ),
        ),
        seeds=16 if scale is SMALL else 3,
        scale=reduced,
        seed_offset=UNSEEN if scale is SMALL else 0,
    )


# Bands, written before the runs on these seeds.
claim = Claim(
    id="sab.released_factors",
    paper=PAPER,
    title="Input scale and score each cost SAB accuracy",
    source="Algorithm 1; released code and issue 2 of its repository",
    statement="Ours: changed alone, the scale at which input weights start and the released code's score "
    "each cost SAB at least a quarter of the 38 points that a user of the released code missed.",
    profiles={
        "smoke": protocol(TINY, 3, reduced="mechanics only"),
        "cpu": protocol(SMALL, 3, reduced="As in sab.released_code."),
        "paper": protocol(SHORT_PAPER, 10),
    },
    choices=CHOICES,
    notes=(
        "The factor table of sab.released_code was read first. Its hypothesis that the score alone costs "
        "at least half of the 38 points was left undecided there: 0.28 [0.16, 0.40] on eight seeds. The "
        "input scale cost more, 0.46 [0.21, 0.71] on five. Both are judged here on sixteen other "
        "seeds, by a quarter, which lies below both lower limits.",
        "On these seeds the score costs it; the input scale is undecided: the five seeds had overstated "
        "it. Where the released threshold is the one change, all seeds but one learned.",
    ),
)
