"""Sparse Attentive Backtracking in plain autograd, step by step and memory by memory (arXiv:1809.03702,
Algorithm 1).

The twin of `reference.models.sab`: it borrows the module's parameters and options and nothing of its
arithmetic.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn

from reference.models.sab import SAB


def sab_loop(
    model: SAB, inputs: Tensor, memories: Sequence[Tensor] = ()
) -> tuple[Tensor, tuple[Tensor, Tensor, list[Tensor]]]:
    """Return logits_BTC and the final (h_BH, c_BH, memories, each BH).

    `memories` (each BH, constants) are there before the first step.

    What is differentiated is written as a recursion: `step(t, r)` is step t with r steps of back-propagation
    left, step t included. The grid sets r by the distance to the last multiple of k_trunc; the sliding window
    gives every loss and every memory read a fresh r = k_trunc; `step(t, 0)` is a constant.
    """
    o = model.options
    x_TBF = model.encode(inputs)
    steps, batch = x_TBF.shape[:2]
    zero_BH = x_TBF.new_zeros(batch, model.hidden)
    full = steps + 1 if o.k_trunc is None else o.k_trunc
    first = list(memories) or ([zero_BH] if model.first_memory == "zero" else [])

    def budget(t: int) -> int:
        """Steps of back-propagation that a loss at step t, or a read of its memory, is worth."""
        return full if o.truncation == "sliding" or o.k_trunc is None else t % o.k_trunc + 1

    @cache
    def step(t: int, left: int, frozen: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (h_t, c_t, output before the read, s_t); `frozen` reads memories as constants."""
        if t < 0:
            return zero_BH, zero_BH, zero_BH, zero_BH
        if left == 0:
            h, c, out, s = step(t, budget(t))
            return h.detach(), c.detach(), out.detach(), s.detach()
        h, c, _, _ = step(t - 1, left - 1)
        gates = x_TBF[t] @ model.weight_input_GF.t() + model.bias_G + h @ model.weight_hidden_GH.t()
        output, input_, forget, candidate = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + input_.sigmoid() * candidate.tanh()
        out = output.sigmoid() * c.tanh()
        stored = first + [memory(i) for i in range(t) if (i + 1) % o.k_att == 0]
        if frozen:
            stored = [m.detach() for m in stored]
        if o.retrieval == "shuffled":
            stored = [m.roll(-1, 0) for m in stored]
        s = read(model, out, stored)
        return out + s, c, out, s

    @cache
    def memory(i: int) -> Tensor:
        part = 0 if o.memory == "hidden" else 2
        if o.mental_updates == "full":
            return step(i, budget(i))[part]
        if o.mental_updates == "none":
            return step(i, budget(i))[part].detach()
        return step(i, 1, True)[part]

    logits = []
    for t in range(steps):
        h, _, _, s = step(t, budget(t))
        logits.append(nn.functional.linear(h, model.v1_CH, model.b_C) + s @ model.v2_CH.t())
    h, c, _, _ = step(steps - 1, budget(steps - 1))
    stored = first + [memory(i) for i in range(steps) if (i + 1) % o.k_att == 0]
    return torch.stack(logits, dim=1), (h, c, stored)


def sab_autograd(model: SAB, inputs: Tensor) -> Tensor:
    """Return logits_BTC of `model` (sparse, full mental updates, grid) as one would write it with autograd.

    All memories are scored at once, W1 m is computed once a memory, and every score is part of the graph.
    Nothing is slowed down on purpose: this is what `reference.measure.sab_speed` compares with.
    """
    o = model.options
    x_TBF = model.encode(inputs)
    h = c = x_TBF.new_zeros(x_TBF.shape[1], model.hidden)
    gates_TBG = nn.functional.linear(x_TBF, model.weight_input_GF, model.bias_G)
    memories: list[Tensor] = []
    keys: list[Tensor] = []
    states, reads = [], []
    for t, gates_x in enumerate(gates_TBG):
        if o.truncates(t):
            h, c = h.detach(), c.detach()
        gates = gates_x + h @ model.weight_hidden_GH.t()
        output, input_, forget, candidate = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + input_.sigmoid() * candidate.tanh()
        out = output.sigmoid() * c.tanh()
        s = torch.zeros_like(out)
        if len(memories) > o.k_top:
            scores_NB = (torch.stack(keys) + out @ model.w2_DH.t()).tanh() @ model.w3_D
            best_KB, index_KB = scores_NB.topk(o.k_top + 1, dim=0)
            excess_KB = best_KB[:-1] - best_KB[-1]
            weights_KB = excess_KB / excess_KB.sum(0)
            rows = (index_KB[:-1] * len(out) + torch.arange(len(out), device=out.device)).flatten()
            read_KBH = torch.stack(memories).flatten(0, 1)[rows].view(*weights_KB.shape, -1)
            s = (weights_KB[..., None] * read_KBH).sum(0)
        h = out + s
        states.append(h)
        reads.append(s)
        if o.stores(t):
            memories.append(h)
            keys.append(h @ model.w1_DH.t())
    logits_BTC = nn.functional.linear(torch.stack(states, 1), model.v1_CH, model.b_C)
    return logits_BTC + torch.stack(reads, 1) @ model.v2_CH.t()


def read(model: SAB, out_BH: Tensor, memories: list[Tensor]) -> Tensor:
    """Return s_BH, one sequence after the other."""
    o = model.options
    if not memories or o.retrieval == "none":
        return torch.zeros_like(out_BH)
    reads = []
    for b in range(out_BH.shape[0]):
        scores = [score(model, m[b], out_BH[b]) for m in memories]
        if o.retrieval == "dense":
            weights = list(torch.stack(scores).softmax(0))
        elif len(scores) <= o.k_top:
            weights = few(scores, o.few_memories)
        else:
            weights = sparsify(scores, o.k_top, o.threshold, o.denominator)
        reads.append(
            sum((w * m[b] for w, m in zip(weights, memories, strict=True)), torch.zeros_like(out_BH[b]))
        )
    return torch.stack(reads)


def score(model: SAB, memory_H: Tensor, out_H: Tensor) -> Tensor:
    """a_i = w3 . tanh(W1 m_i + W2 h^), or the released code's w . [tanh h^ ; tanh m_i]."""
    if model.options.score == "additive":
        return (model.w3_D * (model.w1_DH @ memory_H + model.w2_DH @ out_H).tanh()).sum()
    return (model.w_2H * torch.cat([out_H, memory_H]).tanh()).sum()


def sparsify(
    scores: list[Tensor], k_top: int, threshold: str = "next", denominator: float = 0.0
) -> list[Tensor]:
    """Weights of all memories from more than k_top scores: [4, 3, 1, 0] with k_top = 2 gives [0.6, 0.4, 0,
    0].
    """
    order = sorted(range(len(scores)), key=lambda i: (-scores[i].item(), i))
    rank, margin = (k_top, 0.0) if threshold == "next" else (k_top - 1, 1e-7)
    excess = [a - scores[order[rank]] - margin for a in scores]
    # At the threshold itself the excess is 0 and relu passes no gradient.
    kept = [(e if e.item() > 0 else torch.zeros_like(e)) for e in excess]
    total = torch.stack(kept).sum()
    if total.item() == 0:
        return [torch.zeros_like(a) for a in scores]
    return [e / (total + denominator) for e in kept]


def few(scores: list[Tensor], rule: str) -> list[Tensor]:
    """Weights of at most k_top memories; the rules are documented at `SAB`."""
    if rule == "skip":
        return [torch.zeros_like(a) for a in scores]
    if rule == "uniform":
        return [torch.ones_like(a) / len(scores) for a in scores]
    if rule == "softmax":
        return list(torch.stack(scores).softmax(0))
    if rule == "raw":
        return scores
    if rule == "lowest":
        return sparsify(scores, len(scores) - 1)
    kept = [a.relu() for a in scores]
    total = torch.stack(kept).sum()
    return [a / total for a in kept] if total.item() > 0 else [torch.zeros_like(a) for a in scores]
