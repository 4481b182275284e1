"""Keys and values of several tokens, one query at the end (arXiv:2606.06479, Sec. 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MOST_KEYS = 65_536


@dataclass(frozen=True)
class KeyValues:
    """`pairs` pairs of a key and a value, the marker 0, one of the keys; the answer is its value.

    Keys have `key` tokens, values `value` tokens, out of 1 … `symbols`; the keys of a sequence differ. While
    it answers, the model reads the answers so far (x_t = y_{t−1}). With two pairs, key 2 and value 2:

        position  0  1  2  3  4  5  6  7  8  9 10 11
        inputs    1  3  2  2  3  3  1  2  0  1  3  2
        targets   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  2  2

    Raises:
        ValueError: an argument below 1, more pairs than keys, or more than 65,536 possible keys.
    """

    pairs: int
    key: int
    value: int
    symbols: int

    def __post_init__(self) -> None:
        if min(self.pairs, self.key, self.value, self.symbols) < 1:
            raise ValueError("KeyValues needs pairs, key, value and symbols of at least 1.")
        if not self.pairs <= self.symbols**self.key <= _MOST_KEYS:
            raise ValueError(
                f"{self.symbols}^{self.key} possible keys: at least {self.pairs} (one a pair) and at most "
                f"{_MOST_KEYS:,} are needed."
            )

    @property
    def length(self) -> int:
        """Tokens in a sequence."""
        return (self.pairs + 1) * (self.key + self.value)

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return `inputs`, `targets` (int64), `mask` (bool: has an answer), each (size, length), on CPU."""
        number = torch.rand(size, self.symbols**self.key, generator=generator).argsort(1)[:, : self.pairs]
        power = self.symbols ** torch.arange(self.key - 1, -1, -1)
        keys = number[..., None] // power % self.symbols + 1  # (size, pairs, key), all different
        values = torch.randint(1, self.symbols + 1, (size, self.pairs, self.value), generator=generator)
        asked = torch.randint(self.pairs, (size, 1, 1), generator=generator)
        key = keys.gather(1, asked.expand(-1, 1, self.key))[:, 0]
        value = values.gather(1, asked.expand(-1, 1, self.value))[:, 0]
        marker = torch.zeros(size, 1, dtype=torch.int64)
        x = torch.cat((torch.cat((keys, values), 2).flatten(1), marker, key, value[:, :-1]), 1)
        y = torch.zeros_like(x)
        y[:, -self.value :] = value
        mask = (torch.arange(self.length) >= self.length - self.value).expand_as(x).clone()
        return {"inputs": x, "targets": y, "mask": mask}
