"""Table 1: recall alone. Attention finds the key at lengths where an LSTM has forgotten it."""

from claims.dat._shared import (
    CHOICES,
    MULTIPLES,
    NO_SEEDS,
    ONE_TASK,
    PAPER,
    SCALES,
    band_of_gain,
    learned,
    table,
)
from repro.claim import Claim, Control, Criterion, Protocol

MODELS = {
    "lstm": ("LstmOnly", "LSTM", (0.83, 0.53, 0.37, 0.28)),
    "transformer": ("TransformerOnly", "Transformer", (1.00, 0.99, 0.90, 0.80)),
    "hybrid_block": ("HybridBlock", "Hybrid Block", (1.00, 0.99, 0.98, 0.92)),
}
JUDGED_MODELS, JUDGED = ("transformer", "hybrid_block"), (2, 3, 4)


def protocol(profile: str) -> Protocol:
    """Return the protocol of one profile."""
    scale = SCALES[profile]

    def beats(cell: str, multiple: int) -> Criterion:
        column = MULTIPLES.index(multiple)
        printed = round(MODELS[cell][2][column] - MODELS["lstm"][2][column], 3)
        return Criterion(
            name=f"{cell}_beats_lstm_{multiple}x",
            kind="train",
            statement=f"{MODELS[cell][1]} minus LSTM, recall at {multiple} times the training lengths",
            cell=cell,
            rival="lstm",
            metric=scale.metric("recall", multiple),
            at_least=band_of_gain(scale, printed),
            sd_floor=0.03,
            paper=printed,
        )

    judged = [(cell, m) for cell in JUDGED_MODELS for m in JUDGED]
    shown, plot = table(scale, "recall", "Recall alone (Table 1)", MODELS, MULTIPLES)
    return Protocol(
        cells={
            **{cell: scale.ordinary(kind, ["recall"]) for cell, (kind, _, _) in MODELS.items()},
            **{f"unbound_{cell}": scale.mistaught(MODELS[cell][0], ["recall"]) for cell in JUDGED_MODELS},
        },
        criteria=(
            *(learned(scale, cell, MODELS[cell][1], "recall", MODELS[cell][2][0]) for cell in JUDGED_MODELS),
            *(beats(cell, m) for cell, m in judged),
        ),
        controls=tuple(
            Control(
                name=f"answers of another sequence, {cell} at {m}×",
                criterion=f"{cell}_beats_lstm_{m}x",
                swap={cell: f"unbound_{cell}"},
            )
            for cell, m in judged
        ),
        shown=shown,
        plots=(plot,),
        scale=ONE_TASK[profile],
        seeds=12 if profile == "cpu" else min(4, scale.seeds),
        seed_offset=1000 if profile == "cpu" else 0,  # see the notes
    )


# Bands, written before the runs: half of the printed gain over the LSTM, scaled by the room above chance;
# 80 % of it at paper scale.
claim = Claim(
    id="dat.recall_only",
    paper=PAPER,
    title="Recall alone: attention keeps it, an LSTM does not",
    source="Table 1, p. 4",
    statement="Trained and tested on recall alone, L = 25/50/75/100: LSTM 0.83/0.53/0.37/0.28; Transformer "
    "1.00/0.99/0.90/0.80; Hybrid Block 1.00/0.99/0.98/0.92.",
    profiles={name: protocol(name) for name in SCALES},
    choices=CHOICES,
    notes=(
        NO_SEEDS,
        "A first run at the cpu profile (seeds 1800 to 1803) left one lead undecided, all others held: the "
        "Transformer's over the LSTM at four times the lengths was 0.25, 0.41, 0.26, 0.25 where at least "
        "0.231 is asked for. So twelve fresh seeds from 2000 on are judged, with the same recipes, bands and "
        "controls; the first four are not among them. dat.joint_l75 tells of eight runs before and of the "
        "rate.",
        "The paper does not judge these models by anything but recall; here m is neither asked for nor "
        "shown.",
        "The tables of the appendix have no DAT rows: they are models of their own, not parts of Fig. 1's.",
    ),
)
