"""Slot attention and forgetting, slot by slot and head by head, as the formulas say; the twin of
`SlotWriter`."""

from __future__ import annotations

import torch
from torch import Tensor

from reference.models.memformer import SlotWriter


def slot_attention(
    writer: SlotWriter, slots_BKD: Tensor, tokens_BND: Tensor, visible_BN: Tensor | None = None
) -> Tensor:
    """Return m' [B, K, D]: softmax([q_i·k_i ; q_i·K_x] / (sqrt(E) tau)) [m_i ; V_x] in every head."""
    B, K, D = slots_BKD.shape
    E = D // writer.heads
    rows = []
    for b in range(B):
        seen = torch.ones(tokens_BND.shape[1], dtype=torch.bool) if visible_BN is None else visible_BN[b]
        tokens_ND = tokens_BND[b][seen]
        for i in range(K):
            slot_D = slots_BKD[b, i]
            query_D = writer.query(writer.norm(slot_D))
            candidates_MD = torch.cat([writer.key(writer.norm(slot_D))[None], writer.key(tokens_ND)])
            values_MD = torch.cat([slot_D[None], writer.value(tokens_ND)])
            for h in range(writer.heads):
                part = slice(h * E, (h + 1) * E)
                logits_M = candidates_MD[:, part] @ query_D[part] / E**0.5
                weights_M = torch.softmax(logits_M / writer.temperature, dim=0)
                rows.append(weights_M @ values_MD[:, part])
    return torch.stack(rows).view(B, K, D)


def write(
    writer: SlotWriter, slots_BKD: Tensor, tokens_BND: Tensor, visible_BN: Tensor | None = None
) -> Tensor:
    """Return the next memory [B, K, D]: m' + v_bias_i (m' without forgetting), over its length."""
    rows = []
    for updated_KD in slot_attention(writer, slots_BKD, tokens_BND, visible_BN):
        for i, updated_D in enumerate(updated_KD):
            moved_D = updated_D + writer.bias[i] if writer.forgetting else updated_D
            rows.append(moved_D / moved_D.square().sum().sqrt())
    return torch.stack(rows).view(slots_BKD.shape)
