"""Hybrids of an LSTM and Transformer blocks (arXiv:2510.00258, App. A), and either of them alone.

Composition reads from right to left: LSTM∘Attn attends first. Attn is a stack of post-norm Transformer blocks
with rotary positions (RoPE). Each model names its module `attention` as one that can sleep: while it does,
the module contributes nothing, its LayerNorms included, and what is left is the recurrent path alone.

Shapes in names: B batch, T positions, Q positions whose output is wanted, D width, H heads, E width of a
head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reference.models.smt_blocks import turn, turning


class Block(nn.Module):
    """One post-norm Transformer block: x ← LN(x + MHA(x)), then x ← LN(x + MLP(x)). Attention is causal."""

    def __init__(self, width: int, heads: int, feed_forward: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, feed_forward)
        self.narrow = nn.Linear(feed_forward, width)
        self.feed_norm = nn.LayerNorm(width)

    def forward(self, x_BTD: Tensor, turns: Tensor, at_Q: Tensor | None = None) -> Tensor:
        """Return the block's output [B, T, D], or [B, Q, D] at the positions `at_Q` only."""
        q_BHQE, k_BHTE, v_BHTE = self.heads_of(x_BTD, turns)
        if at_Q is None:
            read = F.scaled_dot_product_attention(q_BHQE, k_BHTE, v_BHTE, is_causal=True)
        else:
            x_BTD, q_BHQE = some(x_BTD, at_Q), q_BHQE.index_select(2, at_Q)
            past_QT = torch.arange(k_BHTE.shape[2], device=at_Q.device) <= at_Q[:, None]
            read = F.scaled_dot_product_attention(q_BHQE, k_BHTE, v_BHTE, attn_mask=past_QT)
        x_BTD = self.attention_norm(x_BTD + self.merge(read.transpose(1, 2).flatten(2)))
        return self.feed_norm(x_BTD + self.narrow(F.gelu(self.widen(x_BTD))))

    def heads_of(self, x_BTD: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return turned queries, turned keys and values, each [B, H, T, E]."""
        qkv = self.query_key_value(x_BTD).unflatten(-1, (3 * self.heads, -1))
        qk, v_BTHE = qkv.split((2 * self.heads, self.heads), dim=2)
        q_BTHE, k_BTHE = turn(qk, turns).split(self.heads, dim=2)
        return q_BTHE.transpose(1, 2), k_BTHE.transpose(1, 2), v_BTHE.transpose(1, 2)

    def scores(self, x_BTD: Tensor, turns: Tensor) -> Tensor:
        """Return the scaled scores q·k / √E, [B, H, T, T], rows queries; entries of the future are −∞."""
        q_BHTE, k_BHTE, _ = self.heads_of(x_BTD, turns)
        scores_BHTT = q_BHTE @ k_BHTE.transpose(-1, -2) * q_BHTE.shape[-1] ** -0.5
        future_TT = torch.ones(scores_BHTT.shape[-2:], dtype=torch.bool, device=x_BTD.device).triu(1)
        return scores_BHTT.masked_fill(future_TT, -torch.inf)


class Attn(nn.Module):
    """The paper's Attn: `blocks` Transformer blocks in a row.

    Raises ValueError unless blocks ≥ 1 and every head has an even width.
    """

    def __init__(self, width: int, heads: int, blocks: int, feed_forward: int) -> None:
        super().__init__()
        if blocks < 1 or heads < 1 or width % (2 * heads):
            raise ValueError(
                f"Attn needs blocks ≥ 1 and an even width a head, not {blocks}, {width}/{heads}."
            )
        self.head_width = width // heads
        self.blocks = nn.ModuleList(Block(width, heads, feed_forward) for _ in range(blocks))

    def forward(self, x_BTD: Tensor, at_Q: Tensor | None = None) -> Tensor:
        """Return [B, T, D], or [B, Q, D]: the last block computes only the positions `at_Q`."""
        turns = turning(torch.arange(x_BTD.shape[1], device=x_BTD.device), self.head_width, x_BTD.dtype)
        for block in self.blocks[:-1]:
            x_BTD = block(x_BTD, turns)
        return self.blocks[-1](x_BTD, turns, at_Q)


class Lstm(nn.LSTM):
    """One LSTM layer from zero state: [B, T, D] to [B, T, D], or to [B, Q, D] at the positions `at_Q`."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, batch_first=True)

    def forward(self, x_BTD: Tensor, at_Q: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Return the hidden states."""
        return some(super().forward(x_BTD)[0], at_Q)


def some(x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
    """Return x at the positions `at_Q`, or all of it for None."""
    return x_BTD if at_Q is None else x_BTD.index_select(1, at_Q)


class Hybrid(nn.Module):
    """Embedding, one of the paper's paths, head.

    Args:
        vocabulary: different tokens, read and predicted.
        width: D of embedding, LSTM and blocks.
        heads, blocks: of Attn; `feed_forward`: hidden width of its MLPs, 4 D unless given.

    Attributes:
        sleepers: name → module that can sleep.
        asleep: names of those that do; `reference.algorithms.delayed_attention` sets it.
    """

    def __init__(
        self, vocabulary: int, width: int, heads: int = 4, blocks: int = 4, feed_forward: int | None = None
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.assemble(width, heads, blocks, 4 * width if feed_forward is None else feed_forward)
        self.head = nn.Linear(width, vocabulary)
        self.asleep: frozenset[str] = frozenset()

    def assemble(self, width: int, heads: int, blocks: int, feed_forward: int) -> None:
        """Make LSTM and Attn."""
        self.lstm = Lstm(width)
        self.attention = Attn(width, heads, blocks, feed_forward)

    @property
    def sleepers(self) -> dict[str, nn.Module]:
        """Modules that can sleep, by name."""
        return {"attention": self.attention}

    def forward(self, inputs_BT: Tensor, at_Q: Tensor | None = None) -> Tensor:
        """Return logits [B, T, vocabulary] for the token after each position, or after `at_Q` only."""
        return self.head(self.path(self.embedding(inputs_BT), at_Q))

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return what the head reads, at the positions `at_Q`."""
        raise NotImplementedError

    def attend(self, x_BTD: Tensor, at_Q: Tensor | None = None) -> Tensor:
        """Return Attn(x), or x itself while attention sleeps: the bypass of a module in series."""
        return some(x_BTD, at_Q) if "attention" in self.asleep else self.attention(x_BTD, at_Q)


class AttnOnLstm(Hybrid):
    """Attn∘LSTM: Z = Attn(LSTM(X))."""

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return Z; LSTM(X) while attention sleeps."""
        return self.attend(self.lstm(x_BTD), at_Q)


class LstmOnAttn(Hybrid):
    """LSTM∘Attn: Z = LSTM(Attn(X))."""

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return Z; LSTM(X) while attention sleeps."""
        return self.lstm(self.attend(x_BTD), at_Q)


class Parallel(Hybrid):
    """LSTM + Attn: Z = LSTM(X) + Attn(X)."""

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return Z; LSTM(X) while attention sleeps: the branch is dropped, not passed by."""
        h_BQD = self.lstm(x_BTD, at_Q)
        return h_BQD if "attention" in self.asleep else h_BQD + self.attention(x_BTD, at_Q)


class HybridBlock(Hybrid):
    """LSTM, MHA and MLP in one residual block (Fig. 1, left): H = LN(X + LSTM(X)), Z = Attn(H).

    The LSTM's update stands once before the blocks of Attn, each of which has its own residual paths.
    """

    def assemble(self, width: int, heads: int, blocks: int, feed_forward: int) -> None:
        """Make LSTM, its LayerNorm, and Attn."""
        super().assemble(width, heads, blocks, feed_forward)
        self.lstm_norm = nn.LayerNorm(width)

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return Z; H while attention sleeps."""
        return self.attend(self.lstm_norm(x_BTD + self.lstm(x_BTD)), at_Q)


class Sandwich(Hybrid):
    """LSTM∘Attn∘LSTM: Z = LSTM′(Attn(LSTM(X)))."""

    def assemble(self, width: int, heads: int, blocks: int, feed_forward: int) -> None:
        """Make both LSTMs and Attn."""
        super().assemble(width, heads, blocks, feed_forward)
        self.upper_lstm = Lstm(width)

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return Z; LSTM′(LSTM(X)) while attention sleeps."""
        return self.upper_lstm(self.attend(self.lstm(x_BTD)), at_Q)


class TransformerOnly(Hybrid):
    """Attn(X). Nothing in it can sleep: without attention there is no path."""

    def assemble(self, width: int, heads: int, blocks: int, feed_forward: int) -> None:
        """Make Attn."""
        self.attention = Attn(width, heads, blocks, feed_forward)

    @property
    def sleepers(self) -> dict[str, nn.Module]:
        """None."""
        return {}

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return Attn(X)."""
        return self.attention(x_BTD, at_Q)


class LstmOnly(Hybrid):
    """LSTM(X). It has no attention; `heads`, `blocks` and `feed_forward` mean nothing here."""

    def assemble(self, width: int, heads: int, blocks: int, feed_forward: int) -> None:
        """Make the LSTM."""
        self.lstm = Lstm(width)

    @property
    def sleepers(self) -> dict[str, nn.Module]:
        """None."""
        return {}

    def path(self, x_BTD: Tensor, at_Q: Tensor | None) -> Tensor:
        """Return LSTM(X)."""
        return self.lstm(x_BTD, at_Q)
