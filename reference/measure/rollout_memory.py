"""Bytes of inference and of training rollouts of segment models: counted, or measured as a process's peak.

Counted: on the meta device with `LiveBytes`, so the paper's scale needs no hardware. Measured: in a fresh
process that runs two segments with a full memory; on the CPU its peak resident set beyond what the idle
process had, on a GPU the allocator's peak. Attention weights are made in full both times: the paper's time
had no fused attention kernel.
"""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from reference.algorithms.checkpointing import Checkpointed
from reference.algorithms.mrbp import Mrbp
from reference.algorithms.segments import Segments, bptt, leaves, mapped
from reference.measure.live_bytes import LiveBytes, bytes_of
from reference.measure.segment_models import build, filled_memory, full_memory, tokens
from reference.measure.shape_cache import ShapeCache
from reference.models.attention import Layer, RelativeLayer

ALGORITHMS: dict[str, type[Segments | Checkpointed | Mrbp]] = {
    "bptt": Segments,
    "mrbp": Mrbp,
    "segment_checkpointing": Checkpointed,
    "layer_checkpointing": Segments,
}
MB = 1e6


def inference_bytes(
    *,
    generator: torch.Generator,
    device: str,
    model: str,
    arguments: Mapping[str, Any],
    sizes: Sequence[int],
    batch: int,
) -> dict[str, float | list[float]]:
    """Count the bytes of one inference step with a full memory, for each `memory_size` in `sizes`.

    Returns:
        peak: weights, memory and temporaries at the fullest moment, a list by size; peak_<size>;
        state: bytes of the memory carried from segment to segment, a list; state_<size>; weights; with two
        sizes or more, state_exponent: slope of log state against log size between the last two.
    """
    peaks, states = [], []
    for size in sizes:
        built = build(model, {**arguments, "memory_size": size}).eval()
        with torch.no_grad(), ShapeCache():
            memory = full_memory(built, batch)
            segment_BL = tokens(batch, built.segment)
            with LiveBytes(built, kept=(segment_BL, *leaves(memory))) as count:
                built.step(segment_BL, memory)
        peaks.append(float(count.peak))
        states.append(float(bytes_of(leaves(memory))))
    exponent = {}
    if len(sizes) > 1:
        exponent["state_exponent"] = math.log(states[-1] / states[-2]) / math.log(sizes[-1] / sizes[-2])
    return {
        "peak": peaks,
        "state": states,
        **exponent,
        "weights": float(bytes_of(built.parameters())),
        **{f"peak_{size}": peak for size, peak in zip(sizes, peaks, strict=True)},
        **{f"state_{size}": state for size, state in zip(sizes, states, strict=True)},
    }


def training_bytes(
    *,
    generator: torch.Generator,
    device: str,
    model: str,
    arguments: Mapping[str, Any],
    algorithm: str,
    batch: int,
    segments: int,
    paper_mb: float | None = None,
) -> dict[str, float]:
    """Count the bytes of one training rollout (forward and backward of every segment) with Adam.

    Args:
        algorithm: bptt, mrbp, segment_checkpointing (one checkpoint a segment) or layer_checkpointing (one a
            Transformer layer, in BPTT).

    Returns, in bytes but for the megabytes (10⁶):
        peak, peak_mb: the fullest moment; static: parameters, gradients and Adam's two moments; activations:
        the most at any moment that is not static; one_segment: the same for a single segment from a full
        memory; memories: what `segments` memories take; of_allowance: activations over one_segment +
        memories; with `paper_mb`, miss_percent: how far peak_mb is above the printed figure.
    """
    built = build(model, arguments)
    optimiser = torch.optim.Adam(built.parameters())
    if algorithm == "layer_checkpointing":
        checkpoint_layers(built)
    how = ALGORITHMS[algorithm]()
    how.begin(built)
    with ShapeCache():
        how.backward(built, {"tokens": tokens(1, 2 * built.segment)})
        optimiser.step()  # Adam's moments exist from here on
        optimiser.zero_grad()
        batch_tokens = tokens(batch, segments * built.segment)
        with LiveBytes(built, optimiser, (batch_tokens,)) as count:
            how.backward(built, {"tokens": batch_tokens})
            static = count.static
        optimiser.zero_grad()
        one = tokens(batch, built.segment)
        start = mapped(lambda t: t.detach().requires_grad_(t.is_floating_point()), full_memory(built, batch))
        with LiveBytes(built, optimiser, (one, *leaves(start))) as single:
            bptt(built.step, [one], start, _cross_entropy)
    memories = segments * bytes_of(leaves(start))
    miss = {} if paper_mb is None else {"miss_percent": 100 * (count.peak / MB / paper_mb - 1)}
    return {
        "peak": float(count.peak),
        "peak_mb": count.peak / MB,
        "static": float(static),
        "activations": float(count.peak_activations),
        "one_segment": float(single.peak_activations),
        "memories": float(memories),
        "of_allowance": count.peak_activations / (single.peak_activations + memories),
        **miss,
    }


def process_peak(
    *,
    generator: torch.Generator,
    device: str,
    model: str,
    arguments: Mapping[str, Any],
    rival: str,
    rival_arguments: Mapping[str, Any],
    batch: int,
    repeats: int = 3,
) -> dict[str, float | list[float]]:
    """Measure the peak bytes of two inference steps with a full memory, each model in processes of its own.

    Returns:
        model_bytes, rival_bytes, ratio (rival over model), reserved (GPU: what the model's allocator held):
        one entry a repeat; counted_ratio: from `inference_bytes`; measured_over_counted: one entry a repeat.

    Raises:
        RuntimeError: a process that failed; the message ends with its last line.
    """
    pairs = [(model, arguments), (rival, rival_arguments)]
    samples = [
        [_in_fresh_process(name, given, batch, device) for name, given in pairs] for _ in range(repeats)
    ]
    ratios = [theirs["peak"] / own["peak"] for own, theirs in samples]
    counted = []
    for name, given in pairs:
        count = inference_bytes(
            generator=generator,
            device=device,
            model=name,
            arguments=given,
            sizes=[given["memory_size"]],
            batch=batch,
        )
        counted.append(count[f"peak_{given['memory_size']}"])
    own_count, rival_count = counted
    assert isinstance(own_count, float) and isinstance(rival_count, float)
    return {
        "model_bytes": [own["peak"] for own, _ in samples],
        "rival_bytes": [theirs["peak"] for _, theirs in samples],
        "reserved": [own["reserved"] for own, _ in samples],
        "ratio": ratios,
        "counted_ratio": rival_count / own_count,
        "measured_over_counted": [ratio / (rival_count / own_count) for ratio in ratios],
    }


def checkpoint_layers(model: nn.Module) -> None:
    """Let every Transformer layer of the model keep its inputs only and run again in the backward pass."""
    for layer in model.modules():
        if isinstance(layer, Layer | RelativeLayer):
            again = functools.partial(checkpoint, layer.forward, use_reentrant=False)
            layer.forward = again  # type: ignore[method-assign]


def _cross_entropy(logits_BLV: Tensor, segment_BL: Tensor) -> Tensor:
    return F.cross_entropy(logits_BLV.flatten(0, 1), segment_BL.flatten())


def _in_fresh_process(model: str, arguments: Mapping[str, Any], batch: int, device: str) -> dict[str, float]:
    """Return {"peak", "reserved"} in bytes, from a process of its own."""
    asked = json.dumps({"model": model, "arguments": dict(arguments), "batch": batch, "device": str(device)})
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",  # freed blocks go back: the peak is the live peak
        "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "reference.measure.rollout_memory"],
        input=asked,
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"the process that measures the memory of {model} failed: {last}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {"peak": float(found["peak"]), "reserved": float(found["reserved"])}


def _resident(field: str) -> int:
    """Return VmRSS (now) or VmHWM (peak) of this process in bytes.

    `resource.getrusage` would not do: a new process starts with its parent's maximum.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}: process peaks need Linux.")


def _run_alone(model: str, arguments: Mapping[str, Any], batch: int, device: str) -> dict[str, float]:
    """Run two inference steps with a full memory; this process should do nothing else before."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    cuda = device.startswith("cuda")
    a = torch.ones(64, 64, device=device)
    (a @ a).sum().item()  # libraries load and take their workspace
    short = {**arguments, "memory_size": arguments["segment"]}
    full_memory(build(model, short), 1)  # imports that the meta device needs
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    idle = torch.cuda.memory_allocated() if cuda else _resident("VmRSS")
    built = build(model, arguments, device).eval()
    memory = filled_memory(model, arguments, batch, device, generator)
    segment_BL = tokens(batch, built.segment, device)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        for _ in range(2):
            _, memory = built.step(segment_BL, memory)
    if cuda:
        torch.cuda.synchronize()
        return {
            "peak": torch.cuda.max_memory_allocated() - idle,
            "reserved": torch.cuda.max_memory_reserved(),
        }
    return {"peak": _resident("VmHWM") - idle, "reserved": 0}


if __name__ == "__main__":
    print(json.dumps(_run_alone(**json.load(sys.stdin))))
