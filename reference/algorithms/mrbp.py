"""Memory replay back-propagation (Memformer, arXiv:2010.06891, Algorithm 1).

It gives BPTT's gradients and holds the graph of one step at a time.

Forward, without gradient: keep the memory before every step. Backward, last step first: run the step again
with gradient from its kept memory, back-propagate its loss together with the gradient that the step after it
handed back for its memory, and hand back the gradient of the memory it started from. Alive at any moment: T
memories and the graph of one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from reference.algorithms.segments import (
    LossFunction,
    Memory,
    MemoryStep,
    RngState,
    Step,
    check_horizon,
    detached,
    leaves,
    mapped,
    rng_state,
    set_rng_state,
    streams,
    train,
)

Gradients = list[Tensor | None]


def mrbp(
    step: Step,
    memory_step: MemoryStep | None,
    segments: Sequence[Any],
    memory: Memory,
    loss_fn: LossFunction,
    *,
    separate_streams: bool | None = None,
) -> tuple[Tensor, Memory]:
    """Add the gradients of the sum of all losses to `.grad`, as `reference.algorithms.segments.bptt` does.

    Args:
        step: (segment, memory) -> (output, memory). Any module; what must receive a gradient is a parameter
            or the initial memory (an input with a graph of its own would be back-propagated once a step). It
            must not change its memory in place.
        memory_step: (segment, memory) -> the same memory as `step`'s, cheaper; or None to use `step`.
            If it draws random numbers, they must be the first ones that `step` draws.
        segments: one input a step, anything that `step` and `loss_fn` understand.
        memory: a tensor or a nested tuple of tensors; whole numbers pass through. If it carries a graph (a
            learned start), its gradient is handed on at the end.
        loss_fn: (output, segment) -> 0-d loss, at every segment; the sum of several losses is one.
        separate_streams: see `reference.algorithms.segments.streams`; default: if there is a `memory_step`.

    Returns:
        The total loss and the memory after the last segment, detached.

    Raises ValueError if there is no segment.
    """
    if separate_streams is None:
        separate_streams = memory_step is not None
    replay: list[tuple[Memory, RngState]] = []
    with streams(segments, separate_streams) as enter:
        with torch.no_grad():
            current = detached(memory)
            for index, segment in enumerate(segments):
                enter(index)
                replay.append((current, rng_state()))
                if index + 1 < len(segments):
                    current = memory_step(segment, current) if memory_step else step(segment, current)[1]
            del current
        gradients: Gradients = [None] * len(leaves(memory))  # of the memory after a step: none after the last
        total = None
        for segment in reversed(segments):
            kept, state = replay.pop()
            set_rng_state(state)
            start = mapped(_leaf, kept) if replay else mapped(_first_leaf, memory)
            loss, after, gradients = _back(step, loss_fn, segment, start, gradients)
            if total is None:
                total, final, random_after = loss, after, rng_state()
            else:
                total = total + loss
        set_rng_state(random_after)
    _backward([], leaves(memory), gradients)
    assert total is not None
    return total, final


def _back(
    step: Step, loss_fn: LossFunction, segment: Any, start: Memory, gradients: Gradients
) -> tuple[Tensor, Memory, Gradients]:
    """Run one step from `start` and back-propagate it; return loss, memory after it, gradients of `start`."""
    output, after = step(segment, start)
    loss = loss_fn(output, segment)
    del output  # its graph keeps what the backward pass needs
    _backward([loss], leaves(after), gradients)
    return loss.detach(), detached(after), [leaf.grad for leaf in leaves(start)]


def _backward(losses: list[Tensor], memory: list[Tensor], gradients: Gradients) -> None:
    """Back-propagate losses, and memory tensors with the gradients handed back, in one pass."""
    roots: list[tuple[Tensor, Tensor | None]] = [(loss, None) for loss in losses]
    roots += [(leaf, grad) for leaf, grad in zip(memory, gradients, strict=True) if grad is not None]
    if roots := [(root, grad) for root, grad in roots if root.requires_grad]:
        torch.autograd.backward([root for root, _ in roots], [grad for _, grad in roots])


def _leaf(tensor: Tensor) -> Tensor:
    """Return a leaf at the value of `tensor`, the start of a step's graph."""
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def _first_leaf(tensor: Tensor) -> Tensor:
    """Return a leaf for the first step, which wants a gradient only if the initial memory does."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


@dataclass(frozen=True, kw_only=True)
class Mrbp:
    """As `reference.algorithms.segments.Segments`, by memory replay.

    The first pass runs the model's `memory_step` if it has one, else its `step`.
    """

    horizon: int | None = None

    def __post_init__(self) -> None:
        check_horizon(self.horizon)

    def begin(self, model: nn.Module) -> None:
        """Nothing to prepare."""

    def backward(self, model: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of the loss on batch["tokens"] (int64 [B, N]) in `.grad`; return {"loss"}."""
        memory_step = getattr(model, "memory_step", None)

        def rollout(
            step: Step,
            segments: Sequence[Any],
            memory: Memory,
            loss_fn: LossFunction,
            *,
            separate_streams: bool,
        ) -> tuple[Tensor, Memory]:
            return mrbp(step, memory_step, segments, memory, loss_fn, separate_streams=separate_streams)

        return train(rollout, model, batch, self.horizon)
