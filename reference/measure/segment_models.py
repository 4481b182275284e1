"""Segment models by name, on any device, with a full memory: what the counters and clocks run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from reference.algorithms.segments import Memory, leaves, mapped
from reference.measure.shape_cache import ShapeCache
from reference.models.compressive_transformer import CompressiveTransformer
from reference.models.decoder import Decoder
from reference.models.memformer import Memformer
from reference.models.segment_lstm import SegmentLstm
from reference.models.transformer_xl import TransformerXL

MODELS: dict[str, type[nn.Module]] = {
    "memformer": Memformer,
    "transformer_xl": TransformerXL,
    "compressive_transformer": CompressiveTransformer,
    "decoder": Decoder,
    "lstm": SegmentLstm,
}
STEPS_AT_MOST = 10_000


def build(model: str, arguments: Mapping[str, Any], device: str | torch.device = "meta") -> Any:
    """Return the model `MODELS[model](**arguments)` on the device, in training mode.

    Raises:
        ValueError: an unknown model.
    """
    if model not in MODELS:
        raise ValueError(f"the model {model!r} is unknown; choose from {', '.join(MODELS)}.")
    with torch.device(device):
        return MODELS[model](**arguments)


def tokens(batch: int, length: int, device: str | torch.device = "meta") -> Tensor:
    """Return zeros [batch, length]: costs depend on shapes alone."""
    return torch.zeros(batch, length, dtype=torch.int64, device=device)


def shapes(memory: Memory) -> tuple[torch.Size, ...]:
    """Return the shapes of a memory's tensors."""
    return tuple(leaf.shape for leaf in leaves(memory))


@torch.no_grad()
def full_memory(model: Any, batch: int) -> Memory:
    """Return the memory once its shapes no longer change: quick on the meta device.

    Raises:
        RuntimeError: a memory that keeps growing.
    """
    memory: Memory = model.initial_memory(batch)
    segment_BL = tokens(batch, model.segment, next(model.parameters()).device)
    for _ in range(STEPS_AT_MOST):
        before = shapes(memory)
        _, memory = model.step(segment_BL, memory)
        if shapes(memory) == before:
            return memory
    raise RuntimeError(f"the memory still grows after {STEPS_AT_MOST:,} segments.")


def filled_memory(
    model: str,
    arguments: Mapping[str, Any],
    batch: int,
    device: str | torch.device,
    generator: torch.Generator,
) -> Memory:
    """Return a memory of the shapes of a full one, with random states and token 0, on the device."""

    def fill(leaf: Tensor) -> Tensor:
        if leaf.is_floating_point():
            return torch.randn(leaf.shape, dtype=leaf.dtype, generator=generator).to(device)
        return torch.zeros(leaf.shape, dtype=leaf.dtype, device=device)

    with ShapeCache():
        full = full_memory(build(model, arguments), batch)
    return mapped(fill, full)
