"""From Algorithm 1 to the released code, one factor at a time: what costs the accuracy a user missed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from claims.sab._copy import CHOICES, FRESH, PAPER, Scale
from claims.sab._study import SHORT_PAPER, SMALL, TINY, learned, learning, nothing_read
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Recipe, part

# Factor → what it says, and the change. All of them are in `released`, the code with its README's command
# (`--trunc 5 --topk 5`); SIZES are the code's defaults that this command overrides.
FACTORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "score": ("score w·[tanh ĥ ; tanh m]: the query cannot change the ranking", {"score": "separable"}),
    "scorer_init": ("scorer starts normal with standard deviation 0.01", {"scorer_std": 0.01}),
    "threshold": ("threshold: k_top-th score + 1e-7, so that k_top − 1 are read", {"threshold": "released"}),
    "few_memories": ("up to k_top memories: raw scores as weights", {"few_memories": "raw"}),
    "first_memory": ("a zero state is the first memory", {"first_memory": "zero"}),
    "input": ("the symbol's number as one float", {"input": "scalar"}),
    "ten_classes": ("10 classes instead of 9", {"outputs": 10}),
    "denominator_1e7": ("1e-7 is added to the sum of the weights", {"denominator": 1e-7}),
    "input_scale": ("input weights at uniform ±1/√hidden", {"input_scale": 1.0}),
    "recurrent_scale": ("recurrent weights at uniform ±1/√hidden", {"recurrent_scale": 1.0}),
    "k_att": ("every second state is stored", {"k_att": 2}),
}
# The other end: as released, but for these.
SCORE, SYMBOLS = {"score": "additive"}, {"input": "symbols"}
SCALES = {"input_scale": 10.0, "recurrent_scale": 0.5}
UNDONE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "score": ("the score", SCORE),
    "scales": ("both scales", SCALES),
    "input": ("the input", SYMBOLS),
    "scales_input": ("scales and input", {**SCALES, **SYMBOLS}),
    "scales_input_score": ("scales, input, score", {**SCALES, **SYMBOLS, **SCORE}),
}
CLIP = {"clip": 1.0}
ON = {"stop": None}  # what has learned trains on: a step may undo it
REPORTED = 0.62
HYPOTHESES = {
    "released_loses": ("released", "all factors as released"),
    "score_alone_loses": ("score", "the released score alone"),
}


def cells(scale: Scale, trunc: int) -> dict[str, Recipe]:
    """Return as written, each factor alone, all together; `trunc` stands for the code's default of 10."""
    written = scale.sab()
    every: dict[str, Any] = {}
    for _, change in FACTORS.values():
        every |= change
    tbptt = scale.arms()["tbptt"].but(
        model={name: every[name] for name in ("input", "outputs", "input_scale", "recurrent_scale")},
        stage=CLIP,
    )
    return {
        "written": written,
        **{name: written.but(model=change) for name, (_, change) in FACTORS.items()},
        "clip": written.but(stage=CLIP),
        "blank_unit": written.but(model={"input": "one_hot"}),
        "last_loss": written.but(algorithm={"last": scale.symbols}),
        "no_stop": written.but(stage=ON),
        "clip_no_stop": written.but(stage={**ON, **CLIP}),
        "k_top": written.but(model={"k_top": 10}),
        "k_top_4": written.but(model={"k_top": 4}),
        "k_trunc": written.but(model={"k_trunc": trunc}),
        "released": written.but(model=every, stage=CLIP),
        **{
            f"released_but_{name}": written.but(model={**every, **ours}, stage=CLIP)
            for name, (_, ours) in UNDONE.items()
        },
        "released_tbptt": replace(
            tbptt,
            stages=tuple(
                replace(s, algorithm=part("reference.algorithms.truncation.TruncatedBptt", k=scale.k_trunc))
                for s in tbptt.stages
            ),
        ),
        "no_retrieval": scale.arms()["no_retrieval"],
    }


def costs(name: str, scale: Scale, cell: str, statement: str, share: float) -> Criterion:
    """Return the criterion that a cell is behind as written by a share of the points that a user misses."""
    return Criterion(
        name=name,
        kind="train",
        statement=statement,
        cell="written",
        rival=cell,
        metric=scale.accuracy(),
        at_least=round((1.0 - REPORTED) * share, 3),
        sd_floor=0.03,
    )


def harmless(criterion: str, cell: str) -> Control:
    """Return the control of `costs`: the released threshold, a change after which SAB learns all the same."""
    return Control(
        name=f"the released threshold instead of {cell}", criterion=criterion, swap={cell: "threshold"}
    )


def protocol(scale: Scale, trunc: int, reduced: str = "") -> Protocol:
    """Return the protocol at one scale."""
    accuracy = scale.accuracy()
    words = {name: text for name, (text, _) in FACTORS.items()} | {
        "clip": "gradient norm clipped at 1.0 instead of 0.1",
        "blank_unit": "the blank has a unit of its own",
        "last_loss": "loss on the last symbols alone",
        "no_stop": "no stop once it has learned",
        "clip_no_stop": "no stop, gradient norm clipped at 1.0",
        "k_top": "10 memories are read (the code's default)",
        "k_top_4": "4 memories are read, as by `threshold`, but for its margin of 1e-7",
        "k_trunc": "k_trunc at the code's default",
    }
    trained = cells(scale, trunc)
    return Protocol(
        cells=trained,
        criteria=(
            learned("written", scale, "SAB as written", reduced, 1.0),
            *(
                costs(
                    name,
                    scale,
                    cell,
                    f"As written ahead of {what}: at least half of the reported 38 points",
                    share=0.5,
                )
                for name, (cell, what) in HYPOTHESES.items()
            ),
        ),
        controls=(
            nothing_read("written", "no_retrieval"),
            *(harmless(name, cell) for name, (cell, _) in HYPOTHESES.items()),
        ),
        shown=(
            Shown(cell="written", metric=accuracy, label="as written", paper=1.0),
            *(Shown(cell=name, metric=accuracy, label=text) for name, text in words.items()),
            *(
                Shown(cell=name, rival="written", metric=accuracy, label=f"effect of {name}")
                for name in (*words, "released")
            ),
            Shown(cell="released", metric=accuracy, label="all together, as released (a user: 0.62)"),
            *(
                Shown(cell=f"released_but_{name}", metric=accuracy, label=f"as released, but ours: {text}")
                for name, (text, _) in UNDONE.items()
            ),
            *(
                Shown(
                    cell=f"released_but_{name}",
                    rival="released",
                    metric=accuracy,
                    label=f"gain over as released: {text}",
                )
                for name, (text, _) in UNDONE.items()
            ),
            Shown(cell="released_tbptt", metric=accuracy, label="TBPTT as released (a user: 0.17)"),
        ),
        plots=(
            Plot(
                name="factors",
                title="From as written to as released: a dot a seed, and means",
                x_label="cell",
                y_label="accuracy on the last symbols",
                x=tuple(float(i) for i in range(len(trained))),
                ticks=tuple(trained),
                level=0.125,
                level_label="chance",
                lines=(Line(cells=tuple(trained), metrics=(accuracy,), label="accuracy"),),
            ),
            learning(
                "What a step can undo",
                "validation accuracy",
                "accuracy",
                {
                    "no_stop": "no stop, clipped at 0.1",
                    "clip_no_stop": "no stop, clipped at 1.0",
                    "first_memory": "a zero state is the first memory",
                    "recurrent_scale": "recurrent weights at ±1/√hidden",
                },
                "spikes",
            ),
        ),
        seeds=8 if scale is SMALL else 3,
        shown_seeds=5 if scale is SMALL else 3,
        scale=reduced,
        seed_offset=FRESH if scale is SMALL else 0,  # `written` is sab.copy_t300's
    )


claim = Claim(
    id="sab.released_code",
    paper=PAPER,
    title="What the released code does otherwise, one factor at a time",
    source="Algorithm 1; released code and issue 2 of its repository",
    statement="Ours: a user of the released code reports 62 % (SAB, with the README's command) and 17 % "
    "(TBPTT-5) at T = 100, where the paper has 100 % and, for TBPTT-20, 31 %. From Algorithm 1 to the "
    "released code, one factor at a time: which one costs it?",
    profiles={
        "smoke": protocol(TINY, 3, reduced="mechanics only"),
        "cpu": protocol(
            SMALL,
            3,
            reduced="T = 30 instead of 100; 5 symbols instead of 10; at most "
            f"{SMALL.steps:,} steps of 64 sequences instead of 200,000 (20 passes over 640,000 sequences), "
            "at a learning rate of 2e-3 instead of 1e-3 in every cell. k_trunc = 5 becomes 2, the code's "
            "default of 10 becomes 3; k_top and k_att are not reduced.",
        ),
        "paper": protocol(SHORT_PAPER, 10),
    },
    choices=(
        *CHOICES,
        "Hypotheses, written before the runs: all factors together cost at least 19 of the 38 points that a "
        "user missed, and so does the released score alone, because its ranking of the memories is the same "
        "for every query, and the answer needs another memory at each output step.",
        "'As written' has this project's choices where the paper is silent; the factors `input_scale`, "
        "`recurrent_scale`, `clip`, `blank_unit` and `last_loss` undo them; the last two are not the "
        "released code's. `no_stop` and `clip_no_stop` go on after the task is solved, where a step may "
        "undo it.",
        "`released` is the code with the command of its README, `--trunc 5 --topk 5`, which is what the "
        "reports are of; the code's own defaults, k_trunc and k_top of 10, are rows by themselves.",
        "Learning rate, batch size and the loss over all steps are those of the released code (the paper "
        "does not say them): no factors.",
    ),
    notes=(
        "The bands were written before any of these cells had been run on any seed but `written` and "
        "`no_retrieval`, which are cells of sab.copy_t300. The controls first read nothing where it is as "
        "written, which is behind any rival; since the first report `threshold` takes the rival's place, "
        "after which all seeds shown had learned. An inert change, `ten_classes`, would come out as behind "
        "by less than the band in half to two thirds of such runs only (simulated), since any two cells "
        "differ by the seeds that stay on the plateau.",
        "Differences that are in no row, read from the code and not run: PyTorch 0.1 subtracts the "
        "thresholds, one a sequence, from the flattened scores, so that a memory may meet another "
        "sequence's threshold and the number of memories read varies; biases start uniform where ours "
        "are 0; states are detached one step earlier; the head, one layer on [h; s], starts uniform within "
        "±1/√(2 hidden) where ours, one matrix for each, do within ±1/√hidden; it trains on a fixed set of "
        "640,000 sequences in one order where ours are fresh.",
        "Effects of one factor need not add up. The rows `released_but_…` are the other end, everything as "
        "released but for what is named; those with scales or input were added when the rest had run.",
        "Eight seeds leave the second hypothesis undecided. The score and the input scale, which cost more "
        "on five seeds, are judged on other seeds in sab.released_factors.",
        "If you are stuck with SAB on the copy task: no single change repairs the released recipe (rows "
        "'gain over as released'). Our scales, symbols as inputs and the written score together bring it "
        "part of the way; the rest is in the other factors. So take all that `written` has (`repro show` "
        "prints it), and go back one factor at a time. Clear beyond the spread of the seeds: a loss on the "
        "last symbols alone, and a score in which the query does not matter, cost accuracy. Storing every "
        "second state and a zero first memory may. The input scale, clear on five seeds, is undecided on "
        "sixteen others. The released threshold costs nothing: with it, and with k_top = 4, which it "
        "amounts to, every seed of these rows learned. With nineteen rows of five seeds an interval that "
        "just excludes 0 says little: adding 1e-7 to a sum, which can hardly matter, moved one seed from "
        "0.95 to 0.65. Clipping at 1.0, raw weights for few memories, the scorer's initialisation and a "
        "k_top of 10 left some seeds at 1.00 and took others to between 0.82 and nothing: not told. Run "
        "several seeds before you change anything (of ours one in five or six stays on a plateau), and keep "
        "the best checkpoint.",
        "A step can undo what was learned, at either clipping norm (plot `spikes`): as written, seed 1303 "
        "has 0.96 after 1,000 steps, 0.00 after 1,250 (it answers with blanks), and 1.00 after 1,750. "
        "Most such runs are back before the last step; one that is not counts as an effect of its factor: "
        "`first_memory` of that seed falls from 0.98 to 0.06 and ends at 0.46, `scorer_init` of seed 1302 "
        "ends at 0.02. An accuracy below chance is such a fall.",
        "What carries to T = 100: that the released score ranks the memories alike for every query does not "
        "depend on T. What can't be told from the reduced scale: how many points each factor costs at T = "
        "100. The paper profile gives that for 20,000 steps; whether factors that only slow learning down "
        "matter after the code's 200,000 is told by neither.",
    ),
)
