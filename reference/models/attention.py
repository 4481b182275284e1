"""Blocks that the Transformer models of this package share.

Shapes in names: B batch, L positions that ask, S positions that are read, H heads, E width of a head, D
model width. All blocks are pre-norm (the Memformer paper doesn't say; the same choice for every arm) and
have no biases in the projections of the attention. Dropout acts on embeddings and on what a block adds, not
on attention weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017).

    `forward(x_BLD, source_BSD, causal)` returns [B, L, D]. With `causal`, position i reads positions up to i
    of the source, which then has as many positions as x.
    """

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.query = nn.Linear(width, heads * head_width, bias=False)
        self.key_value = nn.Linear(width, 2 * heads * head_width, bias=False)
        self.out = nn.Linear(heads * head_width, width, bias=False)

    def forward(self, x_BLD: Tensor, source_BSD: Tensor, causal: bool = False) -> Tensor:
        """Read `source_BSD` for every position of `x_BLD`."""
        q_BHLE = split_heads(self.query(x_BLD), self.heads)
        k_BSF, v_BSF = self.key_value(source_BSD).chunk(2, dim=-1)
        k_BHSE, v_BHSE = split_heads(k_BSF, self.heads), split_heads(v_BSF, self.heads)
        read_BHLE = F.scaled_dot_product_attention(q_BHLE, k_BHSE, v_BHSE, is_causal=causal)
        return self.out(read_BHLE.transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    """Two linear maps with a GELU between them: [B, L, D] to [B, L, D]."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class Layer(nn.Module):
    """A Transformer layer: self-attention, optionally a read of another sequence, feed-forward; all residual.

    Args:
        causal: position i attends to positions up to i only.
        reads: there is a cross-attention block; `forward` then needs `source_BSD`, which is used as it is
            (whoever made it has normalised it).
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int,
        feed_forward: int,
        dropout: float = 0.0,
        causal: bool,
        reads: bool,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, head_width)
        self.read_norm = nn.LayerNorm(width) if reads else None
        self.read = Attention(width, heads, head_width) if reads else None
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, feed_forward)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BLD: Tensor, source_BSD: Tensor | None = None) -> Tensor:
        """Return the layer's output [B, L, D]."""
        normed_BLD = self.norm(x_BLD)
        x_BLD = x_BLD + self.dropout(self.attention(normed_BLD, normed_BLD, causal=self.causal))
        if self.read is not None and self.read_norm is not None:
            assert source_BSD is not None, "this layer reads another sequence"
            x_BLD = x_BLD + self.dropout(self.read(self.read_norm(x_BLD), source_BSD))
        return x_BLD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BLD)))


class RelativeAttention(nn.Module):
    """Causal attention with relative positions over cached states and the segment (Dai et al. 2019, 3.3).

    The logit of query i for key j at distance d = i - j >= 0 is (q_i + u)·k_j + (q_i + v)·(W_r R_d), over
    sqrt(E); R_d is the sinusoid of d, u and v are learned per head. The position term is made for every
    distance at once and shifted into place (Appendix B) in linear instead of quadratic memory.

    `forward(x_BLD, states_BSD)`: x is the last L of the S states; returns [B, L, D].
    """

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.query = nn.Linear(width, heads * head_width, bias=False)
        self.key_value = nn.Linear(width, 2 * heads * head_width, bias=False)
        self.position = nn.Linear(width, heads * head_width, bias=False)
        self.content_bias = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)
        self.position_bias = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)
        self.out = nn.Linear(heads * head_width, width, bias=False)

    def forward(self, x_BLD: Tensor, states_BSD: Tensor) -> Tensor:
        """Read `states_BSD`, whose last positions are `x_BLD`, causally."""
        L, S = x_BLD.shape[1], states_BSD.shape[1]
        q_BHLE = split_heads(self.query(x_BLD), self.heads) * self.head_width**-0.5
        k_BSF, v_BSF = self.key_value(states_BSD).chunk(2, dim=-1)
        k_BHSE, v_BHSE = split_heads(k_BSF, self.heads), split_heads(v_BSF, self.heads)
        distances_S = torch.arange(S - 1, -1, -1, device=x_BLD.device)
        sinusoids_SD = sinusoids(distances_S, x_BLD.shape[2], x_BLD.dtype)
        r_HSE = split_heads(self.position(sinusoids_SD)[None], self.heads)[0]
        scale = self.head_width**-0.5
        logits_BHLS = (q_BHLE + self.content_bias * scale) @ k_BHSE.transpose(-1, -2)
        logits_BHLS = logits_BHLS + shift((q_BHLE + self.position_bias * scale) @ r_HSE.transpose(-1, -2))
        future_LS = torch.ones(L, S, dtype=torch.bool, device=x_BLD.device).triu(S - L + 1)
        weights_BHLS = logits_BHLS.masked_fill(future_LS, -torch.inf).softmax(dim=-1)
        return self.out((weights_BHLS @ v_BHSE).transpose(1, 2).flatten(2))


class RelativeLayer(nn.Module):
    """A pre-norm Transformer layer that reads cached states of its own input: relative attention,
    feed-forward."""

    def __init__(
        self, *, width: int, heads: int, head_width: int, feed_forward: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = RelativeAttention(width, heads, head_width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, feed_forward)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BLD: Tensor, cached_BMD: Tensor) -> Tensor:
        """Return the layer's output [B, L, D]; `cached_BMD` holds its inputs at earlier positions."""
        states_BSD = self.norm(torch.cat([cached_BMD, x_BLD], dim=1))
        x_BLD = x_BLD + self.dropout(self.attention(states_BSD[:, cached_BMD.shape[1] :], states_BSD))
        return x_BLD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BLD)))


def split_heads(x_BLF: Tensor, heads: int) -> Tensor:
    """Return [B, L, H E] as [B, H, L, E]."""
    return x_BLF.unflatten(-1, (heads, -1)).transpose(1, 2)


def newest(older_BMD: Tensor, newer_BLD: Tensor, count: int) -> Tensor:
    """Return the last `count` positions of both in a row, or all, in a storage of exactly that size."""
    surplus = max(0, older_BMD.shape[1] + newer_BLD.shape[1] - count)
    return torch.cat([older_BMD[:, surplus:], newer_BLD[:, max(0, surplus - older_BMD.shape[1]) :]], dim=1)


def shift(by_distance_BHLS: Tensor) -> Tensor:
    """Move column S-1-d (distance d) of row i to the column of the key at distance d from query i.

    Query i sits at position S - L + i. Columns of the future hold leftovers: mask them.

    >>> shift(torch.tensor([[[[2, 1, 0], [2, 1, 0]]]]))[0, 0].tolist()
    [[1, 0, 0], [2, 1, 0]]
    """
    B, H, L, S = by_distance_BHLS.shape
    padded = F.pad(by_distance_BHLS, (1, 0)).view(B, H, S + 1, L)
    return padded[:, :, 1:].reshape(B, H, L, S)


def sinusoids(positions_S: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return the sines, then the cosines, of whole-number positions at geometric wavelengths: [S, width].

    Raises ValueError if the width is odd.
    """
    if width % 2:
        raise ValueError(f"Sinusoidal positions need an even width, not {width}.")
    steps = torch.arange(0, width, 2, device=positions_S.device, dtype=dtype)
    angles = positions_S.to(dtype)[:, None] * 10000 ** (-steps / width)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def check_heads(width: int, heads: int, head_width: int) -> None:
    """Raise ValueError unless all three are at least 1."""
    if min(width, heads, head_width) < 1:
        raise ValueError(
            f"width, heads and head_width must be at least 1, not {width}, {heads} and {head_width}."
        )
