"""The copy task of Sparse Attentive Backtracking (arXiv:1809.03702, Sec. 4.1), laid out as in its code."""

import torch
from torch import Tensor


class Copy:
    """Remember `symbols` random symbols over `delay` steps, then repeat them.

    A sequence has T + 2 S steps, with T = `delay` and S = `symbols`: S symbols drawn uniformly from
    1..`alphabet`, T - 1 blanks (0), one marker (`alphabet` + 1) that asks for the answer, S blanks. The
    target is blank, except over the last S steps, which repeat the symbols. Chance on these is 1 /
    `alphabet`.

    Example, delay 3, two symbols 5 and 2, alphabet 8:

        inputs   5 2 0 0 9 0 0
        targets  0 0 0 0 0 5 2

    Raises ValueError if a length or the alphabet is below 1.
    """

    def __init__(self, delay: int, symbols: int = 10, alphabet: int = 8) -> None:
        for name, value in (("delay", delay), ("symbols", symbols), ("alphabet", alphabet)):
            if value < 1:
                raise ValueError(f"Copy needs {name} >= 1, not {value}.")
        self.delay, self.symbols, self.alphabet = delay, symbols, alphabet

    @property
    def length(self) -> int:
        """Steps in a sequence."""
        return self.delay + 2 * self.symbols

    @property
    def inputs(self) -> int:
        """Different input symbols: blank, alphabet, marker."""
        return self.alphabet + 2

    @property
    def outputs(self) -> int:
        """Different target symbols: blank and alphabet."""
        return self.alphabet + 1

    def at(self, delay: int) -> "Copy":
        """Return the same task at another delay."""
        return Copy(delay, self.symbols, self.alphabet)

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw `size` sequences: "inputs" and "targets", int64 of shape [size, delay + 2 * symbols], on the
        CPU.

        Raises ValueError if `size` is below 1.
        """
        if size < 1:
            raise ValueError(f"A batch needs at least one sequence, not {size}.")
        symbols_BS = torch.randint(1, self.alphabet + 1, (size, self.symbols), generator=generator)
        inputs_BT = torch.zeros(size, self.length, dtype=torch.int64)
        inputs_BT[:, : self.symbols] = symbols_BS
        inputs_BT[:, self.symbols + self.delay - 1] = self.alphabet + 1
        targets_BT = torch.zeros_like(inputs_BT)
        targets_BT[:, -self.symbols :] = symbols_BS
        return {"inputs": inputs_BT, "targets": targets_BT}
