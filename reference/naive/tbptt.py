"""Truncated back-propagation through an LSTM, step by step in plain autograd."""

import torch
from torch import Tensor, nn

from reference.models.lstm import LSTM


def tbptt_loop(model: LSTM, inputs: Tensor, k: int | None) -> Tensor:
    """Return logits_BTC of `model`, with h and c detached before steps 1, 1 + k, 1 + 2 k, ... (None: never).

    The twin of `reference.algorithms.truncation`; it borrows the module's parameters only.
    """
    weights = dict(model.lstm.named_parameters())
    x_BTF = model.encode(inputs)
    h = c = x_BTF.new_zeros(x_BTF.shape[0], model.lstm.hidden_size)
    logits = []
    for t in range(x_BTF.shape[1]):
        if k is not None and t % k == 0:
            h, c = h.detach(), c.detach()
        gates = nn.functional.linear(x_BTF[:, t], weights["weight_ih_l0"], weights["bias_ih_l0"])
        gates = gates + nn.functional.linear(h, weights["weight_hh_l0"], weights["bias_hh_l0"])
        input_, forget, candidate, output = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + input_.sigmoid() * candidate.tanh()
        h = output.sigmoid() * c.tanh()
        logits.append(model.head(h))
    return torch.stack(logits, dim=1)
