"""The adding task and the error of its answer."""

import pytest
import torch
from torch import Tensor, nn

from reference.measure.last_error import last_error
from reference.tasks.adding import Adding


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("length", [2, 7, 40])
def test_two_marks_one_in_each_half_and_their_sum(length):
    data = Adding(length).sample(200, seeded())
    numbers, marks = data["inputs"].unbind(2)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert set(marks.unique().tolist()) <= {0.0, 1.0}
    half = length // 2
    assert (marks[:, :half].sum(1) == 1).all()
    assert (marks[:, half:].sum(1) == 1).all()
    assert marks.sum(0).min() > 0, "every step is marked some time"
    assert data["targets"].shape == (200, length, 1)
    for t in (0, length - 1):
        torch.testing.assert_close(data["targets"][:, t, 0], (numbers * marks).sum(1))


def test_the_same_generator_gives_the_same_batch_and_another_a_different_one():
    task = Adding(9)
    first, again = (task.sample(3, seeded()) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = task.sample(3, torch.Generator().manual_seed(1))
    assert not torch.equal(first["inputs"], other["inputs"])


def test_always_answering_one_costs_a_sixth():
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nothing = nn.Parameter(torch.zeros(()))

        def forward(self, inputs: Tensor) -> Tensor:
            out = torch.full((*inputs.shape[:2], 1), 9.0)
            out[:, -1] = 1.0
            return out

    model = One().train()
    found = last_error(model, Adding(6), seeded(), sequences=20_000, batch=3000)
    assert found["mse"] == found["loss"] == pytest.approx(1 / 6, rel=0.03)
    assert model.training


def test_every_sequence_counts_once():
    class Zero(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return torch.zeros(*inputs.shape[:2], 1)

    task = Adding(6)
    generator = seeded()
    batches = [task.sample(size, generator)["targets"][:, -1, 0] for size in (4, 4, 2)]
    want = float(torch.cat(batches).double().square().mean())
    assert last_error(Zero(1, 1), task, seeded(), sequences=10, batch=4)["mse"] == pytest.approx(want)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="length >= 2"):
        Adding(1)
    with pytest.raises(ValueError, match="at least one sequence"):
        Adding(4).sample(0, seeded())
    with pytest.raises(ValueError, match="sequences and batch"):
        last_error(nn.Linear(1, 1), Adding(4), seeded(), sequences=0)
