"""The image task of Table 1 at two scales: what `image_ppl` and `slots` share; equal cells train once."""

from typing import Any

from claims.memformer._shared import MNIST, MNIST_SEGMENT, READS
from repro.recipe import Part, Recipe, Stage, part

MEMFORMER = "reference.models.memformer.Memformer"
TRANSFORMER_XL = "reference.models.transformer_xl.TransformerXL"
DECODER = "reference.models.decoder.Decoder"
LSTM = "reference.models.segment_lstm.SegmentLstm"

# Reduced: real digits averaged to 7 × 7 pixels of 8 grey levels, a row a segment; half the width, a quarter
# of the layers (1 + 2 for 4 + 8; a Transformer-XL of 2 for 8).
CPU_TASK = part("reference.tasks.digits.Digits", source="small", pool=4, levels=8)
CPU_WIDTH: dict[str, Any] = {
    "vocab": 8,
    "width": 64,
    "heads": 4,
    "head_width": 16,
    "feed_forward": 128,
    "segment": 7,
}
CPU_STAGE = {"steps": 500, "batch": 32, "lr": 3e-3, "warmup": 50, "validate_every": 100}
CPU_SCALE = (
    "5,000 real digits averaged to 7 × 7 pixels of 8 grey levels (49 tokens, segments of 7) instead of "
    "60,000 of 28 × 28 pixels of 256; width 64 instead of 128, Memformer 1 + 2 layers instead of 4 + 8, 500 "
    "steps of batch 32"
)

CPU_SEED_OFFSET = 100  # fresh seeds for the reduced profile: see SEEN
SEEN = (
    "Seen before the judged seeds: three configurations of memformer.slots were tried while it was designed. "
    "The decoder reading slots alone (perplexity on pilot seed 1: 2.025 with 1 slot, 1.959 with 8; on seed "
    "1000: 1.968 and 1.976), the model of memformer.image_ppl (kept; pilot seed 1: 1.970 with 1, 1.966 with "
    "16), and 14 × 14 pixels at width 32 (1.664 with 1, 1.651 with 8). Seeds 1000 and 1001 of the cells that "
    "both claims share were seen on the way and enter no verdict; the judged seeds begin at 1100."
)

PAPER_TASK = part("reference.tasks.digits.Digits", source="full", pool=1, levels=256)
PAPER_WIDTH: dict[str, Any] = {**MNIST, "vocab": 256, "segment": MNIST_SEGMENT}
PAPER_STAGE = {"steps": 100_000, "batch": 32, "lr": 1e-3, "warmup": 1000, "validate_every": 5000}

SMOKE_STAGE = {"steps": 2, "batch": 2, "lr": 1e-3, "warmup": 0, "validate_every": 1}


def trained(task: Part, model: Part, stage: dict[str, Any], limit: int | None = None) -> Recipe:
    """Return the recipe that trains one model on whole sequences; all arms alike."""
    perplexity = part("reference.measure.perplexity.perplexity", split="test", limit=limit)
    return Recipe(
        task=task,
        model=model,
        stages=(
            Stage(
                algorithm=part("reference.algorithms.segments.Segments"),
                clip=1.0,
                decay="cosine",
                **stage,
            ),
        ),
        validation=perplexity.but(split="validation"),
        measures=(perplexity,),
    )


def memformer(width: dict[str, Any], layers: tuple[int, int], slots: int, memory: str = "on") -> Part:
    """Return a Memformer of encoder and decoder layers."""
    encoder, decoder = layers
    return part(
        MEMFORMER,
        **width,
        encoder_layers=encoder,
        decoder_layers=decoder,
        memory_size=slots,
        memory=memory,
        decoder_reads=READS,
    )


def cpu(model: Part) -> Recipe:
    """Return the reduced recipe of one arm."""
    return trained(CPU_TASK, model, CPU_STAGE)


def paper(model: Part) -> Recipe:
    """Return the recipe of one arm at the paper's scale."""
    return trained(PAPER_TASK, model, PAPER_STAGE)


def smoke(model: Part) -> Recipe:
    """Return a recipe of one arm that only shows that it runs."""
    return trained(CPU_TASK, model, SMOKE_STAGE, limit=4)


CHOICES = (
    "Training, silent here: Adam, one schedule for every arm (warm-up, then cosine to 0), gradient norm "
    "clipped at 1, no dropout. Gradients go through the whole sequence in Memformer and the LSTM; "
    "Transformer-XL is as published: none goes into its cache.",
    "Segment, silent: one row of the reduced image; two rows (56 tokens) at the paper's scale.",
    "The decoder reads the encoder's output for the segment before (the text), not the slots themselves (the "
    "formula); slots are read in the encoder.",
)
