"""The cache of shapes changes no shape, no stride, no byte and no view: only the time."""

import contextlib

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from reference.measure.live_bytes import LiveBytes
from reference.measure.shape_cache import ShapeCache


def steps(device: str, cached: bool, times: int = 3):
    """Run training steps; return the bytes counted and every gradient's shape and stride."""
    model = nn.Sequential(
        nn.Linear(6, 8, device=device),
        nn.LayerNorm(8, device=device),
        nn.GELU(),
        nn.Linear(8, 4, device=device),
    )
    found = []
    with ShapeCache() if cached else contextlib.nullcontext(), LiveBytes(model) as count:
        for _ in range(times):
            x = torch.zeros(5, 3, 6, device=device)
            y = model(x)
            a, b = y.split(2, dim=-1)
            a.transpose(1, 2).matmul(b).softmax(-1).sum().backward()
            found.append((count.live, count.peak, count.peak_activations))
    return found, [(p.grad.shape, p.grad.stride(), p.grad.dtype) for p in model.parameters()]


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_same_bytes_and_shapes_with_and_without(kind):
    def run(cached):
        with FakeTensorMode() if kind == "fake" else contextlib.nullcontext():
            return steps("meta" if kind == "meta" else "cpu", cached)

    assert run(True) == run(False)


def test_what_is_remembered_depends_on_every_argument():
    with ShapeCache():
        x = torch.empty(4, 6, device="meta")
        for _ in range(2):
            assert x.sum(0).shape == (6,)
            assert x.sum(1).shape == (4,)
            assert x.to(torch.float64).dtype == torch.float64
            assert x.to(torch.int64).dtype == torch.int64
            assert (x + 1).stride() == (6, 1)
            assert (x.t() + 1).stride() == (1, 6)
            assert torch.cat([x, x]).shape == (8, 6)
            assert torch.cat([x, x, x]).shape == (12, 6)
            values, places = x.max(1)
            assert values.dtype == torch.float32 and places.dtype == torch.int64


def test_views_and_changes_in_place_stay_what_they_are():
    with ShapeCache():
        x = torch.empty(4, 6, device="meta")
        for _ in range(2):
            assert x.view(24)._base is x
            assert x.add_(1) is x
            y = torch.ops.aten._unsafe_view(x, [24])
            assert y.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_it_runs_an_operator_once(monkeypatch):
    ran = []

    class Seen(ShapeCache):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.empty(4, 6, device="meta")
    with Seen(), ShapeCache():
        for _ in range(5):
            torch.mm(x, x.t())
    assert ran.count(torch.ops.aten.mm.default) == 1
    assert ran.count(torch.ops.aten.empty_strided.default) == 4
