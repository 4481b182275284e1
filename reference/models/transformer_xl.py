"""Transformer-XL (Dai et al. 2019, arXiv:1901.02860): every layer also reads its earlier inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.models.attention import RelativeLayer, check_heads, newest
from reference.models.segment_inputs import embedding, shifted, start_tokens

Cache = tuple[Tensor, ...]


class TransformerXL(nn.Module):
    """Transformer-XL as a segment model; its memory is (a cache [B, <= K, D] per layer, last token [B, 1]).

    The caches start empty and keep the last K = `memory_size` positions of each layer's input.

    Args:
        stop_gradient: no gradient into the cache, as published. Off, the loss of a segment trains what the
            segments before stored, and the horizon of the algorithm decides how far.

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
        memory_size: int,
        dropout: float = 0.0,
        stop_gradient: bool = True,
    ) -> None:
        super().__init__()
        check_heads(width, heads, head_width)
        if min(layers, segment) < 1 or memory_size < 0:
            raise ValueError(
                "Transformer-XL needs a layer, a token a segment and a memory_size of at least 0."
            )
        self.segment, self.memory_size, self.stop_gradient = segment, memory_size, stop_gradient
        self.embedding = embedding(vocab, width)
        self.layers = nn.ModuleList(
            RelativeLayer(
                width=width,
                heads=heads,
                head_width=head_width,
                feed_forward=feed_forward,
                dropout=dropout,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)
        self.dropout = nn.Dropout(dropout)

    def initial_memory(self, batch: int) -> tuple[Cache, Tensor]:
        """Return an empty cache per layer and one start token [batch, 1]."""
        weight = self.embedding.weight
        empty = torch.empty(batch, 0, weight.shape[1], dtype=weight.dtype, device=weight.device)
        return (empty,) * len(self.layers), start_tokens(batch, self.embedding)

    def step(self, segment_BL: Tensor, memory: tuple[Cache, Tensor]) -> tuple[Tensor, tuple[Cache, Tensor]]:
        """Return logits [B, L, V] for the segment and the memory for the next one.

        Raises ValueError if the segment is empty or longer than the model's.
        """
        caches, previous_B1 = memory
        x_BLD = self.dropout(self.embedding(shifted(previous_B1, segment_BL, self.segment)))
        kept = []
        for layer, cache_BMD in zip(self.layers, caches, strict=True):
            next_BMD = newest(cache_BMD, x_BLD, self.memory_size)
            kept.append(next_BMD.detach() if self.stop_gradient else next_BMD)
            x_BLD = layer(x_BLD, cache_BMD)
        return self.head(self.norm(x_BLD)), (tuple(kept), segment_BL[:, -1:])
