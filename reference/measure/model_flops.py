"""FLOPs of a segment model over whole sequences, by length, counted on the meta device.

One convention for every model: forward pass without gradient, one sequence, memory empty at its start, two
FLOPs a multiply-add (`reference.measure.flops`), without the projection onto the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from reference.algorithms.segments import Memory
from reference.measure.flops import counting
from reference.measure.segment_models import build, full_memory, shapes, tokens
from reference.measure.shape_cache import ShapeCache

VOCAB = 256  # costs nothing once the projection is out: looking up an embedding is no multiplication


def sequence_flops(
    *,
    generator: torch.Generator,
    device: str,
    model: str,
    arguments: Mapping[str, Any],
    lengths: Sequence[int],
    whole: bool = False,
    paper: float | None = None,
) -> dict[str, float | list[float]]:
    """Return the FLOPs of one forward pass over a sequence, for each of the rising `lengths`.

    Args:
        model: a name in `reference.measure.segment_models.MODELS`; `arguments` are its own but for `vocab`.
        whole: the sequence is one segment (the vanilla decoder): `segment` becomes its length. Otherwise
            lengths are multiples of the segment.
        paper: the figure printed for the longest, in 10⁹.

    Returns:
        flops (a list), flops_<length>, billions (of the longest, in 10⁹); with `paper`, miss_percent: how far
        billions is above the print; with two lengths or more, exponent: the slope of log FLOPs against log
        length between the last two; for a model with a memory path of its own, billions_last_written: the
        same as billions when the last segment is encoded into memory too, which no output needs.

    Raises:
        ValueError: a length that isn't a multiple of the segment.
    """
    more: dict[str, float] = {}
    if whole:
        counts = [forward_flops(_headless(model, {**arguments, "segment": n}), n)[-1] for n in lengths]
    else:
        built, segment = _headless(model, arguments), arguments["segment"]
        if odd := [length for length in lengths if length % segment]:
            raise ValueError(f"{odd[0]} tokens aren't whole segments of {segment}; change either.")
        upto = forward_flops(built, max(lengths))
        counts = [upto[length // segment - 1] for length in lengths]
        if hasattr(built, "memory_step"):
            more["billions_last_written"] = (counts[-1] + _memory_flops(built)) / 1e9
    found: dict[str, float | list[float]] = {
        "flops": [float(count) for count in counts],
        "billions": counts[-1] / 1e9,
        **{f"flops_{length}": float(count) for length, count in zip(lengths, counts, strict=True)},
        **more,
    }
    if paper is not None:
        found["miss_percent"] = 100 * (counts[-1] / 1e9 / paper - 1)
    if len(counts) > 1:
        found["exponent"] = math.log(counts[-1] / counts[-2]) / math.log(lengths[-1] / lengths[-2])
    return found


@torch.no_grad()
def forward_flops(model: Any, length: int) -> list[int]:
    """Return the FLOPs of `model` (on the meta device) over the first 1, 2, … segments of `length` tokens.

    What a step costs depends on shapes alone: steps with shapes seen before are not run again.
    """
    memory: Memory = model.initial_memory(1)
    known: dict[Any, tuple[int, Memory]] = {}
    costs = []
    for segment_1L in tokens(1, length).split(model.segment, dim=1):
        key = (segment_1L.shape, shapes(memory))
        if key not in known:
            with ShapeCache(), counting() as counter:
                _, after = model.step(segment_1L, memory)
            known[key] = counter.get_total_flops(), after
        cost, memory = known[key]
        costs.append(cost)
    return list(accumulate(costs))


@torch.no_grad()
def _memory_flops(model: Any) -> int:
    """Return the FLOPs of writing one segment into a full memory."""
    with ShapeCache():
        memory = full_memory(model, 1)
        with counting() as counter:
            model.memory_step(tokens(1, model.segment), memory)
    return counter.get_total_flops()


def _headless(model: str, arguments: Mapping[str, Any]) -> Any:
    """Return the model on the meta device without its projection onto the vocabulary."""
    built = build(model, {**arguments, "vocab": VOCAB})
    assert isinstance(built.head, nn.Linear)
    built.head = nn.Identity()
    return built
