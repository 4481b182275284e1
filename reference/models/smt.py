"""The parts of SMT: encoder, decoder, updater, readout (arXiv:2606.06479, Sec. 2, App. B.1).

A memory m_t is K tokens of M numbers, each of root mean square 1. The encoder writes it from the tokens up to
t, the decoder predicts answers from it and the tokens after t, the updater makes m_{t+1} of m_t and x_{t+1},
the readout predicts y_t from m_t. Shapes: B sequences of T tokens, N contexts (sequence, end), W width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reference.models.smt_blocks import Blocks


class Encoder(nn.Module):
    """Bidirectional over the tokens up to t; K register tokens come out as the memory."""

    def __init__(
        self, vocabulary: int, width: int, heads: int, layers: int, memory: int, memory_width: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.registers = nn.Parameter(torch.randn(memory, width))
        self.layers = Blocks(layers, width, heads)
        self.out = nn.Identity() if memory_width == width else nn.Linear(width, memory_width)

    def forward(self, tokens: Tensor, ages: Tensor, seen: Tensor | None = None) -> Tensor:
        """Return the memories (N, K, M) of `tokens` (N, L).

        `ages` (L) or (N, L) says how many steps ago a token came, so the order of the columns is free;
        registers have age 0. `seen` (N, L) is False at padding.
        """
        n, k = len(tokens), len(self.registers)
        h = torch.cat((self.registers.expand(n, -1, -1), self.embedding(tokens)), 1)
        positions = torch.cat((ages.new_zeros(*ages.shape[:-1], k), -ages), -1)
        mask = None
        if seen is not None:
            mask = torch.cat((seen.new_ones(n, k), seen), 1)[:, None, None]
        return unit(self.out(self.layers(h, positions, mask, slice(0, k))))


class Decoder(nn.Module):
    """From a memory and the tokens after it to answers: all see the memory, the rest is causal.

    A start token after the memory gives y_t, the token x_τ gives y_τ. Without tokens it is a readout of y_t.
    """

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, memory_width: int) -> None:
        super().__init__()
        self.inward = nn.Identity() if memory_width == width else nn.Linear(memory_width, width)
        self.embedding = nn.Embedding(vocabulary, width)
        self.start = nn.Parameter(torch.randn(width))
        self.layers = Blocks(layers, width, heads)
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def features(self, memory: Tensor, future: Tensor | None = None) -> Tensor:
        """Return the input of `head` (N, 1 + F, W) for `memory` (N, K, M) and `future` (N, F) tokens."""
        n, k = memory.shape[:2]
        parts = [self.inward(memory), self.start.expand(n, 1, -1)]
        if future is not None:
            parts.append(self.embedding(future))
        h = torch.cat(parts, 1)
        place = torch.arange(h.shape[1], device=h.device)
        mask = (place[None] <= place[:, None]) | (place < k)
        return self.norm(self.layers(h, place, mask, slice(k, None)))

    def forward(self, memory: Tensor, future: Tensor | None = None) -> Tensor:
        """Return logits (N, 1 + F, vocabulary) for y_t and the answers at the `future` tokens."""
        return self.head(self.features(memory, future))


class TransformerUpdater(nn.Module):
    """Attention over the K memory tokens and one input token: a recurrent step of constant cost."""

    def __init__(
        self, vocabulary: int, width: int, heads: int, layers: int, memory: int, memory_width: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.inward = nn.Identity() if memory_width == width else nn.Linear(memory_width, width)
        self.layers = Blocks(layers, width, heads)
        self.out = nn.Identity() if memory_width == width else nn.Linear(width, memory_width)

    def forward(self, memory: Tensor, token: Tensor) -> Tensor:
        """Return the next memory (N, K, M) of `memory` (N, K, M) and `token` (N)."""
        k = memory.shape[1]
        h = torch.cat((self.inward(memory), self.embedding(token)[:, None]), 1)
        positions = torch.arange(k + 1, device=h.device)
        return unit(self.out(self.layers(h, positions, None, slice(0, k))))


class MlpUpdater(nn.Module):
    """The memory laid flat, `layers` residual layers that each see the input token beside it."""

    def __init__(
        self, vocabulary: int, width: int, heads: int, layers: int, memory: int, memory_width: int
    ) -> None:
        super().__init__()
        flat = memory * memory_width
        self.embedding = nn.Embedding(vocabulary, width)
        self.norms = nn.ModuleList(nn.RMSNorm(flat) for _ in range(layers))
        self.widen = nn.ModuleList(nn.Linear(flat + width, 4 * width) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, flat) for _ in range(layers))

    def forward(self, memory: Tensor, token: Tensor) -> Tensor:
        """Return the next memory (N, K, M) of `memory` (N, K, M) and `token` (N)."""
        h, x = memory.flatten(1), self.embedding(token)
        for norm, widen, narrow in zip(self.norms, self.widen, self.narrow, strict=True):
            h = h + narrow(F.gelu(widen(torch.cat((norm(h), x), 1))))
        return unit(h.view_as(memory))


class GruUpdater(nn.Module):
    """A GRU whose layers hold K / layers memory tokens each as state; its output is not normalised."""

    def __init__(
        self, vocabulary: int, width: int, heads: int, layers: int, memory: int, memory_width: int
    ) -> None:
        super().__init__()
        if memory % layers:
            raise ValueError(f"{memory} memory tokens cannot be shared out among {layers} GRU layers evenly.")
        state = memory // layers * memory_width
        self.embedding = nn.Embedding(vocabulary, width)
        self.cells = nn.ModuleList(nn.GRUCell(state if i else width, state) for i in range(layers))

    def forward(self, memory: Tensor, token: Tensor) -> Tensor:
        """Return the next memory (N, K, M) of `memory` (N, K, M) and `token` (N)."""
        x, states = self.embedding(token), []
        for cell, old in zip(self.cells, memory.chunk(len(self.cells), 1), strict=True):
            x = cell(x, old.flatten(1))
            states.append(x.view_as(old))
        return torch.cat(states, 1)


UPDATERS = {"transformer": TransformerUpdater, "mlp": MlpUpdater, "gru": GruUpdater}


class SMT(nn.Module):
    """Teacher (encoder, decoder) and recurrent student (updater, readout, and a learned first memory).

    Args:
        vocabulary: tokens and answers alike are 0 … vocabulary − 1.
        width, heads: of every Transformer.
        memory, memory_width: K tokens of M numbers; None: M = width.
        encoder_layers, decoder_layers, updater_layers: the readout is built like the decoder.
        updater: transformer, mlp or gru.
        context: the encoder sees the last `context` tokens (T_c); None: all.

    Raises:
        ValueError: an unknown updater, a size below 1, a width that heads cannot share in even parts, or
            memory tokens that GRU layers cannot share.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 256,
        heads: int = 8,
        memory: int = 16,
        memory_width: int | None = None,
        encoder_layers: int = 8,
        decoder_layers: int = 4,
        updater_layers: int = 8,
        updater: str = "transformer",
        context: int | None = None,
    ) -> None:
        super().__init__()
        if updater not in UPDATERS:
            raise ValueError(f"the updater {updater!r} is unknown; choose from {', '.join(UPDATERS)}.")
        m = width if memory_width is None else memory_width
        sizes = (vocabulary, width, heads, memory, m, encoder_layers, decoder_layers, updater_layers)
        if min(*sizes, 1 if context is None else context) < 1:
            raise ValueError("SMT needs sizes, layers, memory and context of 1 or more; context may be None.")
        self.context = context
        self.encoder = Encoder(vocabulary, width, heads, encoder_layers, memory, m)
        self.decoder = Decoder(vocabulary, width, heads, decoder_layers, m)
        self.updater = UPDATERS[updater](vocabulary, width, heads, updater_layers, memory, m)
        self.readout = Decoder(vocabulary, width, heads, decoder_layers, m)
        self.start = nn.Parameter(torch.randn(memory, m))

    def first(self, size: int) -> Tensor:
        """Return the learned memory before any token, (size, K, M)."""
        return unit(self.start).expand(size, -1, -1)

    def encode(self, x: Tensor, rows: Tensor, ends: Tensor, buckets: int = 4) -> Tensor:
        """Return the teacher's memories (N, K, M) of the contexts x[rows, ≤ ends]; `x` is (B, T).

        The contexts go through the encoder in `buckets` groups of like length, so that few positions are
        padding.
        """
        memories = []
        order = ends.argsort(stable=True)
        for group in order.chunk(buckets):
            end = ends[group]
            length = min(int(end[-1]) + 1, self.context or x.shape[1])
            ages = torch.arange(length - 1, -1, -1, device=x.device)
            place = end[:, None] - ages
            seen = None if int(end[0]) + 1 >= length else place >= 0
            memories.append(self.encoder(x[rows[group, None], place.clamp(min=0)], ages, seen))
        return torch.cat(memories)[order.argsort()]

    def teach(self, x: Tensor, buckets: int = 4) -> Tensor:
        """Return the teacher's memory at every position of `x` (B, T): (B, T, K, M)."""
        rows, ends = every_split(x)
        return self.encode(x, rows, ends, buckets).unflatten(0, x.shape)

    def roll(self, memory: Tensor, x: Tensor) -> Tensor:
        """Return the updater's own memories (B, T, K, M) after `memory` (B, K, M), along `x` (B, T).

        All steps are in one graph, back to `memory`.
        """
        states = []
        for token in x.unbind(1):
            memory = self.updater(memory, token)
            states.append(memory)
        return torch.stack(states, 1)


def unit(memory: Tensor) -> Tensor:
    """Return `memory` with the root mean square of every token (last dimension) at 1."""
    return F.rms_norm(memory, memory.shape[-1:])


def every_split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return sequence and end of all B · T contexts of `x` (B, T, …), each (B · T)."""
    size, length = x.shape[:2]
    place = torch.arange(size * length, device=x.device)
    return place // length, place % length


def decode(
    decoder: Decoder,
    memory: Tensor,
    batch: dict[str, Tensor],
    rows: Tensor,
    ends: Tensor,
    future: int | None,
    buckets: int = 4,
) -> tuple[Tensor, Tensor]:
    """Return logits and answers, (A, vocabulary) and (A), of every defined answer in the contexts' windows.

    Context i has the memory `memory[i]` (N, K, M) of sequence rows[i] up to ends[i]; its window holds the
    `future` answers (T_f; None: all) from y_ends[i] on. A window is cut after its last defined answer, one
    without any is left out, and the others are decoded in `buckets` groups of like length.
    """
    found = list(_windows(decoder, memory, batch, rows, ends, future, buckets))
    if not found:
        return memory.new_zeros(0, decoder.head.out_features), rows.new_zeros(0)
    features, answers = zip(*found, strict=True)
    return decoder.head(torch.cat(features)), torch.cat(answers)


def _windows(
    decoder: Decoder,
    memory: Tensor,
    batch: dict[str, Tensor],
    rows: Tensor,
    ends: Tensor,
    future: int | None,
    buckets: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    x, y, mask = batch["inputs"], batch["targets"], batch["mask"]
    length = x.shape[1]
    offset = torch.arange(length if future is None else min(future, length), device=x.device)
    place = ends[:, None] + offset
    asked = mask[rows[:, None], place.clamp(max=length - 1)] & (place < length)
    used = ((offset + 1) * asked).amax(1)  # answers up to and including the last defined one
    order = used.argsort(stable=True)[int((used == 0).sum()) :]
    for group in order.chunk(buckets) if len(order) else ():
        span = int(used[group[-1]])
        where, sequence = place[group, :span].clamp(max=length - 1), rows[group, None]
        wanted = asked[group, :span]
        h = decoder.features(memory[group], x[sequence, where[:, 1:]] if span > 1 else None)
        yield h[wanted], y[sequence, where][wanted]
