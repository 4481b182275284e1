"""Table 2, left: the adding task. SAB beats truncated back-propagation; full back-propagation is shown."""

from dataclasses import dataclass, replace
from typing import Any

from claims.sab._copy import PAPER
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Part, Recipe, Stage, part

# Table 2, by T: what the paper prints as "CE".
TABLE_2 = {
    200: {"bptt": 4.59e-6, "attention": 5.541e-8, "tbptt": 3.0e-4, "sab": 2.0e-6, "no_updates": 2.171e-6},
    400: {"bptt": 1.554e-7, "attention": 4.972e-7, "tbptt": 6.8e-4, "sab": 1.001e-5},
}
LABELS = {
    "sab": "SAB (10, 10)",
    "bptt": "LSTM, full BPTT",
    "tbptt": "LSTM, TBPTT-T/4",
    "attention": "LSTM + full self-attention",
    "no_updates": "SAB (10, 10) without mental updates",
}
FACTORS = {
    "sab_longer": "SAB, four times the steps",
    "tbptt_longer": "TBPTT, four times the steps",
    "sab_few": "SAB, k_top reduced as T is",
}
MEAN = 1 / 6  # mean squared error of always answering 1


@dataclass(frozen=True)
class Size:
    """What a profile trains."""

    length: int
    hidden: int
    steps: int
    lr: float
    k_trunc: int
    tbptt: int
    k_top: int = 10
    batch: int = 64
    sequences: int = 1024

    def recipe(self, model: Part, algorithm: Part) -> Recipe:
        """Return the recipe of one arm; all arms train all steps."""
        sequences = min(256, self.sequences)
        return Recipe(
            task=part("reference.tasks.adding.Adding", length=self.length),
            model=model,
            stages=(
                Stage(
                    algorithm=algorithm.but(loss="mse", last=1),
                    steps=self.steps,
                    batch=self.batch,
                    lr=self.lr,
                    clip=1.0,
                    validate_every=max(1, self.steps // 10),
                ),
            ),
            validation=part("reference.measure.last_error.last_error", sequences=sequences),
            measures=(part("reference.measure.last_error.last_error", sequences=self.sequences),),
        )

    def sab(self, **changes: Any) -> Recipe:
        """Return SAB, with changes for baselines and controls."""
        args = {"k_trunc": self.k_trunc, "k_top": self.k_top, "k_att": 1, **changes}
        sizes = {"inputs": 2, "outputs": 1, "hidden": self.hidden, "input": "real"}
        model = part("reference.models.sab.SAB", **sizes, **args)
        return self.recipe(model, part("reference.algorithms.bptt.Bptt"))

    def arms(self) -> dict[str, Recipe]:
        """Return SAB, its baselines and its controls."""
        sizes = {"inputs": 2, "outputs": 1, "hidden": self.hidden, "input": "real"}
        lstm = part("reference.models.lstm.LSTM", **sizes)
        return {
            "sab": self.sab(),
            "bptt": self.recipe(lstm, part("reference.algorithms.bptt.Bptt")),
            "tbptt": self.recipe(lstm, part("reference.algorithms.truncation.TruncatedBptt", k=self.tbptt)),
            "attention": self.sab(retrieval="dense", k_trunc=None),
            "no_updates": self.sab(mental_updates="none"),
            "no_retrieval": self.sab(retrieval="none"),
            "shuffled": self.sab(retrieval="shuffled"),
        }


def factors(size: Size) -> dict[str, Recipe]:
    """Return the arms of the judged ratio with one thing changed: what could bring the missing decades?"""
    longer = replace(size, steps=4 * size.steps).arms()
    return {
        "sab_longer": longer["sab"],
        "tbptt_longer": longer["tbptt"],
        "sab_few": size.sab(k_top=max(1, size.k_top * size.length // 200)),
    }


def protocol(sizes: dict[int, Size], learned: float, reduced: str = "") -> Protocol:
    """Return the protocol; SAB's error must be below TBPTT's by half of the printed decades."""
    cells: dict[str, Recipe] = {}
    criteria: list[Criterion] = []
    controls: list[Control] = []
    shown: list[Shown] = []
    for length, size in sizes.items():
        printed = TABLE_2[length]
        ratio = printed["sab"] / printed["tbptt"]
        cells |= {f"{name}_{length}": recipe for name, recipe in size.arms().items()}
        criteria += [
            Criterion(
                name=f"sab_learned_{length}",
                kind="train",
                statement=f"T = {length}: SAB has learned to add",
                cell=f"sab_{length}",
                metric="mse",
                at_most=learned,
                sd_floor=learned / 20,
                premise=bool(reduced),
            ),
            Criterion(
                name=f"beats_tbptt_{length}",
                kind="train",
                statement=f"T = {length}: SAB's error over TBPTT's, at most the root of the printed ratio",
                cell=f"sab_{length}",
                rival=f"tbptt_{length}",
                metric="mse",
                ratio=True,
                at_most=round(ratio**0.5, 3),
                sd_floor=0.3,
                paper=round(ratio, 5),
            ),
        ]
        controls += [
            Control(
                name=f"{what}, T = {length}",
                criterion=f"beats_tbptt_{length}",
                swap={f"sab_{length}": f"{cell}_{length}"},
            )
            for what, cell in (
                ("retrieval disabled", "no_retrieval"),
                ("memories shuffled between sequences", "shuffled"),
            )
        ]
        if not reduced:  # at a reduced scale it is a premise, not a statement
            controls.append(
                Control(
                    name=f"retrieval disabled, learned at T = {length}",
                    criterion=f"sab_learned_{length}",
                    swap={f"sab_{length}": f"no_retrieval_{length}"},
                )
            )
        shown += [
            Shown(
                cell=f"{name}_{length}",
                metric="mse",
                label=f"T = {length}, {label}, mean squared error",
                paper=printed.get(name, "not reported"),
            )
            for name, label in LABELS.items()
        ]
    first, size = next(iter(sizes.items()))
    if reduced:
        cells |= {f"{name}_{first}": recipe for name, recipe in factors(size).items()}
        shown += [
            Shown(cell=f"{name}_{first}", metric="mse", label=f"one factor: {words}, mean squared error")
            for name, words in FACTORS.items()
        ]
    return Protocol(
        cells=cells,
        criteria=tuple(criteria),
        controls=tuple(controls),
        shown=tuple(shown),
        plots=(
            Plot(
                name="learning",
                title="Mean squared error while training",
                x_label="step",
                y_label="validation error",
                learning=True,
                log_y=True,
                level=MEAN,
                level_label="always 1",
                lines=tuple(
                    Line(cell=f"{name}_{first}", metrics=("mse",), label=label)
                    for name, label in LABELS.items()
                ),
            ),
        ),
        scale=reduced,
    )


TINY = Size(length=8, hidden=8, steps=6, lr=1e-3, k_trunc=2, tbptt=2, k_top=2, batch=4, sequences=8)
CPU = Size(length=40, hidden=128, steps=2000, lr=2e-3, k_trunc=2, tbptt=10)
GPU = Size(length=200, hidden=128, steps=20000, lr=1e-3, k_trunc=10, tbptt=50)
FAR = Size(length=400, hidden=128, steps=20000, lr=1e-3, k_trunc=10, tbptt=100)

# Bands, written before the runs: half the printed distance in decades (0.082 at T = 200, 0.121 at T = 400).
claim = Claim(
    id="sab.adding",
    paper=PAPER,
    title="Adding: SAB is ahead of truncated back-propagation",
    source="Table 2, p. 7",
    statement="Adding task, loss at T = 200: BPTT 4.59e-6, full attention 5.541e-8, TBPTT-50 3.0e-4, SAB "
    "(10, 10) 2.0e-6, without mental updates 2.171e-6; at T = 400: 1.554e-7, 4.972e-7, TBPTT-100 6.8e-4, "
    "SAB (10, 10) 1.001e-5.",
    profiles={
        "smoke": protocol({200: TINY}, 0.02, reduced="mechanics only"),
        "cpu": protocol(
            {200: CPU},
            0.02,
            reduced="T = 40 instead of 200; TBPTT-50 becomes TBPTT-10 and k_trunc = 10 becomes 2; k_top "
            f"stays 10; {CPU.steps:,} steps of 64 sequences (the paper does not say how many) at a learning "
            "rate of 2e-3 instead of 1e-3. T = 400 is not run.",
        ),
        "paper": protocol({200: GPU, 400: FAR}, 1e-3),
    },
    choices=(
        "The paper calls the loss 'CE' and defines none for a real target: we train and report the mean "
        "squared error of the last step's answer.",
        "k_att is 1; all weights start uniform in ±1/√hidden, biases at 0; inputs are number and mark as "
        "they are.",
        "The global gradient norm is clipped at 1.0. No early stopping: all arms train the same number of "
        "steps.",
        "With k_top memories or fewer nothing is read.",
    ),
    notes=(
        "A pilot of SAB at the cpu profile (seed 5) ended at an error of 0.002; no other arm had been "
        "seen when the bands were written.",
        "SAB loses to full BPTT at T = 400 (1.001e-5 against 1.554e-7) and to full attention at both "
        "lengths: neither is a rival here, both are shown.",
        "At the cpu profile SAB ended ahead of TBPTT by less than half of the printed decades (a ratio "
        "of 0.27 on seeds 1000 to 1002). Three rows, added after that, change one "
        "factor each: four times the steps, for either arm, and a k_top that shrinks with T.",
        "Names say what the paper has, T = 200 and (10, 10), at every profile; what is reduced is listed.",
        "Losses are judged as ratios, on the log scale: 2.0e-6 against 3.0e-4 is 2.2 decades.",
        "Errors of 1e-6 take longer training than the cpu profile has; the ratio at equal steps is what it "
        "judges, and only where SAB has learned (error at most 0.02, an eighth of always answering 1).",
    ),
)
