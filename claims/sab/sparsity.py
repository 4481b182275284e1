"""Table 3: with truncated back-propagation, reading a few memories learns where reading all does not."""

from claims.sab._copy import CHOICES, CONTROLS, FRESH, PAPER, Scale
from claims.sab._study import SHORT_PAPER, SMALL, TINY, gain, learned, learning, nothing_read
from repro.claim import Claim, Control, Protocol, Shown

SPARSE, DENSE = 1.0, 0.405


def protocol(scale: Scale, rates: dict[str, float], judged: tuple[str, ...], reduced: str = "") -> Protocol:
    """Return the protocol: the dense arm at every rate of its search, SAB ahead of the `judged` ones."""
    arms = scale.arms()
    dense = {
        f"dense_{name}": scale.sab(retrieval="dense").but(stage={"lr": lr}) for name, lr in rates.items()
    }
    names = {cell: f"all memories, learning rate {rates[cell.removeprefix('dense_')]:g}" for cell in dense}
    return Protocol(
        cells={"sab": arms["sab"], **dense, **{cell: arms[cell] for cell in CONTROLS.values()}},
        criteria=(
            learned("sab", scale, "SAB (5, 5)", reduced, SPARSE),
            *(
                gain(
                    f"beats_{cell}",
                    "sab",
                    cell,
                    scale,
                    SPARSE - DENSE,
                    f"SAB is ahead of reading {names[cell]}",
                )
                for cell in (f"dense_{rate}" for rate in judged)
            ),
        ),
        controls=(
            nothing_read("sab", "no_retrieval"),
            *(
                Control(name=f"{what}, {rate}", criterion=f"beats_dense_{rate}", swap={"sab": cell})
                for what, cell in CONTROLS.items()
                for rate in judged
            ),
        ),
        shown=(
            *(
                Shown(cell=cell, metric=scale.accuracy(), label=f"reading {label}", paper=DENSE)
                for cell, label in names.items()
            ),
            *(
                Shown(cell="sab", rival=cell, metric=scale.accuracy(), label=f"SAB ahead of reading {label}")
                for cell, label in names.items()
            ),
        ),
        plots=(
            learning(
                "Accuracy while training",
                "validation accuracy",
                "accuracy",
                {"sab": "SAB (5, 5)", **names},
                "learning",
            ),
        ),
        seeds=8 if scale is SMALL else 3,
        shown_seeds=3,
        scale=reduced,
        seed_offset=FRESH if scale is SMALL else 0,  # shares cells with sab.copy_t300
    )


RATES = {"1e3": 1e-3, "3e4": 3e-4, "1e4": 1e-4, "1e5": 1e-5}

# Band, written before the runs: half of the printed gain of 59.5 points, over the dense arm's best rate.
claim = Claim(
    id="sab.sparsity",
    paper=PAPER,
    title="Sparse reading is what truncated training can learn",
    source="Table 3, p. 8; learning rates Sec. 7.1, p. 12",
    statement="Copy task, k_trunc = 5: reading all memories 40.5 % with the best learning rate of 1e-3 to "
    "1e-5, SAB (5, 5) 100.0 %.",
    profiles={
        "smoke": protocol(TINY, {"1e3": 1e-3, "1e5": 1e-5}, ("1e3",), reduced="mechanics only"),
        "cpu": protocol(
            SMALL,
            {"2e3": 2e-3, **RATES},
            ("2e3",),
            reduced="T = 30 instead of 100 (the sequence is 40 steps long, and 5 of 40 memories are few as "
            f"5 of 120 are); 5 symbols instead of 10; at most {SMALL.steps:,} steps of 64 sequences; "
            "k_trunc 2 instead of 5; SAB's learning rate 2e-3 instead of 1e-3. The dense arm's search gets "
            "that rate too.",
        ),
        "paper": protocol(SHORT_PAPER, RATES, tuple(RATES)),
    },
    choices=(
        *CHOICES,
        "The dense arm reads all memories with softmax weights: the paper's threshold is undefined where "
        "all are read.",
        "The dense arm's learning rate is searched as in the paper, of which the grid is not known; SAB "
        "has one. At the paper's scale SAB must be ahead of every rate, so of the best: an advantage for the "
        "dense arm. At the cpu profile the search was the first run's: its best rate is judged, on fresh "
        "seeds, and the others are shown.",
    ),
    notes=(
        "The first run, on seeds 1100 to 1105, ended inconclusive: its premise took all seeds of SAB to "
        "learn, and two did not (0.38 and 0.67). The dense arm ended at 0.96, 0.72, 0.52, 0.40 and 0.32, "
        "rates from 2e-3 down. So this claim was likely not to reproduce when it was judged again; the "
        "band is as before.",
        "At the cpu profile it does not reproduce, and the rows by learning rate say where the printed "
        "gain can come from: the dense arm learns as well as SAB at 2e-3 and falls behind with every "
        "lower rate of the paper's search, at the same number of steps. Whether more steps close that "
        "gap was not run.",
        "SAB and the controls are the trials of sab.copy_t300.",
        "The dense arm differs from 'LSTM + full self-attention', which solves the task, in truncation "
        "alone.",
        "In pilots (seeds below 1000) attention to all memories with full back-propagation solved the "
        "reduced task; the truncated dense arm was not piloted.",
    ),
)
