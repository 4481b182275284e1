import pytest
import torch

from reference.tasks.stack import Stack


def test_pops_report_the_top_and_bounds_hold():
    batch = Stack(length=40, symbols=3, depth=4).sample(60, torch.Generator().manual_seed(0))
    heights = set()
    for x, y, mask in zip(*(batch[k].tolist() for k in ("inputs", "targets", "mask")), strict=True):
        held = []
        for token, answer, asked in zip(x, y, mask, strict=True):
            assert asked == (token == 0)
            if token:
                held.append(token)
                assert answer == 0
            else:
                assert answer == held.pop()
            heights.add(len(held))
    assert heights == {0, 1, 2, 3, 4}


def test_a_fair_coin_decides_between_the_bounds():
    batch = Stack(length=3, symbols=2, depth=3).sample(4000, torch.Generator().manual_seed(0))
    assert batch["mask"][:, 0].sum() == 0  # an empty stack is pushed to
    assert batch["mask"][:, 1].double().mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("wrong", ["length", "symbols", "depth"])
def test_impossible_arguments(wrong):
    with pytest.raises(ValueError, match="Stack needs"):
        Stack(**{"length": 4, "symbols": 2, "depth": 2, wrong: 0})
