"""The adding task of Sparse Attentive Backtracking (arXiv:1809.03702, Sec. 4.1, Table 2)."""

import torch
from torch import Tensor


class Adding:
    """Add the two marked of `length` numbers.

    Inputs have two features a step: a number, uniform on [0, 1), and a mark, 1 at two steps and 0 elsewhere:
    one of the first ⌊T/2⌋ steps, one of the rest. The target of every step is the sum of the marked numbers;
    the loss looks at the last step. Always answering 1 has a mean squared error of 1/6.

    Example, length 5:

        numbers   0.3 0.9 0.5 0.1 0.2
        marks     0   1   0   1   0
        targets   1.0 1.0 1.0 1.0 1.0

    Raises ValueError if the length is below 2.
    """

    def __init__(self, length: int) -> None:
        if length < 2:
            raise ValueError(f"Adding needs length >= 2, not {length}.")
        self.length = length

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw `size` sequences: "inputs", float32 [size, T, 2], and "targets", float32 [size, T, 1], on the
        CPU.

        Raises ValueError if `size` is below 1.
        """
        if size < 1:
            raise ValueError(f"A batch needs at least one sequence, not {size}.")
        half = self.length // 2
        numbers_BT = torch.rand(size, self.length, generator=generator)
        first_B = torch.randint(half, (size,), generator=generator)
        second_B = torch.randint(half, self.length, (size,), generator=generator)
        marks_BT = torch.zeros(size, self.length)
        marks_BT[torch.arange(size), first_B] = 1.0
        marks_BT[torch.arange(size), second_B] = 1.0
        sum_B11 = (numbers_BT * marks_BT).sum(1)[:, None, None]
        return {
            "inputs": torch.stack([numbers_BT, marks_BT], dim=2),
            "targets": sum_B11.expand(-1, self.length, -1).contiguous(),
        }
