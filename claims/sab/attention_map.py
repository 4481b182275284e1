"""The figure of Table 3: while SAB learns, the output steps come to read the states of the first inputs."""

from dataclasses import replace

from claims.sab._copy import CHOICES, PAPER, Scale
from claims.sab._study import (
    LONG_PAPER,
    SMALL,
    TINY,
    learned,
    learning,
    nothing_read,
    traced,
    variants,
)
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown

EPOCH = 10_000  # steps
UNSEEN = 600  # seed offset: controls failed on 1300 to 1309 and on 1500 to 1509


def protocol(scale: Scale, reduced: str = "") -> Protocol:
    """Return the protocol at one scale."""
    shared = variants(scale)
    sab = shared["default"]
    cells = {
        "sab": sab,
        "untrained": sab.but(stage={"steps": 1}),
        "no_retrieval": shared["no_retrieval"],
        "shuffled": traced(scale.sab(retrieval="shuffled"), scale),
    }
    images = {"sab": "after training", "untrained": "after one step"}
    return Protocol(
        cells=cells,
        criteria=(
            learned("sab", scale, "SAB", reduced),
            Criterion(
                name="reads_the_first_inputs",
                kind="train",
                statement="Share of seeds where 0.9 of the output steps' weight is on the states of the "
                "symbols' steps",
                cell="sab",
                metric="early_weight",
                success=0.9,
                at_least=0.4,
                paper="the figure shows nearly all",
            ),
            Criterion(
                name="moves_there",
                kind="train",
                statement="That weight has grown since the first step of training",
                cell="sab",
                rival="untrained",
                metric="early_weight",
                at_least=0.25,
                sd_floor=0.05,
                paper="the figure shows a move from all over the sequence",
            ),
            Criterion(
                name="for_what_they_hold",
                kind="train",
                statement="It is more than in a model trained to read another sequence's memories",
                cell="sab",
                rival="shuffled",
                metric="early_weight",
                at_least=0.1,
                sd_floor=0.05,
            ),
        ),
        controls=(
            nothing_read("sab", "no_retrieval"),
            *(
                Control(name=f"untrained, {name}", criterion=name, swap={"sab": "untrained"})
                for name in ("reads_the_first_inputs", "for_what_they_hold")
            ),
        ),
        shown=(
            Shown(cell="untrained", metric="early_weight", label="weight on the first states, one step in"),
            Shown(
                cell="shuffled", metric="early_weight", label="weight on the first states, others' memories"
            ),
            Shown(
                cell="sab", metric="early_gradient", label="share of the gradient along reads that goes there"
            ),
        ),
        plots=(
            *(
                Plot(
                    name=f"map_{cell}",
                    title=f"Weights of the output steps, {words}",
                    x_label="step whose state is read",
                    y_label="output step",
                    kind="image",
                    lines=(Line(cell=cell, metrics=("map",), label=words),),
                )
                for cell, words in images.items()
            ),
            learning(
                "Weight of the output steps on the states of the symbols' steps",
                "share of the weight",
                "early_weight",
                {"sab": "SAB"},
                "learning",
            ),
        ),
        scale=reduced,
        seeds=3 if scale is TINY else 10,  # after one step the weights vary from seed to seed by a quarter
        seed_offset=UNSEEN if scale is SMALL else 0,
    )


# Bands, written before the runs. Spread evenly over all memories the weight would be 5 of 35 to 39 at the cpu
# profile (0.14) and 10 of 310 to 319 at the paper's (0.03). Of ten seeds eight must have nearly all of it.
claim = Claim(
    id="sab.attention_map",
    paper=PAPER,
    title="Attention moves to the first inputs",
    source="Figure in Table 3, p. 8",
    statement="Within the first epoch the attention of the 10 output steps moves to the memories of the "
    "first 10 inputs.",
    profiles={
        "smoke": protocol(TINY, "mechanics only"),
        "cpu": protocol(
            SMALL,
            f"T = 30, which the figure does not print; 5 symbols instead of 10; at most {SMALL.steps:,} "
            "steps of 64 sequences, a fifth of an epoch of the released code; k_trunc 2 instead of 5.",
        ),
        "paper": protocol(replace(LONG_PAPER, steps=EPOCH)),
    },
    choices=(
        *CHOICES,
        f"An epoch is 640,000 sequences, as in the released code: {EPOCH:,} steps of 64.",
        "A map is the mean over 64 fresh sequences after training; the figure's state of training within "
        "the epoch is not printed.",
    ),
    notes=(
        "A first run, on seeds 1200 to 1209, ended inconclusive: its premise asked for a mean of 0.9, "
        "and one seed stayed on the plateau (0.61; the mean was 0.96 ± 0.07). The weight on the first "
        "states was 0.82, on that seed 0.0. The bands are as before, the seeds fresh.",
        "A second run, on seeds 1300 to 1309, read 0.89 of the weight there, and its new control failed: "
        "a model trained to read another sequence's memories, which cannot solve the task, comes to look at "
        "the first states too (0.53 after 0.16 untrained). The old control, of a model that reads nothing, "
        "could not have failed. So a picture of attention at the first inputs is no evidence that what they "
        "hold is read. That SAB is ahead of such a model is a criterion now, on fresh seeds, by a tenth of "
        "the weight; the difference was 0.36 ± 0.17.",
        "A third run, on seeds 1500 to 1509, read 1.00 there, 0.44 ± 0.15 more than such a model, and was "
        "undecided by its control all the same: after one step of training the weight is anywhere between 0 "
        "and 0.8 of a seed, which a mean of 0.5 does not exclude. Weights are near 0 or near 1 where SAB has "
        "trained, so seeds are counted since: nine tenths of the weight, on more than four of ten seeds. The "
        "fourth run leaves that count undecided; that the weight moves there, and further than in a model "
        "that reads others' memories, holds on its seeds as on those before.",
        "h = ĥ + s carries what was read into the state that is stored next. So a later memory can hold a "
        "copy of an early symbol: a model may solve the task without looking at the first steps, and then "
        "this claim does not hold though SAB does.",
    ),
)
