"""Back-propagation through time over segments: memory passes from one to the next, every segment has a loss.

`bptt` works for any module with `step(input, memory) -> (output, memory)`; `Segments` is the same for a
segment model (see `reference.models.segment_inputs`) and a batch of tokens. The whole graph lives until the
backward pass: the plain meaning that `checkpointing` and `mrbp` reproduce with less memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Memory: TypeAlias = "Tensor | tuple[Memory, ...]"
Step = Callable[[Any, Any], tuple[Any, Any]]
MemoryStep = Callable[[Any, Any], Any]
LossFunction = Callable[[Any, Any], Tensor]
RngState = tuple[Tensor, list[Tensor]]


def bptt(
    step: Step,
    segments: Sequence[Any],
    memory: Memory,
    loss_fn: LossFunction,
    *,
    separate_streams: bool = False,
) -> tuple[Tensor, Memory]:
    """Back-propagate the sum of the losses of all segments; gradients are added to `.grad`.

    Args:
        step: (segment, memory) -> (output, memory).
        segments: one input a step, anything that `step` and `loss_fn` understand.
        memory: a tensor or a nested tuple of tensors. If it carries a graph (a learned start), that is
            followed.
        loss_fn: (output, segment) -> 0-d loss; the sum of several losses is one.
        separate_streams: give every step random numbers of its own, see `streams`.

    Returns:
        The total loss, detached, and the memory after the last segment, detached.

    Raises ValueError if there is no segment.
    """
    total: Tensor | None = None
    with streams(segments, separate_streams) as enter:
        for index, segment in enumerate(segments):
            enter(index)
            output, memory = step(segment, memory)
            loss = loss_fn(output, segment)
            total = loss if total is None else total + loss
    assert total is not None
    if total.requires_grad:
        total.backward()
    return total.detach(), detached(memory)


class Rollout(Protocol):
    """What `bptt` and `checkpointed` have in common, and `mrbp` once its memory path is bound."""

    def __call__(
        self,
        step: Step,
        segments: Sequence[Any],
        memory: Memory,
        loss_fn: LossFunction,
        *,
        separate_streams: bool,
    ) -> tuple[Tensor, Memory]:
        """Leave gradients in `.grad`; return the total loss and the last memory."""


@dataclass(frozen=True, kw_only=True)
class Segments:
    """BPTT over the segments of a batch: loss at every segment, the mean cross-entropy over all tokens.

    Args:
        horizon: segments that a gradient passes at most: the memory is detached after every `horizon`
            segments. None for all.

    Raises ValueError if the horizon is below 1.
    """

    horizon: int | None = None

    def __post_init__(self) -> None:
        check_horizon(self.horizon)

    def begin(self, model: nn.Module) -> None:
        """Nothing to prepare."""

    def backward(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of the loss on batch["tokens"] (int64 [B, N]) in `.grad`; return {"loss"}."""
        return train(bptt, model, batch, self.horizon)


def train(
    rollout: Rollout, model: Any, batch: Mapping[str, Tensor], horizon: int | None
) -> dict[str, Tensor]:
    """Run `rollout` over the segments of batch["tokens"], `horizon` segments at a time; return {"loss"}.

    The memory starts at `model.initial_memory(B)`. A model with a `memory_step` gets separate random streams
    a step, because its memory path may draw fewer numbers than its step (see `streams`).
    """
    tokens_BN = batch["tokens"]
    segments = tokens_BN.split(model.segment, dim=1)
    separate = hasattr(model, "memory_step")
    memory: Memory = model.initial_memory(len(tokens_BN))
    total = torch.zeros((), device=tokens_BN.device)
    for start in range(0, len(segments), horizon or len(segments)):
        loss, memory = rollout(
            model.step,
            segments[start : start + (horizon or len(segments))],
            memory,
            lambda logits_BLV, segment_BL: (
                F.cross_entropy(logits_BLV.flatten(0, 1), segment_BL.flatten(), reduction="sum")
                / tokens_BN.numel()
            ),
            separate_streams=separate,
        )
        total = total + loss
    return {"loss": total}


def check_horizon(horizon: int | None) -> None:
    """Raise ValueError if `horizon` is below 1."""
    if horizon is not None and horizon < 1:
        raise ValueError(f"The horizon is {horizon}; give at least 1 segment, or None for all.")


def leaves(memory: Memory) -> list[Tensor]:
    """Return the tensors of a memory, in order."""
    return [memory] if isinstance(memory, Tensor) else [leaf for part in memory for leaf in leaves(part)]


def mapped(change: Callable[[Tensor], Tensor], memory: Memory) -> Memory:
    """Return the memory with `change` applied to each of its tensors."""
    return change(memory) if isinstance(memory, Tensor) else tuple(mapped(change, part) for part in memory)


def detached(memory: Memory) -> Memory:
    """Return the memory cut from its graph; no data is copied."""
    return mapped(Tensor.detach, memory)


def rng_state() -> RngState:
    """Return the state of torch's generators: the CPU's and every CUDA device's."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def set_rng_state(state: RngState) -> None:
    """Put torch's generators back to a state from `rng_state`."""
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


@contextmanager
def streams(segments: Sequence[Any], separate: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the index of each step before it runs.

    Not separate, it does nothing: random numbers follow one another through the steps. That is wrong for
    a cheap memory path: it draws fewer numbers than a whole step, so the decoder of one step would share
    dropout masks with the encoder of the next. Separate, every step starts a stream of its own, from a seed
    drawn in advance, so that all three ways to back-propagate draw the same masks; afterwards the generators
    go on behind the seeds.

    Raises ValueError if there is no segment.
    """
    if not len(segments):
        raise ValueError("A rollout needs at least one segment.")
    if not separate:
        yield lambda index: None
        return
    seeds = torch.randint(2**62, (len(segments),)).tolist()
    after = rng_state()

    def enter(index: int) -> None:
        torch.default_generator.manual_seed(seeds[index])
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seeds[index])

    try:
        yield enter
    finally:
        set_rng_state(after)
