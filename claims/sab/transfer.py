"""Table 5: trained at one delay, SAB is more accurate at longer ones than LSTM and full self-attention."""

from dataclasses import replace

from claims.sab._copy import CHOICES, CONTROLS, CPU, FRESH, GPU, HALF_WAY, MULTIPLES, PAPER, SMOKE, Scale
from claims.sab._study import NAIVE
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Recipe

TABLE_5 = {
    "sab": (0.99, 0.95, 0.83, 0.75, 0.47, 0.41),
    "bptt": (0.99, 0.34, 0.25, 0.21, 0.12, 0.12),
    "attention": (1.00, 0.52, 0.28, 0.20, 0.12, None),
}
LABELS = {"sab": "SAB", "bptt": "LSTM, full BPTT", "attention": "LSTM + full self-attention"}
FACTORS = {
    "attention_rate": "full self-attention at the paper's learning rate of 1e-3",
    "attention_scales": "full self-attention, input and recurrent weights at uniform ±1/√hidden",
    "attention_far": "full self-attention trained at twice the delay",
    "sab_scales": "SAB, input and recurrent weights at uniform ±1/√hidden",
}


def factors(scale: Scale) -> dict[str, Recipe]:
    """Return arms with one thing changed: what lets full self-attention transfer further than printed?"""
    arms = scale.arms()
    return {
        "attention_rate": arms["attention"].but(stage={"lr": 1e-3}),
        "attention_scales": arms["attention"].but(model=NAIVE["model"]),
        "attention_far": replace(scale, delay=2 * scale.delay).arms()["attention"],
        "sab_scales": arms["sab"].but(model=NAIVE["model"]),
    }


def protocol(scale: Scale, *, learned: float, rivals: tuple[str, ...], reduced: str = "") -> Protocol:
    """Return the protocol at one scale: SAB keeps half of what Table 5 prints, and half of its gains."""

    def learns(cell: str) -> Criterion:
        return Criterion(
            name=f"{cell}_learned",
            kind="train",
            statement=f"{LABELS[cell]} has learned the task at the training delay",
            cell=cell,
            metric=scale.accuracy(),
            at_least=learned,
            sd_floor=0.02,
            paper=TABLE_5[cell][0],
            premise=True,
        )

    def keeps(multiple: int) -> Criterion:
        printed = TABLE_5["sab"][MULTIPLES.index(multiple)] or 0.0
        return Criterion(
            name=f"keeps_{multiple}x",
            kind="train",
            statement=f"at {multiple} times the training delay SAB keeps half of the printed accuracy",
            cell="sab",
            metric=scale.accuracy(multiple),
            at_least=round(printed / 2, 3),
            sd_floor=0.03,
            paper=printed,
        )

    def beats(rival: str, multiple: int) -> Criterion:
        column = MULTIPLES.index(multiple)
        printed = (TABLE_5["sab"][column] or 0.0) - (TABLE_5[rival][column] or 0.0)
        return Criterion(
            name=f"beats_{rival}_{multiple}x",
            kind="train",
            statement=f"at {multiple} times the training delay SAB is more accurate than {LABELS[rival]}",
            cell="sab",
            rival=rival,
            metric=scale.accuracy(multiple),
            at_least=round(printed / 2, 3),
            sd_floor=0.03,
            paper=round(printed, 3),
        )

    arms = scale.arms()
    rows = factors(scale) if scale is CPU else {}
    return Protocol(
        cells={name: arms[name] for name in ("sab", "bptt", "attention", "no_retrieval", "shuffled")} | rows,
        criteria=(
            *(learns(cell) for cell in ("sab", *rivals)),
            *(keeps(multiple) for multiple in (4, 20)),
            *(beats(rival, multiple) for rival in rivals for multiple in (4, 20)),
        ),
        controls=tuple(
            Control(name=f"{what}, {criterion}", criterion=criterion, swap={"sab": cell})
            for criterion in ("keeps_4x", "keeps_20x", *(f"beats_{r}_{m}x" for r in rivals for m in (4, 20)))
            for what, cell in CONTROLS.items()
        ),
        shown=(
            *(
                Shown(
                    cell=cell,
                    metric=scale.accuracy(multiple),
                    label=f"{LABELS[cell]}, {multiple} × the training delay",
                    paper=value if value is not None else "out of memory",
                )
                for cell, values in TABLE_5.items()
                for multiple, value in zip(MULTIPLES, values, strict=True)
            ),
            *(
                Shown(
                    cell=cell,
                    metric=scale.accuracy(multiple * (2 if cell == "attention_far" else 1)),
                    label=f"one factor: {FACTORS[cell]}, {multiple} × the training delay",
                )
                for cell in rows
                for multiple in MULTIPLES
            ),
        ),
        plots=(
            Plot(
                name="transfer",
                title="Accuracy beyond the training delay",
                x_label="test delay / training delay",
                y_label="accuracy on the last symbols",
                x=tuple(float(m) for m in MULTIPLES),
                log_x=True,
                level=0.125,
                level_label="chance",
                lines=tuple(
                    Line(
                        cell=cell,
                        metrics=tuple(scale.accuracy(m) for m in MULTIPLES),
                        label=LABELS[cell],
                        paper=values,
                    )
                    for cell, values in TABLE_5.items()
                ),
            ),
        ),
        seeds=5 if scale is CPU else 3,
        shown_seeds=3,
        scale=reduced,
        seed_offset=FRESH if scale is CPU else 0,
    )


# Bands, written before the runs: half of what Table 5 prints for SAB, and half of its gain over a rival
# that has learned the training delay.
claim = Claim(
    id="sab.transfer",
    paper=PAPER,
    title="SAB transfers to longer delays",
    source="Table 5, p. 8",
    statement="Trained at T = 100 only, tested at 100/200/300/400/2000/5000: SAB 99/95/83/75/47/41 %, LSTM "
    "99/34/25/21/12/12 %, LSTM + full self-attention 100/52/28/20/12 %/out of memory. Chance is 12.5 %.",
    profiles={
        "smoke": protocol(SMOKE, learned=HALF_WAY, rivals=("bptt", "attention"), reduced="mechanics only"),
        "cpu": protocol(
            CPU,
            learned=HALF_WAY,
            rivals=("attention",),
            reduced=f"T = 30 instead of 100; 5 symbols instead of 10; at most {CPU.steps:,} steps of 64 "
            "sequences (the paper does not say how many) at a learning rate of 2e-3 instead of 1e-3; "
            "k_trunc 2 instead of 5, k_top stays 5. Test delays keep the paper's multiples: 1, 2, 3, 4, "
            "20 and 50 times the training delay. The budget is larger than that of sab.copy_t300: full "
            "self-attention needs it to learn.",
        ),
        "paper": protocol(
            replace(GPU, delay=100, multiples=MULTIPLES), learned=0.95, rivals=("bptt", "attention")
        ),
    },
    choices=(
        *CHOICES,
        "Table 5 does not say which SAB configuration it used: we take that of sab.copy_t300, (5, 5) at "
        "paper scale.",
    ),
    notes=(
        "Runs on three seeds (1000 to 1002) went before, judged with a premise of 0.9 and a training "
        "stream that is another now.",
        "At the cpu profile the LSTM is shown, not judged. It did not learn the training delay as the others "
        "do (0.83 to 0.95 after all 5,000 steps; a pilot had 0.66 after 4,000), so its accuracy at "
        "longer delays says little on transfer.",
        "The paper's full self-attention runs out of memory at T = 5000. Ours streams the evaluation and "
        "does not: its accuracy there is shown without a paper value to compare with.",
        "At the cpu profile (seeds 1300 to 1304) SAB kept 0.99 at all delays, full self-attention 0.78 to "
        "0.99 at four times the training delay, where the paper prints 0.20. The one-factor rows were added "
        "after that, to find out why; they are shown, not judged.",
        "T = 10 was tried in pilots (seeds below 1000): all arms learn it, but nine blanks are too few for "
        "states to settle, and SAB's accuracy fell to 0.28-0.48 at four times the delay. At T = 30 it did "
        "not fall.",
    ),
    headline=True,
)
