"""Biased memory normalisation: where a slot goes that nothing is written to."""

from typing import Any

from claims.memformer._shared import PAPER
from repro.claim import Claim, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Recipe, part

STEPS = 200
EXACT = 1e-12  # float64 rounding; the distances that must not be small are above 0.1


def within(name: str, metric: str, statement: str, **band: Any) -> Criterion:
    """Return an identity criterion."""
    return Criterion(name=name, kind="identity", statement=statement, cell="slots", metric=metric, **band)


claim = Claim(
    id="memformer.forgetting_terminal_state",
    paper=PAPER,
    title="The terminal state of forgetting",
    source="equations of biased memory normalisation",
    statement=(
        "A slot that nothing is written to ends in v_bias/‖v_bias‖, which is also its initial state. When a "
        "slot attends to itself alone, writing returns it unchanged and only the bias moves it."
    ),
    profiles={
        "every": Protocol(
            cells={
                "slots": Recipe(measures=(part("reference.measure.forgetting.terminal_state", steps=STEPS),))
            },
            criteria=(
                within(
                    "converges",
                    "distance",
                    f"With every token masked, {STEPS} steps bring the worst slot to v_bias/‖v_bias‖",
                    at_most=EXACT,
                ),
                within(
                    "write-returns-slot", "raw_error", "Weight 1 on itself: the write is m_i", at_most=EXACT
                ),
                within(
                    "bias-alone-moves", "bias_error", "Then only the bias step moves the slot", at_most=EXACT
                ),
                within(
                    "no-forgetting-no-return",
                    "distance_without_forgetting",
                    "Without the bias the slots stay where they are (the check can fail)",
                    at_least=0.1,
                ),
                within(
                    "antipodal-stuck",
                    "distance_antipodal",
                    "A slot exactly opposite to a bias shorter than 1 doesn't return",
                    at_least=1.9,
                ),
                within(
                    "never-exactly-unwritten",
                    "least_weight",
                    "Softmax gives no token exactly 0: 'not written' needs a mask",
                    at_least=1e-300,
                ),
            ),
            shown=(Shown(cell="slots", metric="distance", label="distance after the last step"),),
            plots=(
                Plot(
                    name="distance",
                    title="Distance of the worst slot from its terminal state",
                    x_label="step",
                    y_label="distance",
                    x=tuple(range(STEPS + 1)),
                    lines=(Line(cell="slots", metrics=("distance_by_step",), label="nothing written"),),
                ),
            ),
            seeds=1,
        )
    },
    choices=(
        "The raw m_i is its own value, per head and without an output projection, as [m_i ; V_x] is written.",
        "Sixty-four slots start at random; ‖v_bias‖ runs from 0.5 to 3.2 (printed: 1.15 and 3.20).",
    ),
)
