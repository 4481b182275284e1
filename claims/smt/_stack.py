"""The stack recipes that `smt.drift` and `smt.length_extrapolation` share, so that each is trained once."""

from collections.abc import Mapping
from typing import Any

from claims.smt._shared import CPU_MODEL, PAPER_DMT, PAPER_MODEL, PAPER_SMT, dmt, model, smt
from repro.recipe import Recipe, part

SYMBOLS, DEPTH = 4, 4

SCALES: Mapping[str, Mapping[str, Any]] = {
    "smoke": {
        "length": 10,
        "model": {**CPU_MODEL, "width": 16, "encoder_layers": 1, "updater_layers": 1},
        "smt": {"steps": 6, "batch": 2, "lr": 1e-3, "warmup": 2},
        "dmt": {"steps": 4, "batch": 2, "lr": 2e-4, "warmup": 2, "decay": "cosine"},
        "judged": 8,
    },
    "cpu": {
        "length": 24,
        "model": CPU_MODEL,
        "smt": {"steps": 700, "batch": 4, "lr": 1e-3, "warmup": 20},
        "dmt": {"steps": 200, "batch": 32, "lr": 3e-4, "warmup": 10, "decay": "cosine"},
        "judged": 256,
    },
    "paper": {"length": 64, "model": PAPER_MODEL, "smt": PAPER_SMT, "dmt": PAPER_DMT, "judged": 256},
}
TIMES = (1, 2, 4, 8)  # lengths judged, in training lengths


def cells(scale: str) -> dict[str, Recipe]:
    """Return the recipes: SMT alone, with DMT, with steps from teacher states, with shuffled targets."""
    at = SCALES[scale]
    task = part("reference.tasks.stack.Stack", length=at["length"], symbols=SYMBOLS, depth=DEPTH)
    lengths = tuple(at["length"] * k for k in TIMES)

    def recipe(*second: Any) -> Recipe:
        readout = "readout" if second else "decoder"
        return Recipe(
            task=task,
            model=model(at["model"], SYMBOLS + 1),
            stages=(smt(at["smt"]), *second),
            measures=(
                part("reference.measure.drift.drift", size=at["judged"], readout=readout),
                part(
                    "reference.measure.drift.lengths",
                    at=lengths,
                    size=min(at["judged"], 64),
                    positions=min(16, at["length"] - 1),
                    readout=readout,
                ),
            ),
        )

    return {
        "smt": recipe(),
        "dmt": recipe(dmt(at["dmt"])),
        "teacher-steps": recipe(dmt(at["dmt"], states="teacher")),
        "shuffled": recipe(dmt(at["dmt"], targets="shuffled")),
    }
