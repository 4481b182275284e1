"""Supervised memory training: what to remember and how to update it, without unrolling (arXiv:2606.06479)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from reference.models.smt import SMT, decode, every_split

_ROWS = 512  # memory tokens that the uniformity looks at, at most


def uniformity(rows: Tensor) -> Tensor:
    """Return log mean exp(−2 ‖a − b‖²) over the pairs of distinct `rows` (R ≥ 2, M), brought to length 1.

    0 for rows that are all alike, about −4 for rows spread over a sphere of many dimensions.

    Raises:
        ValueError: fewer than 2 rows.
    """
    if len(rows) < 2:
        raise ValueError("uniformity compares memory tokens and needs 2 or more.")
    rows = F.normalize(rows, dim=-1)
    near = (4 * rows @ rows.T - 4).exp()  # ‖a − b‖² = 2 − 2 a·b
    return ((near.sum() - near.diagonal().sum()) / (len(rows) * (len(rows) - 1))).log()


def sampled_rows(memory: Tensor, most: int = _ROWS) -> Tensor:
    """Return the memory tokens of `memory` (…, K, M) as rows; at most `most`, drawn by torch's generator."""
    rows = memory.flatten(0, -2)
    if len(rows) > most:
        rows = rows[torch.randperm(len(rows), device=rows.device)[:most]]
    return rows


def cross_entropy(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the mean cross-entropy (nats) of `logits` (A, V) for `answers` (A); 0 without any."""
    return F.cross_entropy(logits, answers, reduction="sum") / max(len(answers), 1)


@dataclass(frozen=True)
class SupervisedMemory:
    """One step of SMT: λ_dec · L_dec + λ_dyn · L_dyn + λ_unif · L_unif.

    Args:
        decoding, dynamics, uniform: λ_dec, λ_dyn, λ_unif, each ≥ 0.
        future: T_f, answers in the decoder's window from y_t on; None: all that follow.
        splits: split points drawn a sequence, each with its successor; None: all of them at once.
        earliest: with `splits`, the first position drawn (T_c − 1 for whole contexts); the last one leaves
            room for a whole window of `future` answers. So `future` must be shorter than the sequence then;
            None lets windows end with it.
        joint: the dynamics error reaches both memories it compares and so the encoder; False detaches both.
        buckets: groups of like length in which contexts are encoded and decoded; 1 pads all to the longest.

    Raises:
        ValueError: an argument out of its range.
    """

    decoding: float = 1.0
    dynamics: float = 0.1
    uniform: float = 0.001
    future: int | None = None
    splits: int | None = None
    earliest: int = 0
    joint: bool = True
    buckets: int = 4

    def __post_init__(self) -> None:
        if not all(weight >= 0 for weight in (self.decoding, self.dynamics, self.uniform)):
            raise ValueError("SMT needs weights decoding, dynamics and uniform of 0 or more.")
        if any(n is not None and n < 1 for n in (self.future, self.splits, self.buckets)):
            raise ValueError("SMT needs future ≥ 1 or None, splits ≥ 1 or None, and buckets ≥ 1.")
        if self.earliest < 0 or (self.earliest and self.splits is None):
            raise ValueError(f"earliest is {self.earliest}; without splits it is 0, with them 0 or more.")

    def begin(self, model: SMT) -> None:
        """Let every part of the model learn."""
        model.requires_grad_(True)

    def backward(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of `batch`'s loss (inputs, targets, mask: B × T); return it and its terms.

        Raises:
            ValueError: sequences without a pair of positions, or too short for `earliest` and `future`.
        """
        terms = self.terms(model, batch)
        terms["loss"].backward()
        return {name: value.detach() for name, value in terms.items()}

    def terms(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the loss of `batch` and its terms dec, dyn, unif: 0-d, in one graph; raise as backward."""
        x = batch["inputs"]
        length = x.shape[1]
        if length < 2:
            raise ValueError("SMT needs sequences of 2 tokens or more: it learns from memory to memory.")
        if self.splits is None:
            rows, ends = every_split(x)
            memory = model.encode(x, rows, ends, self.buckets)
            by_step = memory.unflatten(0, x.shape)
            now, after, token = (
                by_step[:, :-1].flatten(0, 1),
                by_step[:, 1:].flatten(0, 1),
                x[:, 1:].flatten(),
            )
        else:
            rows = torch.arange(len(x), device=x.device).repeat_interleave(self.splits)
            latest = length - max(2, self.future or 2)
            if latest < self.earliest or self.future == length:
                raise ValueError(
                    f"{length} tokens are too few to draw splits from position {self.earliest} on, each with "
                    f"a successor and a whole window (future={self.future}); None lets windows end with them."
                )
            ends = torch.randint(self.earliest, latest + 1, rows.shape, device=x.device)
            pair = model.encode(x, rows.repeat(2), torch.cat((ends, ends + 1)), self.buckets)
            now, after = pair.chunk(2)
            memory, token = now, x[rows, ends + 1]
        logits, answers = decode(model.decoder, memory, batch, rows, ends, self.future, self.buckets)
        if not self.joint:
            now, after = now.detach(), after.detach()
        dec = cross_entropy(logits, answers)
        dyn = F.mse_loss(model.updater(now, token), after)
        unif = uniformity(sampled_rows(memory))
        loss = self.decoding * dec + self.dynamics * dyn + self.uniform * unif
        return {"loss": loss, "dec": dec, "dyn": dyn, "unif": unif}
