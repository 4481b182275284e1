"""The measures of SAB's credit paths: they hold for SAB, notice what is something else, and can be wrong."""

import pytest
import torch

from reference.measure import gradient_paths
from reference.measure.gradient_paths import (
    READINGS,
    direct_path,
    last_step,
    reach,
    stated_steps,
    touched,
    twin_gradients,
    wrong_steps,
)
from reference.models.sab import SAB

SHORT = {"distances": (2, 6)}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_read_passes_its_weight_times_the_identity_and_the_rest_is_the_score_s():
    found = direct_path(seeded(), "cpu", **SHORT)
    assert found["direct_error"] < 1e-12
    assert found["total_error"] < 1e-12
    assert found["unread_gradient"] == 0
    assert found["direct_norm"] == pytest.approx([1.0, 1.0])
    near, far = found["recurrent_norm"]
    assert 0 < far < near < 1


@pytest.mark.parametrize(
    ("changed", "metrics"),
    [
        ({"retrieval": "dense"}, ("direct_error", "unread_gradient", "total_error")),
        ({"threshold": "released"}, ("direct_error", "total_error")),
        ({"k_top": 2}, ("direct_error", "total_error")),
        ({"memory": "output"}, ()),
    ],
)
def test_another_read_is_noticed(changed, metrics):
    found = direct_path(seeded(), "cpu", **SHORT, fast=changed)
    noticed = {name for name in ("direct_error", "unread_gradient", "total_error") if found[name] > 1e-3}
    assert noticed == set(metrics)


def test_the_jacobian_through_the_recurrence_is_autograd_s():
    """Against torch's own LSTM cell, gates in its order (input, forget, candidate, output)."""
    torch.manual_seed(0)
    model = SAB(5, 3, hidden=4, k_trunc=None, retrieval="none").double()
    cell = torch.nn.LSTMCell(5, 4).double()
    with torch.no_grad():
        for ours, theirs in (("weight_input_GF", "weight_ih"), ("weight_hidden_GH", "weight_hh")):
            output, input_, forget, candidate = getattr(model, ours).chunk(4)
            getattr(cell, theirs).copy_(torch.cat([input_, forget, candidate, output]))
        cell.bias_ih.zero_()
        cell.bias_hh.zero_()
    inputs = torch.tensor([[1, 4, 2]]).expand(4, -1)
    h0 = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    h, c = h0, torch.zeros_like(h0)
    for x in model.encode(inputs):
        h, c = cell(x, (h, c))
    (want,) = torch.autograd.grad(h.diagonal().sum(), h0)
    none = torch.zeros(0, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(last_step(model, inputs, none)[1], want)


def test_a_loss_reaches_the_memory_and_the_steps_before_it_from_any_distance():
    found = reach(seeded(), "cpu", **SHORT)
    assert found == {
        "reach": [3.0, 7.0],
        "local_reach": [1.0, 1.0],
        "reach_error": 0.0,
        "local_reach_error": 0.0,
    }


@pytest.mark.parametrize(
    ("changed", "beyond", "local"),
    [
        ({"k_trunc": None}, 4.0, 10.0),
        ({"mental_updates": "none"}, 6.0, 0.0),
        ({"mental_updates": "own_step"}, 1.0, 0.0),
        ({"truncation": "sliding"}, 0.0, 0.0),
    ],
)
def test_another_reach_is_noticed(changed, beyond, local):
    found = reach(seeded(), "cpu", **SHORT, fast=changed)
    assert (found["reach_error"], found["local_reach_error"]) == (beyond, local)


def test_which_steps_are_reached_is_what_each_reading_says():
    assert set(wrong_steps(seeded(), "cpu").values()) == {0.0}
    for stated in ("full", "none", "own_step"):
        found = wrong_steps(seeded(), "cpu", fast={"mental_updates": stated})
        assert [name for name, wrong in found.items() if wrong == 0] == [f"wrong_steps_{stated}"]


@pytest.mark.parametrize(
    ("reading", "steps"),
    [
        # Step 10 (two local steps: 9, 10) reads and ranks all three memories: steps 2, 5 and 8. On the grid
        # of 3 each of them is the last of its segment; with k_top = 2 no earlier step has enough to read.
        ("full", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
        ("own_step", {2, 5, 8, 9, 10}),
        ("none", {9, 10}),
    ],
)
def test_stated_steps_by_hand(reading, steps):
    torch.manual_seed(0)
    model = SAB(11, 3, hidden=4, k_trunc=3, k_top=2, k_att=3, mental_updates=reading).double()
    assert stated_steps(model, 11) == steps == touched(model, 11)


def test_gradients_equal_the_twin_s_and_readings_differ():
    found = twin_gradients(seeded(), "cpu")
    assert max(found[f"error_{r}"] for r in ("full", "none", "own_step")) < 1e-9
    assert found["least_difference"] > 1e-3


@pytest.mark.parametrize("stated", ["full", "none", "own_step"])
def test_one_reading_in_place_of_another_is_noticed(stated):
    found = twin_gradients(seeded(), "cpu", fast={"mental_updates": stated})
    assert found["least_difference"] == 0
    for reading in ("full", "none", "own_step"):
        assert (found[f"error_{reading}"] < 1e-9) == (reading == stated)


@pytest.mark.parametrize("call", range(12))
def test_one_error_among_truncations_and_engines_is_enough(call, monkeypatch):
    """Readings, truncations and engines are compared in this order: 3 x 2 x 2."""
    calls, plain = [], gradient_paths.relative

    def relative(got, want):
        calls.append(call)
        return 1.0 if len(calls) == call + 1 else plain(got, want)

    monkeypatch.setattr(gradient_paths, "relative", relative)
    found = twin_gradients(seeded(), "cpu")
    assert [found[f"error_{r}"] == 1.0 for r in READINGS] == [call // 4 == i for i in range(3)]
    assert len(calls) == 12 + 3  # and three differences between readings


@pytest.mark.parametrize("measure", [twin_gradients, wrong_steps])
def test_both_truncations_are_looked_at(measure, monkeypatch):
    seen, plain = [], gradient_paths.pair

    def pair(fast, device, **options):
        seen.append((options["mental_updates"], options["truncation"]))
        return plain(fast, device, **options)

    monkeypatch.setattr(gradient_paths, "pair", pair)
    measure(seeded(), "cpu")
    assert sorted(seen) == sorted((r, t) for r in READINGS for t in ("grid", "sliding"))


@pytest.mark.parametrize("call", [0, 2, 4])  # of each distance the first; the second is the plain LSTM's
def test_one_wrong_distance_is_enough(call, monkeypatch):
    calls, plain = [], gradient_paths.last_step

    def last_step(*given, **options):
        value, local, output = plain(*given, **options)
        calls.append(call)
        return (value + 0.5 if len(calls) == call + 1 else value), local, output

    monkeypatch.setattr(gradient_paths, "last_step", last_step)
    found = direct_path(seeded(), "cpu", distances=(2, 4, 6))
    assert found["unread_gradient"] == 0.5
    assert found["direct_error"] > 0.1


def test_what_cannot_be_measured_is_refused():
    for distances in ((), (0,)):
        with pytest.raises(ValueError, match="distances of at least 1"):
            direct_path(seeded(), "cpu", distances=distances)
    for distances in ((), (3,), (0,)):
        with pytest.raises(ValueError, match="even distances"):
            reach(seeded(), "cpu", distances=distances)


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    wrong_steps(seeded(), "cpu")
    assert torch.equal(torch.random.get_rng_state(), before)
