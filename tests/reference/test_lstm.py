import pytest
import torch

from reference.algorithms.bptt import Bptt, sequence_loss
from reference.algorithms.truncation import TruncatedBptt
from reference.models.lstm import LSTM
from reference.naive.tbptt import tbptt_loop
from reference.tasks.copy import Copy


def gradients(model: LSTM) -> list[torch.Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("k", [None, 1, 3, 5, 100])
@pytest.mark.parametrize(("batch", "last"), [(1, None), (3, 2)])
def test_truncation_against_its_twin(k: int | None, batch: int, last: int | None) -> None:
    torch.manual_seed(0)
    task = Copy(delay=4, symbols=3, alphabet=2)
    model = LSTM(task.inputs, task.outputs, hidden=5, forget_bias=1.0).double()
    data = task.sample(batch, torch.Generator().manual_seed(0))
    algorithm = Bptt(last=last) if k is None else TruncatedBptt(k, last=last)
    algorithm.begin(model)
    metrics = algorithm.backward(model, data)
    got = gradients(model)
    model.zero_grad()
    loss = sequence_loss(tbptt_loop(model, data["inputs"], k), data["targets"], last=last)
    loss.backward()
    assert metrics["loss"].shape == ()
    assert not metrics["loss"].requires_grad
    assert metrics["loss"].item() == pytest.approx(loss.item(), rel=1e-12)
    for a, b in zip(got, gradients(model), strict=True):
        assert (a - b).norm() <= 1e-9 * b.norm().clamp_min(1e-12)


def test_truncation_matters_and_carries_the_state() -> None:
    torch.manual_seed(0)
    task = Copy(delay=4, symbols=3, alphabet=2)
    model = LSTM(task.inputs, task.outputs, hidden=5).double()
    data = task.sample(3, torch.Generator().manual_seed(0))
    results = []
    for algorithm in (Bptt(), TruncatedBptt(2)):
        model.zero_grad()
        results.append((algorithm.backward(model, data)["loss"], gradients(model)))
    assert results[0][0].item() == pytest.approx(results[1][0].item(), rel=1e-12)
    assert any((a - b).norm() > 1e-3 * b.norm() for a, b in zip(results[0][1], results[1][1], strict=True))


def test_mean_squared_error() -> None:
    model = LSTM(inputs=2, outputs=1, hidden=3, input="real")
    batch = {"inputs": torch.randn(2, 5, 2), "targets": torch.randn(2, 5, 1)}
    loss = Bptt(loss="mse", last=1).backward(model, batch)["loss"]
    want = (model(batch["inputs"])[:, -1] - batch["targets"][:, -1]).square().mean()
    assert loss.item() == pytest.approx(want.item())


def test_inputs_as_one_number() -> None:
    model = LSTM(inputs=10, outputs=9, hidden=3, input="scalar")
    assert model.lstm.input_size == 1
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 9)


@pytest.mark.parametrize(("input_scale", "recurrent_scale"), [(1.0, 1.0), (10.0, 0.5)])
def test_weights_start_uniform_at_their_scales(input_scale: float, recurrent_scale: float) -> None:
    torch.manual_seed(0)
    model = LSTM(10, 9, hidden=64, input_scale=input_scale, recurrent_scale=recurrent_scale)
    starts_at(model.lstm.weight_ih_l0, input_scale / 8)
    starts_at(model.lstm.weight_hh_l0, recurrent_scale / 8)
    starts_at(model.head.weight, 1 / 8)
    assert not any(p.any() for name, p in model.named_parameters() if "bias" in name)


def starts_at(weight: torch.Tensor, limit: float, spread: float = 0.05) -> None:
    """Assert that a matrix is spread uniformly over +-limit, its deviation within a share `spread`."""
    assert 0.97 * limit < weight.abs().max().item() <= limit * (1 + 1e-6)
    assert weight.std().item() == pytest.approx(limit / 3**0.5, rel=spread)


def test_impossible_values() -> None:
    with pytest.raises(ValueError, match="hidden"):
        LSTM(1, 1, hidden=0)
    with pytest.raises(ValueError, match="one_hot"):
        LSTM(1, 1, input="symbol")
    with pytest.raises(ValueError, match="k >= 1"):
        TruncatedBptt(0)
    with pytest.raises(ValueError, match="last >= 1"):
        Bptt(last=0)
    with pytest.raises(ValueError, match="cross_entropy or mse"):
        Bptt(loss="l1")


def test_truncation_at_every_step_trains_each_step_from_a_constant_state() -> None:
    """With k = 1 neither h nor c carries gradient: the gradient is the sum over single steps."""
    torch.manual_seed(0)
    model = LSTM(inputs=5, outputs=4, hidden=3).double()
    inputs_BT = torch.randint(0, 5, (2, 6))
    targets_BT = torch.randint(0, 4, (2, 6))
    TruncatedBptt(k=1).backward(model, {"inputs": inputs_BT, "targets": targets_BT})
    truncated = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    state = None
    for t in range(6):
        logits_BTC, carried = model.unroll(inputs_BT[:, t : t + 1], state)
        loss = torch.nn.functional.cross_entropy(logits_BTC[:, 0], targets_BT[:, t]) / 6
        loss.backward()
        state = (carried[0].detach(), carried[1].detach())
    for ours, alone in zip(truncated, model.parameters(), strict=True):
        assert torch.allclose(ours, alone.grad, rtol=1e-10, atol=1e-14)
