"""Modular arithmetic in context: y = (a·x + b) mod V from examples (arXiv:2606.06479, Sec. 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ModularArithmetic:
    """`examples` pairs (x, y) of one hidden rule y = (a·x + b) mod `modulus`, then one x that asks for its y.

    a is drawn from 1 … `slopes` and b from 0 … `offsets` − 1, both once a sequence; every x from 0 … modulus
    − 1. Only the last position has an answer. With a = 2, b = 1, modulus 5:

        position  0  1  2  3  4
        inputs    3  2  0  1  4     3 → 2, 0 → 1, and 4?
        targets   ·  ·  ·  ·  4

    Raises:
        ValueError: an argument below 1, or a modulus below 2.
    """

    modulus: int
    examples: int
    slopes: int
    offsets: int

    def __post_init__(self) -> None:
        if min(self.examples, self.slopes, self.offsets) < 1 or self.modulus < 2:
            raise ValueError("ModularArithmetic needs examples, slopes, offsets ≥ 1 and modulus ≥ 2.")

    @property
    def length(self) -> int:
        """Tokens in a sequence."""
        return 2 * self.examples + 1

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return `inputs`, `targets` (int64), `mask` (bool: has an answer), each (size, length), on CPU."""
        slope = torch.randint(1, self.slopes + 1, (size, 1), generator=generator)
        offset = torch.randint(self.offsets, (size, 1), generator=generator)
        number = torch.randint(self.modulus, (size, self.examples + 1), generator=generator)
        image = (slope * number + offset) % self.modulus
        x = torch.stack((number, image), 2).flatten(1)[:, :-1]
        y = torch.zeros_like(x)
        y[:, -1] = image[:, -1]
        mask = torch.zeros_like(x, dtype=torch.bool)
        mask[:, -1] = True
        return {"inputs": x, "targets": y, "mask": mask}
