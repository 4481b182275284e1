"""Sum modulo m and recall by key in one sequence (arXiv:2510.00258, Sec. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BOS, MODULO, RECALL = 0, 1, 2  # values follow from 3 on, then keys
QUESTIONS = ("modulo", "recall")


@dataclass(frozen=True)
class ModuloRecall:
    """`<bos> k1 v1 … kn vn <modulo> m <recall> kj vj`: m = Σ v mod `modulus`, vj the value of the key kj.

    Values are drawn from 0 … `modulus` − 1, keys without repetition out of `keys`; kj is one of those
    present. n is drawn from `shortest` … `longest`, once a batch, so that nothing is padded. m and vj are to
    be predicted: each from the tokens before it. The last token of the sequence is left out (it is an answer
    only), so a batch has 2 n + 5 positions. For A 7 B 8 C 4, modulus 10, asked for B:

        position  0  1  2  3  4  5  6     7    8    9      10
        inputs  <bos> A  7  B  8  C  4 <modulo> 9 <recall>  B
        answer    ·  ·  ·  ·  ·  ·  ·     9    ·    ·       8

    With one of the `questions` only, the other one's two tokens are missing.

    Raises:
        ValueError: sizes that are no integers, a modulus below 2, lengths that are no range from 1 on, fewer
            keys than pairs, or questions other than modulo, recall or both in this order.
    """

    modulus: int = 10
    keys: int = 128
    longest: int = 25
    shortest: int = 1
    questions: Sequence[str] = QUESTIONS

    def __post_init__(self) -> None:
        one = isinstance(self.questions, str)
        object.__setattr__(self, "questions", (self.questions,) if one else tuple(self.questions))
        for name in ("modulus", "keys", "longest", "shortest"):
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"ModuloRecall needs an integer for {name}, not {getattr(self, name)!r}.")
        if self.modulus < 2:
            raise ValueError(f"ModuloRecall needs a modulus of at least 2, not {self.modulus}.")
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"ModuloRecall needs 1 ≤ shortest ≤ longest, not {self.shortest}, {self.longest}."
            )
        if self.keys < self.longest:
            raise ValueError(f"{self.longest} pairs need as many keys, all different; there are {self.keys}.")
        if self.questions not in (QUESTIONS, QUESTIONS[:1], QUESTIONS[1:]):
            raise ValueError(f"ModuloRecall asks modulo, recall or both, not {', '.join(self.questions)}.")

    @property
    def vocabulary(self) -> int:
        """Different tokens: three markers, values, keys."""
        return 3 + self.modulus + self.keys

    def at(self, pairs: int) -> ModuloRecall:
        """Return the same task with exactly so many pairs."""
        return replace(self, shortest=pairs, longest=pairs)

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw `size` sequences of one length, on the CPU; Q is 1 or 2, the number of questions.

        Returns:
            inputs (size, T); positions (Q): where the next token is an answer, in rising order; targets
            (size, Q): those tokens; asked (size): j, the number of the pair asked for, from 0. All int64.
        """
        pairs = int(torch.randint(self.shortest, self.longest + 1, (), generator=generator))
        keys = torch.rand(size, self.keys, generator=generator).argsort(1)[:, :pairs] + 3 + self.modulus
        number = torch.randint(self.modulus, (size, pairs), generator=generator)
        asked = torch.randint(pairs, (size, 1), generator=generator)
        values = number + 3
        total = number.sum(1, keepdim=True) % self.modulus + 3
        key, value = keys.gather(1, asked), values.gather(1, asked)
        prefix = torch.stack((keys, values), 2).flatten(1)
        bos, modulo, recall = (torch.full((size, 1), token) for token in (BOS, MODULO, RECALL))
        tails = {"modulo": (modulo, total), "recall": (recall, key, value)}
        tokens = [bos, prefix]
        positions, targets = [], []
        for question in self.questions:
            tokens += tails[question]
            positions.append(sum(t.shape[1] for t in tokens) - 2)
            targets.append(tails[question][-1])
        return {
            "inputs": torch.cat(tokens, 1)[:, :-1],
            "positions": torch.tensor(positions),
            "targets": torch.cat(targets, 1),
            "asked": asked[:, 0],
        }
