"""String copy: say a string backwards after a delimiter (arXiv:2606.06479, Sec. 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StringCopy:
    """A string of `string` symbols 1 … `symbols`, the delimiter 0, then the string reversed.

    While it answers, the model reads the answers that it should have given so far (x_t = y_{t−1}); the paper
    does not say what it reads there. Sequences have 2 · `string` tokens.

        position  0  1  2  3  4  5
        inputs    3  1  2  0  2  1
        targets   ·  ·  ·  2  1  3

    Raises:
        ValueError: no symbol or an empty string.
    """

    string: int
    symbols: int

    def __post_init__(self) -> None:
        if self.string < 1 or self.symbols < 1:
            raise ValueError("StringCopy needs string ≥ 1 and symbols ≥ 1.")

    @property
    def length(self) -> int:
        """Tokens in a sequence."""
        return 2 * self.string

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return `inputs`, `targets` (int64), `mask` (bool: has an answer), each (size, length), on CPU."""
        text = torch.randint(1, self.symbols + 1, (size, self.string), generator=generator)
        delimiter = torch.zeros(size, 1, dtype=torch.int64)
        x = torch.cat((text, delimiter, text.flip(1)[:, :-1]), 1)
        y = torch.cat((torch.zeros_like(text), text.flip(1)), 1)
        mask = (torch.arange(self.length) >= self.string).expand_as(x).clone()
        return {"inputs": x, "targets": y, "mask": mask}
