import pytest
import torch

from reference.tasks.retrieval import Retrieval


def draw(task, size, seed=0):
    return task.sample(size, torch.Generator().manual_seed(seed))


def test_the_answer_is_the_token_after_the_identifier():
    batch = draw(Retrieval(length=9, symbols=5), 200)
    places = set()
    for x, y, mask in zip(batch["inputs"], batch["targets"], batch["mask"], strict=True):
        assert mask.tolist() == [False] * 8 + [True]
        identifiers = (x == 0).nonzero().flatten().tolist()
        assert len(identifiers) == 2 and identifiers[1] == 8
        assert y[-1] == x[identifiers[0] + 1] != 0
        assert not y[:-1].any()
        places.add(identifiers[0])
    assert places == set(range(7))
    assert set(batch["inputs"].flatten().tolist()) == {0, 1, 2, 3, 4, 5}
    assert set(batch["targets"][:, -1].tolist()) == {1, 2, 3, 4, 5}


def test_noise_replaces_the_share_of_answers_that_it_says():
    batch = draw(Retrieval(length=5, symbols=4, noise=0.4), 20_000)
    place = (batch["inputs"] == 0).int().argmax(1, keepdim=True)
    wrong = (batch["inputs"].gather(1, place + 1)[:, 0] != batch["targets"][:, -1]).double().mean()
    assert wrong == pytest.approx(0.4 * 3 / 4, abs=0.015)
    shares = batch["targets"][:, -1].bincount() / 20_000
    assert shares.tolist() == pytest.approx([0, 1 / 4, 1 / 4, 1 / 4, 1 / 4], abs=0.015)


def test_the_generator_decides_everything():
    task = Retrieval(length=6, symbols=3, noise=0.5)
    one, again, other = draw(task, 50), draw(task, 50), draw(task, 50, seed=1)
    assert all(torch.equal(one[k], again[k]) for k in one)
    assert not torch.equal(one["inputs"], other["inputs"])


@pytest.mark.parametrize("wrong", [{"length": 2}, {"symbols": 0}, {"noise": 1.5}])
def test_impossible_arguments(wrong):
    with pytest.raises(ValueError, match="Retrieval needs"):
        Retrieval(**{"length": 4, "symbols": 2, **wrong})
