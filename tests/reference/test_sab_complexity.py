"""Counted operations and bytes of SAB: by hand where that is possible, and as they should grow."""

import pytest
import torch

from reference.measure import sab_complexity
from reference.measure.sab_complexity import (
    FEATURES,
    Costs,
    WithoutCache,
    built,
    forward_cost,
    full_self_attention,
    slope,
    streamed,
    training_bytes,
)
from reference.models.sab import kernels


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def counted(run) -> int:
    with Costs() as costs:
        run()
    return costs.operations


def test_operations_by_hand():
    a, b, c = torch.ones(7, 3), torch.ones(3, 5), torch.ones(7, 5)
    rows, flat = torch.tensor([0, 2]), torch.zeros(100, 5)
    assert counted(lambda: a @ b) == 2 * 7 * 3 * 5
    assert counted(lambda: torch.addmm(c, a, b)) == 2 * 7 * 3 * 5
    assert counted(lambda: c.addmm_(a, b)) == 2 * 7 * 3 * 5
    assert counted(lambda: torch.bmm(a.expand(4, 7, 3), b.expand(4, 3, 5))) == 4 * 2 * 7 * 3 * 5
    assert counted(lambda: torch.baddbmm(c, a.expand(4, 7, 3), b.expand(4, 3, 5))) == 4 * 2 * 7 * 3 * 5
    assert counted(lambda: a.tanh()) == 21
    assert counted(lambda: flat.sum(1)) == 500, "a reduction counts what it reads"
    assert counted(lambda: flat.index_select(0, rows)) == 10, "a gather counts what it moves"
    assert counted(lambda: flat.index_add_(0, rows, c[:2])) == 10
    assert counted(lambda: a.t().view(3, 7)[1:]) == 0, "views are free"
    assert counted(lambda: torch.empty(9)) == 0


@pytest.mark.parametrize("options", [{}, {"k_att": 3}, {"retrieval": "none"}, {"retrieval": "dense"}])
def test_counting_runs_the_model_itself_with_and_without_the_cache(options):
    model = built(6, options).double()
    x_BTF = torch.randn(2, 90, FEATURES, dtype=torch.float64)
    with torch.no_grad():
        want, state = model.unroll(x_BTF)
    for cached in (True, False):
        hidden_TBH, final = streamed(model, x_BTF.transpose(0, 1), cached)
        torch.testing.assert_close(final.hidden_BH, state.hidden_BH)
        torch.testing.assert_close(final.memories_NBH, state.memories_NBH)
        reads_free = hidden_TBH.transpose(0, 1) @ model.v1_CH.t() + model.b_C
        assert reads_free.shape == want.shape
        assert torch.equal(hidden_TBH[-1], final.hidden_BH)


def test_without_the_cache_w1_m_is_computed_at_every_step():
    """The difference is the products W1 m, N a step instead of one a memory, with their exponentials."""
    width, steps = 8, 40
    model = built(width, {})
    x_TBF = torch.zeros(steps, 1, FEATURES)
    with Costs() as anew:
        streamed(model, x_TBF, cached=False)
    with Costs() as once:
        streamed(model, x_TBF, cached=True)
    scored = sum(range(model.options.k_top + 1, steps))  # memories, over all steps that read
    products = 2 * width * width * (scored - steps)
    exponentials = width * (scored - steps)
    copies = width * steps  # a memory is copied to where its key would be
    second = 2 * width**2 + width + 1  # the weights, doubled once more for the scorer without a cache
    assert anew.operations - once.operations == products + exponentials + copies + second


def test_growth_in_t_and_n():
    sizes = {"lengths": (60, 120), "widths": (4,), "width": 8}
    written = forward_cost(seeded(), "cpu", **sizes, cached=False)
    cached = forward_cost(seeded(), "cpu", **sizes)
    lstm = forward_cost(seeded(), "cpu", **sizes, options={"retrieval": "none"})
    assert 1.75 < written["operations_in_t"] < 2.05
    assert written["operations_in_n"] > 1.5
    assert cached["operations_in_n"] < 1.3
    assert 1.25 < cached["operations_in_t"] < 1.75
    assert 0.95 < lstm["operations_in_t"] < 1.05
    assert lstm["operations"][-1] < cached["operations"][-1] < written["operations"][-1]
    assert cached["operations_longest"] == cached["operations"][-1]
    # h, c and a memory a step
    assert cached["state"] == [4 * 8 * (2 + 60), 4 * 8 * (2 + 120)]
    assert cached["state_in_n"] == 1
    rare = forward_cost(seeded(), "cpu", lengths=(10, 20), widths=(), width=8, options={"k_att": 1000})
    assert rare["state_in_t"] == 0
    assert "state_in_n" not in rare


def test_training_bytes_grow_linearly_and_those_of_full_attention_with_the_square():
    fast = training_bytes(seeded(), "cpu", lengths=(30, 60, 120), width=4, batch=1024)
    full = training_bytes(seeded(), "cpu", lengths=(20, 40, 80), width=8, engine="autograd", at=(160, 10))
    assert 0.75 < fast["peak_in_t"] < 1.25
    assert 1.6 < full["peak_in_t"] < 2.1
    longer = training_bytes(seeded(), "cpu", lengths=(40, 80, 160), width=8, engine="autograd")
    assert full["gb_at"] == pytest.approx(10 * longer["peak"][2] / 1e9, rel=0.15)
    twice = training_bytes(seeded(), "cpu", lengths=(20, 40, 80), width=8, engine="autograd", batch=2)
    assert twice["peak"][2] == pytest.approx(2 * full["peak"][2], rel=0.05)
    assert twice["gb_at"] == pytest.approx(64 / 10 * (5000 / 160) ** 2 * full["gb_at"], rel=0.5)
    one = training_bytes(seeded(), "cpu", lengths=(20, 40, 80), width=8, engine="autograd")
    assert twice["gb_at"] == pytest.approx(one["gb_at"], rel=0.1), "of the batch asked for"


def test_the_forward_pass_that_is_counted_keeps_what_sab_s_own_keeps():
    """`streamed` is `SAB.stream` without the head; what is kept of 500 steps at once is a chunk's."""
    model = built(16, {})
    x_BTF = torch.randn(3, 500, FEATURES)
    peaks = []
    for run in (
        lambda: model(x_BTF),
        lambda: streamed(model, x_BTF.transpose(0, 1)),
        lambda: streamed(model, x_BTF.transpose(0, 1), chunk=500),
    ):
        with torch.no_grad(), Costs(model, kept=(x_BTF,)) as costs:
            run()
        peaks.append(costs.peak_activations)
    own, counted_, whole = peaks
    assert counted_ == pytest.approx(own, rel=0.25)
    assert whole > 2 * own


def test_inputs_are_in_the_bytes():
    """Nothing is stored and one step lives at a time: what grows is what comes in and what goes out."""
    found = forward_cost(seeded(), "cpu", lengths=(1000, 2000), width=4, options={"k_att": 10**6})
    assert found["peak"][1] - found["peak"][0] >= 1000 * 4 * (FEATURES + 4)


def test_steps_that_exist_at_once_are_those_asked_for():
    few, all_ = (
        forward_cost(seeded(), "cpu", lengths=(300, 600), width=8, chunk=c)["peak"][1] for c in (64, 600)
    )
    assert all_ > 2 * few
    assert forward_cost(seeded(), "cpu", lengths=(300, 600), width=8)["peak"][1] == few


def test_full_self_attention_is_the_dense_model():
    model = built(6, {"retrieval": "dense", "k_trunc": None}).double()
    x_BTF = torch.randn(3, 11, FEATURES, dtype=torch.float64)
    torch.testing.assert_close(full_self_attention(model, x_BTF), model(x_BTF))
    direction = torch.randn(3, 11, sab_complexity.OUTPUTS, dtype=torch.float64)
    found = []
    for run in (full_self_attention, type(model).forward):
        model.zero_grad()
        (run(model, x_BTF) * direction).sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other)


def test_compiled_steps_step_aside_while_counting():
    with Costs():
        assert not kernels.available(torch.zeros(1))


def test_slope():
    assert slope((9, 10, 20), (0, 3, 12)) == pytest.approx(2)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="two lengths"):
        forward_cost(seeded(), "cpu", lengths=(5,))
    for lengths in ((5, 10), (5, 10, 15)):
        with pytest.raises(ValueError, match="three lengths"):
            training_bytes(seeded(), "cpu", lengths=lengths)
    with pytest.raises(ValueError, match="engine is"):
        training_bytes(seeded(), "cpu", engine="slow")
    with pytest.raises(ValueError, match="as wide as h"):
        WithoutCache(torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3), 1)
