"""Sec. 3.2: a read is a shortcut for credit: weight times identity, across any distance, nothing else."""

from typing import Any

from claims.sab._copy import PAPER
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol
from repro.recipe import Part, Recipe, part

DISTANCES = (2, 4, 10, 30, 100, 300)
ROUNDING = 1e-9  # float64; what must not pass is above 0.05
MEASURES = ("direct_path", "reach", "wrong_steps", "twin_gradients")


def measure(name: str, **fast: Any) -> Part:
    """Return a measure of credit paths; `fast` changes the model under test alone."""
    path = f"reference.measure.gradient_paths.{name}"
    far = {"distances": DISTANCES} if name in ("direct_path", "reach") else {}
    return part(path, **far, **({"fast": fast} if fast else {}))


def instead(name: str, **fast: Any) -> Recipe:
    """Return a control: one measure of a model that does something else than stated."""
    return Recipe(measures=(measure(name, **fast),))


def is_zero(name: str, metric: str, statement: str, at_most: float = 0.0) -> Criterion:
    """Return the criterion that an error is at most rounding (or, of counts and gradients, exactly 0)."""
    return Criterion(
        name=name, kind="identity", statement=statement, cell="sab", metric=metric, at_most=at_most
    )


READINGS = {
    "full": "Full mental updates: the memory's own step and k_trunc − 1 before it",
    "none": "None, first reading: no step at all gets a gradient through a memory",
    "own_step": "None, second reading: the step that made the memory, and none before it",
}

claim = Claim(
    id="sab.gradient_paths",
    paper=PAPER,
    title="Reading a memory is a shortcut for its gradient",
    source="Sec. 3.2, p. 5",
    statement=(
        "With the weights and the selected set held fixed, d h_t / d m_i on the direct read path is α_i · I, "
        "however far back memory i lies; memories that are not read get no value gradient. From the memory "
        "the gradient goes k_trunc steps back (mental updates), as it does from the loss."
    ),
    headline=True,
    profiles={
        "every": Protocol(
            cells={
                "sab": Recipe(measures=tuple(measure(name) for name in MEASURES)),
                "dense": instead("direct_path", retrieval="dense"),
                "released": instead("direct_path", threshold="released"),
                "untruncated": instead("reach", k_trunc=None),
                "no_updates_reach": instead("reach", mental_updates="none"),
                "no_updates_steps": instead("wrong_steps", mental_updates="none"),
                "full_updates_steps": instead("wrong_steps", mental_updates="full"),
                "no_updates_twin": instead("twin_gradients", mental_updates="none"),
                "full_updates_twin": instead("twin_gradients", mental_updates="full"),
            },
            criteria=(
                is_zero(
                    "direct-path",
                    "direct_error",
                    f"d h_t / d m_i is α_i · I at distances 2 to {DISTANCES[-1]} (relative error)",
                    ROUNDING,
                ),
                is_zero("unread", "unread_gradient", "Value gradient at memories that are not read"),
                is_zero(
                    "nothing-else",
                    "total_error",
                    "α_i · I and the scores' gradient are all: their sum is autograd's d h_t / d m_i",
                    ROUNDING,
                ),
                is_zero(
                    "any-distance",
                    "reach_error",
                    "A loss reaches k_trunc − 1 steps beyond the memory it reads, wherever that lies (steps "
                    "off)",
                ),
                is_zero(
                    "local-path-stops",
                    "local_reach_error",
                    "Without retrieval it stops k_trunc − 1 steps back (steps off)",
                ),
                *(
                    is_zero(
                        f"updates-{reading.replace('_', '-')}",
                        f"wrong_steps_{reading}",
                        f"{words} (steps reached wrongly or missed)",
                    )
                    for reading, words in READINGS.items()
                ),
                *(
                    is_zero(
                        f"gradients-{reading.replace('_', '-')}",
                        f"error_{reading}",
                        f"All gradients of the fast SAB equal plain autograd's, mental updates "
                        f"'{reading.replace('_', ' ')}' (relative error)",
                        ROUNDING,
                    )
                    for reading in READINGS
                ),
                Criterion(
                    name="readings-differ",
                    kind="identity",
                    statement="The three readings' gradients differ: the comparison can tell them apart",
                    cell="sab",
                    metric="least_difference",
                    at_least=1e-3,
                ),
            ),
            controls=(
                Control(name="all memories read", criterion="unread", swap={"sab": "dense"}),
                Control(name="softmax weights", criterion="direct-path", swap={"sab": "dense"}),
                Control(name="the released threshold", criterion="direct-path", swap={"sab": "released"}),
                Control(name="another threshold", criterion="nothing-else", swap={"sab": "released"}),
                Control(name="no mental updates", criterion="any-distance", swap={"sab": "no_updates_reach"}),
                Control(name="no truncation", criterion="local-path-stops", swap={"sab": "untruncated"}),
                *(
                    Control(
                        name=f"{other} updates for {reading.replace('_', ' ')}, {measured}",
                        criterion=f"{criterion}-{reading.replace('_', '-')}",
                        swap={"sab": f"{other}_updates_{measured}"},
                    )
                    for criterion, measured in (("updates", "steps"), ("gradients", "twin"))
                    for reading, other in (("full", "no"), ("none", "full"), ("own_step", "full"))
                ),
            ),
            plots=(
                Plot(
                    name="paths",
                    title="How much of a gradient arrives",
                    x_label="steps between the loss and the state",
                    y_label="norm of the Jacobian",
                    x=tuple(float(d) for d in DISTANCES),
                    log_x=True,
                    log_y=True,
                    lines=(
                        Line(
                            cell="sab", metrics=("direct_norm",), label="through a read (sum over memories)"
                        ),
                        Line(
                            cell="sab", metrics=("recurrent_norm",), label="through the LSTM, no truncation"
                        ),
                    ),
                ),
            ),
            seeds=1,
        )
    },
    choices=(
        "Measured on the gradients of the fast SAB itself, with random small models in float64: a memory in "
        "the initial state has its value's gradient apart from its score's, and where every step has an "
        "input symbol of its own, the input matrix's gradient shows which steps were reached.",
        "A read edge carries the gradient of the score too, also to the memory at the threshold, which is "
        "not read: it counts as reached (Sec. 3.2 does not speak of it).",
        "Local truncation has two readings (grid: cut at multiples of k_trunc; sliding: exactly k_trunc "
        "steps); steps and gradients are checked for both.",
        "'Without mental updates' has two readings: nothing flows into a stored memory, or only into the "
        "step that made it.",
    ),
    notes=(
        "An identity holds with any weights: nothing is trained, and the numbers say nothing on whether SAB "
        "learns to read the right memory.",
    ),
)
