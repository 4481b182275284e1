import pytest
import torch
from torch import Tensor, nn

from reference.measure.accuracy import last_symbols, validation
from reference.tasks.copy import Copy


class Answer(nn.Module):
    """Repeats the first `right` symbols of ten correctly and says blank for the others."""

    def __init__(self, right: int) -> None:
        super().__init__()
        self.right = right
        self.unused = nn.Parameter(torch.zeros(()))
        self.batches: list[int] = []
        self.seen: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        assert not self.training
        self.batches.append(len(inputs))
        self.seen.append(inputs)
        answer = torch.zeros_like(inputs)
        answer[:, -10 : inputs.shape[1] - 10 + self.right] = inputs[:, : self.right]
        return 20.0 * nn.functional.one_hot(answer, 9).float()


@pytest.mark.parametrize("right", [0, 7, 10])
def test_accuracy_is_symbol_wise(right: int) -> None:
    model = Answer(right)
    generator = torch.Generator().manual_seed(0)
    got = last_symbols(model, Copy(5), generator, delays=[5, 30], sequences=10, batch=4)
    assert got == {"accuracy@5": pytest.approx(right / 10), "accuracy@30": pytest.approx(right / 10)}
    assert model.batches == [4, 4, 2] * 2
    assert model.seen[0].shape[1] == 25
    assert model.seen[-1].shape[1] == 50
    assert model.training


def test_validation_returns_loss_and_accuracy() -> None:
    generator = torch.Generator().manual_seed(0)
    model = Answer(10)
    got = validation(model, Copy(5), generator, sequences=6, batch=4)
    assert model.seen[0].shape[1] == 25, "at the delay that is trained"
    assert got["accuracy"] == 1.0
    assert got["loss"] == pytest.approx(0.0, abs=1e-6)
    wrong = validation(Answer(5), Copy(5), generator, sequences=6, batch=4, last=10)
    assert wrong["accuracy"] == 0.5
    assert wrong["loss"] == pytest.approx(10.0, rel=1e-3)  # half the answers are 20 nats off


def test_the_generator_decides_what_is_seen() -> None:
    first, second, third = Answer(1), Answer(1), Answer(1)
    for model, seed in ((first, 0), (second, 0), (third, 1)):
        last_symbols(model, Copy(5), torch.Generator().manual_seed(seed), delays=[5], sequences=2)
    assert torch.equal(first.seen[0], second.seen[0])
    assert not torch.equal(first.seen[0], third.seen[0])


def test_impossible_values() -> None:
    with pytest.raises(ValueError, match="delay"):
        last_symbols(Answer(1), Copy(5), torch.Generator(), delays=[])
    with pytest.raises(ValueError, match="sequences and batch"):
        last_symbols(Answer(1), Copy(5), torch.Generator(), delays=[5], sequences=0)
    with pytest.raises(ValueError, match="last >= 1"):
        validation(Answer(1), Copy(5), torch.Generator(), last=0)
