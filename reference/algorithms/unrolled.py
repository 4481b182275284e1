"""The rival of SMT: the same updater and readout, trained through time on the answers alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from reference.algorithms.dmt import STARTS
from reference.algorithms.smt import cross_entropy
from reference.models.smt import SMT, decode, every_split


@dataclass(frozen=True)
class Unrolled:
    """Back-propagation through time over the whole sequence; nothing is frozen, nothing detached.

    Args:
        readout: weight of the loss, ≥ 0.
        start: the rollout begins at the learned memory before position 0, so that the teacher has no part in
            the loss and stays as it is; or at the teacher's memory of position 0, whose encoder learns too.

    Raises:
        ValueError: an unknown start or a weight below 0.
    """

    readout: float = 1.0
    start: str = "learned"

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise ValueError(f"start is {self.start!r}; choose from {', '.join(STARTS)}.")
        if not self.readout >= 0:
            raise ValueError("the unrolled rival needs a weight readout of 0 or more.")

    def begin(self, model: SMT) -> None:
        """Let every part learn."""
        model.requires_grad_(True)

    def backward(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of the cross-entropy of `batch` (inputs, targets, mask: B × T); return it.

        Raises:
            ValueError: no token to roll along.
        """
        terms = self.terms(model, batch)
        terms["loss"].backward()
        return {name: value.detach() for name, value in terms.items()}

    def terms(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the loss of `batch`, 0-d and in one graph; raise as backward."""
        x = batch["inputs"]
        first = 1 if self.start == "teacher" else 0
        if x.shape[1] <= first:
            raise ValueError(f"a rollout from the {self.start} memory needs {first + 1} tokens or more.")
        begin = model.teach(x[:, :1])[:, 0] if first else model.first(len(x))
        states = model.roll(begin, x[:, first:])
        rows, ends = every_split(states)
        found = decode(model.readout, states.flatten(0, 1), batch, rows, ends + first, future=1, buckets=1)
        return {"loss": self.readout * cross_entropy(*found)}
