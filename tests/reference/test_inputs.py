"""How symbols become features, typed by hand."""

import pytest
import torch

from reference.models.inputs import features, width


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("one_hot", [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]),
        ("symbols", [[0, 0, 0], [1, 0, 0], [0, 0, 1]]),  # symbol 0, the blank, is silent
        ("scalar", [[0], [1], [3]]),
    ],
)
def test_symbols_become_these_features(kind: str, rows: list[list[int]]) -> None:
    found = features(torch.tensor([0, 1, 3]), kind, 4, torch.float64)
    assert found.tolist() == rows
    assert found.dtype == torch.float64
    assert width(kind, 4) == len(rows[0])


def test_real_features_pass_as_they_are() -> None:
    values = torch.tensor([[0.5, -1.0]])
    assert features(values, "real", 2, torch.float64).tolist() == values.tolist()
    assert width("real", 2) == 2
