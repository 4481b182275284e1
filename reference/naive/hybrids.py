"""The hybrids of LSTM and Transformer blocks, one position and one head at a time (arXiv:2510.00258, App. A).

The twin of `reference.models.hybrids`: it borrows a model's parameters only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from reference.models import hybrids


def logits(model: hybrids.Hybrid, inputs_BT: Tensor) -> Tensor:
    """Return logits [B, T, vocabulary] of the whole model, or of what of it is awake."""
    x_BTD = model.embedding.weight[inputs_BT]
    awake = "attention" not in model.asleep
    modules: dict[str, nn.Module] = dict(model.named_children())

    def lstm(x: Tensor, name: str = "lstm") -> Tensor:
        return recurrence(modules[name], x)

    def attn(x: Tensor) -> Tensor:
        for block in model.attention.blocks if awake else ():
            assert isinstance(block, hybrids.Block)
            x = transformer_block(block, x)
        return x

    if isinstance(model, hybrids.AttnOnLstm):
        z_BTD = attn(lstm(x_BTD))
    elif isinstance(model, hybrids.LstmOnAttn):
        z_BTD = lstm(attn(x_BTD))
    elif isinstance(model, hybrids.Parallel):
        z_BTD = lstm(x_BTD) + attn(x_BTD) if awake else lstm(x_BTD)
    elif isinstance(model, hybrids.HybridBlock):
        z_BTD = attn(layer_norm(model.lstm_norm, x_BTD + lstm(x_BTD)))
    elif isinstance(model, hybrids.Sandwich):
        z_BTD = lstm(attn(lstm(x_BTD)), "upper_lstm")
    elif isinstance(model, hybrids.TransformerOnly):
        z_BTD = attn(x_BTD)
    else:
        z_BTD = lstm(x_BTD)
    return z_BTD @ model.head.weight.T + model.head.bias


def recurrence(module: nn.Module, x_BTD: Tensor) -> Tensor:
    """Return the hidden states [B, T, D] of torch's LSTM, step by step from zero."""
    weights = dict(module.named_parameters())
    h = c = torch.zeros_like(x_BTD[:, 0])
    states = []
    for x_BD in x_BTD.unbind(1):
        gates = x_BD @ weights["weight_ih_l0"].T + weights["bias_ih_l0"]
        gates = gates + h @ weights["weight_hh_l0"].T + weights["bias_hh_l0"]
        input_, forget, candidate, output = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + input_.sigmoid() * candidate.tanh()
        h = output.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states, 1)


def layer_norm(module: nn.LayerNorm, x: Tensor) -> Tensor:
    """Return (x − mean) / √(variance + ε), times scale plus shift, over the last axis."""
    centred = x - x.mean(-1, keepdim=True)
    return (
        centred / (centred.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.weight + module.bias
    )


def rotated(x_BE: Tensor, position: int) -> Tensor:
    """Return x with the pair (2i, 2i + 1) rotated by the angle position · 10,000^(−2i / E)."""
    E = x_BE.shape[-1]
    turned = []
    for i in range(E // 2):
        angle = position * 10_000.0 ** (-2 * i / E)
        a, b = x_BE[:, 2 * i], x_BE[:, 2 * i + 1]
        turned += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
    return torch.stack(turned, -1)


def transformer_block(block: hybrids.Block, x_BTD: Tensor) -> Tensor:
    """Return LN(y + MLP(y)) with y = LN(x + MHA(x)), one query and one head at a time."""
    T, D = x_BTD.shape[1:]
    E = D // block.heads
    qkv_BTF = x_BTD @ block.query_key_value.weight.T + block.query_key_value.bias
    read = []
    for t in range(T):
        heads = []
        for h in range(block.heads):
            q, k, v = (qkv_BTF[..., part * D + h * E : part * D + (h + 1) * E] for part in range(3))
            query = rotated(q[:, t], t)
            scores = torch.stack([(query * rotated(k[:, s], s)).sum(-1) for s in range(t + 1)], -1)
            weights = (scores / math.sqrt(E)).exp()
            weights = weights / weights.sum(-1, keepdim=True)
            heads.append(sum(weights[:, s, None] * v[:, s] for s in range(t + 1)))
        read.append(torch.cat([torch.as_tensor(head) for head in heads], -1))
    merged = torch.stack(read, 1) @ block.merge.weight.T + block.merge.bias
    y = layer_norm(block.attention_norm, x_BTD + merged)
    wide = y @ block.widen.weight.T + block.widen.bias
    wide = wide * 0.5 * (1 + (wide / math.sqrt(2)).erf())
    return layer_norm(block.feed_norm, y + wide @ block.narrow.weight.T + block.narrow.bias)
