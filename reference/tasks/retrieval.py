"""Retrieval: remember the token after an identifier; labels may be noisy (arXiv:2606.06479, Sec. 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Retrieval:
    """Sequences of `length` tokens; token 0 is the identifier, 1 … `symbols` are fillers and needles.

    The identifier stands at a uniformly drawn place, the token after it is the needle, and the identifier
    stands again at the end, where the answer is the needle. With probability `noise` the answer is a
    uniformly drawn symbol instead. Only the last position has an answer.

        position  0  1  2  3  4  5
        inputs    3  0  2  1  3  0     the needle is 2
        targets   ·  ·  ·  ·  ·  2

    Raises:
        ValueError: fewer than 3 tokens, no symbol, or a noise outside [0, 1].
    """

    length: int
    symbols: int
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.length < 3 or self.symbols < 1 or not 0 <= self.noise <= 1:
            raise ValueError("Retrieval needs length ≥ 3, symbols ≥ 1 and noise between 0 and 1.")

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return `inputs`, `targets` (int64), `mask` (bool: has an answer), each (size, length), on CPU."""
        x = torch.randint(1, self.symbols + 1, (size, self.length), generator=generator)
        place = torch.randint(self.length - 2, (size, 1), generator=generator)
        needle = x.gather(1, place + 1)
        x.scatter_(1, place, 0)
        x[:, -1] = 0
        noisy = torch.rand(size, 1, generator=generator) < self.noise
        other = torch.randint(1, self.symbols + 1, (size, 1), generator=generator)
        y = torch.zeros_like(x)
        y[:, -1:] = torch.where(noisy, other, needle)
        mask = torch.zeros_like(x, dtype=torch.bool)
        mask[:, -1] = True
        return {"inputs": x, "targets": y, "mask": mask}
