"""What SAB costs as sequences grow, counted from shapes (arXiv:1809.03702, Sec. 8).

Operations: one multiplication and one addition of a matrix product are two; a gather or scatter counts the
numbers it moves; any other operator as many as the largest tensor it reads or writes has numbers; views count
nothing. Bytes are those of `reference.measure.live_bytes`, parameters and their gradients aside.

Suffixes: T steps, B sequences, F features, H units (n in the paper), D scorer width, N memories.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reference.measure.live_bytes import LiveBytes, bytes_of
from reference.models.sab import SAB, State
from reference.models.sab.scan import Scan
from reference.models.sab.scores import Additive

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}  # aten names; the two factors come last
MOVES = {"index_select", "index", "gather"}  # they read as much as they write
SCATTERS = {"index_add"}
MAKES = {"empty", "empty_strided", "new_empty", "detach", "alias"}  # nothing is computed
FEATURES = OUTPUTS = 9  # as in the copy task
GB = 10**9


class Costs(LiveBytes):
    """While active, count `operations` by the convention of this module, and bytes as `LiveBytes` does.

    >>> with Costs() as count:
    ...     _ = torch.empty(7, 3) @ torch.empty(3, 5)
    >>> count.operations  # 2 · 7 · 3 · 5
    210
    """

    operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        name = func.overloadpacket.__name__.removesuffix("_")
        if func.is_view or name in MAKES:
            return out
        if name in PRODUCTS:
            self.operations += 2 * first(out).numel() * args[-2].shape[-1]
        elif name in MOVES:
            self.operations += first(out).numel()
        elif name in SCATTERS:
            self.operations += args[3].numel()
        else:
            self.operations += max((t.numel() for t in tensors((out, *args))), default=0)
        return out


def first(out: Any) -> Tensor:
    """Return the tensor, or the first of several."""
    return next(tensors((out,)))


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors in `values` and in the lists and tuples among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors(value)


class WithoutCache(Additive):
    """Algorithm 1 to the letter: a memory is its own key, and W1 m is computed anew for every step."""

    def __init__(self, w1_DH: Tensor, w2_DH: Tensor, w3_D: Tensor, batch: int) -> None:
        super().__init__(w1_DH, w2_DH, w3_D, batch)
        if w1_DH.shape[0] != w1_DH.shape[1]:
            raise ValueError("WithoutCache keeps memories where keys would be: the scorer is as wide as h.")

    def key(self, memory_BH: Tensor, out_BD: Tensor) -> None:
        """Keep the memory."""
        out_BD.copy_(memory_BH)

    def scores(self, key_NBD: Tensor, query_BD: Tensor) -> Tensor:
        """Return a_NB, up to a term that is equal for all memories."""
        flat_MD = key_NBD.view(-1, self.width) @ self.w1_HD
        return super().scores(flat_MD.exp_().view(key_NBD.shape), query_BD)


@torch.no_grad()
def streamed(model: SAB, x_TBF: Tensor, cached: bool = True, chunk: int = 64) -> tuple[Tensor, State]:
    """Return h_TBH and the final state of features x_TBF with or without cached keys, plain operations."""
    weights, batch = model.weights(), x_TBF.shape[1]
    scan = Scan(model.options, weights, batch)
    if not cached:
        scan.scorer = WithoutCache(weights["w1"], weights["w2"], weights["w3"], batch)
    state = model.start(batch)
    memory = scan.memory(state, len(x_TBF))
    hidden = []
    for x_LBF in x_TBF.split(chunk):
        trace = scan.forward(x_LBF, state, memory)
        hidden.append(trace.hidden_TBH[1:].clone())
        step = state.step + len(x_LBF)
        state = State(trace.hidden_TBH[-1], trace.cells_TBH[-1], state.memories_NBH, step)
    return torch.cat(hidden), scan.final(trace, memory, state.step)


def built(width: int, options: Mapping[str, Any]) -> SAB:
    """Return a SAB of `width` units for real features, (k_trunc, k_top) = (5, 5) but for `options`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SAB(FEATURES, OUTPUTS, hidden=width, input="real", **options)


def forward_cost(
    generator: torch.Generator,
    device: str,
    lengths: tuple[int, ...] = (300, 600, 1200),
    widths: tuple[int, ...] = (64,),
    width: int = 128,
    batch: int = 1,
    cached: bool = True,
    chunk: int = 64,
    options: Mapping[str, Any] | None = None,
) -> dict[str, float | list[float]]:
    """Count a forward pass of SAB without gradients, streamed, on the CPU whatever `device` says.

    `cached`: W1 m is computed once a memory; else anew in every step, as Algorithm 1 is written. `options`
    are those of `SAB`. `chunk`: steps whose activations exist at once. The output head is left out: it is
    linear in T and the same for all.

    Returns:
        operations, peak, state: by length at `width`; the last two in bytes, `state` being what is carried
            beyond the last step.
        X_in_t, X_in_n: for X of these, the log-log slope over the last two lengths; and, at the longest,
            between the last of `widths` and `width` (not without `widths`).
        operations_longest: of the longest.
        gb_at: its peak, in 10^9 bytes.

    Raises ValueError with fewer than two lengths.
    """
    if len(lengths) < 2:
        raise ValueError("forward_cost needs two lengths or more.")

    def count(length: int, units: int) -> tuple[float, float, float]:
        model = built(units, options or {})
        x_TBF = torch.randn(length, batch, FEATURES, generator=generator)
        with Costs(model, kept=(x_TBF,)) as costs:
            _, state = streamed(model, x_TBF, cached, chunk)
        kept = bytes_of([state.hidden_BH, state.cell_BH, state.memories_NBH])
        return float(costs.operations), float(costs.peak_activations), float(kept)

    by_length = [count(length, width) for length in lengths]
    by_width = [*(count(lengths[-1], units) for units in widths[-1:]), by_length[-1]]
    result: dict[str, float | list[float]] = {}
    for name, *values in zip(("operations", "peak", "state"), *by_length, strict=True):
        result |= {name: values, f"{name}_in_t": slope(lengths, values)}
    if widths:
        for name, *values in zip(("operations", "peak", "state"), *by_width, strict=True):
            result[f"{name}_in_n"] = slope((widths[-1], width), values)
    operations, peak, _ = by_length[-1]
    return result | {"operations_longest": operations, "gb_at": peak / GB}


def training_bytes(
    generator: torch.Generator,
    device: str,
    lengths: tuple[int, int, int] = (150, 300, 600),
    width: int = 128,
    batch: int = 1,
    engine: str = "fast",
    options: Mapping[str, Any] | None = None,
    at: tuple[int, int] = (5000, 64),
) -> dict[str, float | list[float]]:
    """Count the bytes of one forward and backward pass at its fullest moment, on the CPU.

    `engine`: "fast", SAB as it is trained; "autograd", LSTM + full self-attention as one writes it with
    autograd, every score in the graph.

    Returns:
        peak: by length, in bytes.
        peak_in_t: exponent of t: log2 of the second increment over the first, in which buffers of a fixed
            size (the backward pass works in chunks) drop out.
        gb_at: 10^9 bytes at the (length, batch) of `at`: the last increment scaled by that exponent, in
            proportion to the batch.

    Raises ValueError unless there are three lengths, each twice the one before, and on an unknown engine.
    """
    if len(lengths) != 3 or lengths[1] != 2 * lengths[0] or lengths[2] != 2 * lengths[1]:
        raise ValueError("training_bytes needs three lengths, each twice the one before.")
    if engine not in ("fast", "autograd"):
        raise ValueError(f'the engine is "fast" or "autograd", not {engine!r}.')
    run = SAB.forward if engine == "fast" else full_self_attention
    peaks = []
    for length in lengths:
        model = built(width, options or {})
        x_BTF = torch.randn(batch, length, FEATURES, generator=generator)
        with LiveBytes(model, kept=(x_BTF,)) as live:
            run(model, x_BTF).square().sum().backward()
        peaks.append(float(live.peak_activations))
    first, second = peaks[1] - peaks[0], peaks[2] - peaks[1]
    power = math.log2(second / first)
    growing = second / (1 - 2**-power)  # of the last count, without what is fixed
    far = growing * (at[0] / lengths[2]) ** power * at[1] / batch
    return {"peak": peaks, "peak_in_t": power, "gb_at": far / GB}


def full_self_attention(model: SAB, x_BTF: Tensor) -> Tensor:
    """Return logits_BTC of `model` with dense retrieval, as one writes it with autograd: all is in the graph.

    All memories are scored at once and W1 m is computed once a memory; nothing is slowed down on purpose.
    """
    h = c = x_BTF.new_zeros(x_BTF.shape[0], model.hidden)
    memories: list[Tensor] = []
    keys: list[Tensor] = []
    reads = []
    for gates_x in nn.functional.linear(x_BTF.transpose(0, 1), model.weight_input_GF, model.bias_G):
        gates = gates_x + h @ model.weight_hidden_GH.t()
        output, input_, forget, candidate = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + input_.sigmoid() * candidate.tanh()
        out = output.sigmoid() * c.tanh()
        s = torch.zeros_like(out)
        if memories:
            scores_NB = (torch.stack(keys) + out @ model.w2_DH.t()).tanh() @ model.w3_D
            s = (scores_NB.softmax(0)[:, :, None] * torch.stack(memories)).sum(0)
        h = out + s
        reads.append(s)
        memories.append(h)
        keys.append(h @ model.w1_DH.t())
    logits_BTC = nn.functional.linear(torch.stack(memories, 1), model.v1_CH, model.b_C)
    return logits_BTC + torch.stack(reads, 1) @ model.v2_CH.t()


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the log-log slope over the last two points."""
    return math.log(y[-1] / y[-2]) / math.log(x[-1] / x[-2])
