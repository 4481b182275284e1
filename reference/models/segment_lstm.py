"""An LSTM over the tokens of a segment, with the interface of the other segment models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.models.segment_inputs import embedding, shifted, start_tokens


class SegmentLstm(nn.Module):
    """Stacked LSTM as a segment model; its memory is (h, c, both [layers, B, D], last token [B, 1]).

    The paper's baseline has 4 layers of width 512. A segment is only the stretch of tokens between two
    losses here: cutting a sequence elsewhere changes no logit.

    Raises ValueError if a setting makes no sense.
    """

    def __init__(self, *, vocab: int, width: int, layers: int, segment: int, dropout: float = 0.0) -> None:
        super().__init__()
        if min(width, layers, segment) < 1:
            raise ValueError("An LSTM needs at least one unit, one layer and one token a segment.")
        self.segment, self.width = segment, width
        self.embedding = embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head = nn.Linear(width, vocab)
        self.dropout = nn.Dropout(dropout)

    def initial_memory(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return zero states and one start token [batch, 1]."""
        weight = self.embedding.weight
        zeros = torch.zeros(self.lstm.num_layers, batch, self.width, dtype=weight.dtype, device=weight.device)
        return zeros, zeros, start_tokens(batch, self.embedding)

    def step(
        self, segment_BL: Tensor, memory: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Return logits [B, L, V] for the segment and the memory for the next one.

        Raises ValueError if the segment is empty or longer than the model's.
        """
        h, c, previous_B1 = memory
        inputs_BL = shifted(previous_B1, segment_BL, self.segment)
        x_BLD, (h, c) = self.lstm(self.dropout(self.embedding(inputs_BL)), (h, c))
        return self.head(self.dropout(x_BLD)), (h, c, segment_BL[:, -1:])
