import pytest
import torch

from reference.tasks.string_copy import StringCopy


def test_the_string_comes_back_reversed():
    task = StringCopy(string=4, symbols=6)
    batch = task.sample(30, torch.Generator().manual_seed(0))
    assert batch["inputs"].shape == (30, task.length) == (30, 8)
    for x, y, mask in zip(*(batch[k].tolist() for k in ("inputs", "targets", "mask")), strict=True):
        text = x[:4]
        assert x[4] == 0 and 0 not in text
        assert y == [0] * 4 + text[::-1]
        assert x[5:] == text[::-1][:3]  # it reads what it should have answered so far
        assert mask == [False] * 4 + [True] * 4
    assert set(batch["inputs"].flatten().tolist()) == {0, 1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("wrong", [{"string": 0}, {"symbols": 0}])
def test_impossible_arguments(wrong):
    with pytest.raises(ValueError, match="StringCopy needs"):
        StringCopy(**{"string": 2, "symbols": 2, **wrong})
