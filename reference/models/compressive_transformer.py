"""Compressive Transformer (Rae et al. 2019, arXiv:1911.05507): old states are compressed, not lost."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.models.attention import RelativeLayer, check_heads, newest
from reference.models.segment_inputs import embedding, shifted, start_tokens

COMPRESSIONS = ("convolution", "mean", "max")
Caches = tuple[tuple[Tensor, Tensor], ...]


class Compression(nn.Module):
    """Turn each `ratio` neighbouring states into one: [B, n ratio, D] to [B, n, D].

    "convolution" (kernel = stride = ratio; the paper's best) learns how; "mean" and "max" are pooling.
    """

    def __init__(self, width: int, ratio: int, kind: str) -> None:
        super().__init__()
        self.ratio, self.kind = ratio, kind
        self.mix = nn.Linear(ratio * width, width) if kind == "convolution" else None

    def forward(self, states_BSD: Tensor) -> Tensor:
        """Return the compressed states."""
        groups_BGRD = states_BSD.unflatten(1, (states_BSD.shape[1] // self.ratio, self.ratio))
        if self.mix is not None:
            return self.mix(groups_BGRD.flatten(2))
        return groups_BGRD.mean(dim=2) if self.kind == "mean" else groups_BGRD.amax(dim=2)


class CompressiveTransformer(nn.Module):
    """Compressive Transformer as a segment model.

    Its memory is ((cache [B, K, D], compressed [B, <= C, D]) per layer, last token [B, 1]). Both start
    empty. States leave the cache oldest first in whole groups of `ratio`, so that it may hold some more than
    K = `memory_size`, fewer than `ratio`; a group becomes one compressed state, and the newest
    C = `compressed_size` of those are kept.

    The compression is trained by the losses of later segments, that is by back-propagation over the
    segments; the paper's auxiliary reconstruction loss isn't here.

    Args:
        stop_gradient: no gradient into cache and compressed states. A learned compression is then never
        trained.

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
        compressed_size: int,
        ratio: int = 4,
        compression: str = "convolution",
        dropout: float = 0.0,
        stop_gradient: bool = False,
    ) -> None:
        super().__init__()
        check_heads(width, heads, head_width)
        if min(layers, segment, ratio) < 1 or min(memory_size, compressed_size) < 0:
            raise ValueError(
                "A Compressive Transformer needs layers, segment and ratio of at least 1, sizes "
                "of at least 0."
            )
        if compression not in COMPRESSIONS:
            raise ValueError(
                f"The compression {compression!r} is unknown; choose from {', '.join(COMPRESSIONS)}."
            )
        self.segment, self.memory_size, self.compressed_size = segment, memory_size, compressed_size
        self.ratio, self.stop_gradient = ratio, stop_gradient
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
        self.compressions = nn.ModuleList(Compression(width, ratio, compression) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)
        self.dropout = nn.Dropout(dropout)

    def initial_memory(self, batch: int) -> tuple[Caches, Tensor]:
        """Return empty caches per layer and one start token [batch, 1]."""
        weight = self.embedding.weight
        empty = torch.empty(batch, 0, weight.shape[1], dtype=weight.dtype, device=weight.device)
        return ((empty, empty),) * len(self.layers), start_tokens(batch, self.embedding)

    def step(self, segment_BL: Tensor, memory: tuple[Caches, Tensor]) -> tuple[Tensor, tuple[Caches, Tensor]]:
        """Return logits [B, L, V] for the segment and the memory for the next one.

        Raises ValueError if the segment is empty or longer than the model's.
        """
        caches, previous_B1 = memory
        x_BLD = self.dropout(self.embedding(shifted(previous_B1, segment_BL, self.segment)))
        kept = []
        for layer, compression, (cache_BMD, compressed_BCD) in zip(
            self.layers, self.compressions, caches, strict=True
        ):
            kept.append(self._store(compression, cache_BMD, x_BLD, compressed_BCD))
            x_BLD = layer(x_BLD, torch.cat([compressed_BCD, cache_BMD], dim=1))
        return self.head(self.norm(x_BLD)), (tuple(kept), segment_BL[:, -1:])

    def _store(
        self, compression: nn.Module, cache_BMD: Tensor, x_BLD: Tensor, compressed_BCD: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return cache and compressed states once `x_BLD` is stored and the oldest groups are evicted."""
        M, L = cache_BMD.shape[1], x_BLD.shape[1]
        evicted = max(0, M + L - self.memory_size) // self.ratio * self.ratio
        if evicted:
            oldest_BSD = torch.cat([cache_BMD[:, :evicted], x_BLD[:, : max(0, evicted - M)]], dim=1)
            compressed_BCD = newest(compressed_BCD, compression(oldest_BSD), self.compressed_size)
        cache_BMD = newest(cache_BMD, x_BLD, M + L - evicted)
        if self.stop_gradient:
            return cache_BMD.detach(), compressed_BCD.detach()
        return cache_BMD, compressed_BCD
