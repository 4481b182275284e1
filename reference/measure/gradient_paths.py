"""Where SAB's gradients go, measured in float64 on its fast backward pass (arXiv:1809.03702, Sec. 3.2).

Small experiments on random models. *Direct path*: memories that stand in the state before the first step get
the gradient of the value they were read with, apart from that of their score; row by row it is d h_t / d m_i
with the weights and the selected set held fixed. *Steps*: every step has an input symbol of its own, so that
a column of the input matrix's gradient is zero exactly where no gradient arrived. *Twin*: all gradients
against plain autograd.

In every measure `fast` changes options of the model under test, not of what it is compared with: for
controls. Errors are norms of differences, relative to what is expected.

Suffixes: T steps, N memories, B sequences (one for each row of a Jacobian), H units.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from reference.models.sab import SAB, State, kernels
from reference.models.sab.function import make_scan
from reference.models.sab.scan import StoreGradients
from reference.naive.sab import sab_loop, score, sparsify

READINGS = ("full", "none", "own_step")  # of mental updates
TRUNCATIONS = ("grid", "sliding")
DISTANCES = (2, 4, 10, 30, 100, 300)


def direct_path(
    generator: torch.Generator,
    device: str,
    distances: tuple[int, ...] = DISTANCES,
    fast: Mapping[str, Any] | None = None,
) -> dict[str, float | list[float]]:
    """Compare d h_t / d m_i with alpha_i I, the read `distance` steps after the memories were there.

    Returns:
        direct_error: value gradients against weight times identity, worst distance; the weights are the
            twin's arithmetic, and k_trunc = 1 leaves no other way.
        unread_gradient: largest value gradient at a memory that is not read.
        total_error: value plus score gradient of one step against autograd's d h_t / d m_i.
        direct_norm, recurrent_norm: by distance, spectral norm of the sum over memories of the direct
            Jacobian, and of d h_t / d h_0 through the recurrence of the same LSTM without truncation.

    Raises ValueError without distances, or on one below 1.
    """
    if not distances or min(distances) < 1:
        raise ValueError("direct_path needs distances of at least 1.")
    hidden, count = 6, 9
    with seeded(generator):
        eye_BH = torch.eye(hidden, dtype=torch.float64, device=device)
        memories_NH = torch.randn(count, hidden, dtype=torch.float64).to(device)
        memories_NBH = memories_NH[:, None].repeat(1, hidden, 1)
        symbols_BT = torch.randint(5, (1, max(distances))).to(device).expand(hidden, -1)
        sizes: dict[str, Any] = {"inputs": 5, "outputs": 3, "hidden": hidden, "k_att": 10 * max(distances)}
        model, twin = pair(fast, device, **sizes, k_trunc=1, k_top=3)
        lstm = SAB(**sizes, retrieval="none", k_trunc=None).double().to(device)
    lstm.load_state_dict(model.state_dict())
    direct, recurrent, errors, unread = [], [], [], []
    for distance in distances:
        value_NBH, _, output_H = last_step(model, symbols_BT[:, :distance], memories_NBH)
        with torch.no_grad():
            scores = [score(twin, memory_H, output_H) for memory_H in memories_NH]
            weights_N = torch.stack(sparsify(scores, twin.options.k_top))
        errors.append(relative(value_NBH, weights_N[:, None, None] * eye_BH))
        unread.append(float(value_NBH[weights_N == 0].abs().max()))
        direct.append(spectral(value_NBH.sum(0)))
        recurrent.append(spectral(last_step(lstm, symbols_BT[:, :distance], memories_NBH)[1]))
    leaf_NBH = memories_NBH.clone().requires_grad_()
    hidden_BH = sab_loop(twin, symbols_BT[:, :1], leaf_NBH.unbind(0))[1][0]
    (want_NBH,) = torch.autograd.grad(hidden_BH.diagonal().sum(), leaf_NBH)
    return {
        "direct_error": max(errors),
        "unread_gradient": max(unread),
        "total_error": relative(last_step(model, symbols_BT[:, :1], memories_NBH, scores=True)[0], want_NBH),
        "direct_norm": direct,
        "recurrent_norm": recurrent,
    }


@torch.no_grad()
def last_step(
    model: SAB, inputs_BT: Tensor, memories_NBH: Tensor, scores: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return two Jacobians of the last h, by SAB's own backward pass, and the LSTM's last output_H.

    Sequence b gets the loss that is unit b of the last h; all sequences are one and the same. The Jacobians
    are those of the memories [N, B, H], through the values they were read with alone unless `scores`, and of
    the h before the first step [B, H].
    """
    zero_BH = memories_NBH.new_zeros(memories_NBH.shape[1:])
    x_TBF, state = model.prepare(inputs_BT, State(zero_BH, zero_BH, memories_NBH))
    scan = make_scan(model.options, model.weights(), len(zero_BH))
    memory = scan.memory(state, len(x_TBF))
    trace = scan.forward(x_TBF, state, memory)
    output_H = trace.outputs_TBH[-1, 0].clone()
    outer_TBH = torch.zeros_like(trace.reads_TBH)
    outer_TBH[-1] = torch.eye(len(zero_BH), dtype=zero_BH.dtype, device=zero_BH.device)
    gradients = StoreGradients(memory, model.options.own)
    scan.reverse(0, trace, memory, outer_TBH, torch.zeros_like(outer_TBH), gradients)
    if scores:
        for i, value_BH in enumerate(gradients.value_NBH):
            scan.scorer.key_gradient(gradients.key_NBD[i], memory.values_NBH[i], value_BH)
    return gradients.value_NBH, trace.gates_TBG[0] @ model.weight_hidden_GH, output_H


def reach(
    generator: torch.Generator,
    device: str,
    distances: tuple[int, ...] = DISTANCES,
    fast: Mapping[str, Any] | None = None,
) -> dict[str, float | list[float]]:
    """Measure how far back a loss reaches where the one memory it reads lies `distance` steps back.

    k_trunc is 2. A sequence has 2 `distance` steps and stores its middle; distances are even, so that memory
    and loss both have two steps before the grid's cut.

    Returns:
        reach, local_reach: by distance, steps from the loss back to the farthest one that gets a gradient,
            with and without retrieval.
        reach_error, local_reach_error: largest deviation from distance + 1 and from 1 (k_trunc - 1).

    Raises ValueError on a distance that is odd or below 2.
    """
    if not distances or any(d < 2 or d % 2 for d in distances):
        raise ValueError("reach needs even distances of at least 2.")
    far: dict[str, list[float]] = {"sparse": [], "none": []}
    with seeded(generator):
        for distance in distances:
            for retrieval, found in far.items():
                model, _ = pair(
                    fast,
                    device,
                    inputs=2 * distance,
                    outputs=3,
                    hidden=4,
                    k_att=distance,
                    k_trunc=2,
                    few_memories="uniform",
                    retrieval=retrieval,
                )
                found.append(2.0 * distance - 1.0 - min(touched(model, 2 * distance)))
    beyond = [abs(r - d - 1.0) for r, d in zip(far["sparse"], distances, strict=True)]
    return {
        "reach": far["sparse"],
        "local_reach": far["none"],
        "reach_error": max(beyond),
        "local_reach_error": max(abs(r - 1.0) for r in far["none"]),
    }


def wrong_steps(
    generator: torch.Generator, device: str, fast: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Return wrong_steps_R for each reading R of mental updates: steps reached against it, or missed.

    Both truncations, 25 steps each, k_trunc = 3, k_top = k_att = 2, a loss at the last step alone.
    """
    steps, result = 25, {}
    with seeded(generator):
        for reading in READINGS:
            wrong = 0
            for truncation in TRUNCATIONS:
                more = {"mental_updates": reading, "truncation": truncation}
                sizes: dict[str, Any] = {"inputs": steps, "outputs": 3, "hidden": 4}
                model, twin = pair(fast, device, **sizes, **more, k_trunc=3, k_top=2, k_att=2)
                wrong += len(touched(model, steps) ^ stated_steps(twin, steps))
            result[f"wrong_steps_{reading}"] = float(wrong)
    return result


def touched(model: SAB, steps: int) -> set[int]:
    """Return the steps that get a gradient from a loss at the last one; step t reads symbol t."""
    model.zero_grad()
    model(torch.arange(steps, device=model.b_C.device)[None])[:, -1].sum().backward()
    gradient_GF = model.weight_input_GF.grad
    assert gradient_GF is not None
    return set(gradient_GF.abs().amax(0).nonzero().flatten().tolist())


@torch.no_grad()
def stated_steps(model: SAB, steps: int) -> set[int]:
    """Return the steps that Algorithm 1 sends a gradient to from a loss at the last one: a walk on its graph.

    From a step with `left` steps of local back-propagation the walk goes one step back and, along every read
    edge (the memories read and the one at the threshold, whose score counts), to the step that was stored.
    """
    o = model.options
    x_TBF, state = model.prepare(torch.arange(steps, device=model.b_C.device)[None], None)
    scan = make_scan(o, model.weights(), 1)
    memory = scan.memory(state, steps)
    trace = scan.forward(x_TBF, state, memory)
    stored = [t for t in range(steps) if o.stores(t)]

    def budget(t: int) -> int:
        assert o.k_trunc is not None
        return o.k_trunc if o.truncation == "sliding" else t % o.k_trunc + 1

    def edges(t: int) -> list[int]:
        before = [i for i, step in enumerate(stored) if step < t]
        if len(before) <= o.k_top:
            return []
        scores = {i: float(score(model, memory.values_NBH[i, 0], trace.outputs_TBH[t, 0])) for i in before}
        return [stored[i] for i in sorted(before, key=lambda i: -scores[i])[: o.k_top + 1]]

    ways, seen = [(steps - 1, budget(steps - 1), True)], set()
    while ways:
        t, left, reads = way = ways.pop()
        if t < 0 or left == 0 or way in seen:
            continue
        seen.add(way)
        ways.append((t - 1, left - 1, True))
        if reads and o.mental_updates != "none":
            own = o.mental_updates == "own_step"
            ways += [(i, 1, False) if own else (i, budget(i), True) for i in edges(t)]
    return {t for t, _, _ in seen}


def twin_gradients(
    generator: torch.Generator, device: str, fast: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Compare output and gradients with plain autograd, for each reading R of mental updates.

    Returns:
        error_R: worst of both truncations and of the compiled and the plain steps.
        least_difference: smallest distance between the gradients of two readings: what `error_R` has to see.
    """
    sizes: dict[str, Any] = {"inputs": 5, "outputs": 3, "hidden": 5, "scorer": 4}
    sizes |= {"k_trunc": 3, "k_top": 2, "k_att": 2}
    with seeded(generator):
        inputs_BT = torch.randint(5, (2, 11)).to(device)
        direction_BTC = torch.randn(2, 11, 3, dtype=torch.float64).to(device)
        start = SAB(**sizes).double().state_dict()
    result, seen = {}, {}

    def outcome(model: SAB, logits_BTC: Tensor) -> Tensor:
        model.zero_grad()
        (logits_BTC * direction_BTC).sum().backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        return torch.cat([logits_BTC.detach().flatten(), *(g.flatten() for g in grads)])

    for reading in READINGS:
        errors = []
        for truncation in TRUNCATIONS:
            model, twin = pair(fast, device, **sizes, mental_updates=reading, truncation=truncation)
            for each in (model, twin):
                each.load_state_dict(start)
            want = outcome(twin, sab_loop(twin, inputs_BT)[0])
            seen[reading] = outcome(model, model(inputs_BT))
            with kernels.disabled():
                plain = outcome(model, model(inputs_BT))
            errors += [relative(seen[reading], want), relative(plain, want)]
        result[f"error_{reading}"] = max(errors)
    differences = [relative(seen[a], seen[b]) for a, b in combinations(READINGS, 2)]
    return result | {"least_difference": min(differences)}


def pair(fast: Mapping[str, Any] | None, device: str, **options: Any) -> tuple[SAB, SAB]:
    """Return the model under test and one with the stated options; both have the same parameters."""
    model, twin = (SAB(**{**options, **more}).double().to(device) for more in (fast or {}, {}))
    twin.load_state_dict(model.state_dict())
    return model, twin


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Let torch's own random numbers follow from `generator` within the block."""
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        yield


def relative(got: Tensor, want: Tensor) -> float:
    """Return the norm of the difference over that of `want`."""
    return float((got - want).norm() / want.norm())


def spectral(jacobian: Tensor) -> float:
    """Return the largest singular value."""
    return float(torch.linalg.matrix_norm(jacobian, 2))
