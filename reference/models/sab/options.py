# ruff: noqa: N815  # fields carry shape suffixes
"""What SAB is asked to do, what it carries along, and what its backward pass needs.

Suffixes: T steps, B batch, F input features, H hidden units, G = 4 H gates, N memories, K memories read and
threshold, D scorer width, C outputs, R gradient streams. A leading L is a chunk of steps.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from reference.models.sab.scores import Scorer


@dataclass(frozen=True)
class Options:
    """How SAB reads and what it differentiates; `SAB` documents and checks the values."""

    k_trunc: int | None = 5
    k_top: int = 5
    k_att: int = 1
    truncation: str = "grid"
    mental_updates: str = "full"
    retrieval: str = "sparse"
    score: str = "additive"
    threshold: str = "next"
    few_memories: str = "skip"
    memory: str = "hidden"
    denominator: float = 0.0

    @property
    def ranks(self) -> int:
        """Memories that carry gradient: those read and, as written, one more at the threshold."""
        return self.k_top + 1 if self.threshold == "next" else self.k_top

    @property
    def sparse(self) -> bool:
        """Whether at most k_top memories are read a step."""
        return self.retrieval in ("sparse", "shuffled")

    @property
    def own(self) -> bool:
        """Whether a memory's gradient reaches the step that produced it and nothing before."""
        return self.mental_updates == "own_step"

    @property
    def streams(self) -> int:
        """Gradients kept apart: one a remaining step of a sliding window, one for an own step."""
        budgets = self.k_trunc if self.truncation == "sliding" and self.k_trunc is not None else 1
        return budgets + self.own

    def truncates(self, step: int) -> bool:
        """Whether the grid detaches h and c before this step (counted from 0)."""
        grid = self.truncation == "grid" or self.k_trunc == 1  # where both readings agree
        return grid and self.k_trunc is not None and step % self.k_trunc == 0

    def stores(self, step: int) -> bool:
        """Whether the state of this step (counted from 0) becomes a memory: k_att divides t = step + 1."""
        return (step + 1) % self.k_att == 0


@dataclass
class State:
    """What SAB carries from one step to the next; gradients end here.

    `hidden_BH` and `cell_BH` are the LSTM's state, `memories_NBH` all that was stored, `step` the steps taken
    so far.
    """

    hidden_BH: Tensor
    cell_BH: Tensor
    memories_NBH: Tensor
    step: int = 0


class Memory:
    """Stored states and their keys, appended one a step; `shift` hands each sequence its neighbour's
    memories.
    """

    def __init__(self, start_NBH: Tensor, capacity: int, scorer: Scorer, shift: bool) -> None:
        n, b, h = start_NBH.shape
        self.scorer, self.shift, self.count = scorer, shift, 0
        self.values_NBH = start_NBH.new_empty(n + capacity, b, h)
        self.keys_NBD = start_NBH.new_empty(n + capacity, b, scorer.width)
        for value_BH in start_NBH:
            self.append(value_BH)

    def append(self, value_BH: Tensor) -> None:
        """Store a state and its key."""
        stored_BH = self.values_NBH[self.count]
        stored_BH.copy_(value_BH.roll(-1, 0) if self.shift else value_BH)
        self.scorer.key(stored_BH, self.keys_NBD[self.count])
        self.count += 1


@dataclass
class Trace:
    """What a forward pass keeps for its backward pass."""

    gates_TBG: Tensor
    cells_TBH: Tensor  # T + 1 entries, the first before step 0
    hidden_TBH: Tensor  # likewise
    outputs_TBH: Tensor  # LSTM output before the read
    reads_TBH: Tensor
    queries_TBD: Tensor
    rows_TBK: Tensor  # flat row of each memory in the store
    weights_TBK: Tensor
    inverse_TB1: Tensor  # 1 / sum of the differences to the threshold; 0 where nothing is read
    ranked_TBK: Tensor  # best scores, one more than K: shows ties
    few: dict[int, Tensor] = field(default_factory=dict)  # weights' Jacobian where memories are few
    dense: dict[int, Tensor] = field(default_factory=dict)  # weights_NB where all memories are read
    counts: list[int] = field(default_factory=list)  # memories before each step


def empty_trace(like: Tensor, steps: int, batch: int, hidden: int, width: int, k: int) -> Trace:
    """Return a trace with room for `steps` steps; what a step without a read leaves alone is zero."""
    return Trace(
        gates_TBG=like.new_empty(steps, batch, 4 * hidden),
        cells_TBH=like.new_empty(steps + 1, batch, hidden),
        hidden_TBH=like.new_empty(steps + 1, batch, hidden),
        outputs_TBH=like.new_empty(steps, batch, hidden),
        reads_TBH=like.new_zeros(steps, batch, hidden),
        queries_TBD=like.new_zeros(steps, batch, width),
        rows_TBK=torch.zeros(steps, batch, k, dtype=torch.int64, device=like.device),
        weights_TBK=like.new_zeros(steps, batch, k),
        inverse_TB1=like.new_zeros(steps, batch, 1),
        ranked_TBK=like.new_full((steps, batch, k + 1), float("-inf")),
    )
