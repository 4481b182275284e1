"""DAgger memory training: learn on the memories one makes oneself (arXiv:2606.06479, Sec. 2.3, B.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from reference.algorithms.smt import cross_entropy
from reference.models.smt import SMT, decode

STATES = ("own", "teacher")
TARGETS = ("teacher", "shuffled")
STARTS = ("teacher", "learned")


@dataclass(frozen=True)
class DaggerMemory:
    """One step of DMT: teacher frozen, updater fitted to the teacher's memories, readout to the answers.

    The readout starts as a copy of the teacher's decoder and learns from memories that are detached, so its
    loss never reaches the updater.

    Args:
        dynamics, readout: weights of the two losses, each ≥ 0.
        states: where a step starts from: the updater's own last memory, or the teacher's (the comparison: the
            same number of updates without the states being its own).
        through_time: the error flows back through the earlier steps, which have to be the updater's own;
            False detaches the state at each step.
        start: the rollout begins at the teacher's memory of position `at`, or at the learned memory before
            position 0.
        at: position of the teacher's first memory.
        rollout: steps rolled, at most to the end of the sequence; None: to there.
        every: each `every`-th rolled memory is compared with the teacher's and read out.
        targets: the teacher's memories, or those of the next sequence in the batch (the control).
        buckets: groups of like length in which the teacher encodes.

    Raises:
        ValueError: an unknown word, an argument out of its range, or teacher states with a learned start or
            through time.
    """

    dynamics: float = 10.0
    readout: float = 1.0
    states: str = "own"
    through_time: bool = False
    start: str = "teacher"
    at: int = 0
    rollout: int | None = None
    every: int = 1
    targets: str = "teacher"
    buckets: int = 4

    def __post_init__(self) -> None:
        for name, value, known in (
            ("states", self.states, STATES),
            ("targets", self.targets, TARGETS),
            ("start", self.start, STARTS),
        ):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; choose from {', '.join(known)}.")
        if self.states == "teacher" and self.start != "teacher":
            raise ValueError("teacher states need start='teacher'.")
        if self.states == "teacher" and self.through_time:
            raise ValueError("nothing flows through time from teacher states; choose states='own'.")
        if not all(weight >= 0 for weight in (self.dynamics, self.readout)):
            raise ValueError("DMT needs weights dynamics and readout of 0 or more.")
        if self.at < 0 or min(self.every, self.buckets, 1 if self.rollout is None else self.rollout) < 1:
            raise ValueError("DMT needs at ≥ 0, every ≥ 1, buckets ≥ 1, and rollout ≥ 1 or None.")

    def begin(self, model: SMT) -> None:
        """Freeze the teacher and give its decoder's weights to the readout."""
        model.requires_grad_(True)
        model.encoder.requires_grad_(False)
        model.decoder.requires_grad_(False)
        model.readout.load_state_dict(model.decoder.state_dict())

    def backward(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of `batch`'s loss (inputs, targets, mask: B × T); return it and its terms.

        Raises:
            ValueError: no rolled memory to compare, or no other sequence to take shuffled targets from.
        """
        terms = self.terms(model, batch)
        terms["loss"].backward()
        return {name: value.detach() for name, value in terms.items()}

    def terms(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the loss of `batch` and its terms dyn, readout, 0-d and in one graph; raise as backward."""
        x = batch["inputs"]
        first = self.at + 1 if self.start == "teacher" else 0
        steps = min(self.rollout or x.shape[1], x.shape[1] - first)
        if steps < self.every:
            raise ValueError(
                f"of {x.shape[1]} tokens {max(steps, 0)} are rolled, too few for the first one to compare, "
                f"number {self.every}; make at, every or the sequence fit."
            )
        if self.targets == "shuffled" and len(x) < 2:
            raise ValueError("shuffled targets are another sequence's: take 2 sequences or more a batch.")
        ends = torch.arange(first + self.every - 1, first + steps, self.every, device=x.device)
        given = ends - 1 if self.states == "teacher" else ends.new_tensor([self.at])
        marks, where = torch.cat((given, ends)).unique(return_inverse=True)
        with torch.no_grad():
            taught = model.encode(x, *_pairs(x, marks), self.buckets).unflatten(0, (len(x), len(marks)))
        given, target = taught[:, where].split((len(given), len(ends)), 1)
        rolled = x[:, first : first + steps]
        begin = given[:, 0] if self.start == "teacher" else model.first(len(x))
        if self.through_time and self.states == "own":
            states = model.roll(begin, rolled)[:, ends - first]
        else:  # each step's error ends at its input: roll without a graph, then all judged steps at once
            if self.states == "own":
                with torch.no_grad():
                    own = model.roll(begin, rolled)[:, :-1]
                given = torch.cat((begin[:, None], own), 1)[:, ends - first]
            states = model.updater(given.flatten(0, 1), x[:, ends].flatten()).view_as(target)
        if self.targets == "shuffled":
            target = target.roll(1, 0)
        dyn = F.mse_loss(states, target)
        read = states.detach().flatten(0, 1)
        logits, answers = decode(model.readout, read, batch, *_pairs(x, ends), future=1, buckets=1)
        out = cross_entropy(logits, answers)
        loss = self.dynamics * dyn + self.readout * out
        return {"loss": loss, "dyn": dyn, "readout": out}


def _pairs(x: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return sequence and end of the contexts of every sequence of `x` (B, T) up to each of `ends`."""
    return torch.arange(len(x), device=x.device).repeat_interleave(len(ends)), ends.repeat(len(x))
