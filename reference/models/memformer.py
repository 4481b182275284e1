"""Memformer (arXiv:2010.06891): a Transformer encoder-decoder that reads and writes slots of memory.

    M_t = Encoder(s_t, M_{t-1});   P(s_{t+1} | s_{<=t}) = Decoder(s_{t+1}; Encoder output for s_t, M_t)

Shapes in names: B batch, L tokens of a segment, N encoder states (L + classification tokens), K slots, H
heads, E width of a head, D model width, V vocabulary.

One `step(s_t, memory)` first encodes the segment *before*, s_{t-1}, which travels in the memory as tokens,
then decodes s_t. So encoder(s_t) doesn't exist when s_t is decoded (no leak), the memory is K slots and L
integers, and `memory_step`, the path that memory replay walks without gradient, is the encoder and the
writer alone. The segment before the first is one start token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reference.models.attention import Layer, check_heads, split_heads
from reference.models.segment_inputs import embedding, positions, shifted, start_tokens

MEMORIES = ("on", "off", "frozen")
DECODER_READS = ("both", "encoder", "memory")


class SlotWriter(nn.Module):
    """Slot attention, then biased memory normalisation: what the last encoder layer does to the slots.

    Slot i attends to itself and to the tokens, never to another slot:
    m' = softmax([q_i·k_i ; q_i·K_x] / (sqrt(E) tau)) [m_i ; V_x], per head, with the raw m_i as its own
    value and no projection after it. Then m' += v_bias_i and m = m' / |m'|.

    Where the paper is silent: queries and keys of the slots come from layer-normalised slots (like those of
    the tokens), W_V starts such that |V_x| is about |m_i| = 1, and v_bias starts with length `bias_length`.

    Args:
        temperature: tau, above 0.
        multi_head: off is the paper's ablation: one head of the full width.
        forgetting: off is the paper's ablation; v_bias is not added and the slots are only normalised.
        bias_length: length of every v_bias_i at the start; the longer, the faster slots forget.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        memory_size: int,
        temperature: float = 0.25,
        forgetting: bool = True,
        multi_head: bool = True,
        bias_length: float = 1.0,
    ) -> None:
        super().__init__()
        if temperature <= 0 or bias_length <= 0 or memory_size < 1:
            raise ValueError(
                "The writer needs temperature > 0, bias_length > 0 and memory_size >= 1, not "
                f"{temperature}, {bias_length} and {memory_size}."
            )
        self.heads = heads if multi_head else 1
        if width % self.heads:
            raise ValueError(f"A slot of width {width} doesn't split into {self.heads} equal heads.")
        self.temperature, self.forgetting = temperature, forgetting
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        nn.init.normal_(self.value.weight, std=1 / width)
        self.bias = nn.Parameter(bias_length * F.normalize(torch.randn(memory_size, width), dim=-1))

    def initial(self, batch: int) -> Tensor:
        """Return m_0 = v_bias / |v_bias| for every sequence: [batch, K, D]."""
        return F.normalize(self.bias, dim=-1).expand(batch, -1, -1)

    def weights(self, slots_BKD: Tensor, tokens_BND: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Return the attention of every slot, [B, H, K, 1 + N]: the weight on itself, then on the tokens.

        Tokens where the boolean `visible_BN` is false get exactly 0.
        """
        normed_BKD = self.norm(slots_BKD)
        scale = 1 / ((slots_BKD.shape[-1] // self.heads) ** 0.5 * self.temperature)
        q_BHKE = split_heads(self.query(normed_BKD), self.heads) * scale
        own_BHK1 = (q_BHKE * split_heads(self.key(normed_BKD), self.heads)).sum(-1, keepdim=True)
        logits_BHKN = q_BHKE @ split_heads(self.key(tokens_BND), self.heads).transpose(-1, -2)
        if visible_BN is not None:
            logits_BHKN = logits_BHKN.masked_fill(~visible_BN[:, None, None, :], -torch.inf)
        return torch.cat([own_BHK1, logits_BHKN], dim=-1).softmax(dim=-1)

    def attend(self, slots_BKD: Tensor, tokens_BND: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Return m', the slots after slot attention and before forgetting: [B, K, D]."""
        weights_BHKM = self.weights(slots_BKD, tokens_BND, visible_BN)
        own_BHKE = weights_BHKM[..., :1] * split_heads(slots_BKD, self.heads)
        new_BHKE = weights_BHKM[..., 1:] @ split_heads(self.value(tokens_BND), self.heads)
        return (own_BHKE + new_BHKE).transpose(1, 2).flatten(2)

    def forget(self, slots_BKD: Tensor) -> Tensor:
        """Return the slots after biased memory normalisation: [B, K, D], of length 1."""
        return F.normalize(slots_BKD + self.bias if self.forgetting else slots_BKD, dim=-1)

    def forward(self, slots_BKD: Tensor, tokens_BND: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Return the next memory [B, K, D]."""
        return self.forget(self.attend(slots_BKD, tokens_BND, visible_BN))


class Memformer(nn.Module):
    """Memformer as a segment model; its memory is (slots [B, K, D], tokens of the segment before [B, L]).

    Args:
        vocab: tokens 0..vocab-1; the start token is added by the model.
        segment: L, tokens in a segment (the last one of a sequence may be shorter).
        memory_size: K, slots.
        cls_tokens: learned classification tokens appended to the segment in the encoder.
        temperature, forgetting, multi_head, bias_length: of the `SlotWriter`.
        memory: "on"; "off" (the paper's row "without memory": no slots at all, the decoder reads the
            encoder's output for the segment before and nothing older); "frozen" (a control: slots are read,
            never written).
        decoder_reads: what the decoder's cross-attention sees: "both" the encoder's output for s_{t-1} and
            M_{t-1} (default), or one of them. The paper's text has the encoder's output, its formula has the
            memory.

    Raises ValueError if a setting makes no sense; the message names it.
    """

    def __init__(
        self,
        *,
        vocab: int,
        width: int,
        heads: int,
        head_width: int,
        feed_forward: int,
        encoder_layers: int,
        decoder_layers: int,
        segment: int,
        memory_size: int,
        temperature: float = 0.25,
        forgetting: bool = True,
        multi_head: bool = True,
        cls_tokens: int = 4,
        memory: str = "on",
        decoder_reads: str = "both",
        bias_length: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(width, heads, head_width)
        for name, value, known in (
            ("memory", memory, MEMORIES),
            ("decoder_reads", decoder_reads, DECODER_READS),
        ):
            if value not in known:
                raise ValueError(f"Memformer's {name} is {value!r}; choose from {', '.join(known)}.")
        if memory == "off" and decoder_reads == "memory":
            raise ValueError(
                "Without memory the decoder can't read it: set decoder_reads to 'encoder' or 'both'."
            )
        if min(encoder_layers, decoder_layers, segment) < 1:
            raise ValueError(
                "Memformer needs at least one encoder layer, one decoder layer and one token a segment."
            )
        self.segment, self.memory, self.decoder_reads = segment, memory, decoder_reads
        shape = {"width": width, "heads": heads, "head_width": head_width, "feed_forward": feed_forward}
        self.embedding = embedding(vocab, width)
        self.encoder_positions = positions(segment, width)
        self.decoder_positions = positions(segment, width)
        self.cls_tokens = positions(cls_tokens, width)
        self.encoder = nn.ModuleList(
            Layer(**shape, dropout=dropout, causal=False, reads=memory != "off")
            for _ in range(encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Layer(**shape, dropout=dropout, causal=True, reads=True) for _ in range(decoder_layers)
        )
        self.slot_norm = nn.LayerNorm(width) if memory != "off" else None
        self.writer = (
            SlotWriter(
                width=width,
                heads=heads,
                memory_size=memory_size,
                temperature=temperature,
                forgetting=forgetting,
                multi_head=multi_head,
                bias_length=bias_length,
            )
            if memory != "off"
            else None
        )
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)
        self.dropout = nn.Dropout(dropout)

    def initial_memory(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return (m_0 [batch, K, D], one start token [batch, 1]); without memory K is 0."""
        if self.writer is None:
            weight = self.embedding.weight
            slots_BKD = torch.empty(batch, 0, weight.shape[1], dtype=weight.dtype, device=weight.device)
        else:
            slots_BKD = self.writer.initial(batch)
        return slots_BKD, start_tokens(batch, self.embedding)

    def encode(self, segment_BL: Tensor, slots_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's output [B, L + C, D] and the slots after writing [B, K, D]."""
        B, L = segment_BL.shape
        x_BLD = self.embedding(segment_BL) + self.encoder_positions[:L]
        x_BND = self.dropout(torch.cat([x_BLD, self.cls_tokens.expand(B, -1, -1)], dim=1))
        source_BKD = None if self.slot_norm is None else self.slot_norm(slots_BKD)
        for layer in self.encoder:
            x_BND = layer(x_BND, source_BKD)
        states_BND = self.encoder_norm(x_BND)
        if self.memory == "on" and self.writer is not None:
            slots_BKD = self.writer(slots_BKD, states_BND)
        return states_BND, slots_BKD

    def decode(self, inputs_BL: Tensor, states_BND: Tensor, slots_BKD: Tensor) -> Tensor:
        """Return logits [B, L, V]; `states_BND` is the encoder's output for the segment before."""
        source = [] if self.decoder_reads == "memory" else [states_BND]
        if self.slot_norm is not None and self.decoder_reads != "encoder":
            source.append(self.slot_norm(slots_BKD))
        source_BSD = torch.cat(source, dim=1)
        x_BLD = self.dropout(self.embedding(inputs_BL) + self.decoder_positions[: inputs_BL.shape[1]])
        for layer in self.decoder:
            x_BLD = layer(x_BLD, source_BSD)
        return self.head(self.decoder_norm(x_BLD))

    def memory_step(self, segment_BL: Tensor, memory: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the memory after `step(segment_BL, memory)` without decoding.

        It draws the same random numbers first as `step`, so that a step replayed from the same generator
        state has the same dropout in the encoder.
        """
        slots_BKD, previous_BL = memory
        if self.memory == "on":
            slots_BKD = self.encode(previous_BL, slots_BKD)[1]
        return slots_BKD, segment_BL

    def step(self, segment_BL: Tensor, memory: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return logits [B, L, V] for the segment and the memory for the next one.

        Raises ValueError if the segment is empty or longer than the model's.
        """
        slots_BKD, previous_BL = memory
        inputs_BL = shifted(previous_BL, segment_BL, self.segment)
        states_BND, slots_BKD = self.encode(previous_BL, slots_BKD)
        return self.decode(inputs_BL, states_BND, slots_BKD), (slots_BKD, segment_BL)
