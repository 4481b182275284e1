"""Perplexity of a segment model over a split of its task: exp of the mean negative log-likelihood a token."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Split(Protocol):
    """A task that hands out a whole split of its sequences."""

    def split(self, name: str) -> Tensor:
        """Return the sequences [n, N]."""
        ...


@torch.no_grad()
def perplexity(
    *,
    model: nn.Module,
    task: Split,
    generator: torch.Generator,
    split: str = "test",
    batch: int = 100,
    limit: int | None = None,
) -> dict[str, float | list[float]]:
    """Return the perplexity of the split's sequences (the first `limit`), carried segment by segment.

    Nothing is drawn: `generator` is unused. The model must have the attribute `segment` and the methods
    `initial_memory(batch)` and `step(tokens_BL, memory)`, as the segment models of `reference.models` have.

    Returns:
        perplexity; nats: mean negative log-likelihood a token; nats_by_segment: the same, segment by segment.
    """
    sequences = task.split(split)[:limit]
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    nats = 0.0
    by_segment: list[float] = []
    for tokens_BN in sequences.split(batch):
        memory = model.initial_memory(len(tokens_BN))  # type: ignore[operator]
        for index, tokens_BL in enumerate(tokens_BN.to(device).split(model.segment, dim=1)):
            logits_BLV, memory = model.step(tokens_BL, memory)  # type: ignore[operator]
            loss = F.cross_entropy(logits_BLV.flatten(0, 1), tokens_BL.flatten(), reduction="sum").item()
            if index == len(by_segment):
                by_segment.append(0.0)
            by_segment[index] += loss
            nats += loss
    model.train(was_training)
    mean = nats / sequences.numel()
    lengths = [part.shape[1] for part in sequences[:1].split(model.segment, dim=1)]
    return {
        "perplexity": math.exp(mean),
        "nats": mean,
        "nats_by_segment": [
            total / (len(sequences) * length) for total, length in zip(by_segment, lengths, strict=True)
        ],
    }
