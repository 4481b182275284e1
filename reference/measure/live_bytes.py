"""Bytes alive at every moment of a computation, by following tensor storages with weak references.

Works on real tensors, under `FakeTensorMode` and on the meta device: a rollout at a paper's scale is counted
on a laptop. It sees every storage that torch hands out, and no workspace inside a kernel, no caching and no
fragmentation of an allocator. So trust ratios and growth; on a GPU compare with `max_memory_allocated`.

Static bytes (parameters, buffers, gradients, optimiser state) don't depend on how a gradient is computed; a
ratio over the sum would hide the point. They are kept apart from activations, here everything else.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Follow the storages made inside the block, and those of `model` and of `kept` from the start.

    Args:
        model: its parameters, buffers and gradients are static.
        optimiser: its state is static.
        kept: tensors that exist before the block and count as activations (a batch, a memory).

    Attributes:
        live: bytes alive now.
        peak: most bytes alive at any moment since the block began.
        peak_activations: most bytes alive at any moment that were not static *then*: a gradient counts as
            activation until it has arrived in `.grad`.

    >>> with LiveBytes() as count:
    ...     a = torch.empty(10)
    ...     del a
    ...     b = torch.empty(5)
    >>> count.peak, count.live
    (40, 20)
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimiser: torch.optim.Optimizer | None = None,
        kept: tuple[Tensor, ...] = (),
    ) -> None:
        super().__init__()
        self._parameters = () if model is None else tuple(model.parameters())
        self._weights = bytes_of(() if model is None else (*self._parameters, *model.buffers()))
        self._optimiser = optimiser
        self._moments = (0, 0)  # numbers of state tensors, their bytes
        self._seen: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.live = self.peak = self.peak_activations = 0
        self._follow([*self._parameters, *(() if model is None else model.buffers())])
        self._follow(p.grad for p in self._parameters if p.grad is not None)
        self._follow(self._states())
        self._follow(kept)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._follow((result,) if isinstance(result, Tensor) else filter(_is_tensor, tree_leaves(result)))
        return result

    @property
    def static(self) -> int:
        """Bytes of parameters, buffers, gradients and optimiser state now."""
        if self._optimiser is not None:
            tensors = sum(map(len, self._optimiser.state.values()))
            if tensors != self._moments[0]:
                self._moments = tensors, bytes_of(self._states())
        grads = (grad for parameter in self._parameters if (grad := parameter.grad) is not None)
        return self._weights + self._moments[1] + bytes_of(grads)

    def restart(self) -> None:
        """Forget the peaks so far: after a warm-up step, say."""
        self.peak, self.peak_activations = self.live, self.live - self.static

    def _states(self) -> Iterator[Tensor]:
        if self._optimiser is not None:
            for state in self._optimiser.state.values():
                yield from filter(_is_tensor, state.values())

    def _follow(self, tensors: Iterable[Tensor]) -> None:
        before = self.live
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if (key := id(storage)) not in self._seen:
                size = storage.nbytes()
                gone = weakref.ref(storage, lambda _, key=key: self._freed(key))  # type: ignore[misc]
                self._seen[key] = (gone, size)
                self.live += size
        if self.live > before:
            self.peak = max(self.peak, self.live)
            if self.live - self._weights > self.peak_activations:  # only then worth a look at every gradient
                self.peak_activations = max(self.peak_activations, self.live - self.static)

    def _freed(self, key: int) -> None:
        self.live -= self._seen.pop(key)[1]


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind `tensors`, each once."""
    return sum({id(s): s.nbytes() for s in [t.untyped_storage() for t in tensors]}.values())


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)
