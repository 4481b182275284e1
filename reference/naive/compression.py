"""The memory of a Compressive Transformer, state by state in plain lists; the twin of
`CompressiveTransformer`'s."""

from __future__ import annotations

import torch
from torch import Tensor

from reference.models.compressive_transformer import Compression


class ListMemory:
    """Cache and compressed states of one layer and one sequence.

    Attributes:
        cache: states [D] not yet compressed, oldest first.
        compressed: compressed states [D], oldest first.
    """

    def __init__(self, compression: Compression, memory_size: int, compressed_size: int) -> None:
        self.compression, self.memory_size, self.compressed_size = compression, memory_size, compressed_size
        self.cache: list[Tensor] = []
        self.compressed: list[Tensor] = []

    def store(self, segment_LD: Tensor) -> None:
        """Append the states of a segment, then compress the oldest groups while the cache is too long."""
        self.cache += list(segment_LD)
        ratio = self.compression.ratio
        while len(self.cache) - self.memory_size >= ratio:
            group, self.cache = self.cache[:ratio], self.cache[ratio:]
            self.compressed.append(self._compress(group))
        while len(self.compressed) > self.compressed_size:
            self.compressed.pop(0)

    def _compress(self, group: list[Tensor]) -> Tensor:
        """Return one state for a group: its mean, its maximum or a learned mix, one matrix a place."""
        if self.compression.mix is not None:
            matrices = self.compression.mix.weight.split(len(group[0]), dim=1)
            mixed = [matrix @ state for matrix, state in zip(matrices, group, strict=True)]
            return self.compression.mix.bias + torch.stack(mixed).sum(dim=0)
        if self.compression.kind == "mean":
            return torch.stack(group).sum(dim=0) / len(group)
        return torch.stack(group).max(dim=0).values
