"""Transformer-XL's relative attention without the shift: one logit at a time; the twin of
`RelativeAttention`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference.models.attention import RelativeAttention


def relative_attention(module: RelativeAttention, x_BLD: Tensor, states_BSD: Tensor) -> Tensor:
    """Return [B, L, D]: logit(i, j) = ((q_i + u)·k_j + (q_i + v)·W_r R_{i-j}) / sqrt(E), j <= i."""
    B, L, D = x_BLD.shape
    S, H, E = states_BSD.shape[1], module.heads, module.head_width
    u_HE, v_HE = module.content_bias[:, 0], module.position_bias[:, 0]
    rows = []
    for b in range(B):
        for i in range(L):
            query_HE = module.query(x_BLD[b, i]).view(H, E)
            read = []
            for h in range(H):
                logits, values = [], []
                for j in range(S - L + i + 1):
                    key, value = module.key_value(states_BSD[b, j]).view(2, H, E)[:, h]
                    distance = S - L + i - j
                    position_E = module.position(_sinusoid(distance, D, x_BLD)).view(H, E)[h]
                    content = (query_HE[h] + u_HE[h]) @ key
                    logits.append((content + (query_HE[h] + v_HE[h]) @ position_E) / E**0.5)
                    values.append(value)
                read.append(torch.softmax(torch.stack(logits), dim=0) @ torch.stack(values))
            rows.append(module.out(torch.cat(read)))
    return torch.stack(rows).view(B, L, D)


def _sinusoid(distance: int, width: int, like: Tensor) -> Tensor:
    """Return the sines and then the cosines of one distance: [width]."""
    angles = [distance / 10000 ** (2 * k / width) for k in range(width // 2)]
    return like.new_tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
