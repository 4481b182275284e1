"""What every segment model does first: tokens shifted by one, so that position n sees tokens before n only.

A *segment model* has `segment` (tokens in a segment), `initial_memory(batch) -> memory` and
`step(segment_BL, memory) -> (logits_BLV, memory)`; `logits[:, n]` predicts `segment[:, n]` from everything
before it. Memory is a tensor or a nested tuple of tensors. The last token of the segment before travels
inside the memory; before the first segment it is the start token, number `vocab`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def embedding(vocab: int, width: int) -> nn.Embedding:
    """Return the embedding of `vocab` tokens and the start token; initial standard deviation 0.02."""
    table = nn.Embedding(vocab + 1, width)
    nn.init.normal_(table.weight, std=0.02)
    return table


def positions(count: int, width: int) -> nn.Parameter:
    """Return learned positions [count, width], initialised with standard deviation 0.02."""
    return nn.Parameter(torch.randn(count, width) * 0.02)


def start_tokens(batch: int, table: nn.Embedding) -> Tensor:
    """Return [batch, 1] start tokens on the device of `table`."""
    return torch.full((batch, 1), table.num_embeddings - 1, device=table.weight.device)


def shifted(previous_BP: Tensor, segment_BL: Tensor, longest: int) -> Tensor:
    """Return the decoder's inputs: the last token of `previous_BP`, then the segment without its last token.

    Raises ValueError if the segment is empty or longer than `longest`.
    """
    if not 1 <= segment_BL.shape[1] <= longest:
        raise ValueError(
            f"A segment of {segment_BL.shape[1]} tokens doesn't fit a model built for 1 to {longest}; "
            "raise the model's `segment` or split the sequence."
        )
    return torch.cat([previous_BP[:, -1:], segment_BL[:, :-1]], dim=1)
