"""Table 1, T = 300: SAB solves the copy task with short local back-propagation, BPTT and TBPTT do not."""

from dataclasses import replace

from claims.sab._copy import CHOICES, CONTROLS, CPU, FRESH, GPU, HALF_WAY, PAPER, REDUCED, SMOKE, Scale
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown


def protocol(
    scale: Scale, *, solves: float, over_bptt: float, over_tbptt: float, reduced: str = ""
) -> Protocol:
    """Return the protocol at one scale; bands are the least accuracy and the least gains."""
    accuracy = scale.accuracy()
    labels = {
        "sab": f"SAB ({scale.k_trunc}, 5)",
        "bptt": "LSTM, full BPTT",
        "tbptt": f"LSTM, TBPTT-{scale.tbptt}",
        "attention": "LSTM + full self-attention",
    }
    return Protocol(
        cells=scale.arms(),
        criteria=(
            Criterion(
                name="sab_solves",
                kind="train",
                statement="SAB repeats the symbols",
                cell="sab",
                metric=accuracy,
                at_least=solves,
                sd_floor=0.02,
                paper=0.999,
                premise=bool(reduced),
            ),
            Criterion(
                name="beats_tbptt",
                kind="train",
                statement="SAB is more accurate than TBPTT with the same budget and stopping rule",
                cell="sab",
                rival="tbptt",
                metric=accuracy,
                at_least=over_tbptt,
                sd_floor=0.03,
                paper=0.742,
            ),
            Criterion(
                name="beats_bptt",
                kind="train",
                statement="SAB is more accurate than full BPTT with the same budget and stopping rule",
                cell="sab",
                rival="bptt",
                metric=accuracy,
                at_least=over_bptt,
                sd_floor=0.03,
                paper=0.64,
            ),
        ),
        controls=tuple(
            Control(name=f"{what}, {criterion}", criterion=criterion, swap={"sab": cell})
            for criterion in ("sab_solves", "beats_tbptt", "beats_bptt")
            for what, cell in CONTROLS.items()
        ),
        shown=(
            Shown(cell="bptt", metric=accuracy, label=labels["bptt"], paper=0.359),
            Shown(cell="tbptt", metric=accuracy, label=labels["tbptt"], paper=0.257),
            Shown(cell="attention", metric=accuracy, label=labels["attention"], paper=1.0),
        ),
        plots=(
            Plot(
                name="learning",
                title="Accuracy on the last symbols while training",
                x_label="step",
                y_label="validation accuracy",
                learning=True,
                level=0.125,
                level_label="chance",
                lines=tuple(
                    Line(cell=cell, metrics=("accuracy",), label=label) for cell, label in labels.items()
                ),
            ),
        ),
        seeds=8 if scale is SMALL else 3,
        shown_seeds=3,
        scale=reduced,
        seed_offset=FRESH if scale is SMALL else 0,
    )


# Steps and seeds of the cpu profile. A first run allowed 5,000 steps on seeds 1000 to 1002: SAB stopped at
# 1.00 after 1,250 to 1,500, BPTT trained all 5,000 and reached 0.905 (gain 0.095, 90 % interval -0.009 to
# 0.200: inconclusive). The arms had not been compared at equal steps, as the claim demands. A second run, of
# 1100 to 1102 with 2,000 steps, reproduced the claim: all three seeds learned. More seeds of the same cell in
# other claims showed that this was luck: 3 of 16 did not. So there are eight fresh seeds, and SAB has learned
# from HALF_WAY on. The bands of the gains are unchanged.
SMALL = replace(CPU, steps=2000, multiples=(1,))

# Bands of the cpu profile, written before any run they judge. Over TBPTT: half of the printed gain, since
# both arms see the same fraction of the sequence as in the paper. Over BPTT: 0.2, well outside seed noise but
# far below the printed 0.64, because BPTT's path is ten times shorter here: the paper's own gain is 0.002 at
# T = 100 and 0.64 at T = 300.
claim = Claim(
    id="sab.copy_t300",
    paper=PAPER,
    title="SAB solves the copy task at T = 300",
    source="Table 1, p. 7",
    statement="Copy task, T = 300, accuracy on the last 10 symbols: SAB (k_trunc, k_top) = (5, 5) 99.9 %, "
    "LSTM with full BPTT 35.9 %, LSTM with TBPTT-20 25.7 %, LSTM + full self-attention 100.0 %. Gains of "
    "SAB: 64.0 points over BPTT, 74.2 over TBPTT.",
    profiles={
        "smoke": protocol(SMOKE, solves=HALF_WAY, over_bptt=0.2, over_tbptt=0.371, reduced="mechanics only"),
        "cpu": protocol(
            SMALL,
            solves=HALF_WAY,
            over_bptt=0.2,
            over_tbptt=0.371,
            reduced=REDUCED.format(paper=300, steps=SMALL.steps),
        ),
        "paper": protocol(GPU, solves=0.95, over_bptt=0.5, over_tbptt=0.6),
    },
    choices=CHOICES,
    notes=(
        "Table 1 pairs a cross-entropy of 0.197 with 35.9 % accuracy for the LSTM at T = 300; accuracy is "
        "judged.",
        "At the cpu profile the gain over BPTT is judged against 0.2, not against the printed 0.64: BPTT's "
        "path is ten times shorter there, and the paper's own gain is 0.002 at T = 100.",
        "Retrieval disabled with k_trunc = 2 is TBPTT-2 with one bias vector for two; shuffled "
        "memories are the control that tells what is read from that something is read.",
        "A run on three seeds reproduced this claim before: all of them learned. Of 16 seeds of the same "
        "recipe 13 did; the eight that are judged now include whatever they are.",
        "Equal steps matter: in a first run at the cpu profile, with 5,000 steps allowed, SAB was at 1.00 "
        "after 1,250 to 1,500 steps and full BPTT at 0.905 after all 5,000. BPTT learns this reduced task "
        "too, only later.",
        "Full self-attention is shown, not beaten: the paper has it at 100.0 %.",
        "With the released code a user reports 62 % (SAB, the README's command) and 17 % (TBPTT-5, where the "
        "paper's is 20) at T = 100.",
        "Pilots (seeds below 1000, never judged): 10 symbols with hidden 64 stayed near 0.30, one mixture of "
        "memories read at every output step; 5 symbols with hidden 128 left that plateau.",
    ),
    headline=True,
)
