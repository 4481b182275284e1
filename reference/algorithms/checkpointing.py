"""Gradient checkpointing over segments, torch's own: one checkpoint a segment, everything runs twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from reference.algorithms.segments import (
    LossFunction,
    Memory,
    Step,
    check_horizon,
    detached,
    streams,
    train,
)


def checkpointed(
    step: Step,
    segments: Sequence[Any],
    memory: Memory,
    loss_fn: LossFunction,
    *,
    separate_streams: bool = False,
) -> tuple[Tensor, Memory]:
    """As `reference.algorithms.segments.bptt`, keeping only memories and losses between the segments."""

    def run(segment: Any, memory: Memory) -> tuple[Tensor, Memory]:
        output, memory = step(segment, memory)
        return loss_fn(output, segment), memory

    total: Tensor | None = None
    with streams(segments, separate_streams) as enter:
        for index, segment in enumerate(segments):
            enter(index)
            loss, memory = checkpoint(run, segment, memory, use_reentrant=False)
            total = loss if total is None else total + loss
    assert total is not None
    if total.requires_grad:
        total.backward()
    return total.detach(), detached(memory)


@dataclass(frozen=True, kw_only=True)
class Checkpointed:
    """As `reference.algorithms.segments.Segments`, with a checkpoint a segment."""

    horizon: int | None = None

    def __post_init__(self) -> None:
        check_horizon(self.horizon)

    def begin(self, model: nn.Module) -> None:
        """Nothing to prepare."""

    def backward(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Leave the gradients of the loss on batch["tokens"] (int64 [B, N]) in `.grad`; return {"loss"}."""
        return train(checkpointed, model, batch, self.horizon)
