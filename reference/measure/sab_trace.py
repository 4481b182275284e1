"""What happens inside SAB on the copy task: norms, saturation, memories that are read, gradients that arrive.

Suffixes: B sequences, T steps, N memories, S symbols, H units, C outputs.
"""

import torch
from torch import Tensor

from reference.algorithms.bptt import sequence_loss
from reference.measure import accuracy
from reference.models.sab import SAB
from reference.models.sab.function import head, make_scan
from reference.models.sab.scan import StoreGradients
from reference.tasks.copy import Copy


def sab_trace(
    model: SAB, task: Copy, generator: torch.Generator, sequences: int = 64
) -> dict[str, float | list[float] | list[list[float]]]:
    """Trace one batch of `sequences` forward and, for the all-step cross-entropy, backward.

    Means over sequences. Returns, by step (lists of length T):
        hidden_norm, read_norm: Euclidean norms of h_t and of s_t.
        gate_saturation: share of input, forget and output gates below 0.05 or above 0.95.
        tanh_saturation: share of the cell's candidates and of tanh(c) beyond 0.95 in absolute value.
    By memory:
        memory_gradient: norm of the gradient that arrives along read edges: through values, and through
            scores where mental updates pass it on; of the mean loss, times `sequences`.
        map: matrix, row by output step (the last S), column by the step whose state was read: its weight.
    Numbers:
        early_weight: weight of the last S steps on the states of the first S steps, among all that they read
            (0 where they read nothing).
        hidden_norm_last, hidden_norm_mean: of h at the last step; over all steps.
        gate_saturation_mean, tanh_saturation_mean: over all steps.
        early_gradient: share of `memory_gradient` that arrives at the states of the first S steps.
    """
    inputs_BT = task.sample(sequences, generator)["inputs"].to(model.b_C.device)
    targets_BT = torch.zeros_like(inputs_BT)
    targets_BT[:, -task.symbols :] = inputs_BT[:, : task.symbols]
    seen = model.inspect(inputs_BT)
    map_SN = seen.weights_BTN[:, -task.symbols :].mean(0)
    early_N = (seen.stored_N >= 0) & (seen.stored_N < task.symbols)
    tanh_T, gradient_N = tanh_and_gradient(model, inputs_BT, targets_BT)
    norm_T, gates_T = seen.hidden_norm_BT.mean(0), seen.saturation_BT.mean(0)
    return {
        "hidden_norm": norm_T.tolist(),
        "read_norm": seen.read_norm_BT.mean(0).tolist(),
        "gate_saturation": gates_T.tolist(),
        "tanh_saturation": tanh_T.tolist(),
        "memory_gradient": gradient_N.tolist(),
        "map": map_SN.tolist(),
        "early_weight": share(map_SN[:, early_N], map_SN),
        "hidden_norm_last": float(norm_T[-1]),
        "hidden_norm_mean": float(norm_T.mean()),
        "gate_saturation_mean": float(gates_T.mean()),
        "tanh_saturation_mean": float(tanh_T.mean()),
        "early_gradient": share(gradient_N[early_N], gradient_N),
    }


@torch.no_grad()
def tanh_and_gradient(model: SAB, inputs_BT: Tensor, targets_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return the saturation of tanh by step and the norm of the gradient at every memory."""
    x_TBF, state = model.prepare(inputs_BT, None)
    steps, batch = x_TBF.shape[:2]
    weights = model.weights()
    scan = make_scan(model.options, weights, batch)
    memory = scan.memory(state, steps)
    trace = scan.forward(x_TBF, state, memory)
    scan.settle_ties(trace, memory)
    candidate_TBH, cell_TBH = trace.gates_TBG[..., 3 * model.hidden :], trace.cells_TBH[1:].tanh()
    tanh_T = (torch.cat([candidate_TBH, cell_TBH], dim=2).abs() > 0.95).double().mean((1, 2))
    with torch.enable_grad():
        logits_TBC = head(trace, weights).detach().requires_grad_()
        loss = batch * sequence_loss(logits_TBC.transpose(0, 1), targets_BT)
        (outer_TBC,) = torch.autograd.grad(loss, logits_TBC)
    gradients = StoreGradients(memory, model.options.own)
    outer_TBC = outer_TBC.contiguous()
    scan.reverse(0, trace, memory, outer_TBC @ weights["v1"], outer_TBC @ weights["v2"], gradients)
    return tanh_T, gradients.value_NBH[: memory.count].norm(dim=2).mean(1).double()


def share(part: Tensor, whole: Tensor) -> float:
    """Return the sum of `part` over that of `whole`, 0 where that is 0."""
    total = float(whole.double().sum())
    return float(part.double().sum()) / total if total else 0.0


def validation(
    model: SAB, task: Copy, generator: torch.Generator, sequences: int = 256, traced: int = 64
) -> dict[str, float]:
    """Return `accuracy.validation`'s {"accuracy", "loss"} with early_weight and hidden_norm_last of `traced`
    sequences: curves of where attention goes and how states grow while training.
    """
    result = accuracy.validation(model, task, generator, sequences)
    inputs_BT = task.sample(traced, generator)["inputs"].to(model.b_C.device)
    seen = model.inspect(inputs_BT)
    read_BSN = seen.weights_BTN[:, -task.symbols :]
    early_N = (seen.stored_N >= 0) & (seen.stored_N < task.symbols)
    return result | {
        "early_weight": share(read_BSN[..., early_N], read_BSN),
        "hidden_norm_last": float(seen.hidden_norm_BT[:, -1].mean()),
    }
