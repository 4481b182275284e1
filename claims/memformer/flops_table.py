"""Tables 1 and 2: the FLOPs of eight models, counted under one convention that was declared first."""

from typing import Any

from claims.memformer._shared import (
    ARTICLE,
    MNIST,
    MNIST_SEGMENT,
    PAPER,
    READS,
    READS_CHOICE,
    SEGMENT_CHOICE,
    WIKITEXT,
    WIKITEXT_SEGMENT,
    around,
)
from repro.claim import Claim, Criterion, Protocol, Shown
from repro.recipe import Recipe, part

PIXELS = 784
MNIST_MEMFORMER: dict[str, Any] = {
    **MNIST,
    "segment": MNIST_SEGMENT,
    "memory_size": 64,
    "decoder_reads": READS,
}
WIKITEXT_MEMFORMER: dict[str, Any] = {
    **WIKITEXT,
    "segment": WIKITEXT_SEGMENT,
    "memory_size": 1024,
    "decoder_reads": READS,
}


def counted(model: str, printed: float, length: int, whole: bool = False, **arguments: Any) -> Recipe:
    """Return the recipe that counts one model over one sequence."""
    return Recipe(
        measures=(
            part(
                "reference.measure.model_flops.sequence_flops",
                model=model,
                arguments=arguments,
                lengths=(length,),
                whole=whole,
                paper=printed,
            ),
        )
    )


# name, what it is, printed (10⁹), recipe
ROWS = (
    (
        "mnist-memformer-4-8",
        "MNIST, Memformer 4 + 8",
        5.0,
        counted("memformer", 5.0, PIXELS, **MNIST_MEMFORMER, encoder_layers=4, decoder_layers=8),
    ),
    (
        "mnist-memformer-4-4",
        "MNIST, Memformer 4 + 4",
        3.6,
        counted("memformer", 3.6, PIXELS, **MNIST_MEMFORMER, encoder_layers=4, decoder_layers=4),
    ),
    (
        "mnist-transformer-xl-784",
        "MNIST, Transformer-XL, memory 784",
        49.1,
        counted("transformer_xl", 49.1, PIXELS, **MNIST, layers=8, memory_size=PIXELS, segment=MNIST_SEGMENT),
    ),
    (
        "mnist-decoder",
        "MNIST, Transformer decoder over 784 tokens",
        41.3,
        counted("decoder", 41.3, PIXELS, whole=True, **MNIST, layers=8),
    ),
    (
        "wikitext-memformer-4-16",
        "WikiText-103, Memformer 4 + 16",
        54.0,
        counted("memformer", 54.0, ARTICLE, **WIKITEXT_MEMFORMER, encoder_layers=4, decoder_layers=16),
    ),
    (
        "wikitext-memformer-4-12",
        "WikiText-103, Memformer 4 + 12",
        48.0,
        counted("memformer", 48.0, ARTICLE, **WIKITEXT_MEMFORMER, encoder_layers=4, decoder_layers=12),
    ),
    (
        "wikitext-transformer-xl-1024",
        "WikiText-103, Transformer-XL, memory 1024",
        168.0,
        counted(
            "transformer_xl",
            168.0,
            ARTICLE,
            **WIKITEXT,
            layers=16,
            memory_size=1024,
            segment=WIKITEXT_SEGMENT,
        ),
    ),
    (
        "wikitext-compressive",
        "WikiText-103, Compressive Transformer 512 + 512",
        172.0,
        counted(
            "compressive_transformer",
            172.0,
            ARTICLE,
            **WIKITEXT,
            layers=16,
            memory_size=512,
            compressed_size=512,
            ratio=4,
            segment=WIKITEXT_SEGMENT,
        ),
    ),
)

claim = Claim(
    id="memformer.flops_table",
    paper=PAPER,
    title="FLOPs of the compared models",
    source="Tables 1 and 2",
    statement=(
        "FLOPs in 10⁹: MNIST: Memformer 4+8 5.0, 4+4 3.6, Transformer-XL (memory 784) 49.1, Transformer "
        "decoder 41.3. WikiText-103: Memformer 4+16 54, 4+12 48, Transformer-XL (memory 1024) 168, "
        "Compressive Transformer 172."
    ),
    profiles={
        "every": Protocol(
            cells={name: recipe for name, _, _, recipe in ROWS},
            criteria=tuple(
                Criterion(
                    name=name,
                    kind="count",
                    statement=f"{what}: {printed:g} · 10⁹ FLOPs, ± 10 %",
                    cell=name,
                    metric="billions",
                    **around(printed),
                )
                for name, what, printed, _ in ROWS
            ),
            shown=(
                *(
                    Shown(cell=name, metric="miss_percent", label=f"{what}: counted above printed, %")
                    for name, what, _, _ in ROWS
                ),
                *(
                    Shown(
                        cell=name,
                        metric="billions_last_written",
                        label=f"{what}, its last segment written to memory too",
                        paper=printed,
                    )
                    for name, what, printed, _ in ROWS
                    if "memformer" in name
                ),
            ),
            seeds=1,
        )
    },
    choices=(
        "Convention, silent, one for all eight: forward pass, one sequence from an empty memory (an image of "
        "784 tokens; an article of the printed average length, 3,600 tokens, cut to 3,584), two FLOPs a "
        "multiply-add, matrix products only; declared before counting.",
        "The projection onto the vocabulary is left out of all eight: the size of WikiText's isn't printed.",
        "A Memformer encodes the segment before the one it predicts (a start token before the first), so the "
        "last segment is never written to memory. The paper writes M_t for every t. Both counts are shown: "
        "for 4 + 8 on MNIST the second lies inside the band and the first, which is judged, does not. This "
        "was noticed after counting; the claim's verdict is the same either way.",
        SEGMENT_CHOICE,
        READS_CHOICE,
        "Slots: 64 for MNIST and 1,024 for WikiText-103, from the rows of the ablations.",
    ),
    notes=(
        "*Post hoc*, never judged: no single factor turns our counts into the printed figures. Printed over "
        "counted is 1.13 and 1.20 for the two MNIST Memformers, but 6.2 for Transformer-XL and 9.9 for the "
        "decoder; on WikiText-103 it is 0.057, 0.058, 0.094 and 0.105. So the table's rows can't share a "
        "convention of the kind declared here.",
        "*Post hoc*: by our counts with a full memory, the printed WikiText figures pay for about 205 tokens "
        "of Memformer (both rows) and 300 of Transformer-XL.",
    ),
)
