"""Table 3 and Algorithm 1: memory replay gives BPTT's gradients for less memory at little cost in speed."""

from typing import Any

from claims.memformer._shared import MNIST, PAPER, READS, READS_CHOICE
from repro.claim import Claim, Criterion, Protocol, Shown
from repro.recipe import Recipe, part

# Declared before counting (Table 3 is silent): the model whose arithmetic speed bound is the printed 0.90, on
# images of 784 tokens in 16 segments, with the only batch size printed.
SEGMENTS = 16
MODEL: dict[str, Any] = {
    **MNIST,
    "vocab": 256,
    "segment": 49,
    "memory_size": 64,
    "encoder_layers": 4,
    "decoder_layers": 8,
    "decoder_reads": READS,
}
PRINTED_MB = {"bptt": 16177, "layer_checkpointing": 9885, "mrbp": 7229}


def counted(algorithm: str) -> Recipe:
    """Return the recipe that counts the bytes of one rollout."""
    return Recipe(
        measures=(
            part(
                "reference.measure.rollout_memory.training_bytes",
                model="memformer",
                arguments=MODEL,
                algorithm=algorithm,
                batch=16,
                segments=SEGMENTS,
                paper_mb=PRINTED_MB.get(algorithm),
            ),
        )
    )


def measured(**changes: Any) -> Recipe:
    """Return the recipe that times rollouts in turns."""
    return Recipe(
        measures=(
            part(
                "reference.measure.mrbp_cost.rollout_cost",
                arguments={"decoder_reads": READS},
                **changes,
            ),
        )
    )


GRADIENTS = Recipe(measures=(part("reference.measure.mrbp_gradients.mrbp_gradients", segments=8),))
COUNTS = {
    "bptt": counted("bptt"),
    "layer-checkpointing": counted("layer_checkpointing"),
    "segment-checkpointing": counted("segment_checkpointing"),
    "mrbp": counted("mrbp"),
}


def fewer(name: str, cell: str, rival: str, statement: str) -> Criterion:
    """Return the criterion that `cell` saves at least what Table 3 prints, with 10 % to spare.

    One-sided: the table's rollout isn't described, and a longer one saves more.
    """
    own, other = (PRINTED_MB[n.replace("-", "_")] for n in (cell, rival))
    printed = own / other
    return Criterion(
        name=name,
        kind="count",
        statement=f"{statement}: saves what is printed ({printed:.3f}, 10 % to spare); the printed figures "
        "themselves are compared below",
        cell=cell,
        rival=rival,
        ratio=True,
        metric="peak",
        at_most=round(1.1 * printed, 3),
        paper=round(printed, 3),
    )


EXACT = (
    fewer("mrbp-bytes-of-bptt", "mrbp", "bptt", "Bytes of memory replay over BPTT"),
    fewer("checkpointing-bytes-of-bptt", "layer-checkpointing", "bptt", "Bytes of checkpointing over BPTT"),
    fewer("mrbp-bytes-of-checkpointing", "mrbp", "layer-checkpointing", "Bytes of replay over checkpointing"),
    Criterion(
        name="mrbp-keeps-one-segment",
        kind="count",
        statement="Replay's activations over those of one segment and all the memories: at most 1.1",
        cell="mrbp",
        metric="of_allowance",
        at_most=1.1,
    ),
)
SHOWN = (
    *(
        Shown(
            cell=cell,
            metric="peak_mb",
            label=f"{cell}, counted MB",
            paper=PRINTED_MB.get(cell.replace("-", "_")),
        )
        for cell in COUNTS
    ),
    *(
        Shown(cell=cell, metric="miss_percent", label=f"{cell}: counted above printed, %")
        for cell in ("bptt", "layer-checkpointing", "mrbp")
    ),
    *(Shown(cell=cell, metric="activations", label=f"{cell}, activations alone, bytes") for cell in COUNTS),
    Shown(cell="bptt", metric="static", label="parameters, gradients and Adam's moments, bytes"),
)


def equal(name: str, metric: str, statement: str) -> Criterion:
    """Return the criterion that gradients agree in float64 up to rounding."""
    return Criterion(
        name=name, kind="identity", statement=statement, cell="gradients", metric=metric, at_most=1e-10
    )


def noticed(name: str, metric: str, statement: str) -> Criterion:
    """Return the criterion that the comparison of gradients sees a sabotaged replay."""
    return Criterion(
        name=name, kind="identity", statement=statement, cell="gradients", metric=metric, at_least=1e-3
    )


IDENTITIES = (
    equal(
        "gradients-equal", "error", "Replay's gradients equal BPTT's, loss at every segment (relative error)"
    ),
    equal(
        "gradients-equal-dropout", "error_dropout", "The same with dropout, replayed from saved random states"
    ),
    equal("gradients-equal-cell", "error_cell", "The same for a plain LSTM cell with a tuple as memory"),
    equal("initial-memory-trained", "error_initial", "The learned initial memory's gradient equals BPTT's"),
    noticed("sabotage-memory", "error_memory_dropped", "The check notices a dropped memory gradient"),
    noticed("sabotage-random", "error_random", "The check notices dropout masks that aren't replayed"),
)


def protocol(cost: Recipe, of_bound: float, checkpointing: float, scale: str) -> Protocol:
    """Return identities and counts, the same everywhere, and the timing of one profile."""
    return Protocol(
        cells={"gradients": GRADIENTS, **COUNTS, "cost": cost},
        criteria=(
            *IDENTITIES,
            *EXACT,
            Criterion(
                name="mrbp-speed",
                kind="measure",
                statement="Replay's speed over the arithmetic bound of 0.90 of BPTT's",
                cell="cost",
                metric="mrbp_of_bound",
                at_least=of_bound,
                paper=1.0,
            ),
            Criterion(
                name="checkpointing-slower",
                kind="measure",
                statement="Checkpointing's speed over BPTT's: below replay's, whose bound is 0.90",
                cell="cost",
                metric="checkpointing_speed",
                at_most=checkpointing,
                paper=0.48,
            ),
        ),
        shown=(
            *SHOWN,
            Shown(cell="cost", metric="mrbp_speed", label="replay's speed over BPTT's", paper=0.90),
            Shown(cell="cost", metric="mrbp_bound", label="its arithmetic bound"),
            Shown(cell="cost", metric="checkpointing_bound", label="checkpointing's arithmetic bound"),
            Shown(cell="cost", metric="mrbp_of_bptt_bytes", label="activations, replay over BPTT, as timed"),
            Shown(cell="cost", metric="mrbp_of_allowance", label="activations over one segment + memories"),
        ),
        seeds=1,
        scale=scale,
    )


claim = Claim(
    id="memformer.mrbp",
    paper=PAPER,
    title="Memory replay back-propagation",
    source="Table 3; Algorithm 1",
    statement=(
        "One training rollout: BPTT 16,177 MB at speed 1.00, gradient checkpointing 9,885 MB at 0.48, memory "
        "replay 7,229 MB at 0.90. Replay's gradients are those of full BPTT."
    ),
    headline=True,
    profiles={
        "smoke": protocol(
            measured(encoder_layers=1, decoder_layers=2, segments=3, batch=1, least=2, most=2),
            0.1,
            10.0,
            "a small model, mechanics only",
        ),
        # Written before the first timing: 0.95 of the bound is 0.86 of BPTT's speed; checkpointing's own
        # bound is 0.75, and 0.82 still lies below that 0.86.
        "cpu": protocol(
            measured(batch=2, most=16),
            0.95,
            0.82,
            "timed at batch 2 on a processor (gradients and bytes as at any scale)",
        ),
        "paper": protocol(measured(batch=16, most=30), 0.95, 0.82, ""),
    },
    choices=(
        "The rollout of Table 3 isn't described: we count and time Memformer 4 + 8 at the MNIST settings, "
        "whose arithmetic speed bound 3/(3 + 4/12) is the printed 0.90, on images of 784 tokens as 16 "
        "segments of 49, with 64 slots, Adam, float32; bytes at batch 16; declared before counting.",
        "Bytes are everything alive at the fullest moment, parameters, gradients and Adam's moments "
        "included, as a GPU would show; activations are shown apart.",
        "Gradient checkpointing isn't described: judged with one checkpoint a Transformer layer, as "
        "libraries offer it; one checkpoint a segment is shown beside it, and is what we time. By arithmetic "
        "both cost one more forward pass, 0.75 of BPTT's speed.",
        "On a processor, times are processor seconds of one thread, in turns that end once the ratio is "
        "known to 2 % (so the interval is a little narrow) or after 16 turns. With "
        "other work on the machine the interval was wider and crossed the band: 0.931 to 1.022 with 8 turns "
        "at batch 4, 0.929 to 1.035 with 16 turns at batch 2. The report has a run with the machine to "
        "itself; the band is unchanged.",
        READS_CHOICE,
    ),
    notes=(
        "With backward = 2 forwards and equal layers, replay runs the encoder once more: 3/(3 + 4/12) = "
        "0.90. The printed 0.48 of checkpointing is below its bound of 0.75 and stays unexplained.",
        "Table 3's megabytes depend on batch and lengths that aren't printed; they are shown with how far we "
        "miss them, and the ratios are judged.",
    ),
)
