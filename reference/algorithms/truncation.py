"""Truncated back-propagation through time: the baseline TBPTT-k of arXiv:1809.03702, Sec. 4."""

import torch
from torch import Tensor

from reference.algorithms.bptt import check_loss, sequence_loss
from reference.models.lstm import LSTM


class TruncatedBptt:
    """Back-propagation through an LSTM, with h and c detached before every k-th step.

    The state is carried forward over the whole sequence and there is one loss, as in full back-propagation; a
    path of the gradient has 1 to k steps. `loss` and `last` as in `Bptt`.

    Raises ValueError if k is below 1, on an unknown loss or `last` below 1.
    """

    def __init__(self, k: int, loss: str = "cross_entropy", last: int | None = None) -> None:
        if k < 1:
            raise ValueError(f"Truncated back-propagation needs k >= 1, not {k}.")
        check_loss(loss, last)
        self.k, self.loss, self.last = k, loss, last

    def begin(self, model: LSTM) -> None:
        """Nothing to prepare."""

    def backward(self, model: LSTM, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave truncated gradients of the mean loss in .grad; return {"loss"}, detached."""
        outputs, state = [], None
        for inputs_Bk in batch["inputs"].split(self.k, dim=1):
            if state is not None:
                state = (state[0].detach(), state[1].detach())
            output_BkC, state = model.unroll(inputs_Bk, state)
            outputs.append(output_BkC)
        value = sequence_loss(torch.cat(outputs, dim=1), batch["targets"], self.loss, self.last)
        value.backward()
        return {"loss": value.detach()}
