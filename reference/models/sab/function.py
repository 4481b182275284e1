"""SAB as one autograd function, its head included.

Suffixes: T steps, B batch, F input features, H hidden units, G = 4 H gates, N memories, K memories read and
threshold, D scorer width, C outputs, R gradient streams. A leading L is a chunk of steps.
"""

from typing import Any

import torch
from torch import Tensor

from reference.models.sab.fused import FusedScan
from reference.models.sab.options import Options, State, Trace
from reference.models.sab.scan import Scan


class SabFunction(torch.autograd.Function):
    """Logits_TBC of SAB, its head included; gradients for all weights, none for inputs and state."""

    @staticmethod
    def forward(
        ctx: Any,
        x_TBF: Tensor,
        state: State,
        options: Options,
        final: list[State] | None,
        names: tuple[str, ...],
        *w: Tensor,
    ) -> Tensor:
        """Run the scan; the state after the last step is appended to `final`, if there is such a list."""
        weights = dict(zip(names, w, strict=True))
        scan = make_scan(options, weights, x_TBF.shape[1])
        memory = scan.memory(state, x_TBF.shape[0])
        trace = scan.forward(x_TBF, state, memory)
        scan.settle_ties(trace, memory)
        if final is not None:
            final.append(scan.final(trace, memory, state.step + x_TBF.shape[0]))
        ctx.saved = (scan, x_TBF, state.step, trace, memory)
        return head(trace, weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """Return the gradients; the trace is used up."""
        if ctx.saved is None:
            raise RuntimeError("SAB's backward pass overwrites what it saved and can run once only.")
        scan, x_TBF, step, trace, memory = ctx.saved
        ctx.saved = None
        logits_TBC = gradients[0].contiguous()
        weights = scan.w
        hidden_gradient_TBH, read_gradient_TBH = logits_TBC @ weights["v1"], logits_TBC @ weights["v2"]
        flat_MC = logits_TBC.view(-1, logits_TBC.shape[2])
        head_gradients = (
            flat_MC.t() @ trace.hidden_TBH[1:].view(-1, scan.hidden),
            flat_MC.t() @ trace.reads_TBH.view(-1, scan.hidden),
            flat_MC.sum(0),
        )
        body = scan.backward(x_TBF, step, trace, memory, hidden_gradient_TBH, read_gradient_TBH)
        return (None, None, None, None, None, *body, *head_gradients)


def make_scan(options: Options, weights: dict[str, Tensor], batch: int) -> Scan:
    """Return the fused scan where it can be had, else the plain one."""
    kind = FusedScan if FusedScan.covers(options, weights["hidden"]) else Scan
    return kind(options, weights, batch)


def head(trace: Trace, weights: dict[str, Tensor]) -> Tensor:
    """y_TBC = V1 h_t + V2 s_t + b."""
    steps, b, h = trace.reads_TBH.shape
    logits = torch.addmm(weights["b"], trace.hidden_TBH[1:].view(-1, h), weights["v1"].t())
    return logits.addmm_(trace.reads_TBH.view(-1, h), weights["v2"].t()).view(steps, b, -1)
