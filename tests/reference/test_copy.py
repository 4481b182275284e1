import pytest
import torch

from reference.tasks.copy import Copy


def test_worked_layout() -> None:
    batch = Copy(delay=3, symbols=2).sample(5, torch.Generator().manual_seed(0))
    inputs, targets = batch["inputs"], batch["targets"]
    assert inputs.shape == targets.shape == (5, 7)
    assert inputs.dtype == torch.int64
    assert (inputs[:, 2:4] == 0).all()
    assert (inputs[:, 4] == 9).all()
    assert (inputs[:, 5:] == 0).all()
    assert (targets[:, :5] == 0).all()
    assert torch.equal(targets[:, 5:], inputs[:, :2])


def test_length_is_that_of_the_released_code() -> None:
    task = Copy(delay=300)
    assert task.length == 320
    assert task.sample(1, torch.Generator())["inputs"].shape == (1, 320)
    assert (task.inputs, task.outputs) == (10, 9)


def test_symbols_are_uniform_and_the_generator_decides() -> None:
    draw = [Copy(1).sample(2000, torch.Generator().manual_seed(s))["inputs"][:, :10] for s in (0, 0, 1)]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    counts = torch.bincount(draw[0].flatten(), minlength=9)
    assert counts[0] == 0
    # 20,000 draws over 8 symbols: 2500 each, standard deviation 47
    assert (counts[1:] - 2500).abs().max() < 5 * 47


def test_at_changes_the_delay_only() -> None:
    task = Copy(delay=3, symbols=2, alphabet=5).at(7)
    assert (task.delay, task.symbols, task.alphabet, task.length) == (7, 2, 5, 11)


@pytest.mark.parametrize("options", [{"delay": 0}, {"delay": 1, "symbols": 0}, {"delay": 1, "alphabet": 0}])
def test_impossible_values(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=">= 1"):
        Copy(**options)
    with pytest.raises(ValueError, match="at least one"):
        Copy(1).sample(0, torch.Generator())
