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
    """
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
        decoding, dynamics, uniform: λ_dec, λ_dyn, λ_unif.
        future: T_f, answers in the decoder's window from y_t on; None: all that follow.
        splits: split points drawn a sequence, each with its successor; None: all of them at once.
        earliest: with `splits`, the first position drawn (T_c − 1 for whole contexts); the last one leaves
            room for a whole window of `future` answers.
        joint: the dynamics error reaches both memories it compares and so the encoder; False detaches both.
        buckets: groups of like length in which contexts are encoded and decoded; 1 pads all to the longest.
    """

    decoding: float = 1.0
    dynamics: float = 0.1
    uniform: float = 0.001
    future: int | None = None
    splits: int | None = None
    earliest: int = 0
    joint: bool = True
    buckets: int = 4

    def begin(self, model: SMT) -> None:
        """Let every part of the model learn."""
        model.requires_grad_(True)

    def backward(self, model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of `batch`'s loss (inputs, targets, mask: B × T); return it and its terms."""
        x = batch["inputs"]
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
            latest = max(self.earliest, x.shape[1] - max(2, self.future or 2))
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
        loss.backward()
        return {"loss": loss.detach(), "dec": dec.detach(), "dyn": dyn.detach(), "unif": unif.detach()}
