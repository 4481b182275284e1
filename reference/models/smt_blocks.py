"""Pre-norm Transformer layers with rotary positions, shared by the parts of SMT.

Shapes: N rows, L positions, H heads, D width of a head, W = H·D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def turning(positions: Tensor, head_width: int, dtype: torch.dtype) -> Tensor:
    """Return the rotary turns e^{iφ} of `positions` (…, L), complex (…, L, 1, D / 2)."""
    half = head_width // 2
    frequency = 10_000.0 ** (-torch.arange(half, device=positions.device, dtype=dtype) / half)
    angle = positions.to(dtype)[..., None, None] * frequency
    return torch.polar(torch.ones_like(angle), angle)


def turn(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate the pairs (x_2i, x_2i+1) of `x` (N, L, H, D) by their positions' turns."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2)


class Block(nn.Module):
    """One layer: h += attention(norm(h)); h += feed-forward(norm(h))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.feed_norm = nn.RMSNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, h: Tensor, turns: Tensor, mask: Tensor | None, keep: slice = slice(None)) -> Tensor:
        """Return the layer's output at the positions `keep` of `h` (N, L, W); the others serve as keys only.

        `mask` (…, 1 or L, L) is True where a query (row) may look at a key (column); None: everywhere.
        """
        normed = self.attention_norm(h)
        q = self.query(normed[:, keep]).unflatten(-1, (self.heads, -1))
        k, v = self.key_value(normed).unflatten(-1, (2, self.heads, -1)).unbind(2)
        if mask is not None and mask.shape[-2] > 1:
            mask = mask[..., keep, :]
        q, k, v = (t.transpose(1, 2) for t in (turn(q, turns[..., keep, :, :]), turn(k, turns), v))
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        h = h[:, keep] + self.merge(read.transpose(1, 2).flatten(2))
        return h + self.narrow(F.gelu(self.widen(self.feed_norm(h))))


class Blocks(nn.Module):
    """`layers` blocks; the last one computes only the positions that are used afterwards."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        if layers < 1 or width % (2 * heads):
            raise ValueError(f"SMT needs layers ≥ 1 and an even width a head, not {layers}, {width}/{heads}.")
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head_width = width // heads

    def forward(self, h: Tensor, positions: Tensor, mask: Tensor | None, keep: slice) -> Tensor:
        """Return (N, kept, W) of `h` (N, L, W) at `positions` (L) or, one row each, (N, L)."""
        turns = turning(positions, self.head_width, h.dtype)
        for index, block in enumerate(self.blocks):
            h = block(h, turns, mask, keep if index == len(self.blocks) - 1 else slice(None))
        return h
