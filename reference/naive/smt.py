"""The slow, plainly right twin of SMT, DMT and the unrolled rival: one context and head at a time.

Takes the weights of a `reference.models.smt.SMT` and nothing else of it. Used by tests and benchmarks only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reference.models.smt import SMT, Decoder, GruUpdater, MlpUpdater, TransformerUpdater
from reference.models.smt_blocks import Block, Blocks


def rms(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return `x` over its root mean square along the last dimension, times `weight`."""
    scaled = x / (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt()
    return scaled if weight is None else scaled * weight


def rotated(vector: Tensor, position: float) -> Tensor:
    """Return `vector` (D) with each pair (2i, 2i + 1) turned by position · 10000^(−2i / D)."""
    out = []
    for i in range(0, len(vector), 2):
        angle = position * 10_000.0 ** (-i / len(vector))
        a, b = vector[i], vector[i + 1]
        out += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
    return torch.stack(out)


def layer(block: Block, h: Tensor, positions: list[float], allowed: list[list[int]]) -> Tensor:
    """Return one layer's output (L, W); position i looks at the positions allowed[i]."""
    length, width = h.shape
    size = width // block.heads
    normed = rms(h, block.attention_norm.weight)
    q, kv = normed @ block.query.weight.T, normed @ block.key_value.weight.T
    heads = []
    for j in range(block.heads):
        part = slice(j * size, (j + 1) * size)
        keys = torch.stack([rotated(kv[i, :width][part], positions[i]) for i in range(length)])
        values, rows = kv[:, width:][:, part], []
        for i, seen in enumerate(allowed):
            query = rotated(q[i, part], positions[i])
            rows.append((keys[seen] @ query / math.sqrt(size)).softmax(0) @ values[seen])
        heads.append(torch.stack(rows))
    read = torch.cat(heads, 1)
    h = h + read @ block.merge.weight.T
    wide = F.gelu(F.linear(rms(h, block.feed_norm.weight), block.widen.weight, block.widen.bias))
    return h + F.linear(wide, block.narrow.weight, block.narrow.bias)


def layers(blocks: Blocks, h: Tensor, positions: list[float], allowed: list[list[int]]) -> Tensor:
    """Return the output (L, W) of all layers at all positions."""
    for block in blocks.blocks:
        assert isinstance(block, Block)
        h = layer(block, h, positions, allowed)
    return h


def encoded(model: SMT, tokens: Tensor) -> Tensor:
    """Return the memory (K, M) of the context `tokens` (L), all of which it may see."""
    encoder = model.encoder
    if model.context is not None:
        tokens = tokens[-model.context :]
    k, length = len(encoder.registers), len(tokens)
    h = torch.cat((encoder.registers, encoder.embedding.weight[tokens]))
    positions = [0.0] * k + [float(i - length + 1) for i in range(length)]
    everyone = [list(range(k + length))] * (k + length)
    return rms(encoder.out(layers(encoder.layers, h, positions, everyone)[:k]))


def decoded(decoder: Decoder, memory: Tensor, future: Tensor) -> Tensor:
    """Return logits (1 + F, vocabulary) from `memory` (K, M) and the tokens `future` (F)."""
    k = len(memory)
    h = torch.cat((decoder.inward(memory), decoder.start[None], decoder.embedding.weight[future]))
    allowed = [list(range(max(k, i + 1))) for i in range(len(h))]
    h = layers(decoder.layers, h, [float(i) for i in range(len(h))], allowed)[k:]
    return rms(h, decoder.norm.weight) @ decoder.head.weight.T + decoder.head.bias


def updated(model: SMT, memory: Tensor, token: Tensor) -> Tensor:
    """Return the next memory (K, M) of `memory` (K, M) and one token."""
    updater = model.updater
    if isinstance(updater, MlpUpdater):
        return _mlp(updater, memory, token)
    if isinstance(updater, GruUpdater):
        return _gru(updater, memory, token)
    assert isinstance(updater, TransformerUpdater)
    k = len(memory)
    h = torch.cat((updater.inward(memory), updater.embedding.weight[token][None]))
    everyone = [list(range(k + 1))] * (k + 1)
    return rms(updater.out(layers(updater.layers, h, [float(i) for i in range(k + 1)], everyone)[:k]))


def _mlp(updater: MlpUpdater, memory: Tensor, token: Tensor) -> Tensor:
    h, x = memory.flatten(), updater.embedding.weight[token]
    for norm, widen, narrow in zip(updater.norms, updater.widen, updater.narrow, strict=True):
        assert isinstance(norm, nn.RMSNorm) and isinstance(widen, nn.Linear) and isinstance(narrow, nn.Linear)
        wide = F.gelu(widen.weight @ torch.cat((rms(h, norm.weight), x)) + widen.bias)
        h = h + narrow.weight @ wide + narrow.bias
    return rms(h.view(memory.shape))


def _gru(updater: GruUpdater, memory: Tensor, token: Tensor) -> Tensor:
    x, states = updater.embedding.weight[token], []
    share = len(memory) // len(updater.cells)
    for i, cell in enumerate(updater.cells):
        assert isinstance(cell, nn.GRUCell)
        old = memory[i * share : (i + 1) * share].flatten()
        reset_x, keep_x, new_x = (cell.weight_ih @ x + cell.bias_ih).view(3, -1)
        reset_old, keep_old, new_old = (cell.weight_hh @ old + cell.bias_hh).view(3, -1)
        keep = torch.sigmoid(keep_x + keep_old)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_old) * new_old)
        x = keep * old + (1 - keep) * new
        states.append(x.view(share, -1))
    return torch.cat(states)


def surprise(logits: list[Tensor], answers: list[Tensor]) -> Tensor:
    """Return the mean over answers of −log softmax(logits)[answer]; 0 without any."""
    if not logits:
        return torch.zeros(())
    return torch.stack([-z.log_softmax(0)[a] for z, a in zip(logits, answers, strict=True)]).mean()


def smt_terms(
    model: SMT, batch: dict[str, Tensor], future: int | None = None, joint: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return L_dec, L_dyn and L_unif over all splits and all memory tokens of `batch` (each B × T).

    Without `joint` both memories of L_dyn are constants.
    """
    x, y, mask = batch["inputs"], batch["targets"], batch["mask"]
    size, length = x.shape
    memory = [[encoded(model, x[b, : t + 1]) for t in range(length)] for b in range(size)]
    logits, answers, errors = [], [], []
    for b in range(size):
        for t in range(length):
            last = length if future is None else min(length, t + future)
            out = decoded(model.decoder, memory[b][t], x[b, t + 1 : last])
            for place in range(t, last):
                if mask[b, place]:
                    logits.append(out[place - t])
                    answers.append(y[b, place])
            if t + 1 < length:
                now, after = memory[b][t], memory[b][t + 1]
                if not joint:
                    now, after = now.detach(), after.detach()
                errors.append((updated(model, now, x[b, t + 1]) - after).square().mean())
    rows = [row / row.norm() for sequence in memory for m in sequence for row in m]
    near = [
        torch.exp(-2 * (a - c).square().sum())
        for i, a in enumerate(rows)
        for j, c in enumerate(rows)
        if i != j
    ]
    return surprise(logits, answers), torch.stack(errors).mean(), torch.stack(near).mean().log()


def dmt_terms(
    model: SMT, batch: dict[str, Tensor], through_time: bool = False, own: bool = True
) -> tuple[Tensor, Tensor]:
    """Return memory error and readout loss of a rollout from the teacher's first memory."""
    x, y, mask = batch["inputs"], batch["targets"], batch["mask"]
    errors, logits, answers = [], [], []
    for b in range(len(x)):
        taught = [encoded(model, x[b, : t + 1]).detach() for t in range(x.shape[1])]
        memory = taught[0]
        for t in range(1, x.shape[1]):
            memory = updated(model, memory if own else taught[t - 1], x[b, t])
            errors.append((memory - taught[t]).square().mean())
            if mask[b, t]:
                logits.append(decoded(model.readout, memory.detach(), x[b, :0])[0])
                answers.append(y[b, t])
            if not through_time:
                memory = memory.detach()
    return torch.stack(errors).mean(), surprise(logits, answers)


def unrolled_loss(model: SMT, batch: dict[str, Tensor], start: str = "learned") -> Tensor:
    """Return the readout's loss along a rollout from the first memory, all steps in one graph."""
    x, y, mask = batch["inputs"], batch["targets"], batch["mask"]
    logits, answers = [], []
    for b in range(len(x)):
        memory = rms(model.start) if start == "learned" else encoded(model, x[b, :1])
        for t in range(0 if start == "learned" else 1, x.shape[1]):
            memory = updated(model, memory, x[b, t])
            if mask[b, t]:
                logits.append(decoded(model.readout, memory, x[b, :0])[0])
                answers.append(y[b, t])
    return surprise(logits, answers)
