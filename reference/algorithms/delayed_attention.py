"""Delayed attention training: which modules take part in a stage of training (arXiv:2510.00258, Sec. 2).

Phase 1 is a stage with `Participation(sleeping=["attention"])`, phase 2 one with `Participation()`; ordinary
training is the second alone. A model of any kind can be trained so if it says which of its modules can sleep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

from torch import Tensor, nn
from torch.nn import functional as F


class Sleeper(Protocol):
    """A model with modules that can sleep: those named in `asleep` must add nothing to its output."""

    asleep: frozenset[str]

    @property
    def sleepers(self) -> Mapping[str, nn.Module]:
        """Name → module that can sleep."""
        ...


class Participation:
    """One stage of training in which some modules do not take part, by the mean cross-entropy of the answers.

    A sleeping module is left out of the forward pass. Its parameters get no gradient at all, so an optimiser
    neither moves nor decays them; one that has slept from the start has no moments and joins with its first
    step. (One that was awake before, sleeps and wakes again finds the moments it had, as an optimiser keeps
    them, unless the stage begins with a fresh optimiser.)

    Args:
        sleeping: names of modules that contribute nothing.
        frozen: names of modules whose output takes part while their parameters do not learn: what delayed
            attention is not.
        answers: true, or shuffled: every sequence is taught its neighbour's answers (a control).

    Raises:
        ValueError: a module that is to sleep and to be frozen, answers that are neither, or names that are
            one string.
    """

    def __init__(
        self, sleeping: Sequence[str] = (), frozen: Sequence[str] = (), answers: str = "true"
    ) -> None:
        if isinstance(sleeping, str) or isinstance(frozen, str):
            raise ValueError("Participation takes names of modules in a list: ['attention'].")
        if both := set(sleeping) & set(frozen):
            raise ValueError(f"A module sleeps or is frozen, not both: {', '.join(sorted(both))}.")
        if answers not in ("true", "shuffled"):
            raise ValueError(f"Answers are true or shuffled, not {answers!r}.")
        self.sleeping, self.frozen, self.answers = frozenset(sleeping), frozenset(frozen), answers

    def begin(self, model: nn.Module) -> None:
        """Put the model's modules in their state for this stage; what was so before does not matter.

        Raises ValueError if the model has no such module that can sleep.
        """
        sleepers: Mapping[str, nn.Module] = getattr(model, "sleepers", {})
        if unknown := (self.sleeping | self.frozen) - sleepers.keys():
            known = ", ".join(sleepers) or "none"
            raise ValueError(
                f"{type(model).__name__} has no module '{min(unknown)}' that can sleep; it has: {known}."
            )
        model.requires_grad_(True)
        for name in self.frozen:
            sleepers[name].requires_grad_(False)
        if sleepers:
            cast(Sleeper, model).asleep = self.sleeping

    def backward(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave gradients of the mean loss of `batch` in .grad; return {"loss"} in nats, detached.

        The batch holds inputs (B, T), positions (Q) whose next token is asked for, and targets (B, Q).

        Raises ValueError if answers are shuffled and there is one sequence only: it would get its own.
        """
        targets_BQ = batch["targets"]
        if self.answers == "shuffled":
            if len(targets_BQ) < 2:
                raise ValueError("Shuffled answers need at least two sequences in a batch.")
            targets_BQ = targets_BQ.roll(1, dims=0)
        logits_BQC = model(batch["inputs"], batch["positions"])
        loss = F.cross_entropy(logits_BQC.flatten(0, 1), targets_BQ.flatten())
        loss.backward()
        return {"loss": loss.detach()}


@contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Let every module take part inside the block: inference always uses the whole model."""
    asleep = getattr(model, "asleep", None)
    if asleep is None:
        yield
        return
    cast(Sleeper, model).asleep = frozenset()
    try:
        yield
    finally:
        cast(Sleeper, model).asleep = asleep
