"""What the Memformer claims share: the paper, the printed settings, and what we declared before counting."""

from typing import Any

PAPER = "Memformer: A Memory-Augmented Transformer for Sequence Modeling, arXiv:2010.06891"

MNIST: dict[str, Any] = {"width": 128, "heads": 4, "head_width": 32, "feed_forward": 256}
WIKITEXT: dict[str, Any] = {"width": 512, "heads": 8, "head_width": 64, "feed_forward": 2048}

# Silent in the paper, declared before anything was counted:
MNIST_SEGMENT = 56  # the smallest Transformer-XL memory printed for MNIST: two rows of the image
WIKITEXT_SEGMENT = 64  # the smallest memory of Fig. 5
ARTICLE = 3584  # tokens: the printed average article (3,600) in whole segments
READS = "encoder"  # "the decoder takes the encoder's output" (text); slots are read in the encoder's layers

SEGMENT_CHOICE = (
    "Segment length, silent: 56 tokens for MNIST (the smallest Transformer-XL memory printed) and 64 for "
    "WikiText-103 (the smallest memory of Fig. 5); declared before counting."
)
READS_CHOICE = (
    "What the decoder reads: the text has the encoder's output, the formula has M_(t-1); we follow the text, "
    "so slots are read in the encoder's layers only; declared before counting."
)


def around(printed: float) -> dict[str, Any]:
    """Return the band of a printed figure: ± 10 %.

    Wide enough for rounding to two digits and for biases, norms and embeddings that a counter may leave out;
    narrow enough to tell the rows of a table apart (5.0 from 3.6, 54 from 48).
    """
    return {"at_least": round(0.9 * printed, 6), "at_most": round(1.1 * printed, 6), "paper": printed}
