"""How far the gradients of memory replay are from back-propagation through time: rounding, or a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reference.algorithms.mrbp import mrbp
from reference.algorithms.segments import Memory, bptt, detached
from reference.models.memformer import Memformer


def mrbp_gradients(
    *,
    generator: torch.Generator,
    device: str,
    segments: int = 5,
    batch: int = 3,
    dropout: float = 0.2,
) -> dict[str, float | list[float]]:
    """Compare all gradients of a small Memformer and of an LSTM cell in float64, memory replay against BPTT.

    Returns the largest error of any parameter, RMS of the difference over RMS of BPTT's gradient:
        error: Memformer, loss at every segment; error_dropout: the same with dropout; error_cell: a plain
        LSTM cell with a tuple memory and a learned start; error_initial: of the Memformer's v_bias alone,
        which also holds the initial memory; error_memory_dropped, error_random: of two sabotaged replays
        (the controls): the gradient handed back for the memory dropped; other dropout masks in the replay
        than in the forward pass.
    """
    seed = int(torch.randint(2**31, (), generator=generator))
    tokens_BN = torch.randint(11, (batch, 7 * segments - 3), generator=generator).to(device)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Memformer(
            vocab=11,
            width=12,
            heads=3,
            head_width=4,
            feed_forward=20,
            encoder_layers=2,
            decoder_layers=2,
            segment=7,
            memory_size=5,
            dropout=dropout,
        )
        model = model.double().to(device)
        cell = _Cell(4).double().to(device)
        inputs = list(torch.randn(segments, batch, 4, dtype=torch.float64).to(device))

        def replay(step: Any, memory_step: Any) -> Callable[[], dict[str, Tensor]]:
            return lambda: _gradients(
                model,
                seed,
                lambda: mrbp(step, memory_step, tokens_BN.split(7, 1), model.initial_memory(batch), _loss),
            )

        def plain() -> dict[str, Tensor]:
            return _gradients(
                model,
                seed,
                lambda: bptt(
                    model.step,
                    tokens_BN.split(7, 1),
                    model.initial_memory(batch),
                    _loss,
                    separate_streams=True,
                ),
            )

        faithful = replay(model.step, model.memory_step)
        truth_dropout = plain()
        error_dropout = _error(truth_dropout, faithful())

        def other_masks(segment: Tensor, memory: Any) -> Any:
            if torch.is_grad_enabled():
                torch.rand((), device=device)  # as if the generator's state had not been put back
            return model.step(segment, memory)

        error_random = _error(truth_dropout, replay(other_masks, model.memory_step)())
        model.eval()
        truth, own = plain(), faithful()
        dropped = replay(_without_memory_gradient(model.step), model.memory_step)()
        first = cell.initial
        cell_runs = [
            _gradients(cell, seed, lambda: bptt(cell.step, inputs, first(batch), _square)),
            _gradients(cell, seed, lambda: mrbp(cell.step, None, inputs, first(batch), _square)),
        ]
    bias = "writer.bias"
    return {
        "error": _error(truth, own),
        "error_dropout": error_dropout,
        "error_cell": _error(*cell_runs),
        "error_initial": _error({bias: truth[bias]}, {bias: own[bias]}),
        "error_memory_dropped": _error(truth, dropped),
        "error_random": error_random,
    }


class _Cell(nn.Module):
    """A plain LSTM cell with a learned start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.start = nn.Parameter(torch.randn(2, width))

    def initial(self, batch: int) -> Memory:
        return tuple(state.expand(batch, -1) for state in self.start.tanh())

    def step(self, x_BD: Tensor, memory: Any) -> tuple[Tensor, Any]:
        h_BD, c_BD = self.cell(x_BD, memory)
        return h_BD, (h_BD, c_BD)


def _without_memory_gradient(step: Any) -> Any:
    """Return `step` as if the gradient of its memory had been dropped."""
    return lambda segment, memory: step(segment, detached(memory))


def _loss(logits_BLV: Tensor, segment_BL: Tensor) -> Tensor:
    return F.cross_entropy(logits_BLV.flatten(0, 1), segment_BL.flatten())


def _square(h_BD: Tensor, x_BD: Tensor) -> Tensor:
    return (h_BD - x_BD).square().mean()


def _gradients(module: nn.Module, seed: int, run: Callable[[], object]) -> dict[str, Tensor]:
    """Return every gradient after `run` from the given random state, zeros where there is none."""
    module.zero_grad()
    torch.manual_seed(seed)
    run()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in module.named_parameters()
    }


def _error(truth: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Return the largest relative error of any tensor: RMS of the difference over RMS of the truth."""
    return max(float((other[name] - g).norm() / g.norm()) for name, g in truth.items())
