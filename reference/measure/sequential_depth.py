"""What a step of BPTT, SMT and DMT costs as T grows, counted (arXiv:2606.06479, Table 1, App. A).

Sequential depth is the longest chain of tensor operations, forward and backward, that wait for one another:
each operation that writes numbers counts 1, views count 0. It says nothing about total work or seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from reference.algorithms.dmt import DaggerMemory
from reference.algorithms.smt import SupervisedMemory
from reference.algorithms.unrolled import Unrolled
from reference.models.smt import SMT

Step = Callable[[], object]
INFERENCE = ("student", "teacher")

_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}  # aten names; the two factors come last


class Counter(TorchDispatchMode):
    """While active, count `depth`, the longest chain of operations that wait for one another, and `flops`.

    FLOPs are those of matrix products, a multiply-add as two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.depth = self.flops = 0
        self._depths: dict[int, int] = {}  # by address of the storage; every operation sets those it writes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func`; what it writes is one deeper than the deepest that it reads."""
        read = {_storage(t) for t in _tensors((*args, *(kwargs or {}).values()))}
        out = func(*args, **(kwargs or {}))
        written = [s for s in map(_storage, _tensors((out,))) if s not in read or func._schema.is_mutable]
        if written:
            depth = 1 + max((self._depths.get(s, 0) for s in read), default=0)
            self._depths.update(dict.fromkeys(written, depth))
            self.depth = max(self.depth, depth)
        if func.overloadpacket.__name__ in _PRODUCTS:
            self.flops += 2 * out.numel() * args[-2].shape[-1]
        return out


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors in `values` and in the lists and tuples among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def sequential_depth(
    generator: torch.Generator,
    device: str,
    width: int = 256,
    heads: int = 8,
    memory: int = 16,
    encoder_layers: int = 8,
    decoder_layers: int = 4,
    updater_layers: int = 8,
    lengths: tuple[int, ...] = (8, 12, 16, 20),
    window: int = 8,
    run_length: int = 256,
    smt_steps: int = 150_000,
    dmt_steps: int = 1_500,
    through_time: bool = False,
    group_per_prefix: bool = False,
    fused: bool = True,
    inference: str = "student",
) -> dict[str, float | list[float]]:
    """Count on the CPU, whatever `device` says; T is the steps rolled (BPTT, DMT) or the context (SMT).

    SMT's step is one split with context T and `window` answers, so nothing is padding; `smt_all` is every
    split of a sequence of T tokens at once. `lengths` are evenly spaced, so that the degree of a count in T
    can be read off its differences exactly, and multiples, 2 or more, of the groups in which smt_all encodes,
    so that the groups are of one size and padded. Counts are of one sequence whose last token has an answer,
    and leave out the optimiser.

    Args:
        through_time: DMT's error flows back through its rollout.
        group_per_prefix: smt_all encodes each prefix on its own, so that the weights' gradients are added up
            one after the other.
        fused: the bytes are those of fused attention, which keeps no matrix of queries by keys.
        inference: who answers when `state` is counted: student or teacher.

    Returns:
        depth_A: by length, for A in bptt, dmt, smt, smt_all. credit_A: the most operations that the gradient
            of A's own loss passes on its way to a weight that A trains; smt: all splits, so that windows
            span T.
        flops_A: of matrix products. saved_A: bytes kept for the backward pass, parameters aside.
        product_A: by how many of these bytes the step from one length to the next grows more with twice the
            memory tokens (the largest such step): 0 where bytes are a part by K plus a part by T, not 0
            where they hold a product K · T.
        state: numbers that go into the last step of inference beside its token, by length. largest_state.
        degree_X: degree of the polynomial in T through count X; −1 where no polynomial of degree ≤ 2 fits.
        run_smt, run_dmt, run_bptt: depth of a whole run at `run_length` with `smt_steps` and `dmt_steps`;
            BPTT has as many steps as both. run_ratio: (run_smt + run_dmt) / run_bptt; run_growth: how much
            the depth of SMT and DMT together grows from `run_length` to twice that.

    Raises:
        ValueError: fewer than four lengths, unevenly spaced ones, or lengths that are not 2 or more times
            `SupervisedMemory.buckets`; an unknown `inference`.
    """
    if len(lengths) < 4 or len(set(_differences(lengths))) != 1:
        raise ValueError("sequential_depth needs four evenly spaced lengths or more.")
    groups = SupervisedMemory.buckets
    if any(length % groups or length < 2 * groups for length in lengths):
        raise ValueError(f"sequential_depth needs lengths of {groups} times 2 or more.")
    if inference not in INFERENCE:
        raise ValueError(f"inference is {inference!r}; choose from {', '.join(INFERENCE)}.")
    counts: dict[str, list[float]] = {}
    doubled: dict[str, list[float]] = {}  # bytes with twice the memory tokens
    layers = encoder_layers, decoder_layers, updater_layers
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        for length in lengths:
            model = SMT(8, width, heads, memory, None, *layers, context=length)
            found = _counts(model, length, window, through_time, group_per_prefix, fused)
            with torch.no_grad():
                found["state"] = float(_state(model, length, inference))
            larger = SMT(8, width, heads, 2 * memory, None, *layers, context=length)
            for into, new in ((counts, found), (doubled, _saved(larger, length, window, fused))):
                for name, value in new.items():
                    into.setdefault(name, []).append(value)
    products = {}
    for name, more_memory in doubled.items():
        more = _differences([b - a for a, b in zip(counts[name], more_memory, strict=True)])
        products[name.replace("saved", "product")] = max(more, key=abs)
    degrees = {f"degree_{name}": float(degree(values)) for name, values in counts.items()}

    def at(name: str, length: int) -> float:
        slope = (counts[name][-1] - counts[name][-2]) / (lengths[-1] - lengths[-2])
        return counts[name][-1] + slope * (length - lengths[-1])

    def run(length: int) -> float:
        return smt_steps * at("depth_smt", length) + dmt_steps * at("depth_dmt", length)

    run_bptt = (smt_steps + dmt_steps) * at("depth_bptt", run_length)
    return {
        **counts,
        **degrees,
        **products,
        "largest_state": max(counts["state"]),
        "run_smt": smt_steps * at("depth_smt", run_length),
        "run_dmt": dmt_steps * at("depth_dmt", run_length),
        "run_bptt": run_bptt,
        "run_ratio": run(run_length) / run_bptt,
        "run_growth": run(2 * run_length) / run(run_length),
    }


def degree(values: Sequence[float]) -> int:
    """Return the degree (at most 2) of the polynomial through `values` at evenly spaced points, or −1."""
    for power in range(3):
        values = _differences(values)
        if not any(values):
            return power
    return -1


def _differences(values: Sequence[float]) -> list[float]:
    return [b - a for a, b in pairwise(values)]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _batch(tokens: int) -> dict[str, Tensor]:
    """Return one sequence whose last token has an answer."""
    x = torch.randint(8, (1, tokens))
    mask = torch.zeros_like(x, dtype=torch.bool)
    mask[:, -1] = True
    return {"inputs": x, "targets": x, "mask": mask}


def _one_split(length: int, window: int) -> tuple[SupervisedMemory, dict[str, Tensor]]:
    """Return the SMT step with a single split, whose context has `length` tokens, and its batch."""
    step = SupervisedMemory(splits=1, earliest=length - 1, future=window, buckets=1)
    return step, _batch(length - 1 + window)


def _counts(
    model: SMT, length: int, window: int, through_time: bool, group_per_prefix: bool, fused: bool
) -> dict[str, float]:
    """Return every count of training for one sequence; `model` sees a context of `length`."""
    every = SupervisedMemory(buckets=length if group_per_prefix else SupervisedMemory.buckets)
    own = DaggerMemory(through_time=through_time)
    steps: dict[str, tuple[Any, dict[str, Tensor]]] = {
        "bptt": (Unrolled(), _batch(length)),
        "smt": _one_split(length, window),
        "smt_all": (every, _batch(length)),
        "dmt": (own, _batch(length + 1)),
    }
    counts: dict[str, float] = {}
    for name, (algorithm, data) in steps.items():
        algorithm.begin(model)
        model.zero_grad()
        with sdpa_kernel(SDPBackend.MATH), Counter() as counter:
            algorithm.backward(model, data)
        counts[f"depth_{name}"] = float(counter.depth)
        if name in ("bptt", "smt"):
            counts[f"flops_{name}"] = float(counter.flops)
        if name != "smt":
            credit = _path(algorithm.terms(model, data)["loss"])
            counts[f"credit_{name.removesuffix('_all')}"] = float(credit)
    return counts | _saved(model, length, window, fused)


def _saved(model: SMT, length: int, window: int, fused: bool) -> dict[str, float]:
    """Return the bytes that BPTT and SMT, one split, keep for the backward pass."""
    steps: dict[str, tuple[Any, dict[str, Tensor]]] = {
        "bptt": (Unrolled(), _batch(length)),
        "smt": _one_split(length, window),
    }
    counts = {}
    for name, (algorithm, data) in steps.items():
        algorithm.begin(model)
        with nullcontext() if fused else sdpa_kernel(SDPBackend.MATH):
            counts[f"saved_{name}"] = _saved_bytes(model, partial(algorithm.backward, model, data))
    return counts


def _state(model: SMT, length: int, inference: str) -> int:
    """Return the numbers that the last of `length` steps of inference takes beside its token."""
    x = _batch(length)["inputs"]
    if inference == "teacher":  # it reads the context anew, whose last token is the step's own
        read: list[int] = []
        handle = model.encoder.register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
        model.teach(x, buckets=length)
        handle.remove()
        return read[-1] - 1
    memory = model.first(1)
    for token in x[:, :-1].unbind(1):
        memory = model.updater(memory, token)
    return memory.numel()


def _saved_bytes(model: nn.Module, step: Step) -> float:
    """Return the bytes of distinct storages that `step` keeps for its backward pass, parameters aside."""
    kept: dict[int, int] = {}
    own = {_storage(p) for p in model.parameters()}
    alive = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
            alive.append(storage)  # so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        step()
    return float(sum(kept.values()))


def _path(loss: Tensor) -> int:
    """Return the nodes on the longest way through the autograd graph from `loss` to a weight."""
    longest: dict[Any, float] = {}
    stack: list[tuple[Any, bool]] = [(loss.grad_fn, False)]
    while stack:
        node, ready = stack.pop()
        if node in longest:
            continue
        if hasattr(node, "variable"):
            longest[node] = 0
        elif ready:
            below = [longest[n] for n, _ in node.next_functions if n is not None]
            longest[node] = 1 + max(below, default=float("-inf"))
        else:
            stack.append((node, True))
            stack.extend((n, False) for n, _ in node.next_functions if n is not None and n not in longest)
    return int(longest[loss.grad_fn])
