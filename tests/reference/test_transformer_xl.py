import doctest

import pytest
import torch

from reference.models import attention
from reference.models.attention import RelativeAttention, newest, shift, sinusoids
from reference.models.transformer_xl import TransformerXL
from reference.naive.relative_attention import relative_attention
from tests.reference.segment_checks import SHAPE, gradients, leaks, run, scalar, worst


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def transformer_xl(**changes):
    return TransformerXL(**{**SHAPE, "layers": 2, "memory_size": 7, **changes})


@pytest.mark.parametrize(
    ("batch", "length", "cached"), [(1, 1, 0), (2, 3, 0), (2, 1, 5), (1, 4, 7), (3, 5, 2)]
)
def test_relative_attention_equals_the_twin_without_the_shift(batch, length, cached):
    module = RelativeAttention(6, 3, 5)
    results = []
    states = torch.randn(batch, cached + length, 6, requires_grad=True)
    for how in (module, lambda *a: relative_attention(module, *a)):
        states.grad = None
        output = how(states[:, cached:], states)
        found = gradients(module, scalar([output]))
        results.append(found | {"output": output.detach(), "states": states.grad})
    size, name = worst(*results)
    assert size < 1e-9, name


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_the_model_equals_itself_with_naive_attention(monkeypatch, stop_gradient):
    model = transformer_xl(stop_gradient=stop_gradient)
    tokens = torch.randint(7, (2, 13))
    results = []
    for naive in (False, True):
        if naive:
            monkeypatch.setattr(RelativeAttention, "forward", relative_attention)
        logits, (caches, _) = run(model, tokens)
        found = gradients(model, scalar([logits, *caches]))
        found |= {"logits": logits.detach(), **{f"cache {k}": c.detach() for k, c in enumerate(caches)}}
        results.append(found)
    size, name = worst(*results)
    assert size < 1e-9, name


def test_shift_moves_distances_to_their_keys():
    """Row i holds distances S-1..0; after the shift column j of row i holds the distance S - L + i - j."""
    L, S = 3, 5
    by_distance = torch.arange(S - 1, -1, -1).expand(2, 4, L, S)
    shifted = shift(by_distance)
    for i in range(L):
        for j in range(S - L + i + 1):
            assert (shifted[:, :, i, j] == S - L + i - j).all()


def test_worked_examples():
    assert doctest.testmod(attention) == (0, 1)


def test_only_distances_matter():
    """A query's output doesn't depend on where it stands among the queries that are asked with it."""
    states = torch.randn(2, 6, 12)
    read = transformer_xl(layers=1).layers[0].attention
    torch.testing.assert_close(read(states[:, 4:], states), read(states, states)[:, 4:])


def test_sinusoids():
    found = sinusoids(torch.tensor([0, 2]), 4, torch.float64)
    two = torch.tensor([2.0, 0.02])
    torch.testing.assert_close(
        found, torch.stack([torch.tensor([0.0, 0, 1, 1]), torch.cat([two.sin(), two.cos()])])
    )
    with pytest.raises(ValueError, match="even width, not 3"):
        sinusoids(torch.arange(2), 3, torch.float64)


def test_newest_keeps_the_last_positions_in_a_storage_of_their_own():
    older, newer = torch.arange(3.0).view(1, 3, 1), torch.arange(3.0, 5.0).view(1, 2, 1)
    for count, expected in ((9, [0, 1, 2, 3, 4]), (4, [1, 2, 3, 4]), (2, [3, 4]), (1, [4]), (0, [])):
        kept = newest(older, newer, count)
        assert kept.flatten().tolist() == expected
        assert kept.untyped_storage().nbytes() == 8 * len(expected)


def test_cut_into_segments_it_computes_what_it_computes_whole():
    """With a cache as long as the past, segments change nothing."""
    whole = transformer_xl(segment=13, memory_size=13).eval()
    cut = transformer_xl(segment=4, memory_size=13).eval()
    cut.load_state_dict(whole.state_dict())
    tokens = torch.randint(7, (2, 13))
    torch.testing.assert_close(run(cut, tokens)[0], run(whole, tokens)[0], rtol=1e-10, atol=1e-12)


def test_no_leak_and_a_reach_of_layers_times_memory():
    assert leaks(transformer_xl()) == []
    model = transformer_xl(memory_size=2, layers=1, segment=1).eval()
    tokens = torch.randint(7, (1, 9))
    before = run(model, tokens)[0][0, 8]
    reached = []
    for n in range(8):
        changed = tokens.clone()
        changed[0, n] = (changed[0, n] + 1) % 7
        reached.append(not torch.equal(run(model, changed)[0][0, 8], before))
    assert reached == [False] * 5 + [True] * 3  # inputs are shifted by one: 2 cached and 1 current


def test_the_cache_has_one_entry_a_layer_and_its_size_is_bounded():
    model = transformer_xl(layers=3)
    caches, last = model.initial_memory(2)
    assert [c.shape for c in caches] == [(2, 0, 12)] * 3
    assert last.tolist() == [[7], [7]]
    tokens = torch.randint(7, (2, 13))
    _, (caches, last) = run(model, tokens)
    assert [c.shape for c in caches] == [(2, 7, 12)] * 3
    assert torch.equal(last, tokens[:, -1:])


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_gradient_into_the_cache(stop_gradient):
    model = transformer_xl(stop_gradient=stop_gradient)
    _, (caches, _) = run(model, torch.randint(7, (2, 5)))
    assert caches[1].requires_grad is not stop_gradient


def test_without_memory_it_sees_one_segment():
    model = transformer_xl(memory_size=0).eval()
    tokens = torch.randint(7, (1, 10))
    changed = tokens.clone()
    changed[0, :4] = (changed[0, :4] + 1) % 7
    assert torch.equal(run(model, tokens)[0][:, 5:], run(model, changed)[0][:, 5:])


def test_impossible_models():
    with pytest.raises(ValueError, match="memory_size of at least 0"):
        transformer_xl(memory_size=-1)
