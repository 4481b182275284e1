import pytest
import torch

from reference.tasks.modular import ModularArithmetic


def test_one_rule_explains_examples_and_answer():
    task = ModularArithmetic(modulus=7, examples=5, slopes=3, offsets=2)
    batch = task.sample(60, torch.Generator().manual_seed(0))
    assert batch["inputs"].shape == (60, task.length) == (60, 11)
    used = set()
    for x, y, mask in zip(*(batch[k].tolist() for k in ("inputs", "targets", "mask")), strict=True):
        seen = [*zip(x[:-1:2], x[1::2], strict=True), (x[-1], y[-1])]
        rules = {
            (a, b)
            for a in (1, 2, 3)
            for b in (0, 1)
            if all((a * number + b) % 7 == image for number, image in seen)
        }
        assert rules
        used |= rules
        assert mask == [False] * 10 + [True]
    assert used == {(a, b) for a in (1, 2, 3) for b in (0, 1)}
    assert set(batch["inputs"][:, ::2].flatten().tolist()) == {0, 1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("wrong", [{"modulus": 1}, {"examples": 0}, {"slopes": 0}, {"offsets": 0}])
def test_impossible_arguments(wrong):
    with pytest.raises(ValueError, match="ModularArithmetic needs"):
        ModularArithmetic(**{"modulus": 5, "examples": 2, "slopes": 2, "offsets": 2, **wrong})
