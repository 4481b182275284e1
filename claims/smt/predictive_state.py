"""Sec. 2.2 and App. E: what the memory and the prediction can depend on."""

from claims.smt._shared import PAPER
from repro.claim import Claim, Control, Criterion, Protocol
from repro.recipe import Recipe, part

EXACT = 1e-12  # float64 of a small model; the changes looked for are of order 0.1


def checked(**sabotage: object) -> Recipe:
    """Return the recipe of the check, or of one that has to fail."""
    return Recipe(measures=(part("reference.measure.predictive_state.predictive_state", **sabotage),))


def row(name: str, metric: str, statement: str) -> Criterion:
    """Return an identity: the largest change is 0 up to rounding."""
    return Criterion(
        name=name, kind="identity", statement=statement, cell="checked", metric=metric, at_most=EXACT, paper=0
    )


claim = Claim(
    id="smt.predictive_state",
    paper=PAPER,
    title="The memory is a predictive state",
    source="Sec. 2.2, pp. 3–4; App. E, p. 25",
    statement=(
        "The encoder sees only x up to t; the decoder's logits for y_τ do not change when x after τ changes; "
        "a context is a set of tokens with timestamps, whose order does not matter."
    ),
    profiles={
        "every": Protocol(
            cells={
                "checked": checked(),
                "one-token-early": checked(early=1),
                "without-timestamps": checked(timestamps=False),
            },
            criteria=(
                row(
                    "encoder-sees-the-past",
                    "encoder_change",
                    "m_t does not change with x after t, at every t",
                ),
                row(
                    "decoder-is-causal",
                    "decoder_change",
                    "logits for y_τ do not change with x after τ, at every τ of every window",
                ),
                row(
                    "order-is-free",
                    "order_change",
                    "m_t does not change with the order of timestamped tokens",
                ),
            ),
            controls=(
                Control(
                    name="encoder: x_t changes too",
                    criterion="encoder-sees-the-past",
                    swap={"checked": "one-token-early"},
                ),
                Control(
                    name="decoder: x_τ changes too",
                    criterion="decoder-is-causal",
                    swap={"checked": "one-token-early"},
                ),
                Control(
                    name="timestamps stay behind",
                    criterion="order-is-free",
                    swap={"checked": "without-timestamps"},
                ),
            ),
        )
    },
    notes=(
        "All splits go through the encoder, and all windows through the decoder, in groups of like length, "
        "as in training, so padding and the choice of tokens are checked too.",
    ),
)
