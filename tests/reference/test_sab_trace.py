"""What the trace of SAB says, against the model's own parts and autograd."""

import math

import pytest
import torch

from reference.algorithms.bptt import sequence_loss
from reference.measure import accuracy
from reference.measure.sab_trace import sab_trace, share, tanh_and_gradient, validation
from reference.models.sab import SAB, kernels
from reference.naive import sab as naive
from reference.tasks.copy import Copy

TASK = Copy(4, symbols=3)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def model(**options) -> SAB:
    torch.manual_seed(0)
    return SAB(10, 9, hidden=6, **{"k_top": 2, "k_trunc": 3, **options}).double()


def test_what_is_read_and_where_it_comes_from():
    own = model(k_att=2)
    found = sab_trace(own, TASK, seeded(), sequences=5)
    inputs = TASK.sample(5, seeded())["inputs"]
    seen = own.inspect(inputs)
    assert len(found["hidden_norm"]) == TASK.length
    assert found["hidden_norm"] == pytest.approx(seen.hidden_norm_BT.mean(0).tolist())
    assert found["hidden_norm_last"] == found["hidden_norm"][-1]
    assert found["gate_saturation_mean"] == pytest.approx(float(seen.saturation_BT.mean()))
    rows = seen.weights_BTN[:, -3:].mean(0)
    assert torch.tensor(found["map"]).shape == (3, 5)
    torch.testing.assert_close(torch.tensor(found["map"], dtype=torch.float64), rows)
    # k_att = 2 stores the states of the steps 1, 3, ...: one of them is a symbol's.
    assert found["early_weight"] == pytest.approx(float(rows[:, 0].sum() / rows.sum()))


def test_where_nothing_is_read_there_is_no_weight_and_no_gradient():
    found = sab_trace(model(retrieval="none"), TASK, seeded(), sequences=5)
    assert found["early_weight"] == found["early_gradient"] == 0
    assert max(found["memory_gradient"]) == max(found["read_norm"]) == 0


def test_attention_on_the_symbols_alone_is_seen():
    """With k_att of one symbol's length and one memory read, all the weight is there."""
    own = model(k_att=3, k_top=1, few_memories="uniform", threshold="next")
    task = Copy(1, symbols=2)
    found = sab_trace(own, task, seeded(), sequences=5)
    assert found["early_weight"] == 0, "the state stored is that of step 2, the first blank"
    own = model(k_att=2, k_top=5, few_memories="uniform")
    assert sab_trace(own, task, seeded(), sequences=5)["early_weight"] > 0.5


@pytest.mark.parametrize("fused", [True, False])
def test_the_gradient_at_memories_is_autograd_s(fused, monkeypatch):
    """The twin's memories, kept as they are made, get the same gradient through reads alone."""
    own = model()
    inputs = TASK.sample(4, seeded())["inputs"]
    targets = torch.zeros_like(inputs)
    targets[:, -3:] = inputs[:, :3]
    made: dict[int, torch.Tensor] = {}

    def read(net, out_BH, memories):
        for i, memory in enumerate(memories):
            # the read edge starts at a node of its own, so that the recurrence does not count
            if i not in made:
                made[i] = memory * 1.0
                made[i].retain_grad()
        return plain(net, out_BH, [made[i] for i in range(len(memories))])

    plain = naive.read
    monkeypatch.setattr(naive, "read", read)
    logits, (_, _, stored) = naive.sab_loop(own, inputs)
    (4 * sequence_loss(logits, targets)).backward()
    nothing = torch.zeros(4, 6, dtype=torch.float64)
    want = [made[i].grad if i in made and made[i].grad is not None else nothing for i in range(len(stored))]
    if fused:
        _, got = tanh_and_gradient(own, inputs, targets)
    else:
        with kernels.disabled():
            _, got = tanh_and_gradient(own, inputs, targets)
    torch.testing.assert_close(got, torch.stack([g.norm(dim=1).mean() for g in want]))
    assert got.max() > 0


def test_saturation_is_seen():
    calm, loud = model(), model()
    with torch.no_grad():
        loud.bias_G[3 * 6 :] = 5.0
    mean = [sab_trace(m, TASK, seeded(), sequences=5)["tanh_saturation_mean"] for m in (calm, loud)]
    assert mean[0] == 0
    assert mean[1] >= 0.5  # all candidates are


def test_the_norms_are_those_of_the_twin_s_states_step_by_step():
    own = model()
    inputs = TASK.sample(5, seeded())["inputs"]
    _, (_, _, stored) = naive.sab_loop(own, inputs)  # k_att = 1: the state of every step
    found = sab_trace(own, TASK, seeded(), sequences=5)
    assert found["hidden_norm"] == pytest.approx([h.detach().norm(dim=1).mean().item() for h in stored])
    assert len(set(found["hidden_norm"])) == TASK.length


def test_the_early_share_of_the_gradient_is_that_of_the_symbols_states():
    found = sab_trace(model(), TASK, seeded(), sequences=5)
    gradient = found["memory_gradient"]
    assert 0 < found["early_gradient"] < 1
    assert found["early_gradient"] == pytest.approx(sum(gradient[:3]) / sum(gradient))


def constant(gates: float, forget: float, candidate: float) -> SAB:
    """A model without weights: its gates are those of the biases at every step; nothing is read."""
    own = model(retrieval="none")
    with torch.no_grad():
        for p in own.parameters():
            p.zero_()
        own.bias_G[: 2 * 6] = gates  # input and output
        own.bias_G[2 * 6 : 3 * 6] = forget
        own.bias_G[3 * 6 :] = candidate
    return own


def test_gates_saturate_without_the_candidates_and_candidates_without_the_gates():
    for gates, candidate, saturated in ((5.0, 0.0, 1.0), (0.0, 5.0, 0.0), (-5.0, 5.0, 1.0)):
        found = sab_trace(constant(gates, gates, candidate), TASK, seeded(), sequences=2)
        assert found["gate_saturation"] == pytest.approx([saturated] * TASK.length)
    found = sab_trace(constant(5.0, 0.0, 0.0), TASK, seeded(), sequences=2)
    assert found["gate_saturation_mean"] == pytest.approx(2 / 3)


def test_tanh_saturates_in_candidates_from_the_start_and_in_cells_when_they_have_grown():
    found = sab_trace(constant(5.0, 0.0, 5.0), TASK, seeded(), sequences=2)
    cell, cells = 0.0, []
    for _ in range(TASK.length):
        cell = 0.5 * cell + math.tanh(5.0) / (1 + math.exp(-5.0))
        cells.append(math.tanh(cell) > 0.95)
    assert cells[:4] == [False, False, False, True]
    assert found["tanh_saturation"] == pytest.approx([1.0 if grown else 0.5 for grown in cells])


def test_gates_count_as_saturated_below_a_twentieth_and_above_nineteen() -> None:
    """sigmoid(2.5) is 0.924, sigmoid(3.5) is 0.971; on the other side 0.076 and 0.029."""
    for bias, saturated in ((2.5, 0.0), (3.5, 1.0), (-2.5, 0.0), (-3.5, 1.0)):
        found = sab_trace(constant(bias, bias, 0.0), TASK, seeded(), sequences=2)
        assert found["gate_saturation"] == pytest.approx([saturated] * TASK.length), bias


def test_tanh_counts_as_saturated_beyond_nineteen_twentieths_on_both_sides() -> None:
    """tanh(1.7) is 0.935, tanh(1.9) is 0.956; the forget gate is shut, so that the cell is half of that."""
    for candidate, saturated in ((1.7, 0.0), (1.9, 0.5), (-1.7, 0.0), (-1.9, 0.5), (-5.0, 0.5)):
        found = sab_trace(constant(0.0, -9.0, candidate), TASK, seeded(), sequences=2)
        assert found["tanh_saturation"] == pytest.approx([saturated] * TASK.length), candidate


def test_last_is_last_and_mean_is_mean_where_both_change_with_the_steps() -> None:
    """A memory that is there from the start is forgotten: the norm falls; what saturates does so at first."""
    own = constant(5.0, 1.0, 0.0)
    with torch.no_grad():
        own.weight_input_GF[:] = 0.0
        own.weight_input_GF[18:, 1:] = 5.0  # candidates, at symbols alone: blanks (feature 0) stay quiet
        own.weight_input_GF[:12, 0] = -5.0  # input and output gates half open in blanks
    found = sab_trace(own, TASK, seeded(), sequences=2)
    norm, gates, tanh = (found[name] for name in ("hidden_norm", "gate_saturation", "tanh_saturation"))
    for name, values in (("hidden_norm", norm), ("gate_saturation", gates), ("tanh_saturation", tanh)):
        assert max(values) > values[-1] >= min(values), name
        assert found[f"{name}_mean"] == pytest.approx(sum(values) / len(values)), name
    assert found["hidden_norm_last"] == norm[-1] < found["hidden_norm_mean"] < max(norm)


def test_the_output_s_norm_is_taken_before_the_read() -> None:
    own = model()
    seen = own.inspect(TASK.sample(5, seeded())["inputs"])
    read = seen.read_norm_BT > 1e-6
    assert read.any()
    assert (~read).any()
    torch.testing.assert_close(seen.output_norm_BT[~read], seen.hidden_norm_BT[~read])
    differ = (seen.output_norm_BT - seen.hidden_norm_BT).abs() > 1e-9
    assert differ[read].all()
    assert (seen.hidden_norm_BT <= seen.output_norm_BT + seen.read_norm_BT + 1e-12).all()


def test_a_first_memory_of_zeros_is_no_symbol_s() -> None:
    """It is read like the others and belongs to no step."""
    own = model(first_memory="zero", few_memories="uniform", k_top=40)
    found = sab_trace(own, TASK, seeded(), sequences=5)
    rows = torch.tensor(found["map"])
    assert own.inspect(TASK.sample(5, seeded())["inputs"]).stored_N[:2].tolist() == [-1, 0]
    assert (rows[:, 0] > 0).all()
    assert found["early_weight"] == pytest.approx(float(rows[:, 1:4].sum() / rows.sum()))
    gradient = found["memory_gradient"]
    assert found["early_gradient"] == pytest.approx(sum(gradient[1:4]) / sum(gradient))


def test_the_loss_traced_asks_for_the_symbols_at_the_end_and_blanks_before() -> None:
    own = model()
    inputs = TASK.sample(5, seeded())["inputs"]
    found = sab_trace(own, TASK, seeded(), sequences=5)
    want = {}
    for name, targets in (
        ("task's", TASK.sample(5, seeded())["targets"]),
        ("blank", torch.zeros_like(inputs)),
    ):
        _, gradient = tanh_and_gradient(own, inputs, targets)
        want[name] = gradient.tolist()
    assert found["memory_gradient"] == pytest.approx(want["task's"])
    assert found["memory_gradient"] != pytest.approx(want["blank"])


def test_validation_s_two_are_the_weight_and_norm_of_the_last_steps():
    own = model()
    found = validation(own, TASK, seeded(), sequences=10, traced=6)
    generator = seeded()
    accuracy.validation(own, TASK, generator, sequences=10)
    seen = own.inspect(TASK.sample(6, generator)["inputs"])
    weights_SN = seen.weights_BTN.sum(0)[-3:]  # memory n is the state of step n
    assert 0 < found["early_weight"] < 1
    assert found["early_weight"] == pytest.approx(float(weights_SN[:, :3].sum() / weights_SN.sum()))
    assert found["hidden_norm_last"] == pytest.approx(float(seen.hidden_norm_BT[:, -1].mean()))


def test_validation_keeps_accuracy_s_numbers_and_adds_two():
    own = model()
    found = validation(own, TASK, seeded(), sequences=10, traced=6)
    plain = accuracy.validation(own, TASK, seeded(), sequences=10)
    assert {name: found[name] for name in plain} == plain
    assert set(found) - set(plain) == {"early_weight", "hidden_norm_last"}
    assert 0 <= found["early_weight"] <= 1
    assert found["hidden_norm_last"] > 0


def test_the_trace_leaves_the_parameters_gradients_alone():
    own = model()
    sab_trace(own, TASK, seeded(), sequences=5)
    assert all(p.grad is None for p in own.parameters())


def test_a_share_of_nothing_is_zero():
    assert share(torch.zeros(2), torch.zeros(3)) == 0
    assert share(torch.ones(2), torch.ones(8)) == 0.25
