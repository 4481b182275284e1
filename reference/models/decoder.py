"""The vanilla Transformer decoder: causal self-attention within one segment, no memory of earlier ones."""

from __future__ import annotations

from torch import Tensor, nn

from reference.models.attention import Layer, check_heads
from reference.models.segment_inputs import embedding, positions, shifted, start_tokens


class Decoder(nn.Module):
    """Causal Transformer as a segment model; its memory is (last token of the segment before [B, 1],).

    The paper's baseline takes the whole sequence as one segment (784 tokens of an image). With shorter
    segments it forgets everything but the last token.

    Raises ValueError if a setting makes no sense.
    """

    def __init__(
        self,
        *,
        vocab: int,
        width: int,
        heads: int,
        head_width: int,
        feed_forward: int,
        layers: int,
        segment: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(width, heads, head_width)
        if min(layers, segment) < 1:
            raise ValueError("A decoder needs at least one layer and one token a segment.")
        self.segment = segment
        self.embedding = embedding(vocab, width)
        self.positions = positions(segment, width)
        self.layers = nn.ModuleList(
            Layer(
                width=width,
                heads=heads,
                head_width=head_width,
                feed_forward=feed_forward,
                dropout=dropout,
                causal=True,
                reads=False,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)
        self.dropout = nn.Dropout(dropout)

    def initial_memory(self, batch: int) -> tuple[Tensor]:
        """Return (one start token [batch, 1],)."""
        return (start_tokens(batch, self.embedding),)

    def step(self, segment_BL: Tensor, memory: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        """Return logits [B, L, V] for the segment and the memory for the next one.

        Raises ValueError if the segment is empty or longer than the model's.
        """
        inputs_BL = shifted(memory[0], segment_BL, self.segment)
        x_BLD = self.dropout(self.embedding(inputs_BL) + self.positions[: inputs_BL.shape[1]])
        for layer in self.layers:
            x_BLD = layer(x_BLD)
        return self.head(self.norm(x_BLD)), (segment_BL[:, -1:],)
