"""The rival of SMT: the same updater and readout, trained through time on the answers alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from reference.algorithms.smt import cross_entropy
from reference.models.smt import SMT, decode, every_split


@dataclass(frozen=True)
class Unrolled:
    """Back-propagation through time over the whole sequence, from the learned first memory."""

    def begin(self, model: SMT) -> None:
        """Let every part learn; the teacher has no part in the loss and so stays as it is."""
        model.requires_grad_(True)

    def backward(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of the cross-entropy of `batch` (inputs, targets, mask: B × T); return it."""
        x = batch["inputs"]
        states = model.roll(model.first(len(x)), x)
        rows, ends = every_split(x)
        loss = cross_entropy(
            *decode(model.readout, states.flatten(0, 1), batch, rows, ends, future=1, buckets=1)
        )
        loss.backward()
        return {"loss": loss.detach()}
