"""Gradient of the last answer's loss at earlier memories, by distance (arXiv:2606.06479, Fig. 11)."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from reference.measure.drift import Task, on_device
from reference.models.smt import SMT, decode, every_split


def gradient_distance(
    model: SMT,
    task: Task,
    generator: torch.Generator,
    path: str,
    gains: tuple[float, ...] = (1.0,),
    size: int = 64,
) -> dict[str, float | list[float]]:
    """Return the mean norm over sequences of ∂ loss(y_{T−1}) / ∂ m_t, by distance T − 1 − t.

    Args:
        model: is copied in float64; every matrix of the copy's updater, decoder and readout is multiplied by
            a gain.
        path: `unrolled`: m_t is the updater's own memory and the loss comes through all later steps and the
            readout (BPTT). `decoder`: m_t is the encoder's and the loss comes through the decoder's window
            from t (SMT).
        gains: initial scales tried.

    Returns:
        norms_at_G: for each gain G, a list by distance 0, 1, …
        span_at_G: log10 of its largest over its smallest norm. worst_span: the largest over the gains.

    Raises:
        ValueError: an unknown path, or a task whose last position has no answer.
    """
    if path not in ("unrolled", "decoder"):
        raise ValueError(f"path is {path!r}; choose from unrolled, decoder.")
    batch = on_device(model, task.sample(size, generator))
    last = batch["mask"].clone()
    last[:, :-1] = False
    if not last[:, -1].all():
        raise ValueError("the gradient by distance needs a task with an answer at the last position.")
    batch["mask"] = last
    found: dict[str, float | list[float]] = {}
    spans = []
    for gain in gains:
        scaled = copy.deepcopy(model).double().requires_grad_(False)
        for part in (scaled.updater, scaled.decoder, scaled.readout):
            for weight in part.parameters():
                if weight.dim() > 1:
                    weight.mul_(gain)
        norms = (_unrolled if path == "unrolled" else _decoded)(scaled, batch).flip(0).tolist()
        spans.append(math.log10(max(norms) / max(min(norms), 1e-300)))
        found |= {f"norms_at_{gain:g}": norms, f"span_at_{gain:g}": spans[-1]}
    return {**found, "worst_span": max(spans)}


def _unrolled(model: SMT, batch: dict[str, Tensor]) -> Tensor:
    """Return the norms (T) by position through the rollout."""
    x = batch["inputs"]
    memory, states = model.first(len(x)).clone().requires_grad_(), []
    for token in x.unbind(1):
        memory = model.updater(memory, token)
        states.append(memory)
    loss = F.cross_entropy(model.readout(memory)[:, 0], batch["targets"][:, -1], reduction="sum")
    gradients = torch.autograd.grad(loss, states)
    return torch.stack([g.flatten(1).norm(dim=1).mean() for g in gradients])


def _decoded(model: SMT, batch: dict[str, Tensor]) -> Tensor:
    """Return the norms (T) by position through one decoder window each."""
    x = batch["inputs"]
    memory = model.teach(x).flatten(0, 1).requires_grad_()
    logits, answers = decode(model.decoder, memory, batch, *every_split(x), future=None)
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, answers, reduction="sum"), memory)
    return gradient.flatten(1).norm(dim=1).view(x.shape).mean(0)
