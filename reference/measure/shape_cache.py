"""Fake and meta tensors, quickly: what an operator makes depends on shapes, so work it out once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Made = tuple[tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device], ...]


class ShapeCache(TorchDispatchMode):
    """Remember the shapes of every operator's outputs by those of its inputs, and make empty tensors of them.

    For tensors without data alone (meta device, FakeTensorMode): torch works their shapes out in Python each
    time. Enter it inside FakeTensorMode and outside the modes that count. Operators that return or change
    what they are given always run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[Hashable, Made | None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(part.alias_info for part in (*func._schema.returns, *func._schema.arguments)):
            return func(*args, **kwargs)
        key = (func, _described(args), _described(tuple(kwargs.items())))
        made = self._made.get(key)
        if made is not None:
            fresh = [
                torch.empty_strided(shape, stride, dtype=dtype, device=device)
                for shape, stride, dtype, device in made
            ]
            return fresh[0] if len(func._schema.returns) == 1 else tuple(fresh)
        result = func(*args, **kwargs)
        if key not in self._made:
            self._made[key] = _made(result, (args, kwargs))
        return result


def _described(value: Any) -> Hashable:
    """Return what an operator's result can depend on when tensors hold no data."""
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    if isinstance(value, list | tuple):
        return tuple(map(_described, value))
    return type(value), value


def _made(result: Any, given: Any) -> Made | None:
    """Describe the tensors of `result`; None if it isn't made of new tensors alone."""
    tensors = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        return None
    old = {
        id(leaf.untyped_storage())
        for leaf in torch.utils._pytree.tree_leaves(given)
        if isinstance(leaf, Tensor)
    }
    if any(id(tensor.untyped_storage()) in old or tensor.storage_offset() for tensor in tensors):
        return None
    return tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors)
