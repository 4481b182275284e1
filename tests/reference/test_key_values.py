import pytest
import torch

from reference.tasks.key_values import KeyValues


def test_the_answer_is_the_value_of_the_asked_key():
    task = KeyValues(pairs=3, key=2, value=3, symbols=2)
    batch = task.sample(80, torch.Generator().manual_seed(0))
    assert batch["inputs"].shape == (80, task.length) == (80, 20)
    asked_for = set()
    for x, y, mask in zip(*(batch[k].tolist() for k in ("inputs", "targets", "mask")), strict=True):
        pairs = [x[i : i + 5] for i in range(0, 15, 5)]
        table = {tuple(p[:2]): p[2:] for p in pairs}
        assert len(table) == 3 and all(1 <= token <= 2 for p in pairs for token in p)
        assert x[15] == 0
        key = tuple(x[16:18])
        asked_for.add([tuple(p[:2]) for p in pairs].index(key))
        assert y[17:] == table[key] and x[18:] == table[key][:2]
        assert mask == [False] * 17 + [True] * 3
    assert asked_for == {0, 1, 2}
    pairs = batch["inputs"][:, :15].view(80, 3, 5)
    assert {tuple(key) for key in pairs[..., :2].flatten(0, 1).tolist()} == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert set(pairs[..., 2:].flatten().tolist()) == {1, 2}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pairs": 5}, "possible keys"),
        ({"key": 20}, "possible keys"),
        ({"value": 0}, "at least 1"),
    ],
)
def test_impossible_arguments(wrong, message):
    with pytest.raises(ValueError, match=message):
        KeyValues(**{"pairs": 2, "key": 2, "value": 1, "symbols": 2, **wrong})
