"""What one training rollout costs by BPTT, checkpointing and memory replay: seconds in turns, bytes alive."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.algorithms.checkpointing import Checkpointed
from reference.algorithms.mrbp import Mrbp
from reference.algorithms.segments import Segments, bptt, leaves, mapped
from reference.measure.live_bytes import LiveBytes, bytes_of
from reference.measure.timing import busy_seconds
from reference.models.memformer import Memformer

ALGORITHMS: dict[str, type[Segments] | type[Checkpointed] | type[Mrbp]] = {
    "bptt": Segments,
    "checkpointing": Checkpointed,
    "mrbp": Mrbp,
}
MNIST = {
    "vocab": 256,
    "width": 128,
    "heads": 4,
    "head_width": 32,
    "feed_forward": 256,
    "segment": 49,
    "memory_size": 64,
}


def rollout_cost(
    *,
    generator: torch.Generator,
    device: str,
    encoder_layers: int = 4,
    decoder_layers: int = 8,
    segments: int = 16,
    batch: int = 2,
    arguments: Mapping[str, Any] | None = None,
    tolerance: float = 0.02,
    least: int = 4,
    most: int = 12,
) -> dict[str, float | list[float]]:
    """Run a Memformer's rollouts (forward, backward, loss at every segment) in turns and count their bytes.

    Turns go on until twice the standard error of MRBP's mean speed is below `tolerance` of it, but at least
    `least` and at most `most`. The default is the paper's MNIST width, 784 tokens in 16 segments.

    Args:
        arguments: of the Memformer, over the MNIST ones.

    Returns:
        mrbp_speed, checkpointing_speed: BPTT's seconds over theirs, one entry a turn;
        mrbp_of_bound, checkpointing_of_bound: the same over `mrbp_bound` and `checkpointing_bound` (see
        `speed_bounds`); bptt_s, mrbp_s, checkpointing_s: seconds, lists;
        bptt_bytes, mrbp_bytes, checkpointing_bytes: activations alive at most, without the static bytes;
        static_bytes: parameters and gradients; segment_bytes: activations of one segment alone;
        memory_bytes: of all the memories kept; mrbp_of_allowance: mrbp_bytes over segment_bytes +
        memory_bytes; mrbp_of_bptt_bytes.
    """
    settings = {
        **MNIST,
        **(arguments or {}),
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
    }
    with torch.device(device):
        model = Memformer(**settings)
    tokens_BN = torch.randint(settings["vocab"], (batch, segments * model.segment), generator=generator).to(
        device
    )
    runs = {name: partial(kind().backward, model, {"tokens": tokens_BN}) for name, kind in ALGORITHMS.items()}
    seconds = _in_turns(runs, tolerance, least, most)
    bounds = speed_bounds(encoder_layers, decoder_layers)
    result: dict[str, float | list[float]] = {}
    for name in ALGORITHMS:
        result[f"{name}_s"] = seconds[name]
        result[f"{name}_bytes"] = float(_activations(model, tokens_BN, runs[name]))
        if name != "bptt":
            speed = [plain / own for plain, own in zip(seconds["bptt"], seconds[name], strict=True)]
            result[f"{name}_speed"], result[f"{name}_bound"] = speed, bounds[name]
            result[f"{name}_of_bound"] = [value / bounds[name] for value in speed]
    memory = mapped(lambda leaf: leaf.detach().clone(), _memory_after(model, tokens_BN))
    one = mapped(lambda leaf: leaf.requires_grad_(leaf.is_floating_point()), memory)
    segment_BL = tokens_BN[:, -model.segment :].clone()
    alone = _activations(
        model, segment_BL, lambda: bptt(model.step, [segment_BL], one, _cross_entropy), *leaves(memory)
    )
    kept = segments * bytes_of(leaves(memory))
    mrbp_bytes, bptt_bytes = result["mrbp_bytes"], result["bptt_bytes"]
    assert isinstance(mrbp_bytes, float) and isinstance(bptt_bytes, float)
    return {
        **result,
        "static_bytes": float(2 * bytes_of(model.parameters())),
        "segment_bytes": float(alone),
        "memory_bytes": float(kept),
        "mrbp_of_allowance": mrbp_bytes / (alone + kept),
        "mrbp_of_bptt_bytes": mrbp_bytes / bptt_bytes,
    }


def speed_bounds(encoder_layers: int, decoder_layers: int) -> dict[str, float]:
    """Return the best speeds relative to BPTT if every layer costs the same and backward costs two forwards.

    MRBP runs the encoder once more, checkpointing everything.

    >>> {name: round(bound, 2) for name, bound in speed_bounds(4, 8).items()}
    {'mrbp': 0.9, 'checkpointing': 0.75}
    """
    return {"mrbp": 3 / (3 + encoder_layers / (encoder_layers + decoder_layers)), "checkpointing": 3 / 4}


def _in_turns(
    runs: Mapping[str, Callable[[], Any]], tolerance: float, least: int, most: int
) -> dict[str, list[float]]:
    """Time every run once a turn, each turn starting with another one, after one untimed turn."""
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for run in runs.values():
        run()
    for turn in range(most):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(busy_seconds(runs[name]))
        ratios = [math.log(a / b) for a, b in zip(seconds["bptt"], seconds["mrbp"], strict=True)]
        if turn + 1 >= max(least, 2) and 2 * statistics.stdev(ratios) / math.sqrt(turn + 1) < tolerance:
            break
    return seconds


def _activations(model: Memformer, tokens: Tensor, run: Callable[[], Any], *kept: Tensor) -> int:
    """Return the most bytes alive at any moment of `run` that are neither static nor tokens."""
    with LiveBytes(model, kept=kept) as count:  # gradients exist from the runs before
        run()
    return count.peak_activations


def _memory_after(model: Memformer, tokens_BN: Tensor) -> Any:
    """Return the memory after two segments: its shapes no longer change."""
    memory: Any = model.initial_memory(len(tokens_BN))
    with torch.no_grad():
        for segment_BL in tokens_BN.split(model.segment, dim=1)[:2]:
            memory = model.memory_step(segment_BL.clone(), memory)
    return memory


def _cross_entropy(logits_BLV: Tensor, segment_BL: Tensor) -> Tensor:
    return F.cross_entropy(logits_BLV.flatten(0, 1), segment_BL.flatten())
