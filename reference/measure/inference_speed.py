"""How much faster one segment model predicts than another: seconds a token, in turns, on one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from reference.measure.model_flops import forward_flops
from reference.measure.segment_models import build, filled_memory, tokens
from reference.measure.timing import busy_seconds


def inference_speed(
    *,
    generator: torch.Generator,
    device: str,
    model: str,
    arguments: Mapping[str, Any],
    rival: str,
    rival_arguments: Mapping[str, Any],
    batch: int,
    segments: int = 1,
    repeats: int = 10,
) -> dict[str, float | list[float]]:
    """Time `segments` inference steps with a full memory, model and rival in turns, after an untimed turn.

    Returns:
        speed_ratio: rival's time over the model's, one entry a turn; model_s, rival_s: seconds a token;
        flops_ratio: rival's FLOPs over the model's, counted over 64 segments from an empty memory.
    """
    timed = {name: _Timed(name, given, batch, segments, device, generator) for name, given in
             ((model, arguments), (rival, rival_arguments))}  # fmt: skip
    own, theirs = timed[model], timed[rival]
    own.seconds(), theirs.seconds()
    turns = [(own.seconds(), theirs.seconds()) for _ in range(repeats)]
    counted = [forward_flops(build(name, given), 64 * given["segment"])[-1] for name, given in
               ((model, arguments), (rival, rival_arguments))]  # fmt: skip
    return {
        "speed_ratio": [b / a for a, b in turns],
        "model_s": [a for a, _ in turns],
        "rival_s": [b for _, b in turns],
        "flops_ratio": counted[1] / counted[0],
    }


class _Timed:
    """A model with a full memory, ready to be timed."""

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        batch: int,
        segments: int,
        device: str,
        generator: torch.Generator,
    ) -> None:
        self.model = build(name, arguments, device).eval()
        self.memory = filled_memory(name, arguments, batch, device, generator)
        self.segment_BL = tokens(batch, self.model.segment, device)
        self.segments = segments

    def seconds(self) -> float:
        """Return the seconds a token of `segments` steps."""
        return busy_seconds(self.run) / (self.segments * self.segment_BL.numel())

    @torch.no_grad()
    def run(self) -> None:
        """Run `segments` steps, each from the memory of the one before."""
        memory = self.memory
        for _ in range(self.segments):
            _, memory = self.model.step(self.segment_BL, memory)
