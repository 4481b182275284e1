import pytest
import torch

from reference.models.compressive_transformer import COMPRESSIONS, Compression, CompressiveTransformer
from reference.naive.compression import ListMemory
from tests.reference.segment_checks import SHAPE, gradients, leaks, run, scalar, worst


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def compressive(**changes):
    sizes = {"layers": 2, "memory_size": 5, "compressed_size": 3, "ratio": 2}
    return CompressiveTransformer(**{**SHAPE, **sizes, **changes})


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(
    ("memory_size", "compressed_size", "ratio", "lengths"),
    [
        (5, 3, 2, (5, 5, 3, 1, 5)),
        (4, 2, 3, (1, 2, 5, 4, 4)),
        (2, 4, 1, (5, 1, 5)),
        (0, 2, 4, (3, 3, 5)),
        (3, 0, 2, (5, 5)),
    ],
)
def test_the_memory_equals_the_lists(compression, memory_size, compressed_size, ratio, lengths):
    model = compressive(
        memory_size=memory_size,
        compressed_size=compressed_size,
        ratio=ratio,
        compression=compression,
        layers=1,
    )
    (module,) = model.compressions
    segments = [torch.randn(2, n, 12, requires_grad=True) for n in lengths]
    results = []
    for naive in (False, True):
        for segment in segments:
            segment.grad = None
        if naive:
            lists = [ListMemory(module, memory_size, compressed_size) for _ in range(2)]
            for segment in segments:
                for b in range(2):
                    lists[b].store(segment[b])
            empty = torch.empty(0, 12)
            cache, compressed = (
                torch.stack([torch.stack(part) if part else empty for part in parts])
                for parts in ([m.cache for m in lists], [m.compressed for m in lists])
            )
        else:
            ((cache, compressed),), _ = model.initial_memory(2)
            for segment in segments:
                cache, compressed = model._store(module, cache, segment, compressed)
        found = gradients(module, scalar([cache, compressed]))
        found |= {
            f"segment {k}": torch.zeros(1) if s.grad is None else s.grad for k, s in enumerate(segments)
        }
        results.append(found | {"cache": cache.detach(), "compressed": compressed.detach()})
        assert (cache.shape[1], compressed.shape[1]) == (
            results[0]["cache"].shape[1],
            results[0]["compressed"].shape[1],
        )
    size, name = worst(*results)
    assert size < 1e-9, name


def test_the_cache_loses_nothing():
    """Without eviction of compressed states, cache and groups of `ratio` add up to everything stored."""
    model = compressive(compressed_size=100)
    _, (caches, _) = run(model, torch.randint(7, (2, 33)))
    for cache, compressed in caches:
        assert cache.shape[1] + 2 * compressed.shape[1] == 33
        assert 5 <= cache.shape[1] <= 6


def test_a_convolution_by_hand():
    module = Compression(1, 2, "convolution")
    with torch.no_grad():
        module.mix.weight.copy_(torch.tensor([[1.0, 10.0]]))
        module.mix.bias.fill_(0.5)
    states = torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])
    assert module(states).flatten().tolist() == [21.5, 43.5]
    assert Compression(1, 2, "mean")(states).flatten().tolist() == [1.5, 3.5]
    assert Compression(1, 4, "max")(states).flatten().tolist() == [4.0]


def test_no_leak_and_old_tokens_reach_through_compressed_states():
    assert leaks(compressive()) == []
    model = compressive(layers=1, memory_size=2, compressed_size=2, segment=1).eval()
    tokens = torch.randint(7, (1, 12))
    before = run(model, tokens)[0][0, 11]
    reached = []
    for n in range(11):
        changed = tokens.clone()
        changed[0, n] = (changed[0, n] + 1) % 7
        reached.append(not torch.equal(run(model, changed)[0][0, 11], before))
    # inputs are shifted by one; 11 stored: 3 in the cache (one waits for its group), 2 groups of 2, 1 current
    assert reached == [False] * 3 + [True] * 8


def test_the_compression_is_trained_by_later_segments():
    tokens = torch.randint(7, (2, 25))
    for stop_gradient in (False, True):
        model = compressive(stop_gradient=stop_gradient)
        found = gradients(model, scalar([run(model, tokens)[0]]))
        assert (found["compressions.0.mix.weight"].norm() > 0) is not stop_gradient


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"ratio": 0}, "ratio of at least 1"), ({"compression": "sum"}, "choose from convolution, mean, max")],
)
def test_impossible_models(changes, message):
    with pytest.raises(ValueError, match=message):
        compressive(**changes)
