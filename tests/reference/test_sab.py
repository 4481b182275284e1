"""SAB against its twin, against worked examples, and against the mistakes it could make."""

import itertools
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.models.lstm import LSTM
from reference.models.sab import SAB, State, kernels
from reference.models.sab.function import make_scan
from reference.models.sab.scan import StoreGradients
from reference.models.sab.weights import sparse_weights
from reference.naive.sab import few, sab_autograd, sab_loop, sparsify
from tests.reference.test_lstm import starts_at

FEW = ("skip", "lowest", "softmax", "uniform", "threshold_zero", "raw")


@pytest.fixture(params=["fused", "plain"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "fused":
        if not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
            pytest.skip("no C++ compiler here")
        assert kernels.status() == "fused", "there is a compiler, but kernels.cpp does not compile"
        yield "fused"
    else:
        with kernels.disabled():
            yield "plain"


def make(hidden: int = 4, std: float = 0.7, seed: int = 0, **options: Any) -> SAB:
    torch.manual_seed(seed)
    model = SAB(inputs=5, outputs=3, hidden=hidden, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, std)
    return model


def error(got: Tensor, want: Tensor) -> float:
    """Root mean square of the difference, relative to that of `want`; absolute where that is rounding."""
    got, want = got.detach(), want.detach()
    scale = want.norm().item() if want.norm() > 1e-12 else 1.0
    return (got - want).norm().item() / scale


def errors(model: SAB, batch: int = 2, steps: int = 11, memories: Tensor | None = None) -> dict[str, float]:
    """Compare output, final state and every gradient with the twin's."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 5, (batch, steps), generator=generator)
    weights = torch.randn(batch, steps, 3, generator=generator, dtype=torch.float64)
    state = None
    if memories is not None:
        zero = torch.zeros(batch, model.hidden, dtype=torch.float64)
        state = State(zero, zero, memories)
    logits, final = model.unroll(inputs, state)
    (logits * weights).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    twin, (h, c, stored) = sab_loop(model, inputs, () if memories is None else tuple(memories))
    (twin * weights).sum().backward()
    result = {
        "output": error(logits, twin),
        "h": error(final.hidden_BH, h),
        "c": error(final.cell_BH, c),
        "memories": error(final.memories_NBH, torch.stack(stored))
        if stored
        else float(len(final.memories_NBH)),
    }
    for name, parameter in model.named_parameters():
        want = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        got = gradients[name]
        assert got is not None
        result[name] = error(got, want)
    model.zero_grad(set_to_none=True)
    return result


def agrees(model: SAB, **arguments: Any) -> None:
    worst = errors(model, **arguments)
    assert max(worst.values()) <= 1e-9, {name: value for name, value in worst.items() if value > 1e-9}


@pytest.mark.parametrize("k_trunc", [3, 1, None])
@pytest.mark.parametrize(
    ("truncation", "mental_updates", "retrieval"),
    list(
        itertools.product(
            ("grid", "sliding"), ("full", "none", "own_step"), ("sparse", "dense", "none", "shuffled")
        )
    ),
)
def test_twin(engine: str, truncation: str, mental_updates: str, retrieval: str, k_trunc: int | None) -> None:
    agrees(
        make(
            truncation=truncation,
            mental_updates=mental_updates,
            retrieval=retrieval,
            k_trunc=k_trunc,
            k_top=2,
            k_att=2,
        )
    )


@pytest.mark.parametrize(
    "options",
    [
        {"k_top": 1},
        {"k_top": 20},
        {"k_att": 20},
        {"k_att": 3, "k_trunc": 4, "k_top": 2},
        {"k_trunc": 20},
        {"k_top": 3, "scorer": 7},
        {"denominator": 0.1, "k_top": 2},
        {"memory": "output", "k_top": 2},
        {"memory": "output", "k_top": 2, "mental_updates": "own_step", "truncation": "sliding"},
        {"memory": "output", "k_top": 2, "mental_updates": "none", "k_att": 2},
        {"memory": "output", "k_top": 2, "few_memories": "softmax", "k_trunc": 3, "k_att": 2},
        {"memory": "output", "retrieval": "dense", "first_memory": "zero"},
        {"memory": "output", "retrieval": "shuffled", "k_top": 2, "k_trunc": 2},
        {"first_memory": "zero", "k_top": 2},
        {"first_memory": "zero", "k_top": 2, "retrieval": "dense"},
        {"input": "scalar", "k_top": 2},
        {"threshold": "released", "k_top": 3},
        {"score": "separable", "k_top": 3},
        {"score": "separable", "retrieval": "dense"},
        {
            "score": "separable",
            "threshold": "released",
            "few_memories": "raw",
            "first_memory": "zero",
            "input": "scalar",
            "k_att": 2,
            "k_top": 3,
        },
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [1, 3])
def test_twin_on_odd_options(engine: str, options: dict[str, Any], batch: int) -> None:
    agrees(make(**options), batch=batch)


@pytest.mark.parametrize("rule", FEW)
@pytest.mark.parametrize("score", ["additive", "separable"])
def test_twin_with_few_memories(engine: str, rule: str, score: str) -> None:
    agrees(make(few_memories=rule, score=score, k_top=4))
    agrees(make(few_memories=rule, score=score, k_top=20, mental_updates="own_step", first_memory="zero"))


@pytest.mark.parametrize(
    ("units", "read"),
    [
        ([0.3, -0.5, 0.3, -0.5, 0.3, -0.5], 0.0),  # three best: all differences are 0
        ([0.3, -0.5, -0.5, -0.5, -0.5, -0.5], 1.0),  # one best; the threshold is one of five
        ([-0.5, -0.5, -0.5, -0.5, -0.5, 0.3], 1.0),
        ([-0.5, 0.1, -0.5, 0.3, -0.5, -0.5], 1.0),
        ([-0.5, 0.1, 0.1, 0.3, 0.1, 0.1], 1.0),
    ],
)
def test_ties_go_to_the_earliest_memory(engine: str, units: list[float], read: float) -> None:
    """Six memories that differ, but not in the one unit that is scored, of which more is better."""
    model = make(k_top=2, k_att=20)
    with torch.no_grad():
        model.w1_DH[:, 1:] = 0.0
        model.w1_DH[:, 0].abs_()
        model.w3_D.abs_()
    memories = torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    memories[:, :, 0] = torch.tensor(units, dtype=torch.float64)[:, None]
    agrees(model, memories=memories, steps=3)
    zero = torch.zeros(2, 4, dtype=torch.float64)
    seen = model.inspect(torch.zeros(2, 3, dtype=torch.int64), State(zero, zero, memories))
    torch.testing.assert_close(seen.weights_BTN.sum(2), torch.full((2, 3), read, dtype=torch.float64))


@pytest.mark.parametrize("rule", ["lowest", "threshold_zero"])
def test_ties_among_few_go_to_the_earliest_memory(engine: str, rule: str) -> None:
    """The lowest score is the threshold, twice; the gradient goes to the later one, which ranks last."""
    model = make(k_top=6, k_att=20, few_memories=rule)
    with torch.no_grad():
        model.w1_DH[:, 1:] = 0.0
        model.w1_DH[:, 0].abs_()
        model.w3_D.abs_()
    memories = torch.randn(4, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for units in ([0.3, -0.5, 0.9, -0.5], [-0.5, 0.3, 0.9, -0.5], [-0.5, -0.5, 0.9, 0.3]):
        memories[:, :, 0] = torch.tensor(units, dtype=torch.float64)[:, None]
        agrees(model, memories=memories, steps=3)


def test_a_query_far_from_zero_is_clamped_where_it_says(engine: str) -> None:
    """Queries of size 10 and more: tanh has not saturated against memories as far on the other side."""
    agrees(make(std=4.0, k_top=2))


def test_equal_scores_read_nothing(engine: str) -> None:
    model = make(k_top=2)
    with torch.no_grad():
        model.w1_DH.zero_()
    agrees(model)
    assert model.inspect(torch.zeros(2, 11, dtype=torch.int64)).weights_BTN.abs().max() == 0


def worked_example(**options: Any) -> list[float]:
    """Weights of four memories with the scores 4, 3, 1, 0."""
    model = make(hidden=2, k_att=9, k_top=2, scorer=1, **options)
    with torch.no_grad():
        model.w1_DH[:] = torch.tensor([[1.0, 0.0]])
        model.w2_DH.zero_()
        model.w3_D[:] = 10.0
    memories = torch.zeros(4, 1, 2, dtype=torch.float64)
    memories[:, 0, 0] = torch.tensor([0.4, 0.3, 0.1, 0.0], dtype=torch.float64).atanh()
    zero = torch.zeros(1, 2, dtype=torch.float64)
    return (
        model.inspect(torch.zeros(1, 1, dtype=torch.int64), State(zero, zero, memories))
        .weights_BTN.flatten()
        .tolist()
    )


def test_worked_example(engine: str) -> None:
    assert worked_example() == pytest.approx([0.6, 0.4, 0.0, 0.0], abs=1e-12)
    assert worked_example(threshold="released") == pytest.approx([1.0, 0.0, 0.0, 0.0], abs=1e-12)
    assert worked_example(denominator=5.0) == pytest.approx([0.3, 0.2, 0.0, 0.0], abs=1e-12)
    scores = torch.tensor([4.0, 3.0, 1.0, 0.0])
    assert [w.item() for w in sparsify(list(scores), 2)] == pytest.approx([0.6, 0.4, 0.0, 0.0])
    assert sparse_weights(scores[None], 2, 3, 0.0, 0.0)[0].tolist()[0] == pytest.approx([0.6, 0.4])
    for off_by_one in (2, 4):
        assert sparse_weights(scores[None], 2, off_by_one, 0.0, 0.0)[0].tolist()[0] != pytest.approx(
            [0.6, 0.4]
        )


def test_the_released_threshold_s_margin_is_a_ten_millionth(engine: str) -> None:
    """Three scores above the fourth by 5, 3 and 0 ten-millionths: with the margin 4 : 2 is left of 5 : 3."""
    scores = [5e-7, 3e-7, 0.0, -1.0]
    model = make(hidden=2, k_att=9, k_top=3, scorer=1, threshold="released")
    with torch.no_grad():
        model.w1_DH[:] = torch.tensor([[1.0, 0.0]])
        model.w2_DH.zero_()
        model.w3_D[:] = 1.0
    memories = torch.zeros(4, 1, 2, dtype=torch.float64)
    memories[:, 0, 0] = torch.tensor([5e-7, 3e-7, 0.0, -20.0], dtype=torch.float64)  # tanh: scores
    zero = torch.zeros(1, 2, dtype=torch.float64)
    seen = model.inspect(torch.zeros(1, 1, dtype=torch.int64), State(zero, zero, memories))
    want = [2 / 3, 1 / 3, 0.0, 0.0]
    assert seen.weights_BTN.flatten().tolist() == pytest.approx(want, abs=1e-6)
    by_twin = sparsify(list(torch.tensor(scores, dtype=torch.float64)), 3, "released")
    assert [w.item() for w in by_twin] == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("retrieval", ["sparse", "none"])
def test_weights_start_uniform_at_their_scales(retrieval: str) -> None:
    """Every matrix at a scale of its own, so that exchanged ones show."""
    torch.manual_seed(0)
    scales = {"input_scale": 10.0, "recurrent_scale": 0.5, "scorer_scale": 3.0, "w3_scale": 7.0}
    model = SAB(10, 40, hidden=64, scorer=200, retrieval=retrieval, **scales)
    want = {"weight_input_GF": 10.0, "weight_hidden_GH": 0.5, "w1_DH": 3.0, "w2_DH": 3.0, "w3_D": 7.0}
    for name, scale in (want | {"v1_CH": 1.0, "v2_CH": 1.0}).items():
        starts_at(getattr(model, name), scale / 8, spread=0.1)
    assert not model.bias_G.any()
    assert not model.b_C.any()


def test_gate_biases_start_where_the_gates_are() -> None:
    """Gates in the order output, input, forget, candidate; torch's LSTM: input, forget, candidate, output."""
    ours = SAB(10, 9, hidden=2, forget_bias=3.0, output_bias=-2.0)
    assert ours.bias_G.tolist() == [-2.0, -2.0, 0.0, 0.0, 3.0, 3.0, 0.0, 0.0]
    torch_s = LSTM(10, 9, hidden=2, forget_bias=3.0, output_bias=-2.0).lstm
    assert torch_s.bias_ih_l0.tolist() == [0.0, 0.0, 3.0, 3.0, 0.0, 0.0, -2.0, -2.0]


@pytest.mark.parametrize("std", [0.01, 0.5])
@pytest.mark.parametrize("score", ["additive", "separable"])
def test_the_scorer_starts_normal_where_a_deviation_is_given(score: str, std: float) -> None:
    torch.manual_seed(0)
    model = SAB(10, 9, hidden=200, score=score, scorer_std=std)
    for name, weight in model.scorer_weights().items():
        assert weight.std().item() == pytest.approx(std, rel=0.15), name
        assert weight.abs().max().item() > 2 * std, "a normal distribution, not a uniform one"
    assert model.weight_hidden_GH.abs().max().item() <= 200**-0.5


def test_few_rules_on_a_worked_example() -> None:
    scores = list(torch.tensor([3.0, -1.0, 1.0]))
    want = {
        "skip": [0.0, 0.0, 0.0],
        "lowest": [4 / 6, 0.0, 2 / 6],
        "uniform": [1 / 3] * 3,
        "threshold_zero": [0.75, 0.0, 0.25],
        "raw": [3.0, -1.0, 1.0],
    }
    for rule, weights in want.items():
        assert [w.item() for w in few(scores, rule)] == pytest.approx(weights)


def test_one_memory_read_gives_the_scorer_no_gradient(engine: str) -> None:
    model = make(k_top=1)
    model(torch.randint(0, 5, (2, 11))).square().sum().backward()
    for name in ("w1_DH", "w2_DH", "w3_D"):
        gradient = getattr(model, name).grad
        assert gradient.abs().max() == 0, name
    model = make(k_top=2)
    model(torch.randint(0, 5, (2, 11))).square().sum().backward()
    assert model.w1_DH.grad is not None
    assert model.w1_DH.grad.abs().max() > 0


def test_the_query_matters_as_written_and_not_as_released(engine: str) -> None:
    inputs = torch.randint(0, 5, (2, 11), generator=torch.Generator().manual_seed(0))
    for score, name, differs in (("additive", "w2_DH", True), ("separable", "w_2H", False)):
        model = make(score=score, k_top=2, retrieval="sparse")
        with torch.no_grad():
            before = model.inspect(inputs).weights_BTN
            parameter = getattr(model, name)
            (parameter if score == "additive" else parameter[: model.hidden]).mul_(-2.0)
            after = model.inspect(inputs).weights_BTN
        assert (error(after, before) > 1e-3) == differs, score


def test_memories_come_from_the_same_sequence_unless_shuffled(engine: str) -> None:
    inputs = torch.randint(0, 5, (3, 11), generator=torch.Generator().manual_seed(0))
    other = inputs.clone()
    other[1] = (other[1] + 1) % 5
    # Shuffled, sequence 0 reads 1, 2 reads 0, and so the change gets around.
    for retrieval, touched in (("sparse", [1]), ("shuffled", [0, 1, 2])):
        model = make(retrieval=retrieval, k_top=2)
        with torch.no_grad():
            change = (model(inputs) - model(other)).abs().amax((1, 2))
        assert (change > 0).nonzero().flatten().tolist() == touched


def test_truncation_detaches_the_cell_too(engine: str) -> None:
    model = make(retrieval="none", k_trunc=1)
    inputs = torch.randint(0, 5, (2, 4), generator=torch.Generator().manual_seed(0))
    model(inputs)[:, -1].sum().backward()
    got = model.weight_input_GF.grad
    assert got is not None
    with torch.no_grad():
        state = model.unroll(inputs[:, :-1])[1]
    model.zero_grad()
    model(inputs[:, -1:], state)[:, -1].sum().backward()
    assert model.weight_input_GF.grad is not None
    assert error(got, model.weight_input_GF.grad) < 1e-12
    # With h detached and c not, the gradient would be that of a cell whose hidden state is a constant.
    h_only = torch.zeros_like(got)
    x = model.encode(inputs)
    c = torch.zeros(2, 4, dtype=torch.float64)
    h = torch.zeros(2, 4, dtype=torch.float64)
    for x_BF in x:
        gates = x_BF @ model.weight_input_GF.t() + model.bias_G + h.detach() @ model.weight_hidden_GH.t()
        output, input_, forget, candidate = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + input_.sigmoid() * candidate.tanh()
        h = output.sigmoid() * c.tanh()
    (h_only,) = torch.autograd.grad((h @ model.v1_CH.t()).sum(), model.weight_input_GF)
    assert error(got, h_only) > 1e-3


def test_a_read_passes_its_weight_times_the_identity(engine: str) -> None:
    # d h_t / d m_i on the direct path is alpha_i I; memories that are not read get nothing.
    model = make(k_top=2, k_trunc=1, mental_updates="none")
    inputs = torch.randint(0, 5, (2, 9), generator=torch.Generator().manual_seed(0))
    x_TBF = model.encode(inputs)
    state = model.start(2)
    with torch.no_grad():
        scan = make_scan(model.options, model.weights(), 2)
        memory = scan.memory(state, 9)
        trace = scan.forward(x_TBF, state, memory)
        weights_BN = model.inspect(inputs).weights_BTN[:, -1]
        direction = torch.randn(2, 4, dtype=torch.float64)
        outer = torch.zeros_like(trace.reads_TBH)
        outer[-1] = direction
        gradients = StoreGradients(memory, False)
        scan.reverse(0, trace, memory, outer, torch.zeros_like(outer), gradients)
    want_NBH = weights_BN.t()[:, :, None] * direction
    assert error(gradients.value_NBH, want_NBH) < 1e-12
    assert (gradients.value_NBH[weights_BN.t() == 0] == 0).all()
    assert 0 < (weights_BN > 0).sum() < weights_BN.numel()


@pytest.mark.parametrize("mental_updates", ["full", "none", "own_step"])
def test_how_far_a_memory_is_trained(engine: str, mental_updates: str) -> None:
    # The loss sees step 10 only, which reaches steps 6 to 10 by itself (k_trunc = 5) and step 5 through the
    # memory it reads; from there, full updates reach steps 1 to 5.
    model = make(mental_updates=mental_updates, k_trunc=5, k_att=5, k_top=2, few_memories="uniform")
    inputs = torch.tensor([[0, 0, 1, 1, 2, 3, 3, 3, 3, 3]])
    model(inputs)[:, -1].sum().backward()
    assert model.weight_input_GF.grad is not None
    touched = (model.weight_input_GF.grad.abs().amax(0) > 0).nonzero().flatten().tolist()
    assert touched == {"full": [0, 1, 2, 3], "none": [3], "own_step": [2, 3]}[mental_updates]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k_trunc", 3),
        ("k_top", 2),
        ("k_att", 2),
        ("truncation", "sliding"),
        ("mental_updates", "none"),
        ("mental_updates", "own_step"),
        ("retrieval", "dense"),
        ("retrieval", "none"),
        ("retrieval", "shuffled"),
        *(("few_memories", rule) for rule in FEW if rule != "skip"),
        ("score", "separable"),
        ("threshold", "released"),
        ("first_memory", "zero"),
        ("memory", "output"),
        ("denominator", 0.1),
        ("input", "scalar"),
        ("recurrent_scale", 0.5),
        ("scorer_scale", 0.5),
        ("w3_scale", 0.5),
        ("scorer_std", 0.01),
        ("forget_bias", 1.0),
        ("output_bias", -1.0),
    ],
)
def test_every_switch_changes_something(name: str, value: Any) -> None:
    inputs = torch.randint(0, 5, (2, 14), generator=torch.Generator().manual_seed(0))
    gradients = []
    for options in ({}, {name: value}):
        torch.manual_seed(0)
        model = SAB(inputs=5, outputs=3, hidden=4, **{"k_top": 3, **options}).double()
        model(inputs).square().sum().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    one, other = gradients
    common = [n for n in one if n in other and one[n].shape == other[n].shape]
    assert len(common) < len(one) or max(error(other[n], one[n]) for n in common) > 1e-7


def test_streaming_equals_training_and_halves_equal_the_whole(engine: str) -> None:
    for options in (
        {},
        {"retrieval": "dense"},
        {"retrieval": "shuffled", "k_att": 3},
        {"score": "separable"},
    ):
        model = make(k_top=2, **options)
        inputs = torch.randint(0, 5, (3, 150), generator=torch.Generator().manual_seed(0))
        trained = model(inputs)
        with torch.no_grad():
            assert error(model(inputs), trained) < 1e-9
            first, state = model.unroll(inputs[:, :70])
            second, final = model.unroll(inputs[:, 70:], state)
        assert error(torch.cat([first, second], dim=1), trained) < 1e-9
        assert final.step == 150
        assert len(final.memories_NBH) == 150 // model.options.k_att


def test_streaming_keeps_memories_only() -> None:
    model = make(retrieval="none", k_att=1000)
    with torch.no_grad():
        _, _, memory, trace = model.stream(
            model.encode(torch.zeros(1, 1000, dtype=torch.int64)), model.start(1)
        )
    assert memory.values_NBH.shape[0] == 1
    assert trace.gates_TBG.shape[0] <= 64


def test_inspection(engine: str) -> None:
    model = make(k_top=2, k_att=2)
    inputs = torch.randint(0, 5, (3, 20), generator=torch.Generator().manual_seed(0))
    seen = model.inspect(inputs)
    assert seen.stored_N.tolist() == list(range(1, 20, 2))
    assert seen.weights_BTN.shape == (3, 20, 10)
    for t in range(20):
        memories = (seen.stored_N < t).sum()
        read = seen.weights_BTN[:, t]
        assert (read[:, memories:] == 0).all()
        if memories > 2:
            torch.testing.assert_close(read.sum(1), torch.ones(3, dtype=torch.float64))
            assert ((read > 0).sum(1) <= 2).all()
    with torch.no_grad():
        assert error(seen.logits_BTC, model(inputs)) < 1e-12
    assert seen.hidden_norm_BT.shape == seen.saturation_BT.shape == (3, 20)


def test_engines_agree_in_float32_and_repeat_bit_for_bit() -> None:
    inputs = torch.randint(0, 5, (8, 40), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = SAB(inputs=5, outputs=3, hidden=16, forget_bias=1.0)
    results = []
    for plain in (False, False, True):
        model.zero_grad()
        if plain:
            with kernels.disabled():
                logits = model(inputs)
                logits.square().sum().backward()
        else:
            logits = model(inputs)
            logits.square().sum().backward()
        results.append([logits.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[1], strict=True))
    assert max(error(a, b) for a, b in zip(results[0], results[2], strict=True)) < 1e-3


@pytest.mark.parametrize("retrieval", ["sparse", "dense", "shuffled", "none"])
def test_fused_steps_do_not_depend_on_the_number_of_threads(retrieval: str) -> None:
    if kernels.status() != "fused":
        pytest.skip("no C++ compiler here")
    torch.manual_seed(0)
    model = SAB(inputs=5, outputs=3, hidden=13, scorer=7, k_top=2, retrieval=retrieval, few_memories="lowest")
    x_TBF = model.encode(torch.randint(0, 5, (9, 30), generator=torch.Generator().manual_seed(0)))
    outer_TBH = torch.randn(30, 9, 13, generator=torch.Generator().manual_seed(1))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 16):
            torch.set_num_threads(threads)
            with torch.no_grad():
                scan = make_scan(model.options, model.weights(), 9)
                memory = scan.memory(model.start(9), 30)
                trace = scan.forward(x_TBF, model.start(9), memory)
                gradients = StoreGradients(memory, False)
                hidden_TBH = trace.hidden_TBH.clone()
                scan.reverse(0, trace, memory, outer_TBH.clone(), outer_TBH.clone(), gradients)
            results.append([hidden_TBH, trace.gates_TBG, gradients.value_NBH, gradients.key_NBD])
    finally:
        torch.set_num_threads(before)
    assert results[0][1].abs().max() > 0
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], result, strict=True))


def test_fused_steps_refuse_what_they_cannot_read() -> None:
    if kernels.status() != "fused":
        pytest.skip("no C++ compiler here")
    fused = kernels.Kernels(torch.float32, {}, {"keys": torch.empty(0, 3, 4)})
    assert fused.struct.keys is None
    for tensor, message in ((torch.zeros(2, 3).t(), "contiguous"), (torch.zeros(2).double(), "type")):
        with pytest.raises(ValueError, match=message):
            fused.bind({"keys": tensor})


def test_autograd_baseline_is_the_same_function() -> None:
    model = make(k_top=2, k_att=2)
    inputs = torch.randint(0, 5, (2, 13), generator=torch.Generator().manual_seed(0))
    weights = torch.randn(2, 13, 3, dtype=torch.float64)
    gradients = []
    for function in (model, lambda x: sab_autograd(model, x)):
        model.zero_grad()
        (function(inputs) * weights).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert max(error(a, b) for a, b in zip(*gradients, strict=True)) < 1e-9


def test_without_reads_it_is_an_lstm() -> None:
    torch.manual_seed(0)
    sab = SAB(inputs=5, outputs=3, hidden=6, retrieval="none", k_trunc=None, forget_bias=1.0).double()
    lstm = LSTM(inputs=5, outputs=3, hidden=6).double()
    weights = dict(lstm.lstm.named_parameters())

    def order(tensor: Tensor) -> Tensor:
        output, input_, forget, candidate = tensor.chunk(4)
        return torch.cat([input_, forget, candidate, output])

    with torch.no_grad():
        weights["weight_ih_l0"].copy_(order(sab.weight_input_GF))
        weights["weight_hh_l0"].copy_(order(sab.weight_hidden_GH))
        weights["bias_ih_l0"].copy_(order(sab.bias_G))
        lstm.head.weight.copy_(sab.v1_CH)
        lstm.head.bias.copy_(sab.b_C)
    inputs = torch.randint(0, 5, (2, 9))
    assert error(sab(inputs), lstm(inputs)) < 1e-12
    sab(inputs).square().sum().backward()
    lstm(inputs).square().sum().backward()
    got, want = sab.weight_hidden_GH.grad, weights["weight_hh_l0"].grad
    assert got is not None
    assert want is not None
    assert error(order(got), want) < 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden"),
        ({"k_top": 0}, "k_top"),
        ({"k_att": 1.5}, "k_att"),
        ({"k_trunc": 0}, "k_trunc"),
        ({"retrieval": "some"}, "retrieval is one of sparse"),
        ({"few_memories": "zero"}, "few_memories"),
        ({"denominator": -1.0}, "denominator"),
        ({"threshold": "released", "k_top": 1}, "at least 2"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SAB(**{"inputs": 5, "outputs": 3, **options})


def test_impossible_inputs_and_a_second_backward_pass() -> None:
    model = make()
    with pytest.raises(ValueError, match="at least one sequence"):
        model(torch.zeros(2, 0, dtype=torch.int64))
    loss = model(torch.zeros(2, 9, dtype=torch.int64)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        loss.backward()


@pytest.mark.skipif(not kernels.library(), reason="needs a C++ compiler")
def test_a_record_says_what_ran() -> None:
    assert make().implementation == make(memory="output").implementation == "fused"
    assert make(score="separable").implementation == "plain"


def test_without_a_compiler_there_is_a_plain_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent/compiler")
    kernels.library.cache_clear()
    try:
        assert kernels.status().startswith("plain")
        assert make().implementation == "plain"
        agrees(make(k_top=2))
    finally:
        monkeypatch.undo()
        kernels.library.cache_clear()
