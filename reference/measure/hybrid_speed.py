"""Training tokens a second of each hybrid against the sum of its torch parts run bare on the same shapes.

    python -m reference.measure.hybrid_speed [--width 64] [--heads 2] [--blocks 2] [--feed-forward 128]
        [--pairs 8] [--batch 128] [--threads 1] [--most 50]

A step of the hybrid is forward and backward of embedding, path, head and loss. Its parts are torch's LSTM,
linear maps, LayerNorms, GELU and scaled_dot_product_attention with the inputs that the hybrid gives them,
each run alone, forward and backward, with gradients of inputs and parameters. What the hybrid needs beyond
(embedding, rotary positions, residual sums, choice of positions, loss) is the overhead: time of the hybrid
over time of the parts. Both are timed in pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from reference.algorithms.delayed_attention import Participation
from reference.measure.arguments import cores, count, told, whole_number
from reference.measure.timing import Ratio, time_ratio
from reference.models import hybrids
from reference.tasks.modulo_recall import ModuloRecall

MODELS = (
    hybrids.AttnOnLstm,
    hybrids.LstmOnAttn,
    hybrids.Parallel,
    hybrids.HybridBlock,
    hybrids.Sandwich,
    hybrids.TransformerOnly,
    hybrids.LstmOnly,
)
PARTS = ("linear", "gelu", "layer_norm", "lstm", "scaled_dot_product_attention")
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Recorder(TorchFunctionMode):
    """Notes the calls of the PARTS made inside it, their inputs cut from what made them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in PARTS:
            self.calls.append((func, *tree_map(cut, (tuple(args), kwargs or {}))))
        return func(*args, **(kwargs or {}))


def cut(value: Any) -> Any:
    """Return an activation as a leaf that wants a gradient if it wanted one; anything else as it is."""
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        return value.detach().requires_grad_(value.requires_grad)
    return value


def bare_parts(model: hybrids.Hybrid, batch: dict[str, Tensor]) -> list[Call]:
    """Return the torch parts that one forward pass of the model calls, with their inputs."""
    with Recorder() as recorder:
        model(batch["inputs"], batch["positions"])
    return recorder.calls


def run(call: Call) -> Tensor:
    """Return the output of a part (of an LSTM: its hidden states)."""
    func, args, kwargs = call
    out = func(*args, **kwargs)
    return out if isinstance(out, Tensor) else out[0]


def overhead(model: hybrids.Hybrid, batch: dict[str, Tensor], most: int = 50) -> Ratio:
    """Return the time of a training step of the model over that of its parts."""
    step = Participation()
    calls = [(call, torch.randn_like(run(call))) for call in bare_parts(model, batch)]
    leaves = [x for call, _ in calls for x in tree_leaves(call[1:]) if isinstance(x, Tensor)]

    def clear() -> None:
        for x in (*model.parameters(), *leaves):
            x.grad = None

    def whole_step() -> None:
        clear()
        step.backward(model, batch)

    def parts() -> None:
        clear()
        for call, gradient in calls:
            run(call).backward(gradient)

    return time_ratio(whole_step, parts, pairs=min(15, most), most=most, width=0.03)


def table(
    width: int,
    heads: int,
    blocks: int,
    feed_forward: int,
    pairs: int,
    batch: int,
    threads: int,
    most: int = 50,
) -> str:
    """Measure every model and return the table."""
    torch.set_num_threads(threads)
    task = ModuloRecall(keys=max(128, pairs), longest=pairs, shortest=pairs)
    rows = []
    for kind in MODELS:
        torch.manual_seed(0)
        model = kind(task.vocabulary, width, heads, blocks, feed_forward)
        data = task.sample(batch, torch.Generator().manual_seed(0))
        ratio = overhead(model, data, most)
        tokens = data["inputs"].numel()
        rows.append(
            [
                kind.__name__,
                f"{tokens / ratio.seconds[0]:,.0f}",
                f"{tokens / ratio.seconds[1]:,.0f}",
                f"{ratio.mean - 1:+.1%} [{ratio.low - 1:+.1%}, {ratio.high - 1:+.1%}], {ratio.pairs} pairs",
            ]
        )
    title = (
        f"width {width}, {heads} heads, {blocks} blocks, {pairs} pairs, batch {batch}, {threads} thread(s)"
    )
    return title + "\n" + tabulate(
        rows, headers=["", "tokens/s", "parts, tokens/s", "overhead, 95 % interval"], disable_numparse=True
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Hybrids against the sum of their torch parts.")
    parser.add_argument("--width", type=count, default=64)
    parser.add_argument("--heads", type=count, default=2)
    parser.add_argument("--blocks", type=count, default=2)
    parser.add_argument("--feed-forward", type=count, default=128)
    parser.add_argument("--pairs", type=count, default=8)
    parser.add_argument("--batch", type=count, default=128)
    parser.add_argument("--threads", type=cores, default=1)
    parser.add_argument("--most", type=whole_number(2), default=50, help="pairs timed at most")
    given = parser.parse_args(arguments)
    with told(parser):
        print(table(**vars(given)))


if __name__ == "__main__":
    main()
