"""Stack: non-zero tokens are pushed, 0 pops and asks what was popped (arXiv:2606.06479, Sec. 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Stack:
    """Sequences of `length` tokens over a stack of at most `depth` symbols out of 1 … `symbols`.

    An empty stack is pushed to, a full one popped from; otherwise a fair coin decides. Only pops have an
    answer.

        position  0  1  2  3  4  5
        inputs    2  3  0  1  0  0
        targets   ·  ·  3  ·  1  2

    Raises:
        ValueError: no token, no symbol or no room on the stack.
    """

    length: int
    symbols: int
    depth: int

    def __post_init__(self) -> None:
        if min(self.length, self.symbols, self.depth) < 1:
            raise ValueError("Stack needs length ≥ 1, symbols ≥ 1 and depth ≥ 1.")

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return `inputs`, `targets` (int64), `mask` (bool: has an answer), each (size, length), on CPU."""
        symbols = torch.randint(1, self.symbols + 1, (size, self.length), generator=generator)
        coins = torch.rand(size, self.length, generator=generator) < 0.5
        pops = torch.empty(size, self.length, dtype=torch.bool)
        y = torch.zeros(size, self.length, dtype=torch.int64)
        held = torch.zeros(size, self.depth + 1, dtype=torch.int64)  # the last cell is never read
        height = torch.zeros(size, 1, dtype=torch.int64)
        for t in range(self.length):  # over time only; the batch goes in one piece
            pop = ((coins[:, t, None]) | (height == self.depth)) & (height > 0)
            top = held.gather(1, (height - 1).clamp(min=0))
            y[:, t : t + 1] = torch.where(pop, top, 0)
            held.scatter_(1, torch.where(pop, self.depth, height), symbols[:, t, None])
            height += torch.where(pop, -1, 1)
            pops[:, t : t + 1] = pop
        return {"inputs": torch.where(pops, 0, symbols), "targets": y, "mask": pops}
