"""Sec. 8: forward time O(t² n²), memory O(t n); what caching W1·m saves; full attention at t = 5000."""

from typing import Any

from claims.sab._copy import PAPER
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Recipe, part

LENGTHS = (300, 600, 1200)
FAR = (1000, 5000)
WIDTH = 128


def forward(**args: Any) -> Recipe:
    """Return the recipe that counts a forward pass without gradients."""
    given = {"lengths": LENGTHS, "widths": (64,), "width": WIDTH, **args}
    return Recipe(measures=(part("reference.measure.sab_complexity.forward_cost", **given),))


def training(**args: Any) -> Recipe:
    """Return the recipe that counts the bytes of a training step."""
    given = {"width": WIDTH, "at": (FAR[-1], 64), **args}
    return Recipe(measures=(part("reference.measure.sab_complexity.training_bytes", **given),))


def counted(name: str, cell: str, metric: str, statement: str, **band: Any) -> Criterion:
    """Return a count criterion."""
    return Criterion(name=name, kind="count", statement=statement, cell=cell, metric=metric, **band)


LINEAR = {"at_least": 0.75, "at_most": 1.25, "paper": 1.0}
SQUARE = {"at_least": 1.85, "at_most": 2.15, "paper": 2.0}
STREAMED = 8 * 4 * FAR[-1] * WIDTH / 1e9  # of 4 bytes; a memory and its key are two of the eight
OUT_OF_MEMORY = 48  # 10⁹ bytes: the largest single GPU of 2018 (Quadro RTX 8000)

claim = Claim(
    id="sab.complexity",
    paper=PAPER,
    title="Time O(t² n²), memory O(t n)",
    source="Sec. 8, p. 13",
    statement=(
        "A forward pass over a sequence of t steps with n units takes O(t² n²) operations and O(t n) "
        "memory, in training and at inference."
    ),
    profiles={
        "every": Protocol(
            cells={
                "written": forward(cached=False),
                "cached": forward(cached=True),
                "training": training(lengths=(150, 300, 600), batch=8, engine="fast"),
                "streamed": forward(lengths=FAR, widths=()),
                "unstreamed": forward(lengths=FAR, widths=(), chunk=FAR[-1]),
                "attention": training(lengths=(75, 150, 300), engine="autograd"),
                "no_retrieval": forward(options={"retrieval": "none"}),
                "no_memories": forward(options={"k_att": 10**6}),
            },
            criteria=(
                counted(
                    "time-in-t",
                    "written",
                    "operations_in_t",
                    "Operations as Algorithm 1 is written: exponent of t from 600 to 1200",
                    **SQUARE,
                ),
                counted(
                    "time-in-n",
                    "written",
                    "operations_in_n",
                    "The same: exponent of n from 64 to 128, t = 1200",
                    **SQUARE,
                ),
                counted(
                    "cached-time-in-n",
                    "cached",
                    "operations_in_n",
                    "W1·m computed once a memory: exponent of n, below 1.6",
                    at_least=0.9,
                    at_most=1.6,
                ),
                counted(
                    "cached-time-in-t",
                    "cached",
                    "operations_in_t",
                    "The same: exponent of t, still above 1",
                    at_least=1.25,
                    at_most=2.05,
                ),
                counted(
                    "state-in-t",
                    "cached",
                    "state_in_t",
                    "Bytes carried from step to step: exponent of t",
                    **LINEAR,
                ),
                counted("state-in-n", "cached", "state_in_n", "The same: exponent of n", **LINEAR),
                counted(
                    "inference-in-t",
                    "streamed",
                    "peak_in_t",
                    "Fullest moment without gradients: exponent of t from 1000 to 5000",
                    **LINEAR,
                ),
                counted(
                    "training-in-t",
                    "training",
                    "peak_in_t",
                    "Fullest moment of a training step: exponent of t in its growth from 150 to 600",
                    **LINEAR,
                ),
                counted(
                    "attention-in-t",
                    "attention",
                    "peak_in_t",
                    "Full self-attention, every score in the graph: exponent of t in its growth, 75 to 300",
                    at_least=1.85,
                    at_most=2.15,
                ),
                counted(
                    "attention-at-5000",
                    "attention",
                    "gb_at",
                    "The same at t = 5000, batch 64, in 10⁹ bytes: more than any one GPU of 2018 had",
                    at_least=OUT_OF_MEMORY,
                    paper="out of memory",
                ),
                counted(
                    "streamed-at-5000",
                    "streamed",
                    "gb_at",
                    "SAB streamed at t = 5000, one sequence, 10⁹ bytes: below eight numbers a step and unit",
                    at_most=STREAMED,
                ),
            ),
            controls=(
                Control(name="no retrieval, t", criterion="time-in-t", swap={"written": "no_retrieval"}),
                Control(name="with the cache, n", criterion="time-in-n", swap={"written": "cached"}),
                Control(
                    name="without the cache, n", criterion="cached-time-in-n", swap={"cached": "written"}
                ),
                Control(
                    name="no retrieval, cached, t",
                    criterion="cached-time-in-t",
                    swap={"cached": "no_retrieval"},
                ),
                Control(name="nothing stored", criterion="state-in-t", swap={"cached": "no_memories"}),
                Control(
                    name="graph of full attention", criterion="training-in-t", swap={"training": "attention"}
                ),
                Control(
                    name="SAB's own backward pass", criterion="attention-in-t", swap={"attention": "training"}
                ),
                Control(
                    name="SAB at t = 5000", criterion="attention-at-5000", swap={"attention": "training"}
                ),
                Control(
                    name="graph of full attention, t",
                    criterion="inference-in-t",
                    swap={"streamed": "attention"},
                ),
                Control(
                    name="all steps at once", criterion="streamed-at-5000", swap={"streamed": "unstreamed"}
                ),
            ),
            shown=(
                Shown(
                    cell="written", metric="operations_longest", label="operations at t = 1200, as written"
                ),
                Shown(cell="cached", metric="operations_longest", label="the same, W1·m cached"),
                Shown(
                    cell="no_retrieval", metric="operations_longest", label="the same, no retrieval (LSTM)"
                ),
                Shown(cell="training", metric="gb_at", label="SAB training, t = 5000, batch 64, 10⁹ bytes"),
                Shown(cell="no_retrieval", metric="operations_in_n", label="exponent of n, no retrieval"),
            ),
            plots=(
                Plot(
                    name="operations",
                    title="Operations of one forward pass, n = 128, one sequence",
                    x_label="t",
                    y_label="operations",
                    x=tuple(float(t) for t in LENGTHS),
                    log_x=True,
                    log_y=True,
                    lines=(
                        Line(cell="written", metrics=("operations",), label="as written"),
                        Line(cell="cached", metrics=("operations",), label="W1·m cached"),
                        Line(cell="no_retrieval", metrics=("operations",), label="no retrieval (LSTM)"),
                    ),
                ),
            ),
            seeds=1,
        )
    },
    choices=(
        "Operations: a multiply-add of a matrix product is two; a gather counts what it moves; any other "
        "operator the numbers of its largest tensor. The output head, linear in t for all, is left out.",
        "k_att = 1, k_top = 5, scorer as wide as h (d_a = n), which the paper's O(t² n²) needs.",
        "With the cache the cost is t² n + t n²: its exponent of n lies between 1 and 2 and falls with t, "
        "that of t between 1 and 2 and rises with t. The bands exclude the written algorithm's 2 and the "
        "LSTM's 1 at the lengths counted.",
        "Bytes leave out the parameters and their gradients. The inputs are counted.",
        "The paper's O(t n) for training is the forward state; we count the whole training step, whose "
        "fast backward pass keeps O(t n) too.",
        "'Out of memory' (Table 5) is read as a pass that keeps its graph, at batch 64, from the count at "
        "t = 300 by the counted exponent; the paper names neither GPU nor batch. Without a graph full "
        "attention can be streamed as well.",
    ),
    notes=(
        "First counts of the training step gave 0.60 (one sequence, t = 600 to 1200) and 0.73 (eight, 300 to "
        "600) as log-log slopes: the backward pass works in chunks of 2¹⁸ numbers, whose buffers don't grow "
        "and were most of the fullest moment. The exponent is now that of the growth, in which they drop "
        "out; the band is the same.",
        "That SAB is streamed at t = 5000 was first judged by 64 sequences fitting into 48 · 10⁹ bytes, "
        "which fifty times as much would have met.",
        "SAB gives no linear-time algorithm: every step scores every memory, with or without the cache.",
    ),
)
